//! Digests of rows that come family by family, each family's in key order.
//!
//! An index's digest is SHA-256 over its families that have rows, by their second byte: that byte, the number of rows, and
//! SHA-256 over the rows, each as length-prefixed key and row. One changed, missing or additional row changes it.

use super::Sink;
use crate::index::store::{self, Index, Rows};
use runlog_schemas::datum::Sha256;
use sha2::Digest as _;
use std::{collections::BTreeMap, ops::ControlFlow};

/// Digests under way.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// By the two leading bytes of the keys.
    families: BTreeMap<[u8; 2], (u64, sha2::Sha256)>,
}

impl Digests {
    /// The number of rows of an index, and its digest.
    pub(crate) fn of(&self, index: Index) -> (u64, Sha256) {
        let (mut hasher, mut rows) = (sha2::Sha256::new(), 0);
        for ([_, family], (count, of_family)) in self.families.range([index.byte, 0]..=[index.byte, u8::MAX]) {
            rows += count;
            hasher.update([*family]);
            hasher.update(count.to_be_bytes());
            hasher.update(of_family.clone().finalize());
        }
        (rows, Sha256(hasher.finalize().into()))
    }
}

impl Sink for Digests {
    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), store::Error> {
        let family = [key.first(), key.get(1)].map(|byte| byte.copied().unwrap_or_default());
        let (count, hasher) = self.families.entry(family).or_default();
        *count += 1;
        for part in [key, row] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Ok(())
    }
}

/// The number of rows of an index of a store, and its digest.
pub fn digest<R: Rows>(rows: &R, index: Index) -> Result<(u64, Sha256), store::Error> {
    let mut digests = Digests::default();
    let prefix = [index.byte];
    rows.scan(&prefix, &prefix, rocksdb::Direction::Forward, &mut |key, row| {
        digests.put(key, row)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(digests.of(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Commit as _, Memory, tool_calls::INDEX};

    fn digest_of(rows: &[([u8; 3], u8)]) -> (u64, Sha256) {
        let memory = Memory::default();
        let rows = rows.iter().map(|(key, row)| (&key[..], Some(std::slice::from_ref(row))));
        memory.commit(rows).expect("it is in memory");
        digest(&memory, INDEX).expect("it is in memory")
    }

    #[test]
    fn a_changed_a_missing_and_an_additional_row_of_any_family_changes_the_digest() {
        let rows: Vec<_> = (0..12).map(|number| ([INDEX.byte, number / 3, number], number)).collect();
        let whole = digest_of(&rows);
        assert_eq!((whole.0, whole.1 == digest_of(&rows).1), (12, true));
        for at in 0..rows.len() {
            let ([index, family, number], row) = rows[at];
            let missing = [&rows[..at], &rows[at + 1..]].concat();
            for other in [
                ([index, family, number], row + 1),
                ([index, family, number + 100], row),
                ([index, family + 1, number], row),
            ] {
                let changed = [&missing[..], &[other]].concat();
                assert_ne!(digest_of(&changed).1, whole.1, "{other:?} in place of row {at}");
                let additional = [&rows[..], &[other]].concat();
                assert_ne!(digest_of(&additional).1, whole.1, "{other:?} added");
            }
            assert_ne!(digest_of(&missing).1, whole.1, "without row {at}");
        }
    }

    #[test]
    fn the_digest_is_the_same_when_families_alternate() {
        let rows: Vec<_> = (0..12).map(|number| ([INDEX.byte, number % 3, number], number)).collect();
        let mut alternating = Digests::default();
        rows.iter().for_each(|(key, row)| alternating.put(key, &[*row]).expect("it is hashed"));
        assert_eq!(alternating.of(INDEX), digest_of(&rows));
    }
}
