//! Lists across all runs and partitions.

use super::{
    app::App,
    audit::Action,
    auth::permissions::Scope,
    large_response,
    pages::{Pages, across},
    parameters::{Ask, DEADLINE, Nothing},
    problem::Refusal,
};
use axum::{
    Json,
    extract::{Path, Query},
    response::Response,
};
use runlog_projector::index::{
    error::Error,
    query::{
        self,
        effects::Listed,
        timeline::{BYTES_MAX, Budget},
    },
    store::{Rows as _, horizons::Horizons},
};
use runlog_schemas::{
    answer::{Anomalies, DeadLetters, Effects, ErrorKind, Position, Verification},
    datum::hex,
    id::{Offset, PartitionId, RunId, split_log},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

/// How many bytes of a dead letter are shown.
const SHOWN_BYTES_MAX: usize = 4096;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EffectsQuery {
    #[serde(default)]
    pending: bool,
    #[serde(default, rename = "unsafe")]
    unsafe_only: bool,
    #[serde(default)]
    contradicted: bool,
    /// The beginning of the runs' ids.
    #[serde(default)]
    prefix: String,
    tool: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

impl EffectsQuery {
    fn selection(&self) -> Result<Listed, Error> {
        match (self.contradicted, self.unsafe_only, self.pending) {
            (false, true, _) => Ok(Listed::Unsafe),
            (false, false, true) => Ok(Listed::Pending),
            (false, false, false) => Ok(Listed::All),
            (true, false, false) => Ok(Listed::Contradicted),
            (true, ..) => {
                let message = "contradicted effects have ended: leave out `pending` and `unsafe`, or `contradicted`";
                Err(Error::new(ErrorKind::Usage, message))
            }
        }
    }
}

pub(super) async fn effects(app: App, Query(query): Query<EffectsQuery>) -> Result<Response, Refusal> {
    let listed = query.selection()?;
    let pages = Pages::parse(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let unavailable_partitions = app.wait_for_all_runs(&ask).await?;
    let show = app.show(false, false, None).await?;
    let (prefix, tool) = (query.prefix, query.tool);
    large_response::build(&app, move |app| {
        let (visible, budget) = (app.caller.visible(), Budget::new(BYTES_MAX));
        let filter = query::effects::Filter { listed, prefix: &prefix, tool: tool.as_deref() };
        let (effects, next_cursor) = across(app, pages, None, |app, partition, cursor, limit| {
            if budget.is_spent() {
                // The next page begins with this partition.
                return Ok((Vec::new(), Some(Vec::new())));
            }
            let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
            let now = app.projector.log_now();
            query::effects::page(&store.view(), place, &visible, filter, (show, &budget), (cursor, limit), now)
        })?;
        Ok(Effects { effects, unavailable_partitions, next_cursor })
    })
    .await
    .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnomaliesQuery {
    run: Option<RunId>,
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Answers a page of anomalies. Anomalies of a run may be in any partition, since they include records in the wrong
/// partition.
pub(super) async fn anomalies(app: App, Query(query): Query<AnomaliesQuery>) -> Result<Json<Anomalies>, Refusal> {
    let pages = Pages::parse(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let mut unavailable_partitions = app.wait_for_run_or_all(query.run.as_ref().map(RunId::borrow), &ask).await?;
    if query.run.is_some() {
        unavailable_partitions.extend(app.projector.absent());
    }
    app.read(move |app| {
        let visible = app.caller.visible();
        let (anomalies, next_cursor) = across(app, pages, None, |app, partition, cursor, limit| {
            let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
            query::anomalies::page(&store.view(), place, &visible, query.run.as_ref().map(RunId::borrow), cursor, limit)
        })?;
        Ok(Json(Anomalies { anomalies, unavailable_partitions, next_cursor }))
    })
    .await
    .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeadLettersQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn dead_letters(
    app: App,
    Query(query): Query<DeadLettersQuery>,
) -> Result<Json<DeadLetters>, Refusal> {
    let pages = Pages::parse(query.limit, query.cursor.as_deref())?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let unavailable_partitions = app.wait_for_all_runs(&ask).await?;
    app.read(move |app| {
        let (records, next_cursor) = across(app, pages, None, |app, partition, cursor, limit| {
            let store = app.projector.store(partition)?;
            query::dead_letters::page(&store.view(), app.topic_partition(partition), cursor, limit)
        })?;
        Ok(Json(DeadLetters { records, unavailable_partitions, next_cursor }))
    })
    .await
    .map_err(Refusal)
}

/// A dead letter with its first bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShownDeadLetter")]
pub(super) struct ShownDeadLetter {
    #[serde(flatten)]
    letter: runlog_schemas::answer::DeadLetter,
    /// Why it is unreadable.
    detail: String,
    /// The first 4096 bytes, hexadecimal; empty if the log no longer has them, or if `dropped` is set.
    #[schemars(regex(pattern = "^[0-9a-f]*$"), length(max = SHOWN_BYTES_MAX * 2))]
    hex: String,
    /// The position of the retention horizon that deleted the bytes. Their payload type is unknown, so a horizon of any
    /// payload type deletes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Position>,
}

/// Answers one dead letter, with its first bytes from the log.
pub(super) async fn dead_letter(app: App, Path(at): Path<String>) -> Result<Json<ShownDeadLetter>, Refusal> {
    app.caller.require(Scope::ReadContent)?;
    let usage = || Error::new(ErrorKind::Usage, format!("{at:?} is not PARTITION:OFFSET"));
    let (place, log) = split_log(&at);
    if log.is_some() {
        app.projector.home().check_log("the position", log)?;
    }
    let (partition, offset) = place.split_once(':').ok_or_else(usage)?;
    let partition: PartitionId = query::number(partition).ok_or_else(usage)?;
    let offset: Offset = query::number(offset).ok_or_else(usage)?;
    if partition.get() >= app.projector.journal().partitions {
        let message = format!("the journal has no partition {partition}");
        return Err(Error::new(ErrorKind::NotFound, message).in_partition(partition).into());
    }
    app.projector.check_held(partition)?;
    app.audit_read(None, json!({ "what": "dead letter", "at": at })).await?;
    app.blocking(move |app| {
        let store = app.projector.store(partition)?;
        let row = query::dead_letters::get(&store.view(), app.topic_partition(partition), offset)?;
        let (letter, detail) = row.ok_or_else(|| {
            let message = format!("no dead letter at {partition}:{offset}");
            Error::new(ErrorKind::NotFound, message).at(&app.projector.position(partition, offset, 0))
        })?;
        let mut reader = app.projector.log().reader(&[(partition, offset)])?;
        let read = reader.poll(1, DEADLINE)?;
        let record = read.first().filter(|record| record.offset == offset);
        let logged_at_millis = record.map_or(i64::MAX, |record| record.timestamp_millis);
        let dropped = Horizons::read(|key| store.view().get(key))?.dropped_by_any(offset, logged_at_millis);
        let bytes = record.filter(|_| dropped.is_none()).map(|record| record.value.as_slice()).unwrap_or_default();
        let hex = hex(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
        Ok(Json(ShownDeadLetter {
            letter,
            detail,
            hex,
            dropped: dropped.map(|by| app.projector.position(partition, by, 0)),
        }))
    })
    .await
    .map_err(Refusal)
}

pub(super) async fn verify(app: App, _: Query<Nothing>) -> Result<Json<Verification>, Refusal> {
    let busy = "a verification is in progress; nothing happened, send this request again later";
    let _turn = app.limits.verification.try_acquire().map_err(|_| Error::new(ErrorKind::Overloaded, busy))?;
    app.audit(Action::Verify, None, json!({})).await?;
    let started = Instant::now();
    let mut verification = app.blocking(|app| app.projector.verify()).await?;
    verification.seconds = started.elapsed().as_secs_f64();
    Ok(Json(verification))
}
