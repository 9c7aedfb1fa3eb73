//! Statements of evolving facts that are not in the facts' own indices.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, Rows,
    evolving::{FactRow, PROPOSALS, fact},
    facts::{self, Family},
    records::{self, RecordRow},
    tool_calls::{self, CallRow},
    turns::{self, TurnRow},
};
use runlog_schemas::{
    codec,
    id::{JournalSeq, Offset, RecordId},
    judge::FirstJudgement,
    record::{RecordKind, Validity},
};

/// Projects a record that changes no state but may state another valid time: a repeated statement, or the retraction of
/// a proposal.
pub fn project_repeat<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let validity = facts::validity(&record);
    let status = record.facts.status.as_deref().unwrap_or_default();
    match facts::fact_of(&record) {
        Some((Family::ConversationTurn, _)) | None => Ok(()),
        Some(about) => put_statement(record, at, about, status, validity, changes),
    }
}

/// Projects a retraction of the fact that an earlier applied record states. A retraction of any other record has no
/// effect. Two gets, and the rows of the fact.
pub fn project_retraction<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let Some(id) = record.facts.key.as_deref().and_then(|key| RecordId::new(key).ok()) else { return Ok(()) };
    let Some(seen) = changes.get::<FirstJudgement>(&records::by_id(record.run_id, id))? else { return Ok(()) };
    let place = (seen.offset, seen.index);
    let row: Option<RecordRow> = changes.get(&records::key(record.run_id, place.0, place.1))?;
    let Some(row) = row else { return Ok(()) };
    // A batch's id has the position of its first record.
    let Some(stated) = codec::read(&row.framed.0).ok().filter(|stated| stated.record_id == id) else { return Ok(()) };
    let Some(about) = facts::fact_of(&stated) else { return Ok(()) };
    let is_decision = stated.kind == RecordKind::EffectResolution;
    if about.0 == Family::ToolCall && !is_of_call(record, about.1, (place, is_decision), changes)? {
        return Ok(());
    }
    let validity = Validity { is_valid: false, ..facts::validity(&record) };
    put_statement(record, at, about, "retracted", validity, changes)
}

/// Whether the record at a position is about a call: of a decision, whether it ended the call, because it may be about an effect of
/// another kind. The id may also have become a request's id only later.
fn is_of_call<R: Rows>(
    record: RunRecord<'_, '_>,
    request: &str,
    (place, is_decision): ((Offset, u32), bool),
    changes: &Changes<'_, R>,
) -> Result<bool, store::Error> {
    let Ok(request) = RecordId::new(request) else { return Ok(false) };
    let call: Option<CallRow> = changes.get(&tool_calls::key(record.run_id, request))?;
    Ok(call.is_some_and(|call| {
        let ended_by = (call.status_offset, call.status_index);
        if is_decision { ended_by == place } else { (call.request_offset, call.request_index) <= place }
    }))
}

/// Stores a statement of a fact.
fn put_statement<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    (family, key): (Family, &str),
    status: &str,
    validity: Validity,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let (run_id, record_id) = (record.run_id, record.record_id.to_owned());
    match family {
        Family::ToolCall => {
            let Ok(request) = RecordId::new(key) else { return Ok(()) };
            let call = tool_calls::key(run_id, request);
            let Some(row) = changes.get::<CallRow>(&call)? else { return Ok(()) };
            changes.put(call, &CallRow { more_stated: true, ..row });
            changes.put(tool_calls::stated(run_id, request, at.offset, at.index), &validity);
        }
        Family::ConversationTurn => {
            let row = TurnRow { record_id, journal_seq: JournalSeq::ZERO, validity };
            changes.put(turns::key(run_id, key, at.offset, at.index), &row);
        }
        Family::CodeEditProposal => {
            let row = FactRow { status: status.to_owned(), validity, record_id };
            changes.put(fact(PROPOSALS, run_id, key, at.offset, at.index), &row);
        }
    }
    Ok(())
}
