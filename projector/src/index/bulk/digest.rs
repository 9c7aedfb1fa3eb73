//! Computes digests of rows in any order.
//!
//! An index's digest is SHA-256 over its families that have rows, by their second byte. Of each family it covers the byte,
//! the number of rows, and a sum. The sum, modulo 2^256, is of SHA-256 over each row as length-prefixed key and row. One
//! changed, missing or additional row changes the digest. It detects damage and mistakes, but not attacks: two sets of rows
//! with the same sum can be constructed.

use super::sink::Sink;
use crate::index::store::{self, Index, Rows};
use runlog_schemas::datum::Sha256;
use std::{collections::BTreeMap, ops::ControlFlow};

/// Digests in progress.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// Row counts and sums, by the two leading bytes of the keys.
    families: BTreeMap<[u8; 2], (u64, Sum)>,
}

/// A sum of hashes, modulo 2^256: least significant part first.
#[derive(Clone, Copy, Debug, Default)]
struct Sum([u64; 4]);

impl Sum {
    fn add(&mut self, hash: [u8; 32]) {
        let mut carry = false;
        for (part, bytes) in self.0.iter_mut().zip(hash.as_chunks().0) {
            (*part, carry) = part.carrying_add(u64::from_le_bytes(*bytes), carry);
        }
    }
}

impl Digests {
    /// The number of rows of an index, and its digest.
    pub(crate) fn digest(&self, index: Index) -> (u64, Sha256) {
        let (mut hashed, mut rows) = (Vec::new(), 0);
        for ([_, family], (count, Sum(sum))) in self.families.range([index.byte, 0]..=[index.byte, u8::MAX]) {
            rows += count;
            hashed.push(*family);
            hashed.extend(count.to_be_bytes());
            hashed.extend(sum.iter().flat_map(|part| part.to_le_bytes()));
        }
        (rows, Sha256::of(&hashed))
    }
}

impl Sink for Digests {
    const IN_KEY_ORDER: bool = false;

    fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), store::Error> {
        let family = [key.first(), key.get(1)].map(|byte| byte.copied().unwrap_or_default());
        let (count, sum) = self.families.entry(family).or_default();
        *count += 1;
        sum.add(Sha256::of_prefixed([key, row]).0);
        Ok(())
    }
}

/// The number of rows of an index of a store, and its digest.
pub fn digest<R: Rows>(rows: &R, index: Index) -> Result<(u64, Sha256), store::Error> {
    Ok(digest_prefix(rows, &[index.byte])?.digest(index))
}

/// The digests of all indices of a store.
pub(crate) fn digests<R: Rows>(rows: &R) -> Result<Digests, store::Error> {
    digest_prefix(rows, &[])
}

fn digest_prefix<R: Rows>(rows: &R, prefix: &[u8]) -> Result<Digests, store::Error> {
    let mut digests = Digests::default();
    rows.scan(prefix, prefix, rocksdb::Direction::Forward, &mut |key, row| {
        digests.put(key, row)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(digests)
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
    fn the_digest_is_the_same_in_any_order() {
        let rows: Vec<_> = (0..12).map(|number| ([INDEX.byte, number % 3, number], number)).collect();
        let mut reversed = Digests::default();
        rows.iter().rev().for_each(|(key, row)| reversed.put(key, &[*row]).expect("it is hashed"));
        assert_eq!(reversed.digest(INDEX), digest_of(&rows));
    }

    #[test]
    fn a_sum_carries_from_part_to_part() {
        let mut sum = Sum([u64::MAX, u64::MAX, 7, 0]);
        let mut one = [0; 32];
        one[0] = 1;
        sum.add(one);
        assert_eq!(sum.0, [0, 0, 8, 0]);
        sum.add([u8::MAX; 32]);
        assert_eq!(sum.0, [u64::MAX, u64::MAX, 7, 0], "less one");
    }
}
