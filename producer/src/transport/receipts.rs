//! Keeps receipts of uploads until the records that name the contents are appended.

use runlog_schemas::{datum::Sha256, id::RunId, payload::Payload, record::JournalRecord};
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// How many receipts are kept; the oldest go first. A server refuses a record without its receipt, and appends nothing.
const KEPT_MAX: usize = 1024;

/// Receipts from a server.
#[derive(Debug, Default)]
pub(crate) struct Receipts(Mutex<VecDeque<(RunId, Sha256, String)>>);

impl Receipts {
    /// Keeps the receipt of the content that a record names.
    pub(crate) fn keep(&self, record: &JournalRecord, receipt: String) {
        let Some((run_id, sha256)) = named(record) else { return };
        let mut receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if receipts.len() == KEPT_MAX {
            receipts.pop_front();
        }
        receipts.push_back((run_id.to_owned(), sha256, receipt));
    }

    /// Returns the latest receipt of the content that a record names; none if it names no content.
    pub(crate) fn find(&self, record: &JournalRecord) -> Option<String> {
        let (run_id, sha256) = named(record)?;
        let receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest = receipts.iter().rev();
        latest.find(|(run, hash, _)| run.borrow() == run_id && *hash == sha256).map(|(_, _, receipt)| receipt.clone())
    }
}

fn named(record: &JournalRecord) -> Option<(RunId<&str>, Sha256)> {
    match &record.payload {
        Payload::StoredPayload(stored) => Some((record.body.run_id.borrow()?, stored.sha256)),
        _ => None,
    }
}
