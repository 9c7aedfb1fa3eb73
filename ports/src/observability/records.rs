//! Converts the contract's rows to records, and back.
//!
//! ```text
//!   turn         conversation_turn                          row id: the envelope's turn_id
//!   call         tool_call_requested, tool_call_completed | tool_call_failed
//!   its update   host_payload with the whole row, because a second request would be another call
//!   retraction   retraction of the record that first states the row
//! ```

use super::{
    fold::{CallEvent, Statement, TurnEvent},
    types::{ConversationTurn, DbError, ToolCallDone, ToolCallReq, ToolStatus, Validity},
};
use crate::{
    depth::{DEPTH_MAX, nests_within},
    record_list::List,
};
use runlog_producer::{
    Json, Writer,
    id::{Fingerprint, RecordId},
    payload::{
        Payload, ToolCallCompleted, ToolCallFailed, ToolCallRequested, observed::Retraction, wrapped::HostPayload,
    },
    record::{self, JournalRecord},
    scalar::Bytes,
};
use uuid::Uuid;

/// The redaction policy of records without content. They keep the host's own hashes.
const CONTENT: &str = "observability.content";
const HASHES_ONLY: &str = "observability.hashes_only";
/// The payload type of an update.
const FAMILY: &str = "observability";
const UPDATED: &str = "tool_call_updated";

/// The list of a run's turns.
pub(super) fn turns_list(run: &str) -> List {
    List::new("observability.turns", &[run])
}

/// The list of the statements about a turn.
pub(super) fn turn_list(run: &str, id: Uuid) -> List {
    List::new("observability.turn", &[run, &id.to_string()])
}

/// The list of the statements about a call.
pub(super) fn call_list(run: &str, request_id: Uuid, call_id: &str) -> List {
    List::new("observability.call", &[run, &request_id.to_string(), call_id])
}

/// The list of the statements about the calls that a message triggered.
pub(super) fn parent_list(run: &str, parent_id: Uuid) -> List {
    List::new("observability.parent", &[run, &parent_id.to_string()])
}

/// The id of the record that requests a call, made from the call's list: the same in every process.
pub(super) fn request_id(request_id: Uuid, list: &List) -> Result<RecordId, DbError> {
    Ok(RecordId::new(format!("call/{request_id}/{}", list.value())).map_err(runlog_producer::Error::from)?)
}

fn draft(
    writer: &Writer,
    id: Option<RecordId>,
    payload: impl Into<Payload>,
    validity: Validity,
    content: bool,
) -> Result<JournalRecord, DbError> {
    let mut record = writer.draft(id, payload)?;
    record.body.validity = Some(record::Validity { at: validity.at, is_valid: validity.is_valid });
    let policy = if content { CONTENT } else { HASHES_ONLY };
    policy.clone_into(&mut record.body.redaction_policy_id);
    Ok(record)
}

fn json(name: &str, text: &str) -> Result<Json, DbError> {
    let json = Json::parse(text).map_err(|error| DbError::Invalid(format!("{name}: {error}")))?;
    // Counting brackets is fast, and few texts have that many.
    let brackets = json.as_str().bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > DEPTH_MAX && !nests_within(&json.to_value(), DEPTH_MAX) {
        return Err(DbError::Invalid(format!("{name} nests deeper than {DEPTH_MAX} levels; flatten it")));
    }
    Ok(json)
}

pub(super) fn turn_record(writer: &Writer, turn: &ConversationTurn, content: bool) -> Result<JournalRecord, DbError> {
    let payload = runlog_producer::payload::ConversationTurn {
        message_id: turn.message_id.to_string(),
        parent_id: turn.parent_id.map(|id| id.to_string()),
        thread_id: turn.thread_id.map(|id| id.to_string()),
        kind: turn.kind.clone(),
        content: serde_json::Value::from(turn.content.as_str()).into(),
    };
    let mut record = draft(writer, None, payload, turn.created_at, content)?;
    record.body.turn_id = Some(turn.id.to_string());
    Ok(record)
}

/// The request as it is stored, and its arguments.
pub(super) fn stored_request(req: &ToolCallReq, content: bool) -> Result<(ToolCallReq, Option<Json>), DbError> {
    if req.tool_name.is_empty() || req.args_sha256.is_empty() {
        return Err(DbError::Invalid("a request needs tool_name and args_sha256".into()));
    }
    let arguments = req.arguments_json.as_ref().filter(|_| content);
    let arguments = arguments.map(|text| json("arguments_json", text)).transpose()?;
    let arguments_json = arguments.as_ref().map(|json| json.as_str().to_owned());
    Ok((ToolCallReq { arguments_json, ..req.clone() }, arguments))
}

/// The record of a request from [`stored_request`].
pub(super) fn request_record(
    writer: &Writer,
    id: RecordId,
    (req, arguments): (&ToolCallReq, Option<Json>),
    content: bool,
) -> Result<JournalRecord, DbError> {
    let payload = ToolCallRequested {
        request_id: req.request_id.to_string(),
        call_id: req.call_id.clone(),
        parent_id: Some(req.parent_id.to_string()),
        vendor: Some(req.vendor.clone()),
        tool_name: req.tool_name.clone(),
        args_sha256: req.args_sha256.clone(),
        fingerprint: Fingerprint::of_hashed_call(&req.tool_name, &req.args_sha256).into(),
        arguments,
    };
    draft(writer, Some(id), payload, req.started_at, content)
}

/// The record of new non-key fields of a request from [`stored_request`].
pub(super) fn update_record(
    writer: &Writer,
    request: &RecordId,
    req: &ToolCallReq,
    content: bool,
) -> Result<JournalRecord, DbError> {
    let bytes = serde_json::to_vec(req).map_err(|error| DbError::Invalid(error.to_string()))?;
    let payload = HostPayload {
        family: FAMILY.into(),
        payload_type: UPDATED.into(),
        schema_version: 1,
        content_type: "application/json".into(),
        bytes: Bytes(bytes),
    };
    let mut record = draft(writer, None, payload, req.started_at, content)?;
    record.body.causal_refs = vec![request.as_str().to_owned()];
    Ok(record)
}

/// The hash of a completed call's outcome.
pub(super) fn outcome_hash(done: &ToolCallDone) -> Result<Option<String>, DbError> {
    let hash =
        |text: &String| json("outcome_json", text).map(|json| List::new("", &[json.as_str()]).value().to_owned());
    done.outcome_json.as_ref().map(hash).transpose()
}

pub(super) fn end_record(
    writer: &Writer,
    request: &str,
    done: &ToolCallDone,
    content: bool,
) -> Result<JournalRecord, DbError> {
    let invalid = |what: &str| Err(DbError::Invalid(what.to_owned()));
    let id = RecordId::new(format!("{request}/end")).map_err(runlog_producer::Error::from)?;
    let request_record_id = RecordId::new(request.to_owned()).map_err(runlog_producer::Error::from)?;
    let latency_ms = Some(done.latency_ms);
    let payload: Payload = match done.status {
        ToolStatus::Completed if done.error_kind.is_some() || done.error_msg.is_some() => {
            return invalid("a completed call has no error");
        }
        ToolStatus::Failed if done.outcome_json.is_some() => return invalid("a failed call has no outcome"),
        ToolStatus::Completed => {
            let outcome = done.outcome_json.as_ref().filter(|_| content);
            let result = outcome.map(|text| json("outcome_json", text)).transpose()?;
            ToolCallCompleted { request_record_id, result, latency_ms }.into()
        }
        ToolStatus::Failed => {
            let (error_kind, error_message) =
                (done.error_kind.clone().unwrap_or_default(), done.error_msg.clone().unwrap_or_default());
            ToolCallFailed { request_record_id, error_kind, error_message, latency_ms }.into()
        }
    };
    let mut record = draft(writer, Some(id), payload, done.ended_at, content)?;
    record.body.content_refs = outcome_hash(done)?.into_iter().map(|hash| format!("sha256:{hash}")).collect();
    Ok(record)
}

pub(super) fn retraction_record(
    writer: &Writer,
    retracted: &str,
    at: i64,
    (who, why): (&str, &str),
) -> Result<JournalRecord, DbError> {
    let payload = Retraction { retracted_record_id: retracted.to_owned(), who: who.to_owned(), why: why.to_owned() };
    draft(writer, None, payload, Validity { at, is_valid: false }, false)
}

fn unreadable(record: &JournalRecord, what: impl ToString) -> DbError {
    DbError::Unreadable { record_id: record.body.record_id.as_str().to_owned(), what: what.to_string() }
}

fn validity(record: &JournalRecord) -> Result<Validity, DbError> {
    let validity = record.body.validity.ok_or_else(|| unreadable(record, "it has no valid time"))?;
    Ok(Validity { at: validity.at, is_valid: validity.is_valid })
}

fn id(record: &JournalRecord, text: &str) -> Result<Uuid, DbError> {
    text.parse().map_err(|error| unreadable(record, error))
}

/// The turn that a record is about, and its statement.
pub(super) fn turn_statement(record: &JournalRecord) -> Result<(Uuid, Statement<TurnEvent>), DbError> {
    let row = id(record, record.body.turn_id.as_deref().unwrap_or_default())?;
    let event = match &record.payload {
        Payload::ConversationTurn(turn) => Some(ConversationTurn {
            id: row,
            parent_id: turn.parent_id.as_deref().map(|text| id(record, text)).transpose()?,
            message_id: id(record, &turn.message_id)?,
            kind: turn.kind.clone(),
            content: serde_json::from_str(turn.content.as_str()).map_err(|error| unreadable(record, error))?,
            created_at: validity(record)?,
            thread_id: turn.thread_id.as_deref().map(|text| id(record, text)).transpose()?,
        }),
        _ => None,
    };
    let record_id = record.body.record_id.as_str().to_owned();
    Ok((row, Statement { validity: validity(record)?, record_id, event }))
}

/// The call that a record is about, and its statement. The record of an end names only the call's request.
pub(super) fn call_statement(record: &JournalRecord) -> Result<(String, Statement<CallEvent>), DbError> {
    let own = || record.body.record_id.as_str().to_owned();
    let validity = validity(record)?;
    let ended = |status, latency_ms: Option<i64>| ToolCallDone {
        request_id: Uuid::nil(),
        call_id: String::new(),
        ended_at: validity,
        latency_ms: latency_ms.unwrap_or_default(),
        outcome_json: None,
        error_kind: None,
        error_msg: None,
        status,
    };
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let (call, event) = match &record.payload {
        Payload::ToolCallRequested(p) => {
            let req = ToolCallReq {
                request_id: id(record, &p.request_id)?,
                call_id: p.call_id.clone(),
                parent_id: id(record, p.parent_id.as_deref().unwrap_or_default())?,
                vendor: p.vendor.clone().unwrap_or_default(),
                tool_name: p.tool_name.clone(),
                args_sha256: p.args_sha256.clone(),
                arguments_json: p.arguments.as_ref().map(|json| json.as_str().to_owned()),
                started_at: validity,
            };
            (own(), CallEvent::Requested(req))
        }
        Payload::HostPayload(p) if p.family == FAMILY && p.payload_type == UPDATED => {
            let req = serde_json::from_slice(&p.bytes.0).map_err(|error| unreadable(record, error))?;
            (record.body.causal_refs.first().cloned().unwrap_or_default(), CallEvent::Requested(req))
        }
        Payload::ToolCallCompleted(p) => {
            let outcome_json = p.result.as_ref().map(|json| json.as_str().to_owned());
            let done = ToolCallDone { outcome_json, ..ended(ToolStatus::Completed, p.latency_ms) };
            let hash = record.body.content_refs.iter().find_map(|text| text.strip_prefix("sha256:"));
            (p.request_record_id.as_str().to_owned(), CallEvent::Done(done, hash.map(str::to_owned)))
        }
        Payload::ToolCallFailed(p) => {
            let (error_kind, error_msg) = (some(&p.error_kind), some(&p.error_message));
            let done = ToolCallDone { error_kind, error_msg, ..ended(ToolStatus::Failed, p.latency_ms) };
            (p.request_record_id.as_str().to_owned(), CallEvent::Done(done, None))
        }
        Payload::Retraction(p) => (p.retracted_record_id.clone(), CallEvent::Retracted),
        _ => return Err(unreadable(record, "it is not a record of a call")),
    };
    Ok((call, Statement { validity, record_id: own(), event }))
}
