//! Judges one record, alone or in a batch, and updates the indices. The order of the calls is the only coupling between
//! indices. A new index is called here.

use super::{
    anomalies,
    changes::Changes,
    checkpoints, contents,
    context::{Effect, RecordContext, RunRecord},
    effects, events, evolving, facts, keys, markers, pools, records,
    run_view::RunView,
    runs, skips, tool_calls, turns, write_backs,
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
pub(super) fn judge_and_project<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    let mut view = RunView::new(record.run_id, at.offset, changes);
    let verdict = judge::judge(&record, &mut view)?;
    let call = view.call.take();
    project_verdict(record, at, verdict, call, changes)
}

/// Projects a judged record by its verdict. `call` is the call that it answers, as the judge read it.
pub(super) fn project_verdict<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    verdict: Verdict,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    match verdict {
        Verdict::Applied { head, no_op } => {
            let is_committed = head.commitment.is_some();
            runs::project(record, at, head, changes)?;
            let content_hash = records::project(record, at, changes);
            contents::project(record, at, changes);
            events::project(record, at, changes);
            if no_op {
                facts::project_repeat(record, at, changes)?;
            } else {
                project_payload(record, at, content_hash, is_committed, call, changes)?;
            }
            Ok(Effect::Applied)
        }
        Verdict::Repeat { first, head } => {
            let is_displaced = first.refused.is_some_and(|reason| skips::is_displaced(&record, at, reason, &head));
            let numbered = runs::project_consumed_number(record, at, head, changes)?;
            anomalies::project_repeat(record, at, &first, changes);
            if is_displaced {
                skips::project_displaced_repeat(record, at, changes)?;
            }
            Ok(Effect::Repeat { first, numbered })
        }
        Verdict::Refused { reason, head } => {
            let is_displaced = skips::is_displaced(&record, at, reason, &head);
            runs::project_consumed_number(record, at, skips::after_refusal(head, at, reason), changes)?;
            anomalies::project_refusal(record, at, reason, changes)?;
            effects::project_refusal(record, at, (reason, is_displaced), changes)?;
            Ok(Effect::Refused(reason))
        }
    }
}

/// Updates the indices of the record's payload type. `call`: the call that it answers, as the judge read it.
fn project_payload<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    is_committed: bool,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    match record.kind {
        RecordKind::ToolCall | RecordKind::EffectResolution => {
            let new_call = if effects::is_about_call(record, changes)? {
                tool_calls::project(record, at, call, changes)?
            } else {
                None
            };
            effects::project(record, at, content_hash, is_committed, new_call, changes)?;
            if record.facts.payload_type == PayloadType::ToolCallRequested {
                keys::project(record, at, changes);
            }
        }
        RecordKind::LoopCheckpoint | RecordKind::CheckpointPrune => checkpoints::project(record, at, changes)?,
        RecordKind::ConversationTurn => turns::project(record, at, changes),
        RecordKind::Retraction => facts::project_retraction(record, at, changes)?,
        _ if record.facts.payload_type == PayloadType::Recovery => markers::project(record, at, changes),
        _ => match StatusReport::from_record(&record) {
            Some(step) => project_report(record, &step, at, content_hash, changes)?,
            None => facts::project_repeat(record, at, changes)?,
        },
    }
    Ok(())
}

/// Updates the index of an object with a lifecycle.
fn project_report<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    match (step.family, evolving::index(step.family)) {
        (_, None) => effects::project_report(record, step, at, content_hash, changes),
        (Family::WriteBack, _) => write_backs::project(record, step, at, changes),
        (Family::Pool, _) => pools::project(record, step, at, changes),
        (_, Some(index)) => evolving::project(index, record, step, at, changes),
    }
}
