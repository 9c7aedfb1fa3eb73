//! The cursor of an index' change stream: per partition, the position of the last change sent.
//!
//! ```text
//!   tool_calls : 5 : 17.0.0 : 4.2.1       index, row layout, then for each partition: the next offset, the number of its
//!                                          changes already sent, and the number of skips below it
//! ```
//!
//! A stream cannot resume after a change of the row layout, or after a new skip below its position. The rows already sent
//! would differ from the index.

use crate::index::{
    error::Error,
    query,
    store::{Index, meta::LAYOUT},
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{Offset, split_log},
};
use std::{collections::BTreeMap, fmt};

/// A follower's position in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPosition {
    /// The next offset.
    pub next: Offset,
    /// The number of that offset's changes already sent.
    pub sent: u64,
    /// Skips below it.
    pub skips: u64,
}

impl StreamPosition {
    /// The position before the first change of an offset, with the known skips.
    pub fn new(next: Offset, skips: &BTreeMap<Offset, Offset>) -> Self {
        Self { next, sent: 0, skips: skips.range(..next).count() as u64 }
    }

    /// Whether no skip was added below it.
    pub fn holds(&self, skips: &BTreeMap<Offset, Offset>) -> bool {
        Self::new(self.next, skips).skips == self.skips
    }
}

/// A follower's position in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The index.
    pub index: Index,
    /// The positions, by partition.
    pub positions: Vec<StreamPosition>,
}

impl Cursor {
    /// Parses a cursor of `index`.
    ///
    /// Errors: `Usage` for other text, `Conflict` for a cursor of another row layout.
    pub fn parse(text: &str, index: Index, partitions: u32) -> Result<Self, Error> {
        let foreign = || Error::new(ErrorKind::Usage, format!("{text:?} is not a cursor of the changes of this index"));
        let mut parts = split_log(text).0.split(':');
        let name = parts.next().filter(|name| *name == index.name);
        let layout: u32 = name.and_then(|_| query::number(parts.next()?)).ok_or_else(foreign)?;
        let positions: Option<Vec<StreamPosition>> = parts.map(parse_position).collect();
        let positions = positions.filter(|positions| positions.len() == partitions as usize).ok_or_else(foreign)?;
        if layout != LAYOUT {
            let message = "the index has another row layout than when the cursor was issued; start from the beginning";
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(Self { index, positions })
    }
}

fn parse_position(text: &str) -> Option<StreamPosition> {
    let mut numbers = text.split('.');
    let next = query::number(numbers.next()?)?;
    let (sent, skips) = (query::number(numbers.next()?)?, query::number(numbers.next()?)?);
    numbers.next().is_none().then_some(StreamPosition { next, sent, skips })
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{LAYOUT}", self.index.name)?;
        self.positions.iter().try_for_each(|StreamPosition { next, sent, skips }| write!(f, ":{next}.{sent}.{skips}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::tool_calls;

    #[test]
    fn a_cursor_survives_printing_and_other_text_is_refused() {
        let at = |next, sent, skips| StreamPosition { next: Offset::new(next).unwrap(), sent, skips };
        let cursor = Cursor { index: tool_calls::INDEX, positions: vec![at(17, 0, 0), at(4, 2, 1)] };
        let text = cursor.to_string();
        assert_eq!(
            (text.as_str(), Cursor::parse(&text, tool_calls::INDEX, 2).unwrap()),
            (format!("tool_calls:{LAYOUT}:17.0.0:4.2.1").as_str(), cursor)
        );
        let kind = |text: &str| Cursor::parse(text, tool_calls::INDEX, 2).unwrap_err().kind();
        for text in [
            "",
            "tool_calls",
            "tool_calls:5",
            "runs:5:17.0.0:4.2.1",
            "tool_calls:5:17.0.0",
            "tool_calls:5:17.0.0:4.2",
            "tool_calls:5:17.0.0:4.2.1.0",
            "tool_calls:5:17.0.0:4.2.1:0.0.0",
            "tool_calls:5:+17.0.0:4.2.1",
            "tool_calls:x:17.0.0:4.2.1",
        ] {
            assert_eq!(kind(text), ErrorKind::Usage, "{text}");
        }
        assert_eq!(kind("tool_calls:0:17.0.0:4.2.1"), ErrorKind::Conflict);
    }

    #[test]
    fn only_a_skip_below_a_position_invalidates_it() {
        let by = Offset::new(9).unwrap();
        let set = |offsets: &[u64]| offsets.iter().map(|offset| (Offset::new(*offset).unwrap(), by)).collect();
        let at = StreamPosition::new(Offset::new(5).unwrap(), &set(&[2]));
        assert!(at.holds(&set(&[2])) && at.holds(&set(&[2, 5])) && !at.holds(&set(&[2, 4])) && !at.holds(&set(&[])));
    }
}
