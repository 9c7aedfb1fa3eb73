//! Maps the SDK's record numbers of a run to Runlog's, and back.

use super::record;
use ::agent_sdk_core::{AgentError, JournalCursor};
use runlog_producer::JournalRecord;
use std::{
    collections::{BTreeSet, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// The numbers of one run's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// In order; both numbers grow.
    segments: Vec<Segment>,
    /// Hashes of the SDK's record ids. A collision only renames a record in the log, which is harmless.
    ids: HashSet<u64>,
    /// The SDK's numbers of records that have another id in the log.
    renamed: BTreeSet<u64>,
}

/// Records that are consecutive in both numberings.
#[derive(Clone, Copy, Debug)]
struct Segment {
    theirs: u64,
    ours: u64,
    records: u64,
}

impl Numbers {
    /// The numbers of a run's records.
    pub(super) fn from_records(records: &[JournalRecord]) -> Result<Self, AgentError> {
        let mut numbers = Self::default();
        for record in records.iter().filter(|record| record.body.record_kind.of_contract()) {
            let (number, id) = (record::number(record)?, record::id(record)?);
            if id != record.body.record_id.as_str() {
                numbers.renamed.insert(number);
            }
            numbers.add(number, record.place.journal_seq.get(), &id);
        }
        Ok(numbers)
    }

    /// The SDK's number of the last record; 0 without records.
    pub(super) fn last(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.theirs.saturating_add(last.records - 1))
    }

    /// Whether the record with this number and id has another id in the log. The SDK uses some ids twice in a run; in the log
    /// ids are unique.
    pub(super) fn renames(&mut self, number: u64, id: &str) -> bool {
        if number > self.last() && self.ids.contains(&hash(id)) {
            self.renamed.insert(number);
        }
        self.renamed.contains(&number)
    }

    /// Adds the next record.
    pub(super) fn add(&mut self, theirs: u64, ours: u64, id: &str) {
        self.ids.insert(hash(id));
        match self.segments.last_mut() {
            Some(last)
                if last.theirs.checked_add(last.records) == Some(theirs)
                    && last.ours.checked_add(last.records) == Some(ours) =>
            {
                last.records += 1;
            }
            _ => self.segments.push(Segment { theirs, ours, records: 1 }),
        }
    }

    /// Whether a record may get `number`: the successor of the run's last number, or the last number tried for any run
    /// or its successor.
    pub(super) fn is_next(&self, number: u64, tried: Option<u64>) -> bool {
        let last = self.last();
        let of_all = tried.is_some_and(|tried| number == tried || number.checked_sub(1) == Some(tried));
        number > last && (number - 1 == last || of_all)
    }

    /// Runlog's number of the last record whose SDK number is at most `theirs`; 0 if there is none.
    pub(super) fn ours(&self, theirs: u64) -> u64 {
        let end = self.segments.partition_point(|segment| segment.theirs <= theirs);
        let segment = end.checked_sub(1).and_then(|index| self.segments.get(index));
        segment.map_or(0, |segment| segment.ours + (theirs - segment.theirs).min(segment.records - 1))
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// The number in a cursor; 0 if it has none, as in the SDK.
pub(super) fn number_of_cursor(cursor: &JournalCursor) -> u64 {
    cursor.as_str().rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    fn numbers(pairs: &[(u64, u64)]) -> Numbers {
        let mut numbers = Numbers::default();
        pairs.iter().for_each(|(theirs, ours)| numbers.add(*theirs, *ours, &theirs.to_string()));
        numbers
    }

    #[test]
    fn numbers_of_a_counter_shared_by_runs_map_to_the_runs_own() {
        let numbers = numbers(&[(1, 1), (2, 2), (7, 3), (8, 4), (9, 6)]);
        let ours: Vec<u64> = (0..=11).map(|theirs| numbers.ours(theirs)).collect();
        assert_eq!(ours, [0, 1, 2, 2, 2, 2, 2, 3, 4, 6, 6, 6]);
        assert_eq!(numbers.last(), 9);
    }

    #[test]
    fn the_next_number_follows_the_run_or_the_last_attempt_and_never_decreases() {
        let run = numbers(&[(1, 1), (2, 2)]);
        let next = |tried| (0..=9).filter(|number| run.is_next(*number, tried)).collect::<Vec<_>>();
        assert_eq!(next(None), [3]);
        assert_eq!(next(Some(2)), [3]);
        assert_eq!(next(Some(3)), [3, 4]);
        assert_eq!(next(Some(7)), [3, 7, 8]);
        assert!(Numbers::default().is_next(1, None));
        assert!(!Numbers::default().is_next(0, Some(0)));
    }
}
