//! `anomalies`: refused records and the reasons.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, Rows,
    anomalies::{AnomalyRow, by_content, by_id, key, of_run, repeat},
    records,
};
use runlog_schemas::judge::{FirstJudgement, Reason};

/// Stores a refused record's position, reason and writer. A record that was refused for its content is also stored by id,
/// so that the same record again is a repeat. If another record already has the id, it is stored by id and content. The
/// judgement of a renumbered record replaces its earlier judgement.
pub fn project_refusal<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    reason: Reason,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    changes.put(key(at.offset, at.index), &anomaly_row(record, reason));
    changes.mark(of_run(record.run_id, at.offset, at.index));
    if reason.may_be_resent() {
        return Ok(());
    }
    changes.record_refusal();
    let content_hash = record.content_hash();
    let seen = FirstJudgement { content_hash, offset: at.offset, index: at.index, refused: Some(reason) };
    let id = by_id(record.run_id, record.record_id);
    let before: Option<FirstJudgement> = changes.get(&id)?;
    let is_same = before.as_ref().is_some_and(|before| before.content_hash == content_hash);
    let is_id_known = before.is_some() || changes.has(&records::by_id(record.run_id, record.record_id))?;
    let by_content = by_content(record.run_id, record.record_id, content_hash);
    changes.put(if is_id_known && !is_same { by_content } else { id }, &seen);
    Ok(())
}

/// Stores the refusal that a record repeats, if it repeats one.
pub fn project_repeat<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    first: &FirstJudgement,
    changes: &mut Changes<'_, R>,
) {
    if first.refused.is_some() {
        changes.put(repeat(record.run_id, at.offset), first);
    }
}

/// The row of an anomaly.
fn anomaly_row(record: RunRecord<'_, '_>, reason: Reason) -> AnomalyRow {
    AnomalyRow {
        run_id: record.run_id.to_owned(),
        record_id: record.record_id.to_owned(),
        reason,
        writer_id: record.writer_id.into(),
        writer_epoch: record.writer_epoch,
    }
}
