//! `effects`: pending from the request until it ends; refused results are kept as evidence meanwhile.

use super::{At, Changes, OfRun, tool_calls::ended_as};
use crate::store::{
    self, Rows,
    effects::{EVIDENCE_MAX, EffectRow, EvidenceRow, ended, pending},
    tool_calls::{CallRow, key as call_key},
};
use runlog_schemas::{
    id::RecordId,
    judge::{CallStatus, Reason},
};

/// Takes in a request, an attempt, a result or a resolution. Runs behind `tool_calls`, which numbers the occurrence.
pub fn applied<R: Rows>(record: OfRun<'_, '_>, at: At<'_>, changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    if record.facts.payload_type == "tool_call_requested" {
        return requested(record, at, changes);
    }
    let Some(request) = record.facts.answers.as_ref().map(RecordId::borrow) else { return Ok(()) };
    let key = pending(record.run_id, request);
    let Some(mut row) = changes.get::<EffectRow>(&key)? else { return Ok(()) };
    if let Some(status) = ended_as(record, changes)? {
        row.status = status;
        changes.remove(key);
        changes.put(ended(record.run_id, request), &row);
        return Ok(());
    }
    match record.facts.payload_type.as_str() {
        "tool_call_attempt" => {
            row.attempts += 1;
            row.cleared = false;
        }
        "effect_resolution" if record.facts.status.as_deref() == Some("not_done") => row.cleared = true,
        _ => return Ok(()),
    }
    changes.put(key, &row);
    Ok(())
}

fn requested<R: Rows>(record: OfRun<'_, '_>, at: At<'_>, changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    let Some(call) = changes.get::<CallRow>(&call_key(record.run_id, record.record_id))? else { return Ok(()) };
    let row = EffectRow {
        tool_name: call.tool_name,
        fingerprint: call.fingerprint,
        occurrence: call.occurrence,
        status: CallStatus::Pending,
        idempotency_key: record.idempotency_key.map(str::to_owned),
        has_key: record.idempotency_key.is_some() || record.dedupe_key.is_some(),
        cleared: false,
        attempts: 1,
        journal_seq: record.journal_seq,
        offset: at.offset,
        index: at.index,
        evidence: Vec::new(),
    };
    changes.put(pending(record.run_id, record.record_id), &row);
    Ok(())
}

/// Keeps a refused result for whoever reconciles, while its effect is pending.
pub fn evidence<R: Rows>(
    record: OfRun<'_, '_>,
    at: At<'_>,
    reason: Reason,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let status = match record.facts.payload_type.as_str() {
        "tool_call_completed" => CallStatus::Completed,
        "tool_call_failed" => CallStatus::Failed,
        _ => return Ok(()),
    };
    let Some(request) = record.facts.answers.as_ref().map(RecordId::borrow) else { return Ok(()) };
    let key = pending(record.run_id, request);
    let Some(mut row) = changes.get::<EffectRow>(&key)? else { return Ok(()) };
    let known = row.evidence.iter().any(|evidence| evidence.record_id == record.record_id);
    if known || row.evidence.len() >= EVIDENCE_MAX {
        return Ok(());
    }
    row.evidence.push(EvidenceRow {
        record_id: record.record_id.to_owned(),
        status,
        reason,
        offset: at.offset,
        index: at.index,
        framed: super::framed(at),
    });
    // Whoever decided that it did not happen asserted that the old process was dead, and here it is.
    row.cleared = false;
    super::contents::kept(record, at, changes);
    changes.put(key, &row);
    let call = call_key(record.run_id, request);
    if let Some(mut row) = changes.get::<CallRow>(&call)? {
        row.has_evidence = true;
        changes.put(call, &row);
    }
    Ok(())
}
