//! Runs that began under this fold, and which of their rows there are. That a record's id, or a call, is new is what is
//! asked most: without an answer from here, each such question goes to the filter of every table.

use crate::index::store::{Index, checkpoints, effects, records, tool_calls};
use std::{collections::HashSet, hash::BuildHasher};

/// The indices that are asked: a run without a row of its own has no row in any of them.
const ASKED: [Index; 4] = [records::INDEX, tool_calls::INDEX, checkpoints::INDEX, effects::INDEX];
/// Runs and keys of a generation: two of them take 3 MiB at the most.
const GENERATION_MAX: usize = 1 << 16;

type Hasher = foldhash::fast::RandomState;

/// Runs whose first record was projected here, and the keys written for them since; of the latest such runs.
///
/// A run is forgotten with all that is known of it, and not in part: it is kept in the generation in which it began, so its
/// keys are in that one or in a younger one.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewRuns {
    young: Generation,
    old: Generation,
    hasher: Hasher,
}

#[derive(Clone, Debug, Default)]
struct Generation {
    /// Their part of a key. Whole: two runs with one hash would be taken for one.
    runs: HashSet<Vec<u8>, Hasher>,
    /// Hashes of keys. With one in common, a key that was not written is looked for.
    keys: HashSet<u64, Hasher>,
}

impl NewRuns {
    /// The run of this key has no row of its own, so none in an index that is asked.
    pub(super) fn begins(&mut self, key: &[u8]) {
        if let Some(run) = run(key)
            && !self.knows(run)
        {
            self.young.runs.insert(run.to_vec());
            self.age();
        }
    }

    /// A row is written, and perhaps taken back.
    pub(super) fn writes(&mut self, key: &[u8]) {
        if is_asked(key) && run(key).is_some_and(|run| self.knows(run)) {
            self.young.keys.insert(self.hasher.hash_one(key));
            self.age();
        }
    }

    /// Whether there is no row under this key, and none has to be looked for.
    pub(super) fn lacks(&self, key: &[u8]) -> bool {
        let hash = || self.hasher.hash_one(key);
        is_asked(key) && run(key).is_some_and(|run| self.knows(run)) && !self.may_have(hash())
    }

    fn knows(&self, run: &[u8]) -> bool {
        self.young.runs.contains(run) || self.old.runs.contains(run)
    }

    fn may_have(&self, hash: u64) -> bool {
        self.young.keys.contains(&hash) || self.old.keys.contains(&hash)
    }

    fn age(&mut self) {
        if self.young.runs.len() + self.young.keys.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

fn is_asked(key: &[u8]) -> bool {
    ASKED.iter().any(|index| key.first() == Some(&index.byte))
}

/// The part of a key that names its run, in an index whose keys begin with it: up to the end of the first string.
fn run(key: &[u8]) -> Option<&[u8]> {
    let parts = key.get(2..)?;
    Some(&parts[..parts.windows(2).position(|pair| pair == [0, 1])?])
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
    fn a_row_is_missing_for_sure_only_in_a_run_that_began_here_and_only_until_it_is_written() {
        let mut new_runs = NewRuns::default();
        new_runs.begins(run_key("a\0b").bytes());
        new_runs.writes(record("a\0b", "1").bytes());
        let lacks = |run: &str, id: &str| new_runs.lacks(record(run, id).bytes());
        assert!(lacks("a\0b", "2") && !lacks("a\0b", "1"));
        assert!(!lacks("a", "2") && !lacks("a\0", "2") && !new_runs.lacks(run_key("a\0b").bytes()));
    }

    #[test]
    fn a_run_is_forgotten_with_all_that_is_known_of_it() {
        let mut new_runs = NewRuns::default();
        let before = record("old", "1");
        new_runs.begins(run_key("old").bytes());
        new_runs.writes(before.bytes());
        let mut written = 0;
        while new_runs.lacks(record("old", "absent").bytes()) {
            assert!(!new_runs.lacks(before.bytes()), "after {written} keys");
            new_runs.begins(run_key("young").bytes());
            new_runs.writes(record("young", &written.to_string()).bytes());
            written += 1;
        }
        assert!((GENERATION_MAX..=2 * GENERATION_MAX).contains(&written), "{written}");
        assert!(!new_runs.lacks(before.bytes()));
        // Of the run that began last, all is known still, or nothing.
        assert!(!new_runs.lacks(record("young", "0").bytes()));
    }

    #[test]
    fn all_keys_of_the_indices_that_are_asked_begin_with_their_run() {
        for family in ASKED.iter().flat_map(|index| index.families) {
            assert!(matches!(family.key, [KeyPart::Text("run_id"), ..]), "{family:?}");
        }
    }
}
