//! Handlers that append records and claims to a run.

use super::{
    app::App,
    append::{
        attribution::approves,
        check::check,
        claims::{self, ClaimBody},
        decisions::{check_own_decisions, is_own_decision},
        origin::Origin,
        outcomes::{AnswerAt, READ_HERE_MAX, answers, outcomes},
        plan::PLANNED_HERE_BYTES_MAX,
    },
    audit::Action,
    auth::permissions::Scope,
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
use records::{Records, members};
use runlog_projector::index::{error::Error, projector::Consistency};
use runlog_schemas::{
    answer::{Appended, Claim, ErrorKind, Outcome},
    id::{RecordId, RunId},
    record::{Facts, JournalRecord},
    trace::TRACEPARENT,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json as object;
use tokio::time::Instant;

mod records;

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
    /// Answers once the records are judged, or at the log's acknowledgement: `ack` requires records that have all
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
    let time_left = || ask.deadline().saturating_sub(started.elapsed());
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
            let message =
                "return=ack excludes consistency, check and also, which wait for a judgement; nothing was appended";
            return Err(Error::new(ErrorKind::Usage, message).into());
        }
        AnswerWhen::Ack => AnswerAt::Acknowledged,
    };
    let traceparent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let receipts = contents::receipts(request.headers())?;
    let (body, _memory) = body::read_records(&app, request, ask.deadline()).await?;
    let Records { many, drafts, warnings } = records::read(&app.caller, &body, query.strict, !also.is_empty())?;
    contents::may_name(&app, run_id.borrow(), &drafts, &receipts).await?;
    let to_audit: Vec<_> =
        drafts.iter().flat_map(|draft| members(&draft.record)).filter(|record| is_audited(record)).collect();
    if !app.caller.has(Scope::Resolve) {
        let own: Vec<_> = to_audit.iter().copied().filter(|record| is_own_decision(record)).collect();
        check_own_decisions(&app.projector, run_id.borrow(), &own, time_left()).await?;
    }
    if !query.check {
        audit(&app, run_id.borrow(), &to_audit).await?;
    }
    let is_small = body.len() <= PLANNED_HERE_BYTES_MAX;
    let origin = Origin { traceparent, is_small, force: query.force, ..Origin::from(&app.caller) };
    let landed = if query.check {
        let outcomes = check(&app.projector, run_id.borrow(), drafts, origin, ask.deadline()).await?;
        app.projector.wait(partition, consistency, time_left()).await?;
        outcomes
    } else {
        let landed = app.appender.append_from(run_id.borrow(), drafts, origin, at, ask.deadline()).await?;
        app.metrics.appended(&landed);
        landed
    };
    let answers = answer_outcomes(&app, &run_id, landed, at, query.check).await?;
    let also = outcomes(&app.projector, run_id.borrow(), &also, time_left()).await?;
    let mut answers = answers.into_iter().zip(warnings).map(|(answer, warnings)| Appended { warnings, ..answer });
    if many {
        return Ok(Json(answers.collect::<Vec<_>>()).into_response());
    }
    let only = answers.next();
    only.map(|only| Json(Appended { also, ..only }).into_response())
        .ok_or_else(|| Error::new(ErrorKind::Internal, "an append without an outcome"))
        .map_err(Refusal)
}

/// Writes the records that decide, approve, retract or erase to the audit log.
async fn audit(app: &App, run_id: RunId<&str>, records: &[&JournalRecord]) -> Result<(), Error> {
    for JournalRecord { body, .. } in records {
        let Facts { answers, key, status, .. } = &body.facts;
        let about = answers.as_ref().map(RecordId::as_str).or(key.as_deref());
        let detail = object!({ "record_id": body.record_id, "kind": body.record_kind.as_str(), "about": about,
            "status": status });
        app.audit(Action::Append, Some(run_id), detail).await?;
    }
    Ok(())
}

/// Adds the data of the index to outcomes, if the records were judged.
async fn answer_outcomes(
    app: &App,
    run_id: &RunId,
    landed: Vec<Outcome>,
    at: AnswerAt,
    planned: bool,
) -> Result<Vec<Appended>, Error> {
    match at {
        AnswerAt::Acknowledged => Ok(landed.into_iter().map(|outcome| Appended::new(outcome, None)).collect()),
        AnswerAt::Judged(consistency) if landed.len() <= READ_HERE_MAX => {
            answers(&app.projector, run_id.borrow(), landed, planned, consistency == Consistency::Latest)
        }
        AnswerAt::Judged(consistency) => {
            let run_id = run_id.clone();
            let is_read_back = consistency == Consistency::Latest;
            app.read(move |app| answers(&app.projector, run_id.borrow(), landed, planned, is_read_back)).await
        }
    }
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
    claims::claim(&app.appender, run_id.borrow(), body, &app.caller, patience.deadline())
        .await
        .map(Json)
        .map_err(Refusal)
}
