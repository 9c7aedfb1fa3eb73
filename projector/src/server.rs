//! The HTTP face: `/v1` mirrors the commands, errors are RFC 9457 problems, and every wait has a deadline.
//!
//! Handlers only translate: waiting is `Projector::wait`, answers are `query`'s, appends are `append`'s. One function,
//! `problem`, maps errors to responses.

use crate::index::{
    Consistency, Error, Projector,
    as_of::RunRows,
    executor::NoResult,
    principal::Proofs,
    query::{LIMIT, LIMIT_MAX, TopicPartition, timeline::Show},
    store::{Store, View},
};
use audit::Action;
use auth::{Caller, token_file::Scope};
use axum::{
    Extension, Json, Router,
    extract::{Query, Request},
    http::{HeaderValue, Method, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Response},
};
use folders::Folders;
use metrics::Metrics;
use room::Room;
use routes::{Route, routes};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Journal, OrOther, Problem},
    canonical,
    codec::{Framing, RECORD_BYTES_MAX},
    datum::hex,
    id::{self, PartitionId, RunId},
    schema,
};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{json, value::RawValue};
use shutdown::Shutdown;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

pub mod access;
mod append;
mod appends;
pub mod audit;
pub mod auth;
mod body;
mod byte_form;
mod changes;
mod checkpoints;
mod client_certificate;
mod connections;
mod contents;
mod copies;
mod events;
mod expiry;
mod facts;
mod fleet;
mod folders;
mod followed;
mod handshake;
mod health;
mod horizons;
mod large;
mod listeners;
mod metrics;
mod moment;
mod openapi;
mod overview;
mod repeated;
mod requests;
mod room;
mod routes;
mod run_list;
mod runs;
mod shutdown;
mod skips;
mod standing;
mod strangers;
mod tail;
pub mod tls;
mod whoami;

pub use listeners::{Options, serve};
pub use routes::operations;

/// How long a query waits when it does not say.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a query may ask to wait.
const DEADLINE_MAX: Duration = Duration::from_secs(300);
/// When a client may send again what was refused as `overloaded`, seconds, if nothing else is known.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// What every handler has: the projector, room, the shutdown, metrics, on whose behalf it answers, and the options. As an extractor it is
/// that of the request's caller; the router's own is nobody's.
#[derive(Clone, Debug)]
pub(crate) struct App(pub(crate) Arc<Projector>, Arc<Room>, Shutdown, Arc<Metrics>, Caller, Arc<Options>);

/// The routes over `projector`, without a socket: a tower service, for a test or a simulation that calls it itself. It
/// never shuts down; to drop the future of an answer is what a client does that disconnects.
pub fn router(projector: Arc<Projector>) -> Router {
    router_until(projector, Options::default(), Shutdown::new(Duration::ZERO).1)
}

/// The routes over `projector`, which answer in time once `shutdown` begins, for whoever `options` lets in.
fn router_until(projector: Arc<Projector>, options: Options, shutdown: Shutdown) -> Router {
    App::new(projector, options, shutdown).router()
}

impl App {
    fn new(projector: Arc<Projector>, options: Options, shutdown: Shutdown) -> Self {
        let refusals = options.authentication.as_ref().map(|authentication| authentication.refusals.clone());
        let (room, metrics) = (
            Arc::new(Room::new(&projector.shared.config.executor)),
            Arc::new(Metrics::new(refusals.unwrap_or_default())),
        );
        Self(projector, room, shutdown, metrics, Caller::Nobody, Arc::new(options))
    }

    /// All routes, with the checks that the options ask for.
    fn router(self) -> Router {
        let add = |router: Router<Self>, route: Route| router.route(route.path, route.guarded());
        let router = routes().into_iter().fold(Router::new(), add);
        router
            .fallback(unknown)
            .method_not_allowed_fallback(not_so)
            .layer(middleware::map_response(reshape))
            .layer(middleware::from_fn(legible))
            .layer(middleware::from_fn_with_state(self.1.clone(), requests::admit))
            .layer(middleware::from_fn_with_state(self.2.clone(), shutdown::answer_in_time))
            .layer(middleware::from_fn_with_state(self.5.clone(), auth::authenticate))
            .layer(middleware::from_fn_with_state(self.5.hosts.clone(), access::guard))
            .layer(middleware::from_fn_with_state(Folders::of(&self.0), folders::hide))
            .layer(middleware::map_response(requests::not_stored))
            .layer(middleware::from_fn_with_state(self.clone(), requests::observe))
            .with_state(self)
    }

    /// Health, readiness and metrics, for anyone. None of them names a run.
    fn admin_router(self) -> Router {
        let probes = routes().into_iter().filter(|route| requests::PROBES.contains(&route.path));
        let add = |router: Router<Self>, route: Route| router.route(route.path, route.handler);
        probes
            .fold(Router::new(), add)
            .fallback(unknown_to_admin)
            .method_not_allowed_fallback(not_so)
            .layer(middleware::map_response(reshape))
            .layer(middleware::from_fn_with_state(self.2.clone(), shutdown::answer_in_time))
            .layer(middleware::from_fn_with_state(self.5.hosts.clone(), access::guard))
            .layer(middleware::map_response(requests::not_stored))
            .layer(middleware::from_fn_with_state(self.clone(), requests::observe))
            .with_state(self)
    }
}

/// Any error as a response: `application/problem+json` with the kind that callers act on.
pub(crate) fn problem(error: &Error) -> Response {
    let problem = error.problem();
    if problem.kind == ErrorKind::Internal {
        tracing::error!("{}", problem.detail);
    }
    let mut response = respond(problem);
    if let Some(wait) = error.wait() {
        // Whole seconds, so that the wait is over then.
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    }
    response
}

fn respond(problem: Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = problem.kind;
    let mut response =
        (status, Extension(kind), [(header::CONTENT_TYPE, "application/problem+json")], Json(problem)).into_response();
    if kind == ErrorKind::Overloaded {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        problem(&self)
    }
}

/// Refuses a query that is not UTF-8: what replaces such bytes would ask for something else. So would a path without its
/// dots, which most clients take out of it before they ask.
async fn legible(request: Request, next: middleware::Next) -> Response {
    let dots = |segment: &str| String::from_utf8(unescaped(segment)).ok().and_then(|text| id::dots(&text));
    if let Some(dots) = request.uri().path().split('/').find_map(dots) {
        let message = format!("{dots:?} names nothing here: whatever reads a URL takes it out of the path");
        return problem(&Error::new(ErrorKind::Usage, message));
    }
    match std::str::from_utf8(&unescaped(request.uri().query().unwrap_or_default())) {
        Ok(_) => next.run(request).await,
        Err(error) => problem(&Error::new(ErrorKind::Usage, "the query is not UTF-8").because(error)),
    }
}

/// The bytes that a part of a URL stands for.
fn unescaped(text: &str) -> Vec<u8> {
    let digit = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        let escaped = if *byte == b'%' { digit(at + 1) } else { None };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    bytes
}

async fn not_so(uri: Uri, request: Request) -> Response {
    let message = format!("{} does not take {}", uri.path(), request.method());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::METHOD_NOT_ALLOWED.as_u16(), ..problem })
}

/// Names the paths that are served, for whoever asks for the root.
fn index() -> Response {
    let paths: BTreeSet<&str> = operations().map(|(_, path)| path).collect();
    Json(json!({ "runlog": env!("CARGO_PKG_VERSION"), "paths": paths })).into_response()
}

/// Not `not_found`, which says of something that can be asked for that it is not there: this was no question.
async fn unknown(uri: Uri, request: Request) -> Response {
    if uri.path() == "/" && request.method() == Method::GET {
        return index();
    }
    let message = format!("no such resource: {} {}; GET / lists the paths", request.method(), uri.path());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

async fn unknown_to_admin(uri: Uri) -> Response {
    let message = format!("no such resource: {}; this address serves {}", uri.path(), requests::PROBES.join(", "));
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

/// The framework's own refusals (a query or body that does not parse) in the form of ours.
async fn reshape(response: Response) -> Response {
    let status = response.status();
    let plain =
        response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !status.is_client_error() || !plain {
        return response;
    }
    let kind = if status == StatusCode::PAYLOAD_TOO_LARGE { ErrorKind::TooLarge } else { ErrorKind::Usage };
    let body = axum::body::to_bytes(response.into_body(), 64 << 10).await.unwrap_or_default();
    problem(&Error::new(kind, String::from_utf8_lossy(&body).into_owned()))
}

/// What every query takes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// What a question takes that is about nothing in particular. Clients say how long they wait with any question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {
    #[serde(rename = "deadline_ms")]
    _deadline_ms: Option<u64>,
}

/// What a request takes that appends: it has no freshness. `consistency` is taken and ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patience {
    deadline_ms: Option<u64>,
    #[serde(rename = "consistency")]
    #[schemars(skip)]
    _consistency: Option<String>,
}

impl Patience {
    pub(crate) fn deadline(&self) -> Duration {
        Ask { consistency: None, deadline_ms: self.deadline_ms }.deadline()
    }
}

impl Ask {
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline_ms.map_or(DEADLINE, Duration::from_millis).min(DEADLINE_MAX)
    }

    /// Queries that name a run are at `latest` unless they say otherwise, lists at `eventual`.
    pub(crate) fn consistency(&self, default: Consistency) -> Result<Consistency, Error> {
        self.consistency.as_deref().map_or(Ok(default), |text| {
            Consistency::parse(text).ok_or_else(|| {
                Error::new(
                    ErrorKind::Usage,
                    format!("consistency {text:?} is none of eventual, latest, at-least=PARTITION:OFFSET"),
                )
            })
        })
    }
}

impl App {
    fn metrics(&self) -> &Metrics {
        &self.3
    }

    /// Waits as a query about `run_id` asks, and says where the run is.
    pub(crate) async fn fresh(&self, run_id: RunId<&str>, ask: &Ask) -> Result<PartitionId, Error> {
        let partition = self.0.partition_of(run_id);
        self.0.wait(partition, ask.consistency(Consistency::Latest)?, ask.deadline()).await?;
        Ok(partition)
    }

    /// What may expire.
    fn watched(&self) -> expiry::Watched {
        let (authentication, tls) = (self.5.authentication.clone(), self.5.tls.clone());
        expiry::Watched { authentication, tls, clock: self.0.shared.config.clock }
    }

    /// Why the certificates are not those that their files have now.
    fn certificates_failure(&self) -> Option<String> {
        self.5.tls.as_ref()?.failure()
    }

    /// Why the tokens are not those that their file has now.
    fn tokens_failure(&self) -> Option<String> {
        self.5.authentication.as_ref()?.failure()
    }

    /// The issuers whose keys are not those that their place has now, and why.
    fn key_failures(&self) -> Vec<(String, String)> {
        self.5.authentication.as_ref().map(|authentication| authentication.key_failures()).unwrap_or_default()
    }

    /// On whose behalf this answers.
    fn caller(&self) -> &Caller {
        &self.4
    }

    /// What says of a decision whether a server authenticated its principal; none where no key is shared that could.
    fn proofs(&self) -> Option<Proofs> {
        self.caller().proofs(&self.0.journal().journal_id)
    }

    /// The rows of a run as it is: none if the caller may not see it, as of a run that does not exist.
    fn rows<'s>(&self, store: &'s Store, run_id: RunId<&str>) -> RunRows<'s> {
        self.rows_in(store.view(), run_id)
    }

    /// The same in a view that was taken already.
    fn rows_in<'s>(&self, view: View<'s>, run_id: RunId<&str>) -> RunRows<'s> {
        if self.caller().sees(run_id) { RunRows::Live(view) } else { RunRows::Absent }
    }

    /// How records are shown, of a run or of all. That content is shown unmasked is audited.
    ///
    /// Errors: `Forbidden` for content that the caller may not read; those of the audit log.
    async fn show(&self, raw: bool, whole: bool, run_id: Option<RunId<&str>>) -> Result<Show, Error> {
        if raw || whole {
            self.caller().require(Scope::ReadContent)?;
            self.audit(Action::ReadContent, run_id, json!({ "what": "records" })).await?;
            return Ok(if whole { Show::Whole } else { Show::Raw });
        }
        Ok(if self.caller().has(Scope::ReadContent) { Show::Masked } else { Show::Hidden })
    }

    pub(crate) fn place(&self, partition: PartitionId) -> TopicPartition<'_> {
        TopicPartition { topic: self.0.log().topic(), partition }
    }

    /// Runs a read of the indices, and of content, off the network threads, when its turn comes.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        self.0.shared.read(move || read(&app)).await.map_err(no_answer)?
    }

    /// Runs a read for a stream on one of few threads, since it may take much memory.
    pub(crate) async fn read_ahead<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (app, executor) = (self.clone(), &self.0.shared.config.executor);
        self.1.stream_threads.run(executor, move || read(&app)).await.map_err(no_answer)?
    }

    /// Runs off the network threads what may wait for the log for long, or must not wait for reads.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        self.0.shared.config.executor.run(move || read(&app)).await.map_err(no_answer)?
    }
}

/// Why a read gave no answer.
fn no_answer(error: NoResult) -> Error {
    match error.is_cancelled() {
        true => Error::new(ErrorKind::Unavailable, "the server is ending").because(error),
        false => Error::new(ErrorKind::Internal, "a query panicked").because(error),
    }
}

async fn journal(app: App, _: Query<Nothing>) -> Json<Journal> {
    let journal = app.0.journal();
    let written = schema::lowest();
    let schema_ids = match app.0.shared.config.schemas.framing(written) {
        Ok(Framing::Confluent(id)) => BTreeMap::from([(hex(&written.fingerprint), id)]),
        Ok(Framing::SingleObject) | Err(_) => BTreeMap::new(),
    };
    Json(Journal {
        topic: app.0.log().topic().to_owned(),
        journal_id: journal.journal_id.clone(),
        partitions: journal.partitions,
        schemas: schema::versions().iter().map(|version| hex(&version.fingerprint)).collect(),
        schema_ids,
        payload_bytes_max: app.0.content().map_or(RECORD_BYTES_MAX, |_| runlog_content::CONTENT_BYTES_MAX) as u64,
        features: Feature::ALL
            .iter()
            .copied()
            .filter(|feature| *feature != Feature::Bases || app.0.shared.config.writes_basis())
            .map(OrOther::from)
            .collect(),
    })
}

/// A request's body as what it should be, whatever content type it came with.
fn parsed<T: DeserializeOwned>(body: &str, what: &str) -> Result<T, Error> {
    let invalid = |why: &dyn Display| Error::new(ErrorKind::Invalid, format!("the body is not {what}: {why}"));
    if let Some(pointer) = canonical::repeated_member(body) {
        return Err(invalid(&format!("two members of one object have this name, at {pointer:?}")));
    }
    object(body).map_err(|error| invalid(&error))
}

/// Parses an object. Serde reads an array as well: its items as the members, in the order of the source.
fn object<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if !text.trim_start().starts_with('{') {
        return Err(serde_json::Error::custom("not an object"));
    }
    serde_json::from_str(text)
}

/// Like [`object`], for a member of a body that may be absent or null. With `default` and `deserialize_with`.
fn member<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    raw.map(|raw| object(raw.get())).transpose().map_err(D::Error::custom)
}

/// What [`check_attribution`] takes, for the OpenAPI document.
const NOT_BLANK: &str = r"\S";

/// Refuses a decision, named by `what`, without a name of who made it or a reason.
fn check_attribution(what: &str, who: &str, why: &str) -> Result<(), Error> {
    if who.trim().is_empty() || why.trim().is_empty() {
        return Err(Error::new(ErrorKind::Usage, format!("{what} says who decided and why")));
    }
    Ok(())
}

/// A page's size as asked for.
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, Error> {
    let limit = asked.unwrap_or(LIMIT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::new(ErrorKind::Usage, format!("limit is from 1 to {LIMIT_MAX}, not {limit}")))
}
