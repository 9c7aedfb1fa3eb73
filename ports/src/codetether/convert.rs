//! Converts the crate's types to records, and back.

use super::{Error, JournalEntry, Op, RejectReason, TxnId};
use runlog_producer::{
    payload::{
        Payload,
        write_back::{
            WriteBackCommitted, WriteBackCompaction, WriteBackContextReset, WriteBackDestructiveOp,
            WriteBackHistorySinkUpload, WriteBackInvariantViolation, WriteBackOp, WriteBackProvenanceFail,
            WriteBackReason, WriteBackRejected, WriteBackReset, WriteBackSave, WriteBackSchemaMismatch,
            WriteBackStaged,
        },
    },
    record::JournalRecord,
};

pub(super) fn staged(txn: TxnId, at: &str, op: &Op) -> Payload {
    let op = match op.clone() {
        Op::Compaction { before, after } => {
            WriteBackOp::Compaction(WriteBackCompaction { before: before as u64, after: after as u64 })
        }
        Op::Save => WriteBackOp::Save(WriteBackSave {}),
        Op::Reset => WriteBackOp::Reset(WriteBackReset {}),
        Op::ContextReset => WriteBackOp::ContextReset(WriteBackContextReset {}),
        Op::HistorySinkUpload { bucket, key, bytes } => {
            WriteBackOp::HistorySinkUpload(WriteBackHistorySinkUpload { bucket, key, bytes: bytes as u64 })
        }
    };
    WriteBackStaged { txn: txn.0, at: at.to_owned(), op }.into()
}

pub(super) fn rejected(txn: TxnId, at: &str, reason: &RejectReason) -> Payload {
    let reason = match reason.clone() {
        RejectReason::DestructiveOp => WriteBackReason::DestructiveOp(WriteBackDestructiveOp {}),
        RejectReason::SchemaMismatch { detail } => WriteBackReason::SchemaMismatch(WriteBackSchemaMismatch { detail }),
        RejectReason::ProvenanceFail { detail } => WriteBackReason::ProvenanceFail(WriteBackProvenanceFail { detail }),
        RejectReason::InvariantViolation { detail } => {
            WriteBackReason::InvariantViolation(WriteBackInvariantViolation { detail })
        }
    };
    WriteBackRejected { txn: txn.0, at: at.to_owned(), reason }.into()
}

pub(super) fn committed(txn: TxnId, at: &str) -> Payload {
    WriteBackCommitted { txn: txn.0, at: at.to_owned() }.into()
}

/// The entry in a record. `None` for a record of another kind.
pub(super) fn entry(record: JournalRecord) -> Result<Option<JournalEntry>, Error> {
    let record_id = record.body.record_id.as_str().to_owned();
    let unreadable = |what: &str| Error::Unreadable { record_id, what: what.to_owned() };
    Ok(Some(match record.payload {
        Payload::WriteBackStaged(p) => {
            let op = op(p.op).ok_or_else(|| unreadable("unknown operation"))?;
            JournalEntry::Staged { txn: TxnId(p.txn), at: p.at, op }
        }
        Payload::WriteBackRejected(p) => {
            let reason = reason(p.reason).ok_or_else(|| unreadable("unknown reason"))?;
            JournalEntry::Rejected { txn: TxnId(p.txn), at: p.at, reason }
        }
        Payload::WriteBackCommitted(p) => JournalEntry::Committed { txn: TxnId(p.txn), at: p.at },
        _ => return Ok(None),
    }))
}

fn op(op: WriteBackOp) -> Option<Op> {
    let size = |size: u64| usize::try_from(size).ok();
    Some(match op {
        WriteBackOp::Compaction(p) => Op::Compaction { before: size(p.before)?, after: size(p.after)? },
        WriteBackOp::Save(_) => Op::Save,
        WriteBackOp::Reset(_) => Op::Reset,
        WriteBackOp::ContextReset(_) => Op::ContextReset,
        WriteBackOp::HistorySinkUpload(p) => {
            Op::HistorySinkUpload { bucket: p.bucket, key: p.key, bytes: size(p.bytes)? }
        }
        _ => return None,
    })
}

fn reason(reason: WriteBackReason) -> Option<RejectReason> {
    Some(match reason {
        WriteBackReason::DestructiveOp(_) => RejectReason::DestructiveOp,
        WriteBackReason::SchemaMismatch(p) => RejectReason::SchemaMismatch { detail: p.detail },
        WriteBackReason::ProvenanceFail(p) => RejectReason::ProvenanceFail { detail: p.detail },
        WriteBackReason::InvariantViolation(p) => RejectReason::InvariantViolation { detail: p.detail },
        _ => return None,
    })
}
