//! `records`: every applied record, whole, its id, and the epoch of a claim.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    Rows,
    records::{ClaimRow, RecordRow, by_id, claim, key},
};
use runlog_schemas::{id::ContentHash, judge::FirstJudgement, record::RecordKind};

/// Stores the record, its id and, of a claim, its epoch. Returns its content hash.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) -> ContentHash {
    let row = RecordRow::encode(at.logged_at_millis, at.framed);
    changes.put_encoded(key(record.run_id, at.offset, at.index), row);
    let content_hash = record.content_hash();
    let seen = FirstJudgement { content_hash, offset: at.offset, index: at.index, refused: None };
    changes.put(by_id(record.run_id, record.record_id), &seen);
    if record.kind == RecordKind::RunClaim {
        let row = ClaimRow { offset: at.offset, claimant: at.claimant.map(str::to_owned) };
        changes.put(claim(record.run_id, record.writer_epoch), &row);
    }
    content_hash
}

/// Stores the id of a batch, with the position of its first record. The records of the batch are stored one by one.
pub fn batch<R: Rows>(batch: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let seen = FirstJudgement { content_hash: batch.content_hash(), offset: at.offset, index: 0, refused: None };
    changes.put(by_id(batch.run_id, batch.record_id), &seen);
}
