//! Judges one record, alone or in a batch, and updates the indices. The order of the calls is the only coupling between
//! indices. A new index is called here.

use super::{
    Changes, Effect, RecordContext, RunRecord, anomalies, checkpoints, contents, effects, events, evolving, facts,
    keys, markers, pools, records, run_view::RunView, runs, tool_calls, turns, write_backs,
};
use crate::index::store::{self, Rows, tool_calls::CallRow};
use runlog_schemas::{
    id::ContentHash,
    judge::{
        self, Verdict,
        lifecycle::{Family, StatusReport},
    },
    payload::PayloadType,
    record::RecordKind,
};

/// Judges and projects a record, alone or in a batch.
pub(super) fn one<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    let mut view = RunView::new(record.run_id, changes);
    let verdict = judge::judge(&record, &mut view)?;
    let call = view.call.take();
    settle(record, at, verdict, call, changes)
}

/// Projects a judged record by its verdict. `call` is the call that it answers, as the judge read it.
pub(super) fn settle<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    verdict: Verdict,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    match verdict {
        Verdict::Applied { head, no_op } => {
            runs::applied(record, at, head, changes)?;
            let content_hash = records::applied(record, at, changes);
            contents::kept(record, at, changes);
            events::applied(record, at, changes);
            if no_op {
                facts::repeated(record, at, changes)?;
            } else {
                indexed(record, at, content_hash, call, changes)?;
            }
            Ok(Effect::Applied)
        }
        Verdict::Repeat { first, head } => {
            let numbered = runs::numbered(record, at, head, changes)?;
            anomalies::repeated(record, at, &first, changes);
            Ok(Effect::Repeat { first, numbered })
        }
        Verdict::Refused { reason, head } => {
            runs::numbered(record, at, head, changes)?;
            anomalies::refused(record, at, reason, changes)?;
            if effects::keeps_results(reason) {
                effects::refused(record, at, reason, changes)?;
            }
            Ok(Effect::Refused(reason))
        }
    }
}

/// Updates the indices of the record's payload type.
fn indexed<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    match record.kind {
        RecordKind::ToolCall | RecordKind::EffectResolution => {
            let requested = tool_calls::applied(record, at, call, changes)?;
            effects::applied(record, at, content_hash, requested, changes)?;
            if record.facts.payload_type == PayloadType::ToolCallRequested {
                keys::requested(record, at, changes);
            }
        }
        RecordKind::LoopCheckpoint | RecordKind::CheckpointPrune => checkpoints::applied(record, at, changes)?,
        RecordKind::ConversationTurn => turns::applied(record, at, changes),
        RecordKind::Retraction => facts::retracted(record, at, changes)?,
        _ if record.facts.payload_type == PayloadType::Recovery => markers::applied(record, at, changes),
        _ => match StatusReport::of(&record) {
            Some(step) => stepped(record, &step, at, content_hash, changes)?,
            None => facts::repeated(record, at, changes)?,
        },
    }
    Ok(())
}

/// Updates the index of an object with a lifecycle.
fn stepped<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    match (step.family, evolving::index(step.family)) {
        (_, None) => effects::stepped(record, step, at, content_hash, changes),
        (Family::WriteBack, _) => write_backs::applied(record, step, at, changes),
        (Family::Pool, _) => pools::applied(record, step, at, changes),
        (_, Some(index)) => evolving::applied(index, record, step, at, changes),
    }
}
