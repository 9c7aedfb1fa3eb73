//! The HTTP interface: `/v1` mirrors the commands, errors are RFC 9457 problems, and every wait has a deadline.
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
use memory_limits::MemoryLimits;
use metrics::Metrics;
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
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod health;
mod horizons;
mod listeners;
mod memory_limits;
mod metrics;
mod multi_query;
mod open_items;
mod openapi;
mod overview;
mod read_point;
mod requests;
mod response_memory;
mod routes;
mod run_list;
mod runs;
mod shutdown;
mod skips;
mod tail;
pub mod tls;
mod unauthenticated_connections;
mod watched_file;
mod whoami;

pub use listeners::{Options, serve};
pub use routes::operations;

/// How long a query waits if it names no deadline.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a query may ask to wait.
const DEADLINE_MAX: Duration = Duration::from_secs(300);
/// When a client may repeat a request that was refused as `overloaded`, in seconds, if no better estimate exists.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The state of every handler: the projector, memory limits, the shutdown, metrics, the caller, and the options. As an
/// extractor it has the request's caller; the router's own state has the caller `Nobody`.
#[derive(Clone, Debug)]
pub(crate) struct App(pub(crate) Arc<Projector>, Arc<MemoryLimits>, Shutdown, Arc<Metrics>, Caller, Arc<Options>);

/// Makes the routes over `projector` as a tower service without a socket, for tests and simulations. The service never
/// shuts down. Dropping the future of an answer has the same effect as a client that disconnects.
pub fn router(projector: Arc<Projector>) -> Router {
    router_until(projector, Options::default(), Shutdown::new(Duration::ZERO).1)
}

/// Makes the routes over `projector`, with the authentication of `options`. They answer in time once `shutdown` begins.
fn router_until(projector: Arc<Projector>, options: Options, shutdown: Shutdown) -> Router {
    App::new(projector, options, shutdown).router()
}

impl App {
    fn new(projector: Arc<Projector>, options: Options, shutdown: Shutdown) -> Self {
        let refusals = options.authentication.as_ref().map(|authentication| authentication.refusals.clone());
        let (memory_limits, metrics) = (
            Arc::new(MemoryLimits::new(&projector.shared.config.executor)),
            Arc::new(Metrics::new(refusals.unwrap_or_default())),
        );
        Self(projector, memory_limits, shutdown, metrics, Caller::Nobody, Arc::new(options))
    }

    /// All routes, with the checks that the options ask for.
    fn router(self) -> Router {
        let add = |router: Router<Self>, route: Route| router.route(route.path, route.guard());
        let router = routes().into_iter().fold(Router::new(), add);
        router
            .fallback(refuse_path)
            .method_not_allowed_fallback(refuse_method)
            .layer(middleware::map_response(reshape))
            .layer(middleware::from_fn(check_url_text))
            .layer(middleware::from_fn_with_state(self.1.clone(), requests::admit))
            .layer(middleware::from_fn_with_state(self.2.clone(), shutdown::answer_in_time))
            .layer(middleware::from_fn_with_state(self.5.clone(), auth::authenticate))
            .layer(middleware::from_fn_with_state(self.5.hosts.clone(), access::guard))
            .layer(middleware::from_fn_with_state(Folders::new(&self.0), folders::hide))
            .layer(middleware::map_response(requests::forbid_storing))
            .layer(middleware::from_fn_with_state(self.clone(), requests::observe))
            .with_state(self)
    }

    /// Serves health, readiness and metrics to anyone. Their answers name no run.
    fn admin_router(self) -> Router {
        let probes = routes().into_iter().filter(|route| requests::PROBES.contains(&route.path));
        let add = |router: Router<Self>, route: Route| router.route(route.path, route.handler);
        probes
            .fold(Router::new(), add)
            .fallback(refuse_admin_path)
            .method_not_allowed_fallback(refuse_method)
            .layer(middleware::map_response(reshape))
            .layer(middleware::from_fn_with_state(self.2.clone(), shutdown::answer_in_time))
            .layer(middleware::from_fn_with_state(self.5.hosts.clone(), access::guard))
            .layer(middleware::map_response(requests::forbid_storing))
            .layer(middleware::from_fn_with_state(self.clone(), requests::observe))
            .with_state(self)
    }
}

/// Makes an `application/problem+json` response from an error, with the kind that callers act on.
pub(crate) fn problem(error: &Error) -> Response {
    let problem = error.problem();
    if problem.kind == ErrorKind::Internal {
        tracing::error!("{}", problem.detail);
    }
    let mut response = respond(problem);
    if let Some(wait) = error.wait() {
        // Rounded up to whole seconds, so that the wait is over after them.
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

/// Refuses a query that is not UTF-8: with replacement characters it would ask for something else. Refuses a path with
/// `.` or `..` segments too, since most clients remove them before they send the request.
async fn check_url_text(request: Request, next: middleware::Next) -> Response {
    let dots = |segment: &str| String::from_utf8(decode_percent(segment)).ok().and_then(|text| id::dots(&text));
    if let Some(dots) = request.uri().path().split('/').find_map(dots) {
        let message = format!("the path must not have the segment {dots:?}, since most clients remove it from a URL");
        return problem(&Error::new(ErrorKind::Usage, message));
    }
    match std::str::from_utf8(&decode_percent(request.uri().query().unwrap_or_default())) {
        Ok(_) => next.run(request).await,
        Err(error) => problem(&Error::new(ErrorKind::Usage, "the query is not UTF-8").because(error)),
    }
}

/// Decodes the percent escapes of a part of a URL.
fn decode_percent(text: &str) -> Vec<u8> {
    // Without the check of the digits, the parser would accept a sign.
    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let digit = |at: usize| text.get(at..at + 2).filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        let escaped = if *byte == b'%' { digit(at + 1) } else { None };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    bytes
}

async fn refuse_method(uri: Uri, request: Request) -> Response {
    let message = format!("{} does not take {}", uri.path(), request.method());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::METHOD_NOT_ALLOWED.as_u16(), ..problem })
}

/// Answers `GET /` with the paths that are served.
fn index() -> Response {
    let paths: BTreeSet<&str> = operations().map(|(_, path)| path).collect();
    Json(json!({ "runlog": env!("CARGO_PKG_VERSION"), "paths": paths })).into_response()
}

/// Answers an unknown path with the kind `usage`. The kind `not_found` means that the path is known and the resource
/// absent.
async fn refuse_path(uri: Uri, request: Request) -> Response {
    if uri.path() == "/" && request.method() == Method::GET {
        return index();
    }
    let message = format!("no such resource: {} {}; GET / lists the paths", request.method(), uri.path());
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

async fn refuse_admin_path(uri: Uri) -> Response {
    let message = format!("no such resource: {}; this address serves {}", uri.path(), requests::PROBES.join(", "));
    let problem = Error::new(ErrorKind::Usage, message).problem();
    respond(Problem { status: StatusCode::NOT_FOUND.as_u16(), ..problem })
}

/// Turns the framework's own refusals (a query or body that does not parse) into problems.
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

/// The parameters of every query.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

/// The parameters of a request without a subject. Clients may send their deadline with any request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {
    #[serde(rename = "deadline_ms")]
    _deadline_ms: Option<u64>,
}

/// The parameters of a request that appends. Freshness does not apply to it: `consistency` is accepted and ignored.
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

    /// Reads the consistency. Default: `latest` for queries that name a run, `eventual` for lists.
    pub(crate) fn consistency(&self, default: Consistency) -> Result<Consistency, Error> {
        self.consistency.as_deref().map_or(Ok(default), |text| {
            Consistency::parse(text).ok_or_else(|| {
                Error::new(
                    ErrorKind::Usage,
                    format!("consistency {text:?} must be eventual, latest or at-least=PARTITION:OFFSET"),
                )
            })
        })
    }
}

impl App {
    fn metrics(&self) -> &Metrics {
        &self.3
    }

    /// Waits for the consistency of a query about `run_id`. Returns the run's partition.
    pub(crate) async fn wait_for_run(&self, run_id: RunId<&str>, ask: &Ask) -> Result<PartitionId, Error> {
        let partition = self.0.partition_of(run_id);
        self.0.wait(partition, ask.consistency(Consistency::Latest)?, ask.deadline()).await?;
        Ok(partition)
    }

    /// The credentials and certificates that may expire.
    fn watched(&self) -> expiry::Watched {
        let (authentication, tls) = (self.5.authentication.clone(), self.5.tls.clone());
        expiry::Watched { authentication, tls, clock: self.0.shared.config.clock }
    }

    /// Why the server uses older certificates than their files contain.
    fn certificates_failure(&self) -> Option<String> {
        self.5.tls.as_ref()?.failure()
    }

    /// Why the server uses older tokens than their file contains.
    fn tokens_failure(&self) -> Option<String> {
        self.5.authentication.as_ref()?.failure()
    }

    /// The issuers whose keys are older than their file or URL has, and why.
    fn key_failures(&self) -> Vec<(String, String)> {
        self.5.authentication.as_ref().map(|authentication| authentication.key_failures()).unwrap_or_default()
    }

    /// The caller whose request this answers.
    fn caller(&self) -> &Caller {
        &self.4
    }

    /// Proves and checks that a server authenticated the principal of a decision. Absent without a shared key.
    fn proofs(&self) -> Option<Proofs> {
        self.caller().proofs(&self.0.journal().journal_id)
    }

    /// Reads a run's current rows. For a caller that may not see the run it has none, as if the run did not exist.
    fn rows<'s>(&self, store: &'s Store, run_id: RunId<&str>) -> RunRows<'s> {
        self.rows_in(store.view(), run_id)
    }

    /// Reads as [`Self::rows`] does, in an existing view.
    fn rows_in<'s>(&self, view: View<'s>, run_id: RunId<&str>) -> RunRows<'s> {
        if self.caller().sees(run_id) { RunRows::Live(view) } else { RunRows::Absent }
    }

    /// Decides how records are shown, for one run or for all. Showing unmasked content is audited.
    ///
    /// Errors: `Forbidden` for content that the caller may not read; errors of the audit log.
    async fn show(&self, raw: bool, whole: bool, run_id: Option<RunId<&str>>) -> Result<Show, Error> {
        if raw || whole {
            self.caller().require(Scope::ReadContent)?;
            self.audit(Action::ReadContent, run_id, json!({ "what": "records" })).await?;
            return Ok(if whole { Show::Whole } else { Show::Raw });
        }
        Ok(if self.caller().has(Scope::ReadContent) { Show::Masked } else { Show::Hidden })
    }

    pub(crate) fn topic_partition(&self, partition: PartitionId) -> TopicPartition<'_> {
        TopicPartition { topic: self.0.log().topic(), partition }
    }

    /// Queues a read of the indices and of content, and runs it off the network threads.
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

    /// Runs work off the network threads that may wait long for the log, or must not queue behind reads.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        self.0.shared.config.executor.run(move || read(&app)).await.map_err(no_answer)?
    }
}

/// Maps a read without a result to an error.
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
        features: Feature::ALL.iter().copied().filter(|feature| app.0.has(*feature)).map(OrOther::from).collect(),
    })
}

/// Parses a request's body, whatever its content type.
fn parsed<T: DeserializeOwned>(body: &str, what: &str) -> Result<T, Error> {
    let invalid = |why: &dyn Display| Error::new(ErrorKind::Invalid, format!("the body is not {what}: {why}"));
    unambiguous(body).map_err(|error| invalid(&error))
}

/// Parses an object like [`object`]. Refuses two members of one name, because readers differ in which member they use.
fn unambiguous<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if let Some(pointer) = canonical::repeated_member(text) {
        let message = format!("two members of one object have this name, at {pointer:?}");
        return Err(serde_json::Error::custom(message));
    }
    object(text)
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

/// The pattern that [`check_attribution`] accepts, for the OpenAPI document.
const NOT_BLANK: &str = r"\S";

/// Refuses a decision, named by `what`, without a name of who made it or a reason.
fn check_attribution(what: &str, who: &str, why: &str) -> Result<(), Error> {
    if who.trim().is_empty() || why.trim().is_empty() {
        return Err(Error::new(ErrorKind::Usage, format!("{what} says who decided and why")));
    }
    Ok(())
}

/// Checks the size of a page.
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, Error> {
    let limit = asked.unwrap_or(LIMIT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::new(ErrorKind::Usage, format!("limit is from 1 to {LIMIT_MAX}, not {limit}")))
}
