//! Remembers the runs that began in this fold, and the keys written for them. Most lookups of the judge are for new record
//! ids and new calls. This module answers them without a lookup in the filter of every table.

use crate::index::store::{Index, checkpoints, effects, records, text_end, tool_calls};
use std::{collections::HashSet, hash::BuildHasher};

/// The indices whose lookups it answers: a run without a row of its own has no row in any of them.
const ANSWERED: [Index; 4] = [records::INDEX, tool_calls::INDEX, checkpoints::INDEX, effects::INDEX];
/// The memory of a generation, bytes: the first number divided by the number of partitions, within the two bounds. A
/// partition has two generations.
const ALL_BYTES: usize = 16 << 20;
const BYTES_MIN: usize = 64 << 10;
const BYTES_MAX: usize = 2 << 20;
/// Bytes counted for a hash, and for a run in addition to its key part: hash tables are half full.
const KEY_BYTES: usize = 18;
const RUN_BYTES: usize = 96;

type Hasher = foldhash::fast::RandomState;

/// The latest runs whose first record this fold projected, and the keys written for them since.
///
/// A run is forgotten completely or not at all. It stays in the generation in which it began, so its keys are in that
/// generation or in a younger one. A run must therefore begin before its first row is written, and only once.
#[derive(Debug)]
pub(crate) struct NewRuns {
    young: Generation,
    old: Generation,
    hasher: Hasher,
    /// The limit of a generation, bytes.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Generation {
    /// The runs' key parts. They are stored whole, because a hash could confuse two runs.
    runs: HashSet<Vec<u8>, Hasher>,
    /// Hashes of written keys. An unwritten key with the same hash is looked up in the store.
    keys: HashSet<u64, Hasher>,
    /// Bytes of both.
    bytes: usize,
}

impl NewRuns {
    /// Creates an empty set of runs for one partition of a journal of `partitions` partitions.
    pub(crate) fn for_partitions(partitions: u32) -> Self {
        let bytes_max = (ALL_BYTES / partitions.max(1) as usize).clamp(BYTES_MIN, BYTES_MAX);
        Self { young: Generation::default(), old: Generation::default(), hasher: Hasher::default(), bytes_max }
    }

    /// Records that a run begins: its own row, under this key, does not exist, so it has no row in the [`ANSWERED`] indices.
    pub(super) fn add_run(&mut self, key: &[u8]) {
        if let Some(run) = run(key)
            && !self.has_run(run)
        {
            self.young.runs.insert(run.to_vec());
            self.add_bytes(RUN_BYTES + run.len());
        }
    }

    /// Records that a row is written, even if the write is rolled back later.
    pub(super) fn add_key(&mut self, key: &[u8]) {
        if is_answered(key)
            && run(key).is_some_and(|run| self.has_run(run))
            && self.young.keys.insert(self.hasher.hash_one(key))
        {
            self.add_bytes(KEY_BYTES);
        }
    }

    /// Whether the row under this key is known to be absent, so that no lookup is needed.
    pub(super) fn is_absent(&self, key: &[u8]) -> bool {
        is_answered(key) && run(key).is_some_and(|run| self.has_run(run)) && !self.may_have(self.hasher.hash_one(key))
    }

    fn has_run(&self, run: &[u8]) -> bool {
        self.young.runs.contains(run) || self.old.runs.contains(run)
    }

    fn may_have(&self, hash: u64) -> bool {
        self.young.keys.contains(&hash) || self.old.keys.contains(&hash)
    }

    fn add_bytes(&mut self, bytes: usize) {
        self.young.bytes += bytes;
        if self.young.bytes >= self.bytes_max {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

fn is_answered(key: &[u8]) -> bool {
    ANSWERED.iter().any(|index| key.first() == Some(&index.byte))
}

/// The part of a key that names its run: its first string, in an index whose keys begin with the run.
fn run(key: &[u8]) -> Option<&[u8]> {
    key.get(2..text_end(key, 2)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Key, KeyPart, runs};
    use runlog_schemas::id::{RecordId, RunId};

    fn run_key(run: &str) -> Key {
        runs::key(RunId::new(run).expect("an id"))
    }

    fn record(run: &str, record: &str) -> Key {
        records::by_id(RunId::new(run).expect("an id"), RecordId::new(record).expect("an id"))
    }

    #[test]
    fn a_row_is_known_absent_only_in_a_run_that_began_here_and_until_it_is_written() {
        let mut new_runs = NewRuns::for_partitions(64);
        new_runs.add_run(run_key("a\0b").bytes());
        new_runs.add_key(record("a\0b", "1").bytes());
        let is_absent = |run: &str, id: &str| new_runs.is_absent(record(run, id).bytes());
        assert!(is_absent("a\0b", "2") && !is_absent("a\0b", "1"));
        assert!(!is_absent("a", "2") && !is_absent("a\0", "2") && !new_runs.is_absent(run_key("a\0b").bytes()));
    }

    #[test]
    fn a_run_is_forgotten_with_all_its_keys() {
        let mut new_runs = NewRuns::for_partitions(64);
        let before = record("old", "1");
        new_runs.add_run(run_key("old").bytes());
        new_runs.add_key(before.bytes());
        let mut written = 0;
        while new_runs.is_absent(record("old", "absent").bytes()) {
            assert!(!new_runs.is_absent(before.bytes()), "after {written} keys");
            new_runs.add_run(run_key("young").bytes());
            new_runs.add_key(record("young", &written.to_string()).bytes());
            written += 1;
        }
        let full = new_runs.bytes_max / KEY_BYTES;
        assert!((full..=2 * full).contains(&written), "{written}");
        assert!(!new_runs.is_absent(before.bytes()));
        // The run that began last is still known completely, or not at all.
        assert!(!new_runs.is_absent(record("young", "0").bytes()));
    }

    #[test]
    fn long_run_ids_use_no_more_memory() {
        let mut new_runs = NewRuns::for_partitions(1_000);
        let first = "x".repeat(1_000);
        new_runs.add_run(run_key(&first).bytes());
        for number in 0..2 * BYTES_MIN / 1_000 {
            new_runs.add_run(run_key(&format!("{number:01000}")).bytes());
        }
        assert!(!new_runs.is_absent(record(&first, "1").bytes()));
    }

    #[test]
    fn all_keys_of_the_answered_indices_begin_with_their_run() {
        for family in ANSWERED.iter().flat_map(|index| index.families) {
            assert!(matches!(family.key, [KeyPart::Run | KeyPart::Text("run_id"), ..]), "{family:?}");
        }
    }
}
