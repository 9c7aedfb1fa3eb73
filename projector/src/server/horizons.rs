//! Retention horizons of all partitions.

use super::{App, Ask, fleet::Pages, parsed};
use crate::index::{
    Error,
    query::{self, parse_time},
};
use axum::{
    Json,
    extract::{Query, State},
};
use runlog_schemas::{
    answer::{ErrorKind, Horizons, Outcomes},
    id::PartitionId,
    payload::lifetime::RetentionHorizon,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HorizonsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn list(State(app): State<App>, Query(query): Query<HorizonsQuery>) -> Result<Json<Horizons>, Error> {
    let pages = Pages::of(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let unavailable_partitions = app.all_fresh(&ask).await?;
    app.read(move |app| {
        let (horizons, next_cursor) = app.across(pages, None, |app, partition, cursor, limit| {
            let store = app.0.store(partition);
            query::horizons::page(&store.view(), app.place(partition), cursor, limit)
        })?;
        Ok(Json(Horizons { horizons, unavailable_partitions, next_cursor }))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HorizonBody {
    /// All partitions where there is none.
    partition: Option<PartitionId>,
    family: String,
    until: String,
    #[serde(default)]
    who: String,
    #[serde(default)]
    why: String,
}

pub(super) async fn append(
    State(app): State<App>,
    Query(ask): Query<Ask>,
    body: String,
) -> Result<Json<Outcomes>, Error> {
    let HorizonBody { partition, family, until, who, why } = parsed(&body, "a retention horizon")?;
    if who.is_empty() || why.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "a retention horizon says who decided and why"));
    }
    let horizon = RetentionHorizon { family, until_millis: parse_time(&until)?, who, why };
    let outcomes = app.0.retain(partition, horizon, ask.deadline()).await?;
    Ok(Json(Outcomes { outcomes }))
}
