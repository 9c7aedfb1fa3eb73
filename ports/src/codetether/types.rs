//! The crate's types. They serialise to the same JSON.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

/// A transaction's number within its session: 0, 1, 2 …
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxnId(pub u64);

/// An operation that writes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// The context window was rewritten.
    Compaction {
        /// Messages before.
        before: usize,
        /// Messages after.
        after: usize,
    },
    /// The transcript is saved.
    Save,
    /// The session is reset.
    Reset,
    /// The context is reset to prompt and summary.
    ContextReset,
    /// A delta of the history is uploaded.
    HistorySinkUpload {
        /// The bucket.
        bucket: String,
        /// The object's key: a path relative to the project.
        key: String,
        /// The number of bytes.
        bytes: usize,
    },
}

/// Why a write-back was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RejectReason {
    /// It would overwrite something without permission.
    DestructiveOp,
    /// It does not match its schema.
    SchemaMismatch {
        /// The difference.
        detail: String,
    },
    /// Its origin or its scope is not established.
    ProvenanceFail {
        /// The missing part.
        detail: String,
    },
    /// It would break an invariant.
    InvariantViolation {
        /// The invariant.
        detail: String,
    },
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DestructiveOp => f.write_str("it would overwrite something without permission"),
            Self::SchemaMismatch { detail } => write!(f, "schema mismatch: {detail}"),
            Self::ProvenanceFail { detail } => write!(f, "provenance not established: {detail}"),
            Self::InvariantViolation { detail } => write!(f, "invariant violated: {detail}"),
        }
    }
}

/// A line of the journal. Times are RFC 3339 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum JournalEntry {
    /// An operation was staged.
    Staged {
        /// The transaction.
        txn: TxnId,
        /// The time of the entry.
        at: String,
        /// The operation.
        op: Op,
    },
    /// The transaction was rejected.
    Rejected {
        /// The transaction.
        txn: TxnId,
        /// The time of the entry.
        at: String,
        /// The reason.
        reason: RejectReason,
    },
    /// The transaction was committed.
    Committed {
        /// The transaction.
        txn: TxnId,
        /// The time of the entry.
        at: String,
    },
}

/// A transaction that an earlier process staged and did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub txn: TxnId,
    /// When it was staged.
    pub at: String,
    /// Its operation.
    pub op: Op,
}

/// Why an operation of the journal failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal failed; the error's kind and action say what to do.
    #[error(transparent)]
    Journal(#[from] runlog_producer::Error),
    /// The transaction cannot be rejected: its commit was applied.
    #[error("transaction {} cannot be rejected: its commit was applied", .0.0)]
    Committed(TxnId),
    /// An entry cannot be converted to the crate's types.
    #[error("record {record_id} of the write-back journal cannot be read: {what}; use a newer version of this port")]
    Unreadable {
        /// The record.
        record_id: String,
        /// Why.
        what: String,
    },
}

/// Why a transaction was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A check failed, or the transaction is not pending.
    #[error("the write-back was rejected: {0}")]
    Rejected(RejectReason),
    /// The commit may have been applied: commit again to find out.
    #[error(transparent)]
    Journal(#[from] Error),
}

/// A time as the crate's `chrono` writes it: without a fraction for whole seconds.
pub(super) fn rfc3339(millis: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(millis.min(LATEST_MILLIS));
    if millis.is_multiple_of(1000) {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        humantime::format_rfc3339_millis(time).to_string()
    }
}

/// The end of the year 9999, the latest time that RFC 3339 can express.
const LATEST_MILLIS: u64 = 253_402_300_799_000;
