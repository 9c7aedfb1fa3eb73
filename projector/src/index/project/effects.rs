//! `effects`: pending from the request or the intent until it ends. Refused results are kept: as evidence while the effect is
//! pending, and as contradicting after it ended.

use super::{
    batch::each_record,
    changes::Changes,
    context::{RecordContext, RunRecord},
    skips,
};
use crate::index::store::{
    self, Rows,
    effects::{EffectKind, EffectRow, EvidenceRow, Undecided, contradicted, ended, happened, pending, pending_one},
    records,
    runs::{self, RunRow},
    tool_calls::{CallRow, key as call_key},
};
use runlog_schemas::{
    codec,
    id::{ContentHash, Epoch, Offset, RecordId, RunId},
    judge::{
        FirstJudgement, PendingEffect, Reason,
        lifecycle::{Family, LifecycleStatus, State, StateChange, StatusReport},
    },
    or_other::OrOther,
    payload::PayloadType,
};

/// Projects a request, an attempt, a result or a decision. `call` is the call that a request created. `is_committed`: the run's last
/// claim has a commitment.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    is_committed: bool,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if let Some(call) = call {
        let row = EffectRow {
            fingerprint: Some(call.fingerprint),
            occurrence: call.occurrence,
            has_committed_start: is_committed && record.facts.observed != Some(true),
            ..new_row(EffectKind::ToolCall, call.tool_name, LifecycleStatus::Pending.into(), record, at, content_hash)
        };
        changes.put(pending(record.run_id, EffectKind::ToolCall, record.record_id), &row);
        return count_undecided(record.run_id, None, row.undecided(), changes);
    }
    let Some(id) = record.facts.answers.as_ref().map(RecordId::borrow) else { return Ok(()) };
    // The judge resolved the id the same way, and only if the effect is pending.
    if let Some(row) = pending_one(record.run_id, id, record.facts.decided_basis(), |key| changes.get(key))? {
        project_answer(record, (id, at), row.counting(content_hash), is_committed, changes)?;
    }
    Ok(())
}

/// Whether a record that answers an id is about a tool call with that id. A decision may be about an effect of another kind.
pub fn is_about_call<R: Rows>(record: RunRecord<'_, '_>, changes: &Changes<'_, R>) -> Result<bool, store::Error> {
    let (Some(id), Some(basis)) = (&record.facts.answers, record.facts.decided_basis()) else { return Ok(true) };
    let effect = pending_one(record.run_id, id.borrow(), Some(basis), |key| changes.get(key))?;
    Ok(effect.is_none_or(|effect| effect.kind == EffectKind::ToolCall))
}

/// Projects an answer to the pending effect `row`, whose revision already counts it.
fn project_answer<R: Rows>(
    record: RunRecord<'_, '_>,
    (id, at): (RecordId<&str>, RecordContext<'_>),
    mut row: EffectRow,
    is_committed: bool,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let before = row.undecided();
    let key = pending(record.run_id, row.kind, id);
    let decision = record.facts.status.as_deref().unwrap_or_default();
    let Some(payload_type) = record.facts.payload_type.known() else { return Ok(()) };
    let end = match (payload_type, decision) {
        (PayloadType::ToolCallCompleted, _) | (PayloadType::EffectResolution, "done") => {
            Some(LifecycleStatus::Completed.into())
        }
        (PayloadType::ToolCallFailed, _) | (PayloadType::EffectResolution, "give_up") => {
            Some(LifecycleStatus::Failed.into())
        }
        (PayloadType::EffectResolution, "adopt") => {
            row.adopted_by(&record.facts).map(|evidence| evidence.status.clone())
        }
        (PayloadType::ToolCallAttempt, _) => {
            row.attempts += 1;
            row.add_start(record.writer_epoch);
            // An attempt without a basis was not checked: the other start may still run.
            let is_start_void = row.is_start_void && record.facts.basis.is_none();
            row.start(record.writer_epoch, (at.offset, at.index));
            row.is_start_void = is_start_void;
            row.has_committed_start = is_committed;
            None
        }
        (PayloadType::EffectResolution, "not_done") => {
            row.cleared = true;
            None
        }
        _ => return Ok(()),
    };
    let after = if end.is_some() { None } else { row.undecided() };
    match end {
        Some(status) => {
            row.status = status;
            row.set_by = (row.kind != EffectKind::ToolCall).then(|| record.payload_hash());
            row.given_up = decision == "give_up";
            if *payload_type != PayloadType::EffectResolution {
                contradict_by_evidence(record, id, &mut row, changes)?;
            }
            changes.remove(key);
            changes.put(ended(record.run_id, row.kind, id), &row);
        }
        None => changes.put(key, &row),
    }
    count_undecided(record.run_id, before, after, changes)
}

/// An effect that begins with `record`.
pub(super) fn new_row(
    kind: EffectKind,
    tool_name: String,
    status: OrOther<LifecycleStatus>,
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    content_hash: ContentHash,
) -> EffectRow {
    EffectRow {
        kind,
        tool_name,
        fingerprint: None,
        occurrence: 0,
        status,
        set_by: None,
        idempotency_key: record.idempotency_key.map(str::to_owned),
        dedupe_key: record.dedupe_key.map(str::to_owned),
        repeatable: record.facts.repeatable == Some(true),
        cleared: false,
        attempts: 1,
        first_started_in: record.writer_epoch,
        last_started_in: record.writer_epoch,
        has_committed_start: false,
        is_start_void: false,
        starts: vec![record.writer_epoch],
        start_offset: at.offset,
        start_index: at.index,
        journal_seq: record.journal_seq,
        offset: at.offset,
        index: at.index,
        evidence: Vec::new(),
        evidence_dropped: 0,
        revision: 1,
        newest: content_hash,
        is_newest_counted: true,
        is_newest_void: false,
        void_until: None,
        given_up: false,
        contradicting: Vec::new(),
        contradictions: 0,
    }
}

/// Projects a record on a contract's effect, tool call or delivery.
pub(super) fn project_report<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    content_hash: ContentHash,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let Some(kind) = EffectKind::from_family(step.family) else { return Ok(()) };
    let Ok(id) = RecordId::new(step.key.as_str()) else { return Ok(()) };
    let (open, over) = (pending(record.run_id, kind, id), ended(record.run_id, kind, id));
    let pending: Option<EffectRow> = changes.get(&open)?;
    let is_pending = pending.is_some();
    let before = match pending {
        Some(row) => Some(row),
        None => changes.get::<EffectRow>(&over)?,
    };
    let change = step.change_from(before.as_ref().map(|row| &row.status));
    let tool_name = record.facts.tool_name.clone().unwrap_or_default();
    let begins = || new_row(kind, tool_name, step.status.clone(), record, at, content_hash);
    if change == StateChange::Ended {
        let row = before.unwrap_or_else(begins);
        let mut row = EffectRow {
            status: step.status.clone(),
            set_by: Some(record.payload_hash()),
            given_up: false,
            ..row.counting(content_hash)
        };
        if is_pending {
            contradict_by_evidence(record, id, &mut row, changes)?;
        }
        changes.remove(open);
        changes.put(over, &row);
        return Ok(());
    }
    let row = match before {
        None if change == StateChange::Open && step.family.may_have_happened(&step.status) => begins(),
        Some(mut row) if step.is_known() && is_pending => {
            row.start(record.writer_epoch, (at.offset, at.index));
            if step.family.starts(&step.status) {
                row.add_start(record.writer_epoch);
            }
            EffectRow {
                status: if change == StateChange::Open { step.status.clone() } else { row.status.clone() },
                attempts: row.attempts + u32::from(step.family.starts(&step.status)),
                ..row.counting(content_hash)
            }
        }
        _ => return Ok(()),
    };
    changes.put(open, &row);
    Ok(())
}

/// Lists the evidence that contradicts a result that ends the effect `row`: the evidence says that the effect happened, and the result could
/// not have been applied after it. A decision knew the evidence; such a result comes from another start of the effect.
fn contradict_by_evidence<R: Rows>(
    record: RunRecord<'_, '_>,
    id: RecordId<&str>,
    row: &mut EffectRow,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let report = StatusReport::from_record(&record);
    let contradicts =
        |evidence: &&EvidenceRow| happened(&evidence.status) && !agrees(record, report.as_ref(), evidence);
    let against: Vec<EvidenceRow> = row.evidence.iter().filter(contradicts).cloned().collect();
    if against.is_empty() {
        return Ok(());
    }
    against.into_iter().for_each(|evidence| row.contradict(evidence));
    changes.mark(contradicted(record.run_id, row.kind, id));
    change_call(record.run_id, row.kind, id, |call| call.is_contradicted = true, changes)
}

/// Whether a result that ends an effect could have been applied after this evidence.
fn agrees(record: RunRecord<'_, '_>, report: Option<&StatusReport>, evidence: &EvidenceRow) -> bool {
    let Ok(other) = codec::read(&evidence.framed.0) else { return false };
    if other.payload_hash() == record.payload_hash() {
        return true;
    }
    let Some(report) = report else { return false };
    let marks = other.facts.payload_type == PayloadType::TerminalResult && evidence.status == report.status;
    let (status, set_by) = (evidence.status.clone(), other.payload_hash());
    marks || report.may_follow(&record, &State { status, ended: true, set_by, has_counted_evidence: false })
}

/// Updates the run's number of undecided tool calls, after [`EffectRow::undecided`] of one may have changed.
pub(super) fn count_undecided<R: Rows>(
    run_id: RunId<&str>,
    before: Option<Undecided>,
    after: Option<Undecided>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if before == after {
        return Ok(());
    }
    let key = runs::key(run_id);
    let mut row: RunRow = changes.get(&key)?.unwrap_or_default();
    let head = &mut row.head;
    let of_epoch = Undecided::Of(head.epoch);
    if let Some(before) = before {
        head.undecided_calls = head.undecided_calls.saturating_sub(1);
        head.undecided_calls_of_epoch = head.undecided_calls_of_epoch.saturating_sub(u64::from(before == of_epoch));
    }
    if let Some(after) = after {
        head.undecided_calls += 1;
        head.undecided_calls_of_epoch += u64::from(after == of_epoch);
    }
    changes.put(key, &row);
    Ok(())
}

/// The pending effect that an attempt or a decision on `id`, at an offset, is judged by.
pub(super) fn pending_effect<R: Rows>(
    run_id: RunId<&str>,
    (id, basis): (RecordId<&str>, Option<ContentHash>),
    offset: Offset,
    changes: &Changes<'_, R>,
) -> Result<Option<PendingEffect>, store::Error> {
    Ok(pending_one(run_id, id, basis, |key| changes.get(key))?.map(|row| row.pending_at(offset)))
}

/// The state of a contract's effect.
pub(super) fn state<R: Rows>(
    family: Family,
    run_id: RunId<&str>,
    id: &str,
    changes: &Changes<'_, R>,
) -> Result<Option<State>, store::Error> {
    let (Some(kind), Ok(id)) = (EffectKind::from_family(family), RecordId::new(id)) else { return Ok(None) };
    if let Some(row) = changes.get::<EffectRow>(&pending(run_id, kind, id))? {
        return Ok(Some(row.state(false)));
    }
    Ok(changes.get::<EffectRow>(&ended(run_id, kind, id))?.map(|row| row.state(true)))
}

/// The result that a record reports: the effect's kind and id, and the status.
pub(super) fn result_of(record: RunRecord<'_, '_>) -> Option<(EffectKind, RecordId, OrOther<LifecycleStatus>)> {
    let call = |status: LifecycleStatus| Some((EffectKind::ToolCall, record.facts.answers.clone()?, status.into()));
    match record.facts.payload_type.known()? {
        PayloadType::ToolCallCompleted => call(LifecycleStatus::Completed),
        PayloadType::ToolCallFailed => call(LifecycleStatus::Failed),
        _ => {
            let step = StatusReport::from_record(&record)?;
            let kind = EffectKind::from_family(step.family)?;
            let ends = step.change_from(None) == StateChange::Ended;
            let id = RecordId::new(step.key.clone()).ok()?;
            ends.then_some((kind, id, step.status))
        }
    }
}

/// Keeps the results of a refused record, and leaves the traces of a displaced one.
pub(super) fn project_refusal<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    (reason, is_displaced): (Reason, bool),
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if !reason.keeps_results() {
        return Ok(());
    }
    let is_counted = skips::counts_result(record.run_id, reason, changes)?;
    // In the records' order: a displaced batch may start a call and contain its result.
    each_record(record, at, |record, at| {
        if result_of(record).is_some() {
            return project_refused_result(record, at, (reason, is_counted, is_displaced), changes);
        }
        if is_displaced { skips::leave_trace(record, at, changes) } else { Ok(()) }
    })
}

/// Keeps a refused record that is a result: as evidence while its effect is pending, and after that if it contradicts the end.
/// `is_counted`: decisions without a basis count the evidence. `is_displaced`: it may have ended its effect before a skip.
fn project_refused_result<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    (reason, is_counted, is_displaced): (Reason, bool, bool),
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let Some((kind, id, status)) = result_of(record) else { return Ok(()) };
    let result = |row: &EffectRow, changes: &Changes<'_, R>| -> Result<_, store::Error> {
        Ok(EvidenceRow {
            record_id: record.record_id.to_owned(),
            content_hash: record.content_hash(),
            is_first_of_id: is_counted,
            start: start_of(row, record, changes)?,
            status: status.clone(),
            reason,
            offset: at.offset,
            index: at.index,
            logged_at_millis: at.logged_at_millis,
            framed: at.row_bytes(),
        })
    };
    if let Some(row) = changes.get::<EffectRow>(&pending(record.run_id, kind, id.borrow()))? {
        let result = result(&row, changes)?;
        return add_evidence(record, at, id.borrow(), row, (result, is_displaced), changes);
    }
    let key = ended(record.run_id, kind, id.borrow());
    let Some(mut row) = changes.get::<EffectRow>(&key)? else { return Ok(()) };
    // The contract writes this marker in addition to the effect's own result.
    let marks = record.facts.payload_type == PayloadType::TerminalResult && row.status == status;
    // A refused batch can contain a record that was applied alone.
    let applied: Option<FirstJudgement> = changes.get(&records::by_id(record.run_id, record.record_id))?;
    let is_applied = applied.is_some_and(|applied| applied.content_hash == record.content_hash());
    if marks || is_applied || !row.add_contradicting(result(&row, changes)?) {
        return Ok(());
    }
    changes.put(key, &row);
    changes.mark(contradicted(record.run_id, kind, id.borrow()));
    change_call(record.run_id, kind, id.borrow(), |call| call.is_contradicted = true, changes)
}

/// The epoch of the start that the writer of a result made: the result's epoch, or the last start under an epoch that the same principal
/// claimed, because a process that claims its run again may send its result under the later epoch. A get per start.
fn start_of<R: Rows>(
    row: &EffectRow,
    result: RunRecord<'_, '_>,
    changes: &Changes<'_, R>,
) -> Result<Option<Epoch>, store::Error> {
    if row.starts.contains(&result.writer_epoch) {
        return Ok(Some(result.writer_epoch));
    }
    let Some(principal) = records::claimant(result.run_id, result.writer_epoch, |key| changes.get(key))? else {
        return Ok(None);
    };
    for start in row.starts.iter().rev() {
        if records::claimant(result.run_id, *start, |key| changes.get(key))?.as_ref() == Some(&principal) {
            return Ok(Some(*start));
        }
    }
    Ok(None)
}

/// The trace that a displaced end leaves at its effect: until the skip nothing decides about the effect or permits it.
fn with_trace_of_end<R: Rows>(
    row: EffectRow,
    run_id: RunId<&str>,
    changes: &Changes<'_, R>,
) -> Result<EffectRow, store::Error> {
    let head = changes.get::<RunRow>(&runs::key(run_id))?.unwrap_or_default().head;
    Ok(EffectRow { is_newest_void: true, void_until: head.displaced_until, cleared: false, ..row })
}

/// Keeps a refused result as evidence of the pending effect `row`. A displaced one, known or not, also leaves the trace of an end.
fn add_evidence<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    id: RecordId<&str>,
    mut row: EffectRow,
    (result, is_displaced): (EvidenceRow, bool),
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let before = row.undecided();
    let added = row.add_evidence(result);
    if added.is_none() && !is_displaced {
        return Ok(());
    }
    if is_displaced {
        if added.is_none() {
            row = row.counting(record.content_hash());
        }
        row = with_trace_of_end(row, record.run_id, changes)?;
    }
    if added.is_some() {
        super::contents::project(record, at, changes);
    }
    for gone in added.into_iter().flatten() {
        changes.remove(store::contents::key(record.run_id, gone.offset, gone.index));
    }
    changes.put(pending(record.run_id, row.kind, id), &row);
    count_undecided(record.run_id, before, row.undecided(), changes)?;
    let has_counted_evidence = row.adoptable(true).is_some();
    change_call(record.run_id, row.kind, id, |call| call.has_counted_evidence = has_counted_evidence, changes)
}

/// Changes the tool call's row, if the effect is a tool call.
fn change_call<R: Rows>(
    run_id: RunId<&str>,
    kind: EffectKind,
    id: RecordId<&str>,
    change: impl FnOnce(&mut CallRow),
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if kind == EffectKind::ToolCall
        && let Some(mut call) = changes.get::<CallRow>(&call_key(run_id, id))?
    {
        change(&mut call);
        changes.put(call_key(run_id, id), &call);
    }
    Ok(())
}
