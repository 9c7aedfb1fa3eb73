//! Skips permit nothing. A record that a skip voids, and every record that a skip displaces, may have been applied before the
//! skip, and the effect that it started may have run. So the effects that such a record is about keep a trace of it.
//!
//! ```text
//!   voided ────▶ judged apart ─┬─ it would have been applied ─────────────┐
//!                              └─ refused ─▶ was it evidence, displaced? ─┼─▶ a trace at each pending effect,
//!   refused between a voided record and its skip ─────────────────────────┘   a pending effect for each unknown start
//! ```
//!
//! A run without a skip has no such rows.

use super::{
    batch::each_record,
    changes::Changes,
    contents,
    context::{RecordContext, RunRecord},
    deliveries, effects, keys, run_view, tool_calls,
};
use crate::index::store::{
    self, Key, Rows,
    effects::{EffectKind, EffectRow, ended, pending},
    runs::{self, RunRow},
    tool_calls::{CallRow, key as call_key},
};
use runlog_schemas::{
    codec::Envelope,
    id::{Epoch, Offset, RecordId, RunId},
    judge::{
        Head, Reason,
        lifecycle::{Family, LifecycleStatus, StateChange, StatusReport},
    },
    partition::partition_of,
    payload::PayloadType,
    record::RecordKind,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The records of a delivery that leave traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traces {
    All,
    Results,
    /// Those of results that decisions without a basis never counted.
    Uncounted,
    Nothing,
}

/// Projects a record that the skip at `by` voids, in its run's partition. An operator may have skipped it because projecting it panics; its
/// effects then keep a trace, or if that panics too, nothing.
pub(super) fn project_voided<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    by: Offset,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let (traces, takes_back) = without_skip(record, at, partitions, changes)?;
    project_skip(record.run_id, (at.offset, by), takes_back, changes)?;
    deliveries::project(record, at, changes);
    let left = apart(changes, |changes| leave_traces(record, at, traces, changes))?;
    for (key, row) in left.into_iter().flat_map(|((), rows)| rows) {
        match row {
            Some(row) => changes.put_encoded(key, row),
            None => changes.remove(key),
        }
    }
    Ok(())
}

/// The run that a message key names, if the run is in the partition.
pub(crate) fn run_of_key(key: &[u8], at: RecordContext<'_>, partitions: u32) -> Option<RunId> {
    let run_id = RunId::new(std::str::from_utf8(key).ok()?).ok()?;
    (partition_of(run_id, partitions) == at.partition).then(|| run_id.to_owned())
}

/// What a skip takes back from the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TakesBack {
    /// Its traces. A later record that is refused because of them can shift numbers.
    Traces,
    /// Also a number, or an applied record.
    Number,
    /// Also the run.
    Claim,
}

/// Records that the skip at `by` voids the run's record at `offset`.
pub(super) fn project_skip<R: Rows>(
    run_id: RunId<&str>,
    (offset, by): (Offset, Offset),
    takes_back: TakesBack,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let key = runs::key(run_id);
    let mut row: RunRow = changes.get(&key)?.unwrap_or_default();
    let head = &mut row.head;
    if head.displaced_until.is_none_or(|until| until <= offset) {
        head.displaced_epoch = head.epoch;
    }
    head.displaced_until = head.displaced_until.max(Some(by));
    if takes_back >= TakesBack::Number {
        head.renumbered_until = head.renumbered_until.max(Some(by));
    }
    if takes_back == TakesBack::Claim {
        head.unclaimed_until = head.unclaimed_until.max(Some(by));
    }
    changes.put(key, &row);
    Ok(())
}

/// The traces that a voided record leaves and what its skip takes back, by its judgement without the skip. A refused record that left
/// no trace leaves none.
fn without_skip<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    partitions: u32,
    changes: &Changes<'_, R>,
) -> Result<(Traces, TakesBack), store::Error> {
    let is_claim = record.kind == RecordKind::RunClaim;
    let Some((effect, _)) = apart(changes, |apart| super::record(record, at, partitions, apart))? else {
        return Ok((Traces::All, if is_claim { TakesBack::Claim } else { TakesBack::Number }));
    };
    let head = run_view::head_at(record.run_id, at.offset, changes)?.unwrap_or_default();
    let traces = match &effect {
        super::Effect::Applied => Traces::All,
        super::Effect::Repeat { first, .. } => match first.refused {
            Some(reason) if is_displaced(&record, at, reason, &head) => Traces::All,
            _ => Traces::Nothing,
        },
        super::Effect::Refused(reason) if is_displaced(&record, at, *reason, &head) => Traces::All,
        super::Effect::Refused(reason) if reason.may_be_counted() => Traces::Results,
        super::Effect::Refused(reason) if reason.keeps_results() => Traces::Uncounted,
        super::Effect::Refused(_) => Traces::Nothing,
    };
    let takes_back = match effect {
        // If an earlier skip displaced it, later records were judged without it from that skip on.
        super::Effect::Refused(reason) if !reason.consumes_numbers() => TakesBack::Traces,
        super::Effect::Repeat { numbered: false, .. } => TakesBack::Traces,
        _ if traces == Traces::All && is_claim => TakesBack::Claim,
        _ => TakesBack::Number,
    };
    Ok((traces, takes_back))
}

type ChangedRow = (Key, Option<Vec<u8>>);

/// Projects over `changes` without changing them. Returns the result and the changed rows, or none after a panic.
fn apart<R: Rows, T>(
    changes: &Changes<'_, R>,
    project: impl FnOnce(&mut Changes<'_, Changes<'_, R>>) -> Result<T, store::Error>,
) -> Result<Option<(T, Vec<ChangedRow>)>, store::Error> {
    let mut apart = Changes::new(changes);
    let Ok(projected) = catch_unwind(AssertUnwindSafe(|| project(&mut apart))) else { return Ok(None) };
    let projected = projected?;
    let rows = apart.unordered_rows().map(|(key, row)| (Key::from_bytes(key.to_vec()), row.map(<[u8]>::to_vec)));
    Ok(Some((projected, rows.collect())))
}

/// Whether a refused record may have been applied before a skip: it is before the skip and after the record that the skip voids.
/// `head` is the run's head before or after the record.
pub(super) fn is_displaced(record: &Envelope<'_>, at: RecordContext<'_>, reason: Reason, head: &Head) -> bool {
    let until = match reason {
        // No run can apply these.
        Reason::Batch | Reason::WrongPartition => None,
        reason if is_for_a_trace(reason) => head.displaced_until,
        // Before the skip, too, it was fenced. A claim may have raised the epoch since only because the skipped record is void.
        Reason::Fenced if !head.is_unclaimed && record.writer_epoch < head.displaced_epoch => None,
        _ => head.renumbered_until,
    };
    until.is_some_and(|until| at.offset < until)
}

/// Whether a record can be refused for this because of a trace that a voided or displaced record left.
fn is_for_a_trace(reason: Reason) -> bool {
    matches!(reason, Reason::Transition | Reason::StaleDecision | Reason::NotStartedHere | Reason::Unresolved)
}

/// The head after a refused record. If a trace may be the reason, the record may have been applied before the skip. Later records then had
/// other verdicts and numbers: the skip displaces them as if it had taken a number back.
pub(super) fn after_refusal(head: Head, at: RecordContext<'_>, reason: Reason) -> Head {
    let until = head.displaced_until.filter(|until| is_for_a_trace(reason) && at.offset < *until);
    Head { renumbered_until: head.renumbered_until.max(until), ..head }
}

/// Whether decisions without a basis count a result that is refused for this reason as evidence. In a run with a skip they count each
/// one: the numbers of a process can be wrong until it ends.
pub(super) fn counts_result<R: Rows>(
    run_id: RunId<&str>,
    reason: Reason,
    changes: &Changes<'_, R>,
) -> Result<bool, store::Error> {
    if reason.is_counted_evidence() || !reason.may_be_counted() {
        return Ok(reason.is_counted_evidence());
    }
    let head = changes.get::<RunRow>(&runs::key(run_id))?.unwrap_or_default().head;
    Ok(head.displaced_until.is_some())
}

/// Leaves the traces of a record that repeats a displaced record. Its results are evidence already.
pub(super) fn project_displaced_repeat<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    each_record(record, at, |record, at| match effects::result_of(record) {
        Some(_) => Ok(()),
        None => leave_trace(record, at, changes),
    })
}

fn leave_traces<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    traces: Traces,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if traces == Traces::Nothing {
        return Ok(());
    }
    each_record(record, at, |record, at| {
        let result = effects::result_of(record);
        match (traces, result) {
            (Traces::Results | Traces::Uncounted, None) => Ok(()),
            (Traces::Uncounted, Some((kind, id, _))) => leave_uncounted_trace(record, (kind, id.borrow()), changes),
            _ => leave_trace(record, at, changes),
        }
    })
}

/// Leaves the trace of a voided result that only decisions with a basis counted: attempts and decisions at an earlier basis stay refused.
fn leave_uncounted_trace<R: Rows>(
    record: RunRecord<'_, '_>,
    (kind, id): (EffectKind, RecordId<&str>),
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let key = pending(record.run_id, kind, id);
    let Some(row) = changes.get::<EffectRow>(&key)? else { return Ok(()) };
    let before = row.undecided();
    let row = row.tracing_uncounted(record.content_hash());
    changes.put(key, &row);
    effects::count_undecided(record.run_id, before, row.undecided(), changes)
}

/// Leaves the trace of a record at each pending effect that it is about. The effect gets a basis that was in no answer before the
/// skip, so that a decision or an attempt that was refused because of the record stays refused. It also loses a decision that it
/// did not happen. If the record starts an unknown effect, the effect is pending from here on.
pub(super) fn leave_trace<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let head = run_view::head_at(record.run_id, at.offset, changes)?.unwrap_or_default();
    let report = StatusReport::from_record(&record).filter(|report| !is_event(report));
    let report = report.and_then(|report| Some((EffectKind::from_family(report.family)?, report)));
    let is_request = record.facts.payload_type == PayloadType::ToolCallRequested;
    let id = match (&report, &record.facts.answers) {
        (Some((_, report)), _) => RecordId::new(report.key.clone()).ok(),
        (None, Some(id)) => Some(id.clone()),
        (None, None) => is_request.then(|| record.record_id.to_owned()),
    };
    let Some(id) = id else { return Ok(()) };
    for kind in EffectKind::ALL {
        let key = pending(record.run_id, *kind, id.borrow());
        let Some(mut row) = changes.get::<EffectRow>(&key)? else { continue };
        let before = row.undecided();
        row = row.counting(record.content_hash().skipped());
        (row.is_newest_void, row.void_until, row.cleared) = (true, head.displaced_until, false);
        let reports_start = report.as_ref().is_some_and(|(of, report)| of == kind && starts_or_continues(report));
        if record.facts.payload_type == PayloadType::ToolCallAttempt || reports_start {
            start(&mut row, record, &head);
        }
        changes.put(key, &row);
        effects::count_undecided(record.run_id, before, row.undecided(), changes)?;
    }
    match report {
        Some((kind, report)) => begin_effect(record, at, (kind, &report, id.borrow()), &head, changes),
        None if is_request => begin_call(record, at, &head, changes),
        None => Ok(()),
    }
}

/// Whether this is an event of a delivery. An event reports no state, so it changes nothing if it is applied.
fn is_event(report: &StatusReport) -> bool {
    report.family == Family::Delivery && report.status.as_str() == "event"
}

fn starts_or_continues(report: &StatusReport) -> bool {
    report.change_from(None) == StateChange::Open
}

/// Records that the effect may have been started, in an epoch that the run has reached. The start is no handle's own: the record may be
/// of any writer.
fn start(row: &mut EffectRow, record: RunRecord<'_, '_>, head: &Head) {
    let epoch = record.writer_epoch.min(head.epoch);
    (row.is_start_void, row.first_started_in) = (true, Epoch::ZERO);
    if epoch >= row.last_started_in {
        row.last_started_in = epoch;
        row.has_committed_start = row.kind == EffectKind::ToolCall;
    }
}

/// Creates the call of a request that is not applied, unless it exists.
fn begin_call<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    head: &Head,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let key = call_key(record.run_id, record.record_id);
    if changes.has(&key)? {
        return Ok(());
    }
    let call = tool_calls::project_request(record, at, head.next_journal_seq, changes)?;
    let Some(call) = call.map(|call| CallRow { is_request_void: true, ..call }) else { return Ok(()) };
    changes.put(key, &call);
    keys::project(record, at, changes);
    contents::project(record, at, changes);
    let row = begun_row(EffectKind::ToolCall, call.tool_name, LifecycleStatus::Pending.into(), (record, at), head);
    let is_observed = record.facts.observed == Some(true);
    let row = EffectRow {
        fingerprint: Some(call.fingerprint),
        occurrence: call.occurrence,
        has_committed_start: !is_observed,
        ..row
    };
    changes.put(pending(record.run_id, EffectKind::ToolCall, record.record_id), &row);
    effects::count_undecided(record.run_id, None, row.undecided(), changes)
}

/// Creates the contract's effect that a record which is not applied starts, unless it exists.
fn begin_effect<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    (kind, report, id): (EffectKind, &StatusReport, RecordId<&str>),
    head: &Head,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let key = pending(record.run_id, kind, id);
    let may_have_happened = starts_or_continues(report) && report.family.may_have_happened(&report.status);
    if !may_have_happened || changes.has(&key)? || changes.has(&ended(record.run_id, kind, id))? {
        return Ok(());
    }
    let tool_name = record.facts.tool_name.clone().unwrap_or_default();
    changes.put(key, &begun_row(kind, tool_name, report.status.clone(), (record, at), head));
    Ok(())
}

/// The effect that a record starts which is not applied.
fn begun_row(
    kind: EffectKind,
    tool_name: String,
    status: runlog_schemas::or_other::OrOther<LifecycleStatus>,
    (record, at): (RunRecord<'_, '_>, RecordContext<'_>),
    head: &Head,
) -> EffectRow {
    EffectRow {
        first_started_in: Epoch::ZERO,
        last_started_in: record.writer_epoch.min(head.epoch),
        is_start_void: true,
        journal_seq: head.next_journal_seq,
        is_newest_void: true,
        void_until: head.displaced_until,
        ..effects::new_row(kind, tool_name, status, record, at, record.content_hash().skipped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::Memory;
    use runlog_schemas::{codec, draft::Draft};
    use serde_json::{Value, json};

    /// Leaves the trace of the run's record with this payload about a delivery. Returns the delivery's revision.
    fn revision_after(
        (offset, run): (u32, RunId<&str>),
        (record_type, record): (&str, &Value),
        changes: &mut Changes<'_, Memory>,
    ) -> Option<u64> {
        let payload = json!({"type": "output_delivery", "record_type": record_type, "record": record});
        let text = json!({"run_id": run.as_str(), "record_id": format!("r{offset}"), "payload": payload}).to_string();
        let framed = codec::encode(&Draft::parse(&text).expect("a record").record);
        let envelope = codec::read(&framed).expect("its bytes");
        let record = RunRecord::new(&envelope).expect("a run's record");
        let (partition, offset) = (0.into(), Offset::from(offset));
        let at = RecordContext { partition, offset, index: 0, logged_at_millis: 0, framed: &framed, claimant: None };
        leave_trace(record, at, changes).expect("rows in memory");
        let key = pending(run, EffectKind::Delivery, RecordId::new("d").expect("an id"));
        changes.get::<EffectRow>(&key).expect("it decodes").map(|row| row.revision)
    }

    #[test]
    fn an_event_of_a_delivery_leaves_no_trace() {
        let (rows, run) = (Memory::default(), RunId::new("r").expect("an id"));
        let mut changes = Changes::new(&rows);
        let report = json!({"delivery_id": "d", "intent_record_id": "i", "side_effect_kind": "output_delivery",
            "dedupe_key": "k", "terminal_status": "reconciliation_needed", "terminal_append_status": "append_failed",
            "unsafe_pending_reason": "", "replay_decision": "requires_host_reconciliation", "resend_allowed": false});
        let destination = json!({"kind": "tool", "id": "t", "privacy": "internal", "retention": "durable"});
        let event = json!({"event_kind": "output_dispatch_completed", "delivery_id": "d", "destination": destination,
            "sink_ref": "s", "dedupe_key": "k", "dispatch_status": "completed", "redacted_summary": ""});
        let records = [("reconciliation", &report), ("event", &event), ("reconciliation", &report)];
        let revisions = (1..)
            .zip(records)
            .map(|(offset, (record_type, record))| revision_after((offset, run), (record_type, record), &mut changes));
        assert_eq!(revisions.collect::<Vec<_>>(), [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn a_panic_apart_changes_no_row() {
        let (rows, run) = (Memory::default(), RunId::new("r").expect("an id"));
        let mut changes = Changes::new(&rows);
        let skip = |by: u32| (Offset::ZERO, Offset::from(by));
        project_skip(run, skip(3), TakesBack::Traces, &mut changes).expect("rows in memory");
        let panicked = apart(&changes, |apart| -> Result<(), store::Error> {
            project_skip(run, skip(7), TakesBack::Traces, apart)?;
            panic!("a record that cannot be projected")
        });
        assert!(panicked.expect("rows in memory").is_none());
        let until = |changes: &Changes<'_, Memory>| changes.get::<RunRow>(&runs::key(run)).expect("it decodes");
        assert_eq!(until(&changes).and_then(|row| row.head.displaced_until), Some(Offset::from(3)));
        let (_, changed) = apart(&changes, |apart| project_skip(run, skip(7), TakesBack::Traces, apart))
            .expect("rows in memory")
            .expect("no panic");
        assert_eq!(changed.len(), 1);
        assert_eq!(until(&changes).and_then(|row| row.head.displaced_until), Some(Offset::from(3)));
    }
}
