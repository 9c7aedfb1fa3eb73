//! Handlers about one run.

use super::{
    app::App,
    append::resolve::{self, SeenState},
    audit::Action,
    body::Text,
    byte_form::ByteForm,
    events::terms,
    large_response,
    multi_query::WithCorrelation,
    parameters::{Ask, NOT_BLANK, Patience, check_attribution, limit},
    problem::Refusal,
    read_point::{ReadContext, ReadPoint},
    strict_json::parsed,
};
use axum::{
    Json,
    extract::{Path, Query},
    response::Response,
};
use runlog_projector::index::{
    error::Error,
    projector::Consistency,
    query::{self, Order, events::Filter, facts, lookup, parse_cursor, parse_time, recovery, timeline},
};
use runlog_schemas::{
    answer::{self, ErrorKind, Lines, Lookup, Position, ReadBack, Recovery, Run},
    datum,
    id::{ContentHash, Fingerprint, Offset, OrEmpty, PartitionId, RecordId, RunId, split_log},
    json,
    payload::EffectResolution,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json as object;
use std::{fmt::Display, num::NonZeroU32};

pub(super) fn no_run(run_id: RunId<&str>) -> Error {
    Error::new(ErrorKind::NotFound, format!("no run {run_id}: no record of it has been applied"))
}

pub(super) async fn get(app: App, Path(run_id): Path<RunId>, Query(ask): Query<Ask>) -> Result<Json<Run>, Refusal> {
    let partition = app.wait_to_continue(run_id.borrow(), &ask).await?;
    let store = app.projector.store(partition)?;
    let run = query::runs::get(
        &app.rows(&store, run_id.borrow()),
        app.topic_partition(partition),
        run_id.borrow(),
        app.projector.log_now(),
    )?;
    run.map(Json).ok_or_else(|| no_run(run_id.borrow())).map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsQuery {
    /// Returns only the records whose facts hold at this time.
    at: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(default)]
    raw: bool,
    /// Adds the whole record to each line.
    #[serde(default)]
    whole: bool,
    family: Option<String>,
    kind: Option<String>,
    subject: Option<String>,
    related: Option<String>,
    tag: Option<String>,
    #[serde(default)]
    order: Order,
    /// The encoding of bytes.
    #[serde(default)]
    bytes: ByteForm,
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

impl RecordsQuery {
    /// Makes the filter of the run's records; absent for all records.
    fn filter(&self, run_id: &RunId, correlation: &[String]) -> Result<Option<Filter>, Error> {
        let filter = terms!(self, correlation).filter(Some(run_id))?;
        if filter == (Filter { run_id: Some(run_id.clone()), ..Filter::default() }) {
            return Ok(None);
        }
        Ok(Some(filter))
    }
}

pub(super) async fn records(
    app: App,
    Path(run_id): Path<RunId>,
    WithCorrelation(query, correlation): WithCorrelation<RecordsQuery>,
) -> Result<Response, Refusal> {
    let (filter, order, bytes) = (query.filter(&run_id, &correlation)?, query.order, query.bytes);
    let show = app.show(query.raw, query.whole, Some(run_id.borrow())).await?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let (cursor, limit) = (parse_cursor(query.cursor.as_deref())?, limit(query.limit)?);
    let at_millis = query.at.as_deref().map(parse_time).transpose()?;
    let as_of = query.as_of.as_deref();
    // Facts that hold at a time are in the rows of that time. Records stay at their positions, so the current rows have
    // them.
    let read_point = match at_millis {
        Some(_) => ReadPoint::wait_with_permits(&app, run_id.borrow(), &ask, as_of).await?,
        None => ReadPoint::wait(&app, run_id.borrow(), &ask, as_of).await?,
    };
    let wanted = PageRequest { run_id, read_point, at_millis, filter, page: (cursor, limit, order), show };
    large_response::build(&app, move |app| bytes.encode_page(wanted.page(app)?)).await.map_err(Refusal)
}

/// A requested page of a run's records.
struct PageRequest {
    run_id: RunId,
    read_point: ReadPoint,
    at_millis: Option<i64>,
    filter: Option<Filter>,
    page: (Option<Vec<u8>>, usize, Order),
    show: timeline::Show,
}

impl PageRequest {
    /// Blocking.
    fn page(&self, app: &App) -> Result<Lines, Error> {
        let Self { run_id, read_point, at_millis, filter, page: (cursor, limit, order), show } = self;
        let (run_id, cursor, proofs) = (run_id.borrow(), cursor.as_deref(), app.proofs());
        let show = timeline::Showing { show: *show, proofs: proofs.as_ref() };
        let store = app.projector.store(read_point.partition)?;
        let (contents, place) =
            (app.projector.contents(read_point.time_left()), app.topic_partition(read_point.partition));
        if let Some(at_millis) = *at_millis {
            let rows = read_point.rows(app, &store, run_id)?;
            if query::runs::get(&rows, place, run_id, app.projector.log_now())?.is_none() {
                return Err(no_run(run_id));
            }
            let wanted = facts::Query { at_millis, family: None, limit: *limit, order: *order };
            return timeline::page_valid_at(&rows, &contents, place, run_id, wanted, cursor, (filter.as_ref(), show));
        }
        let view = app.rows(&store, run_id);
        let is_indexed = query::runs::get(&view, place, run_id, app.projector.log_now())?.is_some();
        let ask = timeline::Query { limit: *limit, show, as_of: read_point.as_of, order: *order };
        if let Some(filter) = filter {
            if !is_indexed {
                return Err(no_run(run_id));
            }
            return timeline::page_matching(&view, &contents, place, (run_id, filter), ask, cursor);
        }
        let page = timeline::page(&view, &contents, place, run_id, ask, cursor)?;
        // A run exists once a record was applied to it.
        let exists = is_indexed && (cursor.is_some() || !page.records.is_empty());
        if exists { Ok(page) } else { Err(no_run(run_id)) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupQuery {
    tool: String,
    args: Option<String>,
    /// Replaces `args`, which may be too long for a URL.
    fingerprint: Option<Fingerprint>,
    key: Option<String>,
    occurrence: Option<NonZeroU32>,
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn lookup(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<LookupQuery>,
) -> Result<Json<Lookup>, Refusal> {
    let invalid = |why: &dyn Display| Error::new(ErrorKind::Invalid, format!("invalid args: {why}"));
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let fingerprint = match (query.args, query.fingerprint, query.key) {
        (None, None, Some(key)) if !key.is_empty() && query.occurrence.is_none() => {
            return lookup_by_key(app, run_id, (query.tool, key), &ask, query.as_of.as_deref()).await;
        }
        (Some(args), None, None) => {
            let fingerprint = Fingerprint::of_call(&query.tool, &args).map_err(|error| invalid(&error))?;
            // Refuses integers beyond the range of a double, as an append does.
            json::check_value(&args).map_err(|error| invalid(&error))?;
            fingerprint
        }
        (None, Some(fingerprint), None) => fingerprint,
        _ => {
            let message =
                "a lookup needs args, a fingerprint or a key (one of them, not empty); an occurrence excludes a key";
            return Err(Error::new(ErrorKind::Usage, message).into());
        }
    };
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    let occurrence = query.occurrence.map(NonZeroU32::get);
    read_point
        .answer_lookup(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            lookup::get(rows, contents, place, run_id, fingerprint.borrow(), occurrence)
        })
        .await
        .map_err(Refusal)
}

/// Answers the call that a key identifies.
async fn lookup_by_key(
    app: App,
    run_id: RunId,
    (tool, key): (String, String),
    ask: &Ask,
    as_of: Option<&str>,
) -> Result<Json<Lookup>, Refusal> {
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), ask, as_of).await?;
    read_point
        .answer_lookup(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            lookup::by_key(rows, contents, place, run_id, (&tool, &key))?.ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("run {run_id} has no call of {tool} with the idempotency key {key:?}"),
                )
            })
        })
        .await
        .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallQuery {
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn call(
    app: App,
    Path((run_id, id)): Path<(RunId, RecordId)>,
    Query(query): Query<CallQuery>,
) -> Result<Json<Lookup>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    read_point
        .answer_lookup(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            lookup::by_request(rows, contents, place, run_id, id.borrow())?.ok_or_else(|| {
                let error = Error::new(ErrorKind::NotFound, format!("run {run_id} has no call {id}"));
                error.about_record(id.borrow())
            })
        })
        .await
        .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecoveryQuery {
    #[serde(default)]
    full: bool,
    #[serde(default)]
    from_start: bool,
    content: Option<bool>,
    cursor: Option<String>,
    limit: Option<usize>,
    as_of: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

pub(super) async fn recovery(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<RecoveryQuery>,
) -> Result<Json<Recovery>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let cursor = parse_cursor(query.cursor.as_deref())?;
    let wanted = recovery::Query {
        full: query.full,
        from_start: query.from_start,
        content: query.content.unwrap_or(true),
        limit: limit(query.limit)?,
        pending: recovery::PENDING_MAX,
        now: None,
    };
    let mut read_point = ReadPoint::wait_to_continue(&app, run_id.borrow(), &ask, query.as_of.as_deref()).await?;
    if let (None, Some(cursor)) = (&query.as_of, cursor.clone()) {
        // All pages show one state of the run. If records were applied since, later pages read the earlier state.
        let (partition, run) = (read_point.partition, run_id.clone());
        let look = move |app: &App| {
            let store = app.projector.store(partition)?;
            recovery::cursor_offset(&app.rows(&store, run.borrow()), run.borrow(), &cursor)
        };
        if let Some(offset) = app.read(look).await? {
            read_point =
                ReadPoint::wait_with_permits(&app, run_id.borrow(), &ask, Some(&format!("{partition}:{offset}")))
                    .await?;
        }
    }
    let wanted = recovery::Query { now: query.as_of.is_none().then(|| app.projector.log_now()), ..wanted };
    read_point
        .answer_audited(&app, run_id, move |ReadContext { rows, contents, place, run_id }| {
            recovery::get(rows, contents, place, run_id, wanted, cursor.as_deref())?
                .map(Json)
                .ok_or_else(|| no_run(run_id))
        })
        .await
        .map_err(Refusal)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OutcomeQuery {
    position: Option<String>,
    #[serde(default)]
    record_id: OrEmpty<RecordId>,
    /// Positions of other records of the run, at most 16, separated by commas. The answer contains their outcomes too.
    also: Option<String>,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// Waits until the position is applied (inclusive), and by default for `latest`. Without a position, the record is
/// found by its id.
pub(super) async fn outcome(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<OutcomeQuery>,
) -> Result<Json<ReadBack>, Refusal> {
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let consistency = ask.consistency(Consistency::Latest)?;
    let also = also(&app, run_id.borrow(), query.also.as_deref())?;
    let Some(position) = query.position else {
        if !also.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "also= needs position=").into());
        }
        let Some(record_id) = query.record_id.borrow() else {
            return Err(Error::new(ErrorKind::Usage, "an outcome needs a position or a record_id").into());
        };
        // To other callers the run is absent, in doubt or not.
        let outcome = if app.caller.sees(run_id.borrow()) {
            app.projector.landed(run_id.borrow(), record_id, consistency, ask.deadline()).await?
        } else {
            app.wait_for_run(run_id.borrow(), &ask).await?;
            None
        };
        let message = || format!("run {run_id} has no record {record_id}");
        let none = || Error::new(ErrorKind::NotFound, message()).about_record(record_id);
        return outcome.map(Json).ok_or_else(none).map_err(Refusal);
    };
    let (position, record_id) = (position_in(&app, &position)?, query.record_id.borrow());
    if !app.caller.sees(run_id.borrow()) {
        let applied = Consistency::AtLeast(position.partition, position.offset);
        app.projector.wait(position.partition, applied, ask.deadline()).await?;
        return Err(app.projector.no_record_at(run_id.borrow(), &position, record_id).into());
    }
    let outcome = app.projector.read_back(run_id.borrow(), &position, record_id, &also, consistency, ask.deadline());
    Ok(Json(outcome.await?))
}

/// Parses a position of a request: PARTITION:OFFSET, or PARTITION:OFFSET:INDEX. Its log, if it names one, was compared before.
fn position_in(app: &App, text: &str) -> Result<Position, Error> {
    let usage = || {
        let message = format!("position {text:?} is neither PARTITION:OFFSET nor PARTITION:OFFSET:INDEX");
        Error::new(ErrorKind::Usage, message)
    };
    let parts: Vec<&str> = split_log(text).0.split(':').collect();
    let (partition, offset, index) = match parts[..] {
        [partition, offset] => (partition, offset, "0"),
        [partition, offset, index] => (partition, offset, index),
        _ => return Err(usage()),
    };
    let partition: PartitionId = query::number(partition).ok_or_else(usage)?;
    let offset: Offset = query::number(offset).ok_or_else(usage)?;
    let index: u32 = query::number(index).ok_or_else(usage)?;
    Ok(app.projector.position(partition, offset, index))
}

/// Most positions in one request. The network thread itself reads this small number of outcomes.
const ALSO_MAX: usize = 16;

/// Parses the positions of `also`, which must be in the run's partition.
pub(super) fn also(app: &App, run_id: RunId<&str>, text: Option<&str>) -> Result<Vec<Position>, Error> {
    let positions: Vec<&str> = text.into_iter().flat_map(|text| text.split(',')).collect();
    if positions.len() > ALSO_MAX {
        let message = format!("also= names {} positions, more than {ALSO_MAX}", positions.len());
        return Err(Error::new(ErrorKind::Usage, message));
    }
    let partition = app.projector.partition_of(run_id);
    let position = |text: &str| {
        let position = position_in(app, text)?;
        if position.partition == partition {
            return Ok(position);
        }
        let message = format!("run {run_id} is in partition {partition}, not in {}", position.partition);
        Err(Error::new(ErrorKind::Usage, message))
    };
    positions.into_iter().map(position).collect()
}

/// An operator's decision on a pending effect.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Resolution", extend(
    "required" = ["decision", "who", "why"],
    "anyOf" = [
        { "required": ["revision"], "properties": { "revision": { "type": "integer" } } },
        { "required": ["basis"], "properties": { "basis": { "type": "string" } } },
    ],
    "if" = { "properties": { "decision": { "const": "done" } } },
    "then" = { "required": ["result"] },
    "else" = { "properties": { "result": { "type": "null" } } },
))]
pub(super) struct ResolutionBody {
    /// `done` with this result; `adopt` the evidence; `not_done`, which asserts that the old process is dead; `give_up`.
    #[schemars(extend("enum" = ["done", "adopt", "not_done", "give_up"]))]
    decision: String,
    /// Required for `done`: any JSON, including null. Other decisions leave it out, or send null.
    #[serde(default, deserialize_with = "json::present")]
    #[schemars(with = "serde_json::Value")]
    result: Option<json::Json>,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    who: String,
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    why: String,
    /// The effect's revision on which the decision is based, as `pending` shows it. The decision is refused if the
    /// effect's revision is greater. Required without a `basis`.
    #[serde(default)]
    revision: Option<u64>,
    /// The effect's `basis` on which the decision is based, as `pending` shows it. The decision is refused if the basis
    /// has changed. Required without a `revision`, and if the newest evidence has the record id of other evidence, since
    /// the revision is then the same.
    #[serde(default)]
    #[schemars(with = "Option<datum::Sha256>")]
    basis: Option<ContentHash>,
    /// Decides although the process that started the effect wrote to the run within the last 30 s, and may still record
    /// the result.
    #[serde(default)]
    force: bool,
    /// The evidence that `adopt` adopts, or that `not_done` overrides if the evidence shows that the effect happened.
    #[serde(default)]
    evidence: Option<RecordId>,
}

pub(super) async fn resolve(
    app: App,
    Path((run_id, id)): Path<(RunId, RecordId)>,
    Query(patience): Query<Patience>,
    Text(body): Text,
) -> Result<Json<answer::Outcome>, Refusal> {
    let body: ResolutionBody = parsed(&body, "a resolution")?;
    if body.decision == "done" && body.result.is_none() {
        return Err(
            Error::new(ErrorKind::Usage, "a resolution with decision `done` needs a `result`; it may be null").into()
        );
    }
    check_attribution("a resolution", &body.who, &body.why)?;
    let resolution = EffectResolution {
        request_record_id: id,
        decision: body.decision,
        result: body.result,
        who: body.who,
        why: body.why,
    };
    if resolution.has_stray_result() {
        let message = "only a resolution with decision `done` has a `result`; leave it out";
        return Err(Error::new(ErrorKind::Usage, message).into());
    }
    let seen = SeenState { revision: body.revision, basis: body.basis, force: body.force, evidence: body.evidence };
    if !app.caller.sees(run_id.borrow()) {
        return Err(resolve::resolve_of_absent(&app.projector, run_id.borrow(), &resolution, patience.deadline())
            .await
            .into());
    }
    let detail = object!({ "effect": resolution.request_record_id, "decision": resolution.decision,
        "revision": seen.revision, "force": seen.force, "who": resolution.who, "why": resolution.why });
    app.audit(Action::Resolve, Some(run_id.borrow()), detail).await?;
    resolve::resolve(&app.appender, run_id.borrow(), resolution, seen, &app.caller, patience.deadline())
        .await
        .map(Json)
        .map_err(Refusal)
}
