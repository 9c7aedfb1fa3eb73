//! Lists the open or ended items of a run.

use super::{
    app::App,
    parameters::{Ask, limit},
    problem::Refusal,
};
use axum::{
    Json,
    extract::{Path, Query},
};
use runlog_projector::index::{
    error::Error,
    query::{self, parse_cursor},
};
use runlog_schemas::{
    answer::{ErrorKind, Standings},
    datum::hex,
    id::RunId,
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenItemsQuery {
    #[serde(default)]
    ended: bool,
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// A page of `approvals`, `wakes`, `messages`, `write_backs`, `proposals` or `pools`.
pub(super) async fn list(
    app: App,
    Path((run_id, list)): Path<(RunId, String)>,
    Query(query): Query<OpenItemsQuery>,
) -> Result<Json<Standings>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let unknown = || Error::new(ErrorKind::NotFound, format!("runs have no list {list:?}"));
    let index = query::open_items::index(&list).ok_or_else(unknown)?;
    let (cursor, limit) = (parse_cursor(query.cursor.as_deref())?, limit(query.limit)?);
    let partition = app.wait_for_run(run_id.borrow(), &ask).await?;
    app.read(move |app| {
        let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
        let filter = (Some(run_id.borrow()), query.ended);
        let page = query::open_items::page(
            &app.rows(&store, run_id.borrow()),
            place,
            index,
            filter,
            cursor.as_deref(),
            limit,
        )?;
        let (items, next) = page;
        let standing = items.into_iter().map(|(_, standing)| standing).collect();
        Ok(Json(Standings { standing, next_cursor: next.map(|key| app.with_log(hex(&key))) }))
    })
    .await
    .map_err(Refusal)
}
