//! Skips: shows which record a skip would void, and voids it.
//!
//! Unless forced, a skip is refused if the record can be read and its partition did not stop there. Otherwise every
//! reader would lose a valid record, and an effect that it completed would run again.

use super::{
    app::App,
    append::{
        attribution,
        of_partition::{can_skip, skip_for},
    },
    audit::Action,
    body::Text,
    parameters::{Ask, DEADLINE, NOT_BLANK, check_attribution},
    problem::Refusal,
    strict_json::parsed,
};
use axum::{
    Json,
    extract::Query,
    response::{IntoResponse, Response},
};
use runlog_projector::index::{
    as_of::{self, Limits, RunAsOf},
    error::Error,
    query,
};
use runlog_schemas::{
    answer::{ErrorKind, OrOther, SkipPlan, SkipTarget},
    codec,
    id::{Offset, OrEmpty, PartitionId},
    payload::Skip,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipQuery {
    /// Shows the record that the skip would void, and appends nothing.
    #[serde(default)]
    dry_run: bool,
    /// Also skips a record that can be read.
    #[serde(default)]
    force: bool,
    deadline_ms: Option<u64>,
}

/// Voids one record for every reader.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Skip", extend("required" = ["partition", "offset", "who", "why"]))]
pub(super) struct SkipBody {
    partition: PartitionId,
    /// The record's offset. 0 is the journal's genesis record, which cannot be voided.
    offset: Offset,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
}

pub(super) async fn append(app: App, Query(query): Query<SkipQuery>, Text(body): Text) -> Result<Response, Refusal> {
    let SkipBody { partition, offset, who, why } = parsed(&body, "a skip")?;
    check_attribution("a skip", &who, &why)?;
    let who = attribution::who(app.caller.principal(), who);
    let deadline = Ask { consistency: None, deadline_ms: query.deadline_ms }.deadline();
    let started = Instant::now();
    can_skip(&app.projector, partition, offset, deadline).await?;
    let until = started + deadline;
    // The principal's permit comes first: a request that waits for it holds no shared permit.
    let permits = async { (app.caller.past_permit().await, app.limits.pasts.clone().acquire_owned().await) };
    let permits = tokio::time::timeout_at(until, permits).await.ok();
    let plan = app.blocking(move |app| {
        let plan = skip_plan(app, partition, offset)?;
        Ok(if permits.is_some() { count_displaced(app, plan, partition, offset, until) } else { plan })
    });
    let plan = plan.await?;
    if query.dry_run {
        return Ok(Json(plan).into_response());
    }
    if plan.target == SkipTarget::Readable && !query.force {
        let message = format!(
            "{partition}:{offset} can be read, and its partition did not stop there: a skip would void {} of run {}{}. \
             Nothing happened; force skips it all the same",
            plan.payload_type.as_ref().map_or("a record", OrOther::as_str),
            plan.run_id.as_ref().map_or("(none)", |run_id| run_id.as_str()),
            plan.displaced.filter(|count| *count > 0).map_or_else(String::new, |count| {
                format!(", and {count} later applied records of the run would be refused")
            }),
        );
        return Err(Error::new(ErrorKind::Invalid, message)
            .at(&plan.position)
            .about_record(plan.record_id.borrow())
            .into());
    }
    let detail = json!({ "partition": partition, "offset": offset, "force": query.force, "who": who, "why": why });
    app.audit(Action::Skip, plan.run_id.as_ref().map(|run_id| run_id.borrow()), detail).await?;
    let (skip, left) = (Skip { offset, who, why }, deadline.saturating_sub(started.elapsed()));
    let outcome = skip_for(&app.projector, &app.caller, partition, skip, left).await?;
    Ok(Json(outcome).into_response())
}

/// Adds to a plan how many records a skip of a readable record would displace, unless the run is too large to count them.
fn count_displaced(app: &App, plan: SkipPlan, partition: PartitionId, offset: Offset, until: Instant) -> SkipPlan {
    let Some(run_id) = plan.run_id.clone() else { return plan };
    let run = RunAsOf::new(run_id, partition, app.projector.journal().partitions);
    let limits = Limits { bytes: as_of::BYTES_MAX, until: Some(until) };
    let displaced = run.count_displaced(&app.projector.store(partition).view(), offset, limits).ok();
    SkipPlan { displaced, ..plan }
}

/// Reads the record that a skip of an existing offset would void. Blocking.
fn skip_plan(app: &App, partition: PartitionId, offset: Offset) -> Result<SkipPlan, Error> {
    let plan = |target: SkipTarget, detail| SkipPlan {
        dry_run: true,
        position: app.projector.position(partition, offset, 0),
        target: target.into(),
        detail,
        run_id: None,
        record_id: OrEmpty::NONE,
        payload_type: None,
        displaced: None,
    };
    let stop = app.projector.progress(partition).stopped;
    if let Some(stop) = stop.filter(|stop| stop.offset == offset) {
        return Ok(plan(SkipTarget::Stop, Some(stop.error)));
    }
    let store = app.projector.store(partition);
    if let Some((_, detail)) = query::dead_letters::get(&store.view(), app.topic_partition(partition), offset)? {
        return Ok(plan(SkipTarget::Unreadable, Some(detail)));
    }
    let mut reader = app.projector.log().reader(&[(partition, offset)])?;
    let read = reader.poll(1, DEADLINE)?;
    let Some(record) = read.first() else {
        let message = format!("the log did not deliver {partition}:{offset} in time; retry");
        return Err(Error::new(ErrorKind::Unavailable, message).at(&app.projector.position(partition, offset, 0)));
    };
    if record.offset != offset {
        return Ok(plan(SkipTarget::Unreadable, Some("the log delivers no record at this offset".to_owned())));
    }
    let framed = match codec::reframe(&record.value, &*app.projector.config().schemas) {
        Ok(framed) => framed,
        Err(why) => return Ok(plan(SkipTarget::Unreadable, Some(why.to_string()))),
    };
    Ok(match codec::read(&framed) {
        Ok(envelope) => SkipPlan {
            run_id: envelope.run_id.map(|run_id| run_id.to_owned()),
            record_id: Some(envelope.record_id).into(),
            payload_type: Some(envelope.facts.payload_type.clone()),
            ..plan(SkipTarget::Readable, None)
        },
        Err(why) => plan(SkipTarget::Unreadable, Some(why.to_string())),
    })
}
