//! `tool_calls`: a request creates a call, an answer ends it.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, Rows,
    effects::{EffectKind, EffectRow},
    facts,
    tool_calls::{CallRow, by_fingerprint, by_order, count, key},
};
use runlog_schemas::{
    id::{JournalSeq, RecordId},
    judge::{CallStatus, lifecycle::LifecycleStatus},
    payload::PayloadType,
};

/// Projects a request, a result, or a resolution that ends a call. `call` is the answered call, if the judge has read it.
/// Returns the call that a request creates.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    call: Option<CallRow>,
    changes: &mut Changes<'_, R>,
) -> Result<Option<CallRow>, store::Error> {
    if record.facts.payload_type == PayloadType::ToolCallRequested {
        return project_request(record, at, record.journal_seq, changes);
    }
    let Some(request) = record.facts.answers.as_ref().map(RecordId::borrow) else { return Ok(None) };
    let Some(status) = end_status(record, changes)? else { return Ok(None) };
    let key = key(record.run_id, request);
    let call = match call {
        Some(call) => Some(call),
        None => changes.get(&key)?,
    };
    if let Some(mut row) = call {
        row.status = status;
        row.status_offset = at.offset;
        row.status_index = at.index;
        row.outcome_hash = Some(record.payload_hash());
        row.ended = Some(facts::validity(&record));
        changes.put(key, &row);
    }
    Ok(None)
}

/// Creates the call of a request.
pub(super) fn project_request<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    journal_seq: JournalSeq,
    changes: &mut Changes<'_, R>,
) -> Result<Option<CallRow>, store::Error> {
    let run = record.run_id;
    // The codec does not decode a request without a fingerprint.
    let Some(fingerprint) = record.facts.fingerprint.clone() else { return Ok(None) };
    let count = count(run, fingerprint.borrow());
    let occurrence = changes.get::<u32>(&count)?.unwrap_or(0) + 1;
    changes.put(count, &occurrence);
    changes.put(by_fingerprint(run, fingerprint.borrow(), occurrence), &record.record_id.to_owned());
    let row = CallRow {
        fingerprint,
        occurrence,
        tool_name: record.facts.tool_name.clone().unwrap_or_default(),
        status: CallStatus::Pending,
        journal_seq,
        request_offset: at.offset,
        request_index: at.index,
        status_offset: at.offset,
        status_index: at.index,
        outcome_hash: None,
        idempotency_key: record.idempotency_key.map(str::to_owned),
        has_counted_evidence: false,
        is_contradicted: false,
        requested: facts::validity(&record),
        ended: None,
        more_stated: false,
        is_request_void: false,
    };
    changes.put(by_order(run, &row), &record.record_id.to_owned());
    changes.put(key(run, record.record_id), &row);
    Ok(Some(row))
}

/// The status with which a record ends its call; none if it does not end the call.
pub fn end_status<R: Rows>(
    record: RunRecord<'_, '_>,
    changes: &Changes<'_, R>,
) -> Result<Option<CallStatus>, store::Error> {
    let Some(payload_type) = record.facts.payload_type.known() else { return Ok(None) };
    Ok(match (payload_type, record.facts.status.as_deref()) {
        (PayloadType::ToolCallCompleted, _) | (PayloadType::EffectResolution, Some("done")) => {
            Some(CallStatus::Completed)
        }
        (PayloadType::ToolCallFailed, _) | (PayloadType::EffectResolution, Some("give_up")) => Some(CallStatus::Failed),
        (PayloadType::EffectResolution, Some("adopt")) => {
            let Some(request) = record.facts.answers.as_ref().map(RecordId::borrow) else { return Ok(None) };
            let effect: Option<EffectRow> =
                changes.get(&store::effects::pending(record.run_id, EffectKind::ToolCall, request))?;
            let evidence = effect.as_ref().and_then(|effect| effect.adopted_by(&record.facts));
            evidence.map(|evidence| {
                if evidence.status == LifecycleStatus::Completed { CallStatus::Completed } else { CallStatus::Failed }
            })
        }
        _ => None,
    })
}
