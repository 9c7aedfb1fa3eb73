//! The crate's types, in its JSON.

use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};

/// A transaction's number: 0, 1, 2 … within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxnId(pub u64);

/// What is to be written back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// The context window was rewritten.
    Compaction {
        /// Its size before.
        before: usize,
        /// Its size after.
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
        /// Where to.
        bucket: String,
        /// Under which name: a path relative to the project.
        key: String,
        /// Its size.
        bytes: usize,
    },
}

/// Why a write-back was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RejectReason {
    /// It would overwrite something without leave.
    DestructiveOp,
    /// It is not what its schema says.
    SchemaMismatch {
        /// What differs.
        detail: String,
    },
    /// Its origin, or its reach, is not established.
    ProvenanceFail {
        /// What is missing.
        detail: String,
    },
    /// It would break an invariant.
    InvariantViolation {
        /// Which.
        detail: String,
    },
}

/// A line of the journal. Times are RFC 3339 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum JournalEntry {
    /// An operation has a transaction.
    Staged {
        /// Which.
        txn: TxnId,
        /// When.
        at: String,
        /// The operation.
        op: Op,
    },
    /// It was rejected.
    Rejected {
        /// Which.
        txn: TxnId,
        /// When.
        at: String,
        /// Why.
        reason: RejectReason,
    },
    /// It took effect.
    Committed {
        /// Which.
        txn: TxnId,
        /// When.
        at: String,
    },
}

/// A transaction that an earlier life staged and did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub txn: TxnId,
    /// When it was staged.
    pub at: String,
    /// Its operation.
    pub op: Op,
}

/// Why the journal did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its kind and action tell what to do.
    #[error(transparent)]
    Journal(#[from] runlog_producer::Error),
    /// It is not to be rejected: its commit was applied.
    #[error("{0:?} is committed, which was not known before")]
    Committed(TxnId),
    /// An entry that this version cannot show.
    #[error("an entry of the write-back journal cannot be shown: {what}, of record {record_id:?}")]
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
    /// It must not be; or it is not pending.
    #[error("the write-back was rejected: {0:?}")]
    Rejected(RejectReason),
    /// Nobody said so, and it may have been.
    #[error(transparent)]
    Journal(#[from] Error),
}

/// A time as the crate's `chrono` writes it: no fraction where there is none.
pub(super) fn rfc3339(millis: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(millis.min(LATEST_MILLIS));
    if millis.is_multiple_of(1000) {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        humantime::format_rfc3339_millis(time).to_string()
    }
}

/// The end of the year 9999, behind which nobody can write a time.
const LATEST_MILLIS: u64 = 253_402_300_799_000;
