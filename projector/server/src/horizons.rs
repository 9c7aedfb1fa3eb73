//! Retention horizons of all partitions.

use super::{
    app::App,
    append::{
        attribution,
        of_partition::{retain, selected_partitions},
    },
    audit::Action,
    body::Text,
    pages::{Pages, across},
    parameters::{Ask, NOT_BLANK, check_attribution},
    problem::Refusal,
    strict_json::parsed,
};
use axum::{
    Json,
    extract::Query,
    response::{IntoResponse, Response},
};
use runlog_projector::index::{
    error::Error,
    query::{self, parse_time},
};
use runlog_schemas::{
    answer::{Horizons, Outcomes, RetentionOfPartition, RetentionPlan},
    id::PartitionId,
    payload::lifetime::RetentionHorizon,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HorizonsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn list(app: App, Query(query): Query<HorizonsQuery>) -> Result<Json<Horizons>, Refusal> {
    let pages = Pages::parse(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let unavailable_partitions = app.wait_for_all_runs(&ask).await?;
    app.read(move |app| {
        let (horizons, next_cursor) = across(app, pages, None, |app, partition, cursor, limit| {
            let store = app.projector.store(partition)?;
            query::horizons::page(&store.view(), app.topic_partition(partition), cursor, limit)
        })?;
        Ok(Json(Horizons { horizons, unavailable_partitions, next_cursor }))
    })
    .await
    .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewHorizon", extend("required" = ["family", "until", "who", "why"]))]
pub(super) struct HorizonBody {
    /// One partition; all if it is absent or null.
    partition: Option<PartitionId>,
    /// A payload type with content: claims and records of a partition have none.
    #[schemars(example = &"conversation_turn")]
    family: String,
    /// Log time, exclusive.
    #[schemars(extend("format" = "date-time"))]
    until: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendQuery {
    /// Counts the records that the horizon would delete, and appends no horizon.
    #[serde(default)]
    dry_run: bool,
    deadline_ms: Option<u64>,
}

pub(super) async fn append(app: App, Query(query): Query<AppendQuery>, Text(body): Text) -> Result<Response, Refusal> {
    let HorizonBody { partition, family, until, who, why } = parsed(&body, "a retention horizon")?;
    check_attribution("a retention horizon", &who, &why)?;
    let who = attribution::who(app.caller.principal(), who);
    let deadline = Ask { consistency: None, deadline_ms: query.deadline_ms }.deadline();
    let horizon = RetentionHorizon { family, until_millis: parse_time(&until)?, who, why };
    query::horizons::check(&horizon.family)?;
    let partitions = selected_partitions(&app.projector, partition)?;
    if query.dry_run {
        let plan = app.read(move |app| retention_plan(app, partitions, horizon, deadline)).await?;
        return Ok(Json(plan).into_response());
    }
    let detail = json!({ "partition": partition, "family": horizon.family, "until": until, "who": horizon.who,
        "why": horizon.why });
    app.audit(Action::Retention, None, detail).await?;
    let outcomes = retain(&app.projector, &app.caller, partition, horizon, deadline).await?;
    Ok(Json(Outcomes { outcomes }).into_response())
}

/// Counts the records that a horizon would delete, for at most `wait`. Blocking.
fn retention_plan(
    app: &App,
    selected: Vec<PartitionId>,
    horizon: RetentionHorizon,
    wait: Duration,
) -> Result<RetentionPlan, Error> {
    let started = Instant::now();
    let (mut partitions, mut complete) = (Vec::with_capacity(selected.len()), true);
    for partition in selected {
        let store = app.projector.store(partition)?;
        let late = || started.elapsed() >= wait;
        let (records, all) = query::horizons::count(&store.view(), &horizon.family, horizon.until_millis, late)?;
        complete &= all;
        partitions.push(RetentionOfPartition { partition, records });
    }
    let records = partitions.iter().map(|partition| partition.records).sum();
    let until = query::time(horizon.until_millis.max(0).cast_unsigned());
    Ok(RetentionPlan { dry_run: true, family: horizon.family, until, partitions, records, complete })
}
