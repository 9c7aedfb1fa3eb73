//! A reference server: the HTTP interface over runlog-model, which shares no rule with the product. `runlog conformance` must
//! pass on it. With one rule broken, the suite must fail that rule and no other.
//!
//! ```text
//!   request ──▶ State::answer ──▶ append (delivers to the model) · answers, lists (the model's)
//!                      └── is_wrong(rule): behaves as a wrong implementation
//! ```
//!
//! A rule that the model can switch off is broken in the model, any other rule in the handler. The server has only the
//! routes that the suite requests. It applies an append before it answers, so no query waits.

use anyhow::Context;
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State as Shared},
    http::{Response, header},
};
use runlog_model::{Delivery, Journal, Model, Rule, What, partition_of};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};
use tokio::sync::{oneshot, watch};

mod answers;
mod append;
mod canonical;
mod copies;
mod lists;

const TOPIC: &str = "reference";
const PARTITIONS: u32 = 4;
/// The longest body, bytes.
const BODY_BYTES_MAX: usize = 16 << 20;
/// The log time of its first record, milliseconds since the Unix epoch.
const LOG_CLOCK: i64 = 1_795_305_600_000;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct ReferenceServer {
    /// `http://HOST:PORT`.
    pub url: String,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ReferenceServer {
    /// Starts a server that breaks the named rule of the suite, or a correct server.
    pub fn start(wrong: Option<&str>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State::new(wrong.unwrap_or_default())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let router = Router::new().fallback(handle).with_state(state);
            let until = async move { drop(ended.await) };
            tokio::select! {
                served = async { axum::serve(listener, router).await } => served,
                () = until => Ok(()),
            }
        };
        // The thread ends only on request. A failed listener would fail every client, so the result is dropped.
        let thread = thread::spawn(move || drop(runtime.block_on(serve)));
        Ok(Self { url, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for ReferenceServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The suite's name of a rule of the model: `RepeatOfApplied` is `repeat_of_applied`.
pub fn name_of(rule: Rule) -> String {
    let mut name = String::new();
    for letter in format!("{rule:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

async fn handle(Shared(state): Shared<Arc<Mutex<State>>>, request: Request) -> Response<Body> {
    let parsed = ParsedRequest::read(request).await;
    if let Ok(parsed) = &parsed
        && let ["v1", "runs", run, "tail"] = parsed.path.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && !parsed.is("until_end")
    {
        return followed(state, run.to_owned());
    }
    let reply = match parsed {
        Ok(parsed) => state.lock().map(|mut state| state.answer(&parsed)),
        Err(error) => Ok(Err(problem(400, "invalid", &format!("{error:#}")))),
    };
    let reply = reply.unwrap_or_else(|_| Err(problem(500, "internal", "it panicked before")));
    let reply = reply.unwrap_or_else(|problem| problem);
    let response = Response::builder().status(reply.status).header(header::CONTENT_TYPE, reply.content_type);
    response.body(Body::from(reply.body)).unwrap_or_default()
}

/// The stream of a run's tail, which follows new records.
fn followed(state: Arc<Mutex<State>>, run_id: String) -> Response<Body> {
    let Ok(appends) = state.lock().map(|state| state.appends.subscribe()) else { return Response::default() };
    let events = futures_util::stream::unfold((appends, 0), move |(mut appends, sent)| {
        let (state, run_id) = (state.clone(), run_id.clone());
        async move {
            loop {
                appends.borrow_and_update();
                let (new, ends) = state.lock().ok()?.events_after(&run_id, sent);
                if !new.is_empty() {
                    let next = sent + new.len();
                    return Some((Ok::<_, std::convert::Infallible>(new.concat()), (appends, next)));
                }
                if ends {
                    return None;
                }
                appends.changed().await.ok()?;
            }
        }
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    response.body(Body::from_stream(events)).unwrap_or_default()
}

/// A parsed request.
#[derive(Debug)]
struct ParsedRequest {
    post: bool,
    /// Percent-decoded.
    path: Vec<String>,
    query: BTreeMap<String, String>,
    body: String,
}

impl ParsedRequest {
    async fn read(request: Request) -> anyhow::Result<Self> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().trim_start_matches('/').split('/').map(percent_decode).collect::<Result<_, _>>()?;
        let mut query = BTreeMap::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.insert(percent_decode(name)?, percent_decode(value)?);
        }
        let body = String::from_utf8(to_bytes(body, BODY_BYTES_MAX).await?.into())?;
        Ok(Self { post: parts.method == "POST", path, query, body })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    fn is(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

fn percent_decode(text: &str) -> anyhow::Result<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'%').then(|| after.get(..2)).flatten();
        let digits = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).context("not UTF-8")
}

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    content_type: &'static str,
    body: String,
}

/// An answer, or an error as an answer.
type Answer = Result<Reply, Reply>;

fn ok(body: &Value) -> Answer {
    Ok(Reply { status: 200, content_type: "application/json", body: body.to_string() })
}

fn problem(status: u16, kind: &str, detail: &str) -> Reply {
    let body =
        json!({"type": format!("about:blank#{kind}"), "title": kind, "status": status, "detail": detail, "kind": kind});
    Reply { status, content_type: "application/problem+json", body: body.to_string() }
}

fn not_found(what: &str) -> Reply {
    problem(404, "not_found", what)
}

/// The log in the form of the model, and the broken rule.
#[derive(Clone, Debug)]
struct State {
    model: Model,
    /// The model before the last append; kept only for rules whose wrong answer is that old.
    before_last: Option<Model>,
    wrong: String,
    /// The next offset of each partition.
    next: Vec<u64>,
    appended: u64,
    privacy: BTreeMap<(String, String), String>,
    /// Records that were refused as a gap, by run and record id.
    gaps: BTreeSet<(String, String)>,
    /// Runs with a refused batch.
    batches: BTreeSet<String>,
    /// The number of appends; the stream of a tail waits for its changes.
    appends: watch::Sender<u64>,
}

impl State {
    fn new(wrong: &str) -> Self {
        let journal = Journal { topic: TOPIC.to_owned(), journal_id: "reference".to_owned(), partitions: PARTITIONS };
        let genesis = json!({"payload": {"type": "genesis", "journal_id": "reference", "partitions": PARTITIONS}});
        let mut broken: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| name_of(*rule) == wrong).collect();
        if wrong == "partition_of_run" {
            broken.push(Rule::WrongPartition);
        }
        let mut state = Self {
            model: Model::new(journal).breaking(&broken),
            before_last: None,
            wrong: wrong.to_owned(),
            next: vec![0; PARTITIONS as usize],
            appended: 0,
            privacy: BTreeMap::new(),
            gaps: BTreeSet::new(),
            batches: BTreeSet::new(),
            appends: watch::channel(0).0,
        };
        for partition in 0..PARTITIONS {
            state.deliver(partition, genesis.clone());
        }
        state
    }

    /// Whether this server breaks this rule.
    fn is_wrong(&self, rule: &str) -> bool {
        self.wrong == rule
    }

    fn partition_of(&self, run_id: &str) -> u32 {
        if self.is_wrong("partition_of_run") {
            return run_id.bytes().map(u32::from).sum::<u32>() % PARTITIONS;
        }
        partition_of(run_id, PARTITIONS)
    }

    /// Appends one record; returns its offset.
    fn deliver(&mut self, partition: u32, record: Value) -> u64 {
        self.deliver_in(partition, record, 1)
    }

    /// Appends one record in a schema version; returns its offset.
    fn deliver_in(&mut self, partition: u32, record: Value, version: u16) -> u64 {
        if ["default_is_latest", "latest_of_lists", "at_least_of_lists"].contains(&self.wrong.as_str()) {
            self.before_last = Some(self.model.clone());
        }
        let next = &mut self.next[partition as usize];
        let offset = *next;
        *next += 1;
        self.appended += 1;
        let inner = record["payload"]["records"].as_array();
        let records = match inner.filter(|_| record["payload"]["type"] == "batch") {
            Some(records) => records.as_slice(),
            None => std::slice::from_ref(&record),
        };
        let datums = records.iter().map(|record| canonical::sha256(&record.to_string())).collect();
        let contents = records.iter().map(runlog_model::content_hash).collect();
        let log_millis = LOG_CLOCK + i64::try_from(self.appended).unwrap_or_default();
        let what = What::Record { record: Arc::new(record), version, datums, contents, claimant: None };
        self.model.deliver(&Delivery { partition, offset, log_millis, what });
        self.appends.send_replace(self.appended);
        offset
    }

    fn answer(&mut self, request: &ParsedRequest) -> Answer {
        let mut asked_path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let twice = percent_decode(asked_path.get(2).unwrap_or(&"")).unwrap_or_default();
        if self.is_wrong("run_ids_encoded") && asked_path.len() > 2 {
            asked_path[2] = &twice;
        }
        let answer = if request.post { self.posted(request, &asked_path) } else { self.read(request, &asked_path) };
        let untyped = |reply: Reply| Reply { content_type: "application/json", ..reply };
        if self.is_wrong("problem_details") { answer.map_err(untyped) } else { answer }
    }

    fn posted(&mut self, request: &ParsedRequest, path: &[&str]) -> Answer {
        match path {
            ["v1", "runs"] => Err(problem(405, "usage", "runs are not posted")),
            ["v1", "runs", run, "records"] => {
                let reads_back = request.get("consistency") == Some("latest");
                let outcome = self.append(run, &request.body, request.is("check"))?;
                if reads_back { self.with_writer(run, &outcome) } else { Ok(outcome) }
            }
            ["v1", "runs", run, "copies"] => self.copy(run, &request.body),
            ["v1", "runs", run, "claims"] => self.claim(run, &request.body),
            ["v1", "runs", run, "effects", id, "resolution"] => self.resolve(run, id, &request.body),
            ["v1", "skips"] => self.skip(&request.body),
            ["v1", "horizons"] => self.retain(&request.body),
            _ => Err(not_found("no such resource")),
        }
    }

    fn read(&self, request: &ParsedRequest, path: &[&str]) -> Answer {
        match path {
            ["v1", "journal"] => {
                let topic = if self.is_wrong("journal_told") { "another" } else { TOPIC };
                ok(&json!({"topic": topic, "journal_id": "reference", "partitions": PARTITIONS, "schemas": [],
                    "schema_ids": {}, "payload_bytes_max": BODY_BYTES_MAX, "features": ["revisions", "bases", "commitments"]}))
            }
            ["v1", "runs"] => self.runs(request),
            ["v1", "events"] => self.events(request),
            ["v1", "anomalies"] => self.anomalies(request),
            ["v1", "runs", run] => self.show_run(request, run),
            ["v1", "runs", run, "records"] => self.records(request, run),
            ["v1", "runs", run, "tail"] => self.tail(request, run),
            ["v1", "runs", run, "lookup"] => self.lookup(request, run),
            ["v1", "runs", run, "calls", id] => self.call(request, run, id),
            ["v1", "runs", run, "checkpoints"] => self.checkpoints(request, run),
            ["v1", "runs", run, "checkpoints", "latest"] => self.checkpoint(request, run),
            ["v1", "runs", run, "checkpoints", id] => self.checkpoint_of(request, run, id),
            ["v1", "runs", run, "recovery"] => self.recovery(request, run),
            ["v1", "runs", run, "outcome"] => self.outcome(request, run),
            ["v1", "runs", run, "standing", list] => self.list_open_items(request, run, list),
            ["v1", "runs", run, "facts"] => self.facts(request, run),
            _ => Err(not_found("no such resource")),
        }
    }
}
