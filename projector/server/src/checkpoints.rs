//! A run's checkpoints: the latest valid one, one by id, and all of them newest first.

use super::{
    app::App,
    parameters::{Ask, limit},
    problem::Refusal,
    read_point::{ReadContext, ReadPoint},
    runs::no_run,
};
use axum::{
    Json,
    extract::{Path, Query},
};
use runlog_projector::index::query::{checkpoint, parse_cursor};
use runlog_schemas::{
    answer::{Checkpoint, Checkpoints},
    id::{JournalSeq, RunId},
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LatestQuery {
    at_or_before: Option<JournalSeq>,
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn latest(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<LatestQuery>,
) -> Result<Json<Checkpoint>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    read_point
        .answer_audited(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            let latest = checkpoint::latest(rows, contents, place, run_id, query.at_or_before)?;
            checkpoint::answer_latest(place, run_id, latest).map(Json)
        })
        .await
        .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneQuery {
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn get(
    app: App,
    Path((run_id, id)): Path<(RunId, String)>,
    Query(query): Query<OneQuery>,
) -> Result<Json<Checkpoint>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    read_point
        .answer_audited(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            checkpoint::get(rows, contents, place, run_id, &id).map(Json)
        })
        .await
        .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    at_or_before: Option<JournalSeq>,
    limit: Option<usize>,
    cursor: Option<String>,
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Answers a page without content, so that the content store is not read.
pub(super) async fn list(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Checkpoints>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let (cursor, limit) = (parse_cursor(query.cursor.as_deref())?, limit(query.limit)?);
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    app.read(move |app| {
        let (store, place) = (app.projector.store(read_point.partition)?, app.topic_partition(read_point.partition));
        let rows = read_point.rows(app, &store, run_id.borrow())?;
        let page =
            checkpoint::newest_first(&rows, place, run_id.borrow(), query.at_or_before, cursor.as_deref(), limit)?;
        page.map(Json).ok_or_else(|| no_run(run_id.borrow()))
    })
    .await
    .map_err(Refusal)
}
