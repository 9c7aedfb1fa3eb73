//! What stands open.

use super::{JournalEntry, Op, TxnId};
use runlog_producer::record::JournalRecord;
use std::collections::BTreeMap;

/// A transaction that is staged.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) op: Op,
    pub(super) at: String,
    /// Whether an earlier epoch staged it.
    pub(super) earlier: bool,
    /// What was written to commit it, where nobody knows whether that landed.
    pub(super) committing: Option<Vec<JournalRecord>>,
}

impl Pending {
    pub(super) fn new(op: Op, at: String) -> Self {
        Self { op, at, earlier: false, committing: None }
    }
}

/// What stands open of a session.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The next transaction.
    pub(super) next: u64,
    /// This life's.
    pub(super) pending: BTreeMap<TxnId, Pending>,
    /// Those of earlier lives.
    pub(super) left: BTreeMap<TxnId, Pending>,
}

impl State {
    /// Takes in what an earlier life wrote.
    pub(super) fn replay(&mut self, entry: JournalEntry) {
        let txn = match entry {
            JournalEntry::Staged { txn, at, op } => {
                self.left.insert(txn, Pending { earlier: true, ..Pending::new(op, at) });
                txn
            }
            JournalEntry::Rejected { txn, .. } | JournalEntry::Committed { txn, .. } => {
                self.left.remove(&txn);
                txn
            }
        };
        self.next = self.next.max(txn.0.saturating_add(1));
    }

    /// All that is staged was staged in an earlier epoch.
    pub(super) fn claimed_anew(&mut self) {
        for pending in self.pending.values_mut() {
            pending.earlier = true;
        }
    }
}
