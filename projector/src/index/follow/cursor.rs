//! The cursor of a stream over all partitions.

use crate::index::{error::Error, query};
use runlog_log::Delivery;
use runlog_schemas::id::{Offset, PartitionId, split_log};
use std::fmt;

/// Distinguishes these cursors from a run's cursors.
const PREFIX: &str = "at:";

/// `at:`, then for each partition the next offset and, after a dot, the number of its items already sent (omitted if
/// 0), separated by commas. It does not depend on indices, so it survives their rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<PartitionProgress>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartitionProgress {
    next: Offset,
    sent: u32,
}

impl Cursor {
    /// Before the first items at these offsets.
    pub fn before(offsets: &[Offset]) -> Self {
        Self(offsets.iter().map(|next| PartitionProgress { next: *next, sent: 0 }).collect())
    }

    /// Parses a cursor of a journal of `partitions`.
    ///
    /// Errors: `Usage` for a cursor of another list or journal.
    pub fn parse(text: &str, partitions: u32) -> Result<Self, Error> {
        let partitions_text = split_log(text).0.strip_prefix(PREFIX).ok_or_else(query::foreign_cursor)?;
        let place = |text: &str| {
            let (next, sent) = text.split_once('.').unwrap_or((text, "0"));
            Some(PartitionProgress { next: query::number(next)?, sent: query::number(sent)? })
        };
        let partitions_text: Option<Vec<PartitionProgress>> = partitions_text.split(',').map(place).collect();
        partitions_text
            .filter(|partitions_text| partitions_text.len() == partitions as usize)
            .map(Self)
            .ok_or_else(query::foreign_cursor)
    }

    /// The next offset of each partition (inclusive).
    pub fn offsets(&self) -> Vec<Offset> {
        self.0.iter().map(|place| place.next).collect()
    }

    /// The number of an offset's items already sent.
    pub fn sent(&self, partition: PartitionId, offset: Offset) -> usize {
        let place = self.0.get(partition.index()).filter(|place| place.next == offset);
        place.map_or(0, |place| place.sent as usize)
    }

    /// Moves the cursor after `sent` of the `items` items of a record.
    pub fn advance(&mut self, record: &Delivery, sent: usize, items: usize) {
        let Some(place) = self.0.get_mut(record.partition.index()) else { return };
        *place = if sent < items {
            PartitionProgress { next: record.offset, sent: u32::try_from(sent).unwrap_or(u32::MAX) }
        } else {
            PartitionProgress { next: record.offset.saturating_add(1), sent: 0 }
        };
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for (nth, PartitionProgress { next, sent }) in self.0.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{next}")?;
            if *sent > 0 {
                write!(f, ".{sent}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_printing_and_other_text_is_refused() {
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
        assert_eq!((cursor.sent(1.into(), 5.into()), cursor.sent(1.into(), 6.into())), (2, 0));
        for foreign in ["", "at:", "at:7,5.2", "at:7,5.2,4,0", "at:7,5.,4", "at:7,+5,4", "7,5.2,4", "0a0b", "at:7,-1,4"]
        {
            assert!(Cursor::parse(foreign, 3).is_err(), "{foreign}");
        }
    }
}
