//! The transactions that have not ended.

use super::types::{JournalEntry, Op, TxnId};
use runlog_producer::record::JournalRecord;
use std::collections::BTreeMap;

/// A staged transaction.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) op: Op,
    pub(super) at: String,
    /// It was staged in an earlier epoch.
    pub(super) earlier: bool,
    /// The records of its commit, while it is unknown whether they are in the log.
    pub(super) committing: Option<Vec<JournalRecord>>,
}

impl Pending {
    pub(super) fn new(op: Op, at: String) -> Self {
        Self { op, at, earlier: false, committing: None }
    }
}

/// The transactions of a session that have not ended.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The next transaction's number.
    pub(super) next: u64,
    /// Staged or reconciled by this process.
    pub(super) pending: BTreeMap<TxnId, Pending>,
    /// Left open by earlier processes.
    pub(super) left: BTreeMap<TxnId, Pending>,
}

impl State {
    /// Applies an entry of an earlier process.
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

    /// Marks all pending transactions as staged in an earlier epoch.
    pub(super) fn mark_all_earlier(&mut self) {
        for pending in self.pending.values_mut() {
            pending.earlier = true;
        }
    }
}
