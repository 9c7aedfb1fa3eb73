//! Handlers that append records and claims to a run.

use super::{
    app::App,
    append::{
        check::check,
        claims::{self, ClaimBody},
        decisions::{can_vouch, is_own_decision},
        origin::Origin,
        outcomes::{AnswerAt, READ_HERE_MAX, answers, outcomes},
        plan::PLANNED_HERE_BYTES_MAX,
    },
    audit::Action,
    auth::{Caller, permissions::Scope},
    body::{self, Text},
    contents,
    parameters::{Ask, Patience},
    problem::Refusal,
    runs,
    strict_json::parsed,
};
use axum::{
    Json,
    extract::{Path, Query, Request},
    response::{IntoResponse, Response},
};
use runlog_projector::index::{error::Error, projector::Consistency};
use runlog_schemas::{
    answer::{Appended, Claim, ErrorKind},
    draft::Draft,
    id::{RecordId, RunId, WriterSeq},
    json::{self, Items},
    judge::lifecycle::LifecycleStatus,
    payload::{Payload, PayloadType},
    record::{Facts, JournalRecord, RecordKind},
    trace::TRACEPARENT,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{json as object, value::RawValue};
use std::iter;
use tokio::time::Instant;

/// Records in one request.
const RECORDS_MAX: usize = 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendQuery {
    #[serde(default)]
    check: bool,
    /// Refuses records that otherwise cause warnings.
    #[serde(default)]
    strict: bool,
    /// Also appends decisions about effects whose process wrote within the last 30 s.
    #[serde(default)]
    force: bool,
    /// How fresh the run's writer is in the answer; at least as fresh as the judgement.
    consistency: Option<String>,
    /// Answers once the records are judged, or at the log's acknowledgement: `ack` requires records that bring all
    /// their numbers, and the answer contains `appended`.
    #[serde(default, rename = "return")]
    answer: AnswerWhen,
    /// Positions of other records of the run, at most 16, separated by commas. The answer contains their outcomes too.
    /// Allowed with one record only.
    also: Option<String>,
    deadline_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AnswerWhen {
    Ack,
    #[default]
    Judged,
}

/// Answers one record with one outcome, and an array with an array. At `latest` the wait for the log's end begins after
/// the records are judged, and does not change their outcomes.
pub(super) async fn append(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<AppendQuery>,
    request: Request,
) -> Result<Response, Refusal> {
    let (started, ask) = (Instant::now(), Ask { consistency: query.consistency, deadline_ms: query.deadline_ms });
    let (consistency, partition) =
        (ask.consistency(Consistency::Eventual)?, app.projector.partition_of(run_id.borrow()));
    if let Consistency::AtLeast(other, _) = consistency
        && other != partition
    {
        let message = format!("run {run_id} is in partition {partition}, not in {other}; nothing was appended");
        return Err(Error::new(ErrorKind::Usage, message).into());
    }
    let also = runs::also(&app, run_id.borrow(), query.also.as_deref())?;
    let at = match query.answer {
        AnswerWhen::Judged => AnswerAt::Judged(consistency),
        AnswerWhen::Ack if ask.consistency.is_some() || query.check || !also.is_empty() => {
            let message = "return=ack does not go with consistency, check or also, which wait for a judgement; nothing was appended";
            return Err(Error::new(ErrorKind::Usage, message).into());
        }
        AnswerWhen::Ack => AnswerAt::Acknowledged,
    };
    let traceparent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let receipts = contents::receipts(request.headers())?;
    let (body, _room) = body::read_records(&app, request, ask.deadline()).await?;
    let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
    let many = body.trim_start().starts_with('[');
    let not_json = |error: serde_json::Error| invalid(format!("the body is not JSON: {error}"));
    // More records than the limit are only counted: they could need 24 times the memory of the body.
    let Items { first: texts, count } = if many {
        json::items(&body, RECORDS_MAX).map_err(not_json)?
    } else {
        Items { first: vec![serde_json::from_str::<&RawValue>(&body).map_err(not_json)?], count: 1 }
    };
    if many && !also.is_empty() {
        return Err(Error::new(
            ErrorKind::Usage,
            "also= goes with one record, not with an array; nothing was appended",
        )
        .into());
    }
    if !also.is_empty() {
        // Reading an outcome needs the same scope.
        app.caller.require(Scope::ReadMeta)?;
    }
    if count > RECORDS_MAX {
        let message = format!("{count} records in one request, more than {RECORDS_MAX}");
        return Err(Error::new(ErrorKind::TooLarge, message).into());
    }
    let (mut drafts, mut warnings) = (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
    for (index, text) in texts.iter().enumerate() {
        let draft = Draft::parse_new(text.get()).map_err(|error| invalid(format!("record {index}: {error}")))?;
        may_append(&app.caller, &draft.record)?;
        if let Some(why) = members(&draft.record).find_map(not_built) {
            return Err(invalid(format!("record {index}: {why}")).into());
        }
        if let Some(record) = members(&draft.record).find(|record| is_numbered_by_mistake(record)) {
            let kind = record.body.record_kind.as_str();
            let why = "it is not of its writer's sequence, and the server writes its principal into it";
            return Err(
                invalid(format!("record {index}: a {kind} has no writer_seq: {why}; leave writer_seq out")).into()
            );
        }
        if draft.record.body.record_kind.of_partition() {
            let kind = draft.record.body.record_kind.as_str();
            return Err(invalid(format!("record {index}: a {kind} does not belong to a run")).into());
        }
        if !draft.has_record_id {
            let why = "without one of the sender's own, sending it again after a lost answer would append it twice";
            return Err(invalid(format!("record {index} needs a record_id: {why}")).into());
        }
        let found = draft.warnings();
        if let Some(first) = found.first().filter(|_| query.strict) {
            return Err(invalid(format!("record {index}: {}, at {:?}", first.message, first.pointer)).into());
        }
        warnings.push(found);
        drafts.push(draft);
    }
    contents::may_name(&app, run_id.borrow(), &drafts, &receipts).await?;
    let to_audit = || drafts.iter().flat_map(|draft| members(&draft.record)).filter(|record| is_audited(record));
    if !app.caller.has(Scope::Resolve) {
        let own: Vec<_> = to_audit().filter(|record| is_own_decision(record)).collect();
        can_vouch(&app.projector, run_id.borrow(), &own, ask.deadline().saturating_sub(started.elapsed())).await?;
    }
    if !query.check {
        for JournalRecord { body, .. } in to_audit() {
            let Facts { answers, key, status, .. } = &body.facts;
            let about = answers.as_ref().map(RecordId::as_str).or(key.as_deref());
            let detail = object!({ "record_id": body.record_id, "kind": body.record_kind.as_str(), "about": about,
                "status": status });
            app.audit(Action::Append, Some(run_id.borrow()), detail).await?;
        }
    }
    let is_small = body.len() <= PLANNED_HERE_BYTES_MAX;
    let origin = Origin { traceparent, is_small, force: query.force, ..Origin::from(&app.caller) };
    let landed = if query.check {
        let outcomes = check(&app.projector, run_id.borrow(), drafts, origin, ask.deadline()).await?;
        app.projector.wait(partition, consistency, ask.deadline().saturating_sub(started.elapsed())).await?;
        outcomes
    } else {
        app.appender.append_from(run_id.borrow(), drafts, origin, at, ask.deadline()).await?
    };
    if !query.check {
        app.metrics.appended(&landed);
    }
    let answers = match at {
        AnswerAt::Acknowledged => landed.into_iter().map(|outcome| Appended::new(outcome, None)).collect(),
        AnswerAt::Judged(_) if landed.len() <= READ_HERE_MAX => {
            answers(&app.projector, run_id.borrow(), landed, query.check)?
        }
        AnswerAt::Judged(_) => {
            let run_id = run_id.clone();
            app.read(move |app| answers(&app.projector, run_id.borrow(), landed, query.check)).await?
        }
    };
    let also =
        outcomes(&app.projector, run_id.borrow(), &also, ask.deadline().saturating_sub(started.elapsed())).await?;
    let mut answers = answers.into_iter().zip(warnings).map(|(answer, warnings)| Appended { warnings, ..answer });
    if many {
        return Ok(Json(answers.collect::<Vec<_>>()).into_response());
    }
    let only = answers.next();
    only.map(|only| Json(Appended { also, ..only }).into_response())
        .ok_or_else(|| Error::new(ErrorKind::Internal, "an append without an outcome"))
        .map_err(Refusal)
}

/// Refuses a record that needs more than the scope `append`.
///
/// * Decisions need `resolve`. Exception: a writer's own `not_done` on its own effect, which the gate sends if the
///   effect never started. `can_vouch` checks that the effect is its own.
/// * A given approval needs `approve` or `resolve`.
/// * Keys are erased by operators.
fn may_append(caller: &Caller, record: &JournalRecord) -> Result<(), Error> {
    for record in members(record) {
        match record.body.record_kind {
            RecordKind::EffectResolution if !is_own_decision(record) => caller.require(Scope::Resolve)?,
            RecordKind::Erasure => caller.require(Scope::Operate)?,
            _ if approves(record) => caller.require_one_of(&[Scope::Approve, Scope::Resolve])?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns a record and, for a batch, the records in it.
fn members(record: &JournalRecord) -> impl Iterator<Item = &JournalRecord> {
    let members = match &record.payload {
        Payload::Batch(batch) => batch.records.as_slice(),
        _ => &[],
    };
    iter::once(record).chain(members)
}

/// Returns why a record is refused that needs a feature that servers lack. Logs may already have such records: their
/// verdicts stay.
fn not_built(record: &JournalRecord) -> Option<&'static str> {
    let facts = &record.body.facts;
    if record.body.record_kind == RecordKind::Erasure {
        return Some(
            "servers cannot erase content yet, and an applied erasure would say that they did; nothing was erased",
        );
    }
    let is_plain = facts.fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.as_str().starts_with("v1:"));
    (is_plain && matches!(record.payload, Payload::Encrypted(_))).then_some(
        "a `v1:` fingerprint is an unsalted hash of the arguments that the payload encrypts; leave `facts.fingerprint` out",
    )
}

/// Whether a record gives an approval. Checks its facts, as the judge does: the payload may be stored elsewhere or
/// encrypted.
pub(super) fn approves(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    let status = facts.status.as_deref().and_then(|status| status.parse().ok());
    facts.payload_type == PayloadType::Approval
        && matches!(status, Some(LifecycleStatus::Approved | LifecycleStatus::ApprovedForSession))
}

/// Whether a record has a number of its writer's sequence, and is of a kind that has none.
fn is_numbered_by_mistake(record: &JournalRecord) -> bool {
    record.body.record_kind.unclaimed() && record.place.writer_seq != WriterSeq::ZERO
}

/// Whether a record decides, approves, retracts or erases.
fn is_audited(record: &JournalRecord) -> bool {
    record.body.record_kind.unclaimed() || approves(record)
}

pub(super) async fn claim(
    app: App,
    Path(run_id): Path<RunId>,
    Query(patience): Query<Patience>,
    Text(body): Text,
) -> Result<Json<Claim>, Refusal> {
    let body = if body.trim().is_empty() { ClaimBody::default() } else { parsed(&body, "a claim")? };
    claims::claim(&app.appender, run_id.borrow(), body, patience.deadline()).await.map(Json).map_err(Refusal)
}
