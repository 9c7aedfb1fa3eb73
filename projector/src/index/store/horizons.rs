//! `horizons`: the records whose content retention has deleted. One row per partition: a reader of content reads it first,
//! one get per answer.
//!
//! Rows of other indices still contain the content. Answers omit it, but it is not removed yet.

use super::{error::Error, index::Index, key::Key};
use runlog_schemas::{datum, id::Offset};

/// The index.
pub const INDEX: Index = Index::new(20, "horizons", &[]);

/// The row (`Vec<HorizonRow>`); `None` if the partition has no horizon.
pub fn key() -> Key {
    Key::new(INDEX, 0)
}

/// One horizon: the content that it deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HorizonRow {
    /// Content of records with this payload type,
    pub family: String,
    /// at an offset below this one, which is the horizon's own,
    pub offset: Offset,
    /// and with a log timestamp before this time, milliseconds since the Unix epoch.
    pub until_millis: i64,
    /// Its author.
    pub who: String,
    /// Its reason.
    pub why: String,
}
datum!(HorizonRow { family, offset, until_millis, who, why });

impl HorizonRow {
    /// Whether it deletes all content that `other`, of the same family, deletes.
    fn covers(&self, other: &Self) -> bool {
        self.family == other.family && self.offset >= other.offset && self.until_millis >= other.until_millis
    }
}

/// The effective horizons: without horizons whose deletions another one covers. Ordered by family, then in log order, so
/// that the times descend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Horizons(Vec<HorizonRow>);

impl Horizons {
    /// Reads a partition's horizons. One get.
    pub fn read(get: impl FnOnce(&Key) -> Result<Option<Vec<HorizonRow>>, Error>) -> Result<Self, Error> {
        Ok(Self::new(get(&key())?))
    }

    /// The horizons of a row.
    pub fn new(row: Option<Vec<HorizonRow>>) -> Self {
        Self(row.unwrap_or_default())
    }

    /// The row.
    pub fn row(&self) -> &Vec<HorizonRow> {
        &self.0
    }

    /// Adds a horizon. Its offset must be greater than all others.
    pub fn add(&mut self, horizon: HorizonRow) {
        self.0.retain(|other| !horizon.covers(other));
        self.0.push(horizon);
        self.0.sort_by(|first, second| (&first.family, first.offset).cmp(&(&second.family, second.offset)));
    }

    /// Whether any content of records with a payload type is deleted.
    pub fn concern(&self, family: &str) -> bool {
        self.0.iter().any(|horizon| horizon.family == family)
    }

    /// The offset of the horizon that deleted a record's content. If several did, the first in the log, which has the
    /// latest time.
    pub fn dropped_by(&self, family: &str, offset: Offset, logged_at_millis: i64) -> Option<Offset> {
        let takes = |horizon: &&HorizonRow| {
            horizon.family == family && offset < horizon.offset && logged_at_millis < horizon.until_millis
        };
        self.0.iter().find(takes).map(|horizon| horizon.offset)
    }

    /// The offset of the horizon that deleted the content of a record with an unknown payload type. Horizons of all payload
    /// types apply, because the record could have any; the last in the log is returned.
    pub fn dropped_by_any(&self, offset: Offset, logged_at_millis: i64) -> Option<Offset> {
        let takes = |horizon: &&HorizonRow| offset < horizon.offset && logged_at_millis < horizon.until_millis;
        self.0.iter().filter(takes).map(|horizon| horizon.offset).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(family: &str, offset: u64, until_millis: i64) -> HorizonRow {
        let (who, why) = ("jo".to_owned(), "policy".to_owned());
        HorizonRow {
            family: family.to_owned(),
            offset: Offset::from(u32::try_from(offset).unwrap()),
            until_millis,
            who,
            why,
        }
    }

    #[test]
    fn a_horizon_stays_if_no_other_horizon_covers_its_deletions() {
        let mut all = Horizons::default();
        for (family, offset, until) in [("a", 10, 50), ("b", 20, 90), ("a", 30, 50), ("a", 40, 20), ("a", 50, 20)] {
            all.add(horizon(family, offset, until));
        }
        let rows: Vec<_> =
            all.row().iter().map(|row| (row.family.as_str(), row.offset.get(), row.until_millis)).collect();
        assert_eq!(rows, [("a", 30, 50), ("a", 50, 20), ("b", 20, 90)]);
        let taken =
            |family: &str, offset: u32, logged: i64| all.dropped_by(family, offset.into(), logged).map(Offset::get);
        assert_eq!(taken("a", 5, 10), Some(30), "the horizon with the latest time");
        assert_eq!(taken("a", 35, 10), Some(50), "after the first one");
        assert_eq!((taken("a", 35, 20), taken("a", 5, 50), taken("a", 50, 10)), (None, None, None), "exclusive");
        assert_eq!((taken("b", 19, 89), taken("c", 1, 1)), (Some(20), None));
        assert!(all.concern("b") && !all.concern("c"));
        let any = |offset: u32, logged: i64| all.dropped_by_any(offset.into(), logged).map(Offset::get);
        assert_eq!((any(5, 10), any(5, 89), any(5, 90), any(50, 10)), (Some(50), Some(20), None, None));
    }
}
