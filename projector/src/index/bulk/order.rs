//! The order in which a bulk fold writes rows.
//!
//! A bulk fold folds one run after another, in key order, so families whose keys begin with the run are written in key
//! order. The rows of all other families are collected and sorted.

use super::sorter::SUFFIX_BYTES;
use crate::index::store::{FAMILIES_MAX, INDICES, INDICES_MAX, KeyPart, RowFamily};

/// The sorter's prefix of a partition's own records: no escaped run id begins with it, and it sorts before all of them.
pub(super) const PARTITION: [u8; 2] = [0, 0];

/// The order in which the rows of a family are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyOrder {
    /// In key order.
    ByRun,
    /// In any order, so the fold collects and sorts the rows. The number is the length of the key's suffix for the
    /// sorter, bytes: 0, or a position of fixed length.
    Unordered(usize),
}

/// The order of every family.
#[derive(Clone, Debug)]
pub(super) struct RowOrder([[FamilyOrder; FAMILIES_MAX]; INDICES_MAX]);

impl RowOrder {
    /// Derives each family's order from its key parts.
    pub(super) fn new() -> Self {
        let mut orders = [[FamilyOrder::Unordered(0); FAMILIES_MAX]; INDICES_MAX];
        for index in INDICES {
            for family in index.families {
                orders[usize::from(index.byte)][usize::from(family.order)] = derive_order(family);
            }
        }
        Self(orders)
    }

    /// The order of a key's family.
    pub(super) fn family_order(&self, key: &[u8]) -> FamilyOrder {
        let (Some(index), Some(family)) = (key.first(), key.get(1)) else { return FamilyOrder::Unordered(0) };
        let families = self.0.get(usize::from(*index));
        families.and_then(|families| families.get(usize::from(*family))).copied().unwrap_or(FamilyOrder::Unordered(0))
    }

    /// Whether the fold of `run` may read a key: it must belong to the run. In a family that is not keyed by run, only the
    /// fold of the partition's own records may read.
    pub(super) fn is_of(&self, key: &[u8], run: &[u8]) -> bool {
        match self.family_order(key) {
            FamilyOrder::ByRun => key[2..].starts_with(run),
            FamilyOrder::Unordered(_) => run == PARTITION,
        }
    }
}

fn derive_order(family: &RowFamily) -> FamilyOrder {
    match family.key {
        [KeyPart::Run | KeyPart::Text("run_id"), ..] => FamilyOrder::ByRun,
        [.., KeyPart::U64("offset"), KeyPart::U32("index")] => FamilyOrder::Unordered(SUFFIX_BYTES),
        [.., KeyPart::U64("offset")] => FamilyOrder::Unordered(8),
        _ => FamilyOrder::Unordered(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Key, anomalies, dead_letters, events, horizons, pools, runs};
    use runlog_schemas::id::{Offset, RunId};

    #[test]
    fn a_family_is_written_in_key_order_if_its_keys_begin_with_the_run() {
        let (order, run, at) = (RowOrder::new(), RunId::new("r\0").expect("an id"), Offset::ZERO);
        let order_of = |key: Key| order.family_order(key.bytes());
        assert_eq!(order_of(runs::key(run)), FamilyOrder::ByRun);
        assert_eq!(order_of(anomalies::of_run(run, at, 0)), FamilyOrder::ByRun);
        assert_eq!(order_of(anomalies::key(at, 0)), FamilyOrder::Unordered(12));
        assert_eq!(order_of(events::key(events::of_tag("tag"), at, 0)), FamilyOrder::Unordered(12));
        assert_eq!(order_of(dead_letters::key(at)), FamilyOrder::Unordered(8));
        assert_eq!(
            (order_of(pools::member("pool", run)), order_of(horizons::key())),
            (FamilyOrder::Unordered(0), FamilyOrder::Unordered(0))
        );
    }

    #[test]
    fn runs_are_in_the_order_of_their_keys() {
        let mut runs = ["b", "a", "a\0", "ab", "a\0\u{1}", "\0", "a\u{1}", "\u{ff}"];
        runs.sort_unstable();
        let keys = runs.map(|run| Key::from_bytes(Vec::new()).text(run));
        assert!(keys.is_sorted() && keys.iter().all(|key| key.bytes() > &PARTITION[..]), "{keys:?}");
    }
}
