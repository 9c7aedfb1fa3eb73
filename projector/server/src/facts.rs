//! Lists the facts of a run that hold at a time.

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
use runlog_projector::index::query::{Order, facts, parse_cursor, parse_time};
use runlog_schemas::{answer::Facts, id::RunId};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FactsQuery {
    at: Option<String>,
    as_of: Option<String>,
    family: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Answers a page of facts. Default time: now, by the server's clock.
pub(super) async fn list(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<FactsQuery>,
) -> Result<Json<Facts>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let now = i64::try_from((app.projector.config().clock)()).unwrap_or(i64::MAX);
    let wanted = facts::Query {
        at_millis: query.at.as_deref().map_or(Ok(now), parse_time)?,
        family: query.family.as_deref().map(facts::family).transpose()?,
        limit: limit(query.limit)?,
        order: Order::Asc,
    };
    let cursor = parse_cursor(query.cursor.as_deref())?;
    let read_point = ReadPoint::wait_with_permits(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    read_point
        .answer_audited(&app, run_id, move |ReadContext { rows, place, run_id, .. }| {
            let page = facts::page(rows, place, run_id, wanted, cursor.as_deref())?;
            page.map(Json).ok_or_else(|| no_run(run_id))
        })
        .await
        .map_err(Refusal)
}
