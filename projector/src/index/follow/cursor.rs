//! Where a stream over all partitions is, as its clients keep it.

use crate::index::{Error, query};
use runlog_log::Delivery;
use runlog_schemas::id::{Offset, PartitionId};
use std::fmt;

/// What every cursor of all partitions begins with, so that none is taken for a run's.
const PREFIX: &str = "at:";

/// Where a stream is in each partition: `at:`, then of each the offset that comes next, and behind a dot how many items of
/// it were given already, separated by commas. It says nothing of indices, so it holds whatever becomes of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<Place>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    next: Offset,
    given: u32,
}

impl Cursor {
    /// Before the first item of these offsets.
    pub fn before(offsets: &[Offset]) -> Self {
        Self(offsets.iter().map(|next| Place { next: *next, given: 0 }).collect())
    }

    /// Reads a cursor of a journal of `partitions`.
    ///
    /// Errors: `Usage` for one of another list or journal.
    pub fn parse(text: &str, partitions: u32) -> Result<Self, Error> {
        let places = text.strip_prefix(PREFIX).ok_or_else(query::foreign_cursor)?;
        let place = |text: &str| {
            let (next, given) = text.split_once('.').unwrap_or((text, "0"));
            Some(Place { next: query::number(next)?, given: query::number(given)? })
        };
        let places: Option<Vec<Place>> = places.split(',').map(place).collect();
        places.filter(|places| places.len() == partitions as usize).map(Self).ok_or_else(query::foreign_cursor)
    }

    /// The offset that comes next of each partition, inclusive.
    pub fn offsets(&self) -> Vec<Offset> {
        self.0.iter().map(|place| place.next).collect()
    }

    /// How many items of an offset were given already.
    pub fn given(&self, partition: PartitionId, offset: Offset) -> usize {
        let place = self.0.get(partition.index()).filter(|place| place.next == offset);
        place.map_or(0, |place| place.given as usize)
    }

    /// Goes on behind `given` items of `of` that a record has.
    pub fn advance(&mut self, record: &Delivery, given: usize, of: usize) {
        let Some(place) = self.0.get_mut(record.partition.index()) else { return };
        *place = if given < of {
            Place { next: record.offset, given: u32::try_from(given).unwrap_or(u32::MAX) }
        } else {
            Place { next: record.offset.saturating_add(1), given: 0 }
        };
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for (nth, Place { next, given }) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{next}")?;
            if *given > 0 {
                write!(f, ".{given}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_no_other_one_is() {
        let mut cursor = Cursor::before(&[7.into(), 0.into(), 3.into()]);
        let at = |partition: u16, offset: u32| Delivery {
            partition: partition.into(),
            offset: offset.into(),
            timestamp_millis: 0,
            key: Vec::new(),
            value: Vec::new(),
            headers: Vec::new(),
        };
        cursor.advance(&at(1, 5), 2, 4);
        cursor.advance(&at(2, 3), 1, 1);
        assert_eq!(cursor.to_string(), "at:7,5.2,4");
        assert_eq!(Cursor::parse("at:7,5.2,4", 3).unwrap(), cursor);
        assert_eq!((cursor.given(1.into(), 5.into()), cursor.given(1.into(), 6.into())), (2, 0));
        for foreign in ["", "at:", "at:7,5.2", "at:7,5.2,4,0", "at:7,5.,4", "at:7,+5,4", "7,5.2,4", "0a0b", "at:7,-1,4"]
        {
            assert!(Cursor::parse(foreign, 3).is_err(), "{foreign}");
        }
    }
}
