//! Batches: the records are projected in order, and all changes are rolled back if one is refused. Readers never see
//! half a batch, since its changes are in one write batch of the store.

use super::{
    anomalies,
    changes::Changes,
    context::{Effect, RecordContext, RunRecord},
    effects, records,
    run_view::RunView,
    runs,
    single::{judge_and_project, project_verdict},
    skips,
};
use crate::index::store::{self, Rows};
use runlog_schemas::{
    judge::{
        Reason, Verdict, View,
        batch::{self, Opened},
    },
    record::RecordKind,
};

/// Projects a batch.
pub(super) fn project<R: Rows>(
    batch: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    let opened = batch::open(&batch, &mut RunView::new(batch.run_id, at.offset, changes))?;
    let parts = match opened {
        Opened::Records(parts) => parts,
        Opened::Judged(Verdict::Refused { reason, head }) => {
            let is_displaced = skips::is_displaced(&batch, at, reason, &head);
            runs::project_consumed_number(batch, at, head, changes)?;
            return project_refusal(batch, at, 0, (reason, is_displaced), changes);
        }
        Opened::Judged(verdict) => return project_verdict(batch, at, verdict, None, changes),
    };
    let head = RunView::new(batch.run_id, at.offset, changes).head()?;
    changes.set_save_point();
    records::batch(batch, at, changes);
    for (index, part) in (0..).zip(&parts) {
        // All records of a batch belong to the batch's run.
        let Some(part) = RunRecord::new(part) else { continue };
        let framed = part.framed();
        let effect = judge_and_project(part, RecordContext { index, framed: &framed, ..at }, changes)?;
        if let Some(reason) = effect.refusal() {
            changes.rollback_to_save_point();
            let is_displaced = skips::is_displaced(&batch, at, reason, &head);
            let head = skips::after_refusal(batch::refused(&batch, &parts, head), at, reason);
            runs::project_consumed_number(batch, at, head, changes)?;
            return project_refusal(batch, at, index, (reason, is_displaced), changes);
        }
    }
    changes.pop_save_point();
    Ok(Effect::Applied)
}

/// Stores a batch's refusal, caused by the record at `fault`, and keeps each result in it.
fn project_refusal<R: Rows>(
    batch: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    fault: u32,
    (reason, is_displaced): (Reason, bool),
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    anomalies::project_refusal(batch, RecordContext { index: fault, ..at }, reason, changes)?;
    effects::project_refusal(batch, at, (reason, is_displaced), changes)?;
    Ok(Effect::Refused(reason))
}

/// Visits a record that is no batch, or each record of a batch that is of the batch's run.
pub(super) fn each_record(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    mut visit: impl FnMut(RunRecord<'_, '_>, RecordContext<'_>) -> Result<(), store::Error>,
) -> Result<(), store::Error> {
    if record.kind != RecordKind::Batch {
        return visit(record, at);
    }
    for (index, part) in (0..).zip(&record.records().unwrap_or_default()) {
        if let Some(part) = RunRecord::new(part).filter(|part| part.run_id == record.run_id) {
            visit(part, RecordContext { index, framed: &part.framed(), ..at })?;
        }
    }
    Ok(())
}
