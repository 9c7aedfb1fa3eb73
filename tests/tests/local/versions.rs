//! A client of this version with a server of commit 696bf14, and a client of that commit with a server of this version.

use anyhow::{Context, bail, ensure};
use axum::{Router, body::Body, http::Request};
use runlog_log::{Log, PartitionId, memory::MemoryLog};
use runlog_producer::{Answer, Error, HttpSender, Journal, Json, LoopState, NoResponse, Outcome, Run, Runlog};
use runlog_projector::Projector;
use runlog_schemas::answer;
use runlog_tests::{programs::here, server::client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tempfile::{TempDir, tempdir};
use tokio::sync::Notify;
use tower::ServiceExt;

const BODY_MAX: usize = 1 << 20;
const WAIT: Duration = Duration::from_secs(10);

/// Members that answers of this version have and answers of commit 696bf14 had not.
const ADDED: [&str; 5] = ["features", "revision", "applied", "warnings", "writer"];

/// The query parameters that the producer of commit 696bf14 sends; its servers refuse others.
const PARAMETERS: [&str; 14] = [
    "at_or_before",
    "consistency",
    "content",
    "correlation",
    "cursor",
    "deadline_ms",
    "family",
    "from_start",
    "full",
    "kind",
    "limit",
    "position",
    "record_id",
    "whole",
];
/// Further parameters that its servers accept.
const OTHERS: [&str; 1] = ["tag"];

/// A server of this version.
struct Server {
    _dir: TempDir,
    log: MemoryLog,
    router: Router,
}

impl Server {
    async fn start() -> anyhow::Result<Self> {
        let (dir, log) = (tempdir()?, MemoryLog::new(1));
        let ids = || uuid::Uuid::new_v4().to_string();
        let config = runlog_projector::Config::new(dir.path(), || 1_700_000_000_000, ids);
        let projector = Projector::start(config, Arc::new(log.clone())).await?;
        Ok(Self { _dir: dir, log, router: runlog_server::router(Arc::new(projector)) })
    }

    async fn end(&self) -> anyhow::Result<u64> {
        Ok(self.log.bounds(PartitionId::from(0), WAIT).await?.end.get())
    }

    /// Asks as the producer of commit 696bf14 does: without a content type.
    async fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<(u16, Value)> {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned()))?;
        answer_of(self.router.clone(), request).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let (status, answer) = self.ask("GET", path, "").await?;
        ensure!(status == 200, "{path}: {status} {answer}");
        serde_json::from_value(answer.clone()).with_context(|| format!("{path}: {answer}"))
    }
}

async fn answer_of(router: Router, request: Request<Body>) -> anyhow::Result<(u16, Value)> {
    let Ok(response) = router.oneshot(request).await;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), BODY_MAX).await?;
    Ok((status, serde_json::from_slice(&body)?))
}

/// Removes the members that commit 696bf14 did not have from an answer.
fn age(answer: &mut Value) {
    match answer {
        Value::Object(members) => {
            members.retain(|name, _| !ADDED.contains(&name.as_str()));
            if members.contains_key("outcome") {
                members.remove("detail");
                if members["outcome"] != "repeat" {
                    members.insert("journal_seq".into(), Value::Null);
                }
            }
            members.values_mut().for_each(age);
        }
        Value::Array(items) => items.iter_mut().for_each(age),
        _ => {}
    }
}

/// The answers of a server of commit 696bf14, and its requests.
#[derive(Clone)]
struct Older {
    router: Router,
    received: Arc<Mutex<Vec<(String, String)>>>,
    /// Blocks the next read-back.
    holds: Arc<AtomicBool>,
    held: Arc<Notify>,
}

impl Older {
    fn new(server: &Server) -> Self {
        let (received, holds, held) = (Arc::default(), Arc::default(), Arc::default());
        Self { router: server.router.clone(), received, holds, held }
    }

    async fn send(self, request: reqwest::Request) -> Result<reqwest::Response, NoResponse> {
        let url = request.url();
        let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
        let text = String::from_utf8_lossy(&body).into_owned();
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push((path.clone(), text));
        if path.contains("/outcome?") && self.holds.swap(false, Ordering::SeqCst) {
            self.held.notify_one();
            std::future::pending::<()>().await;
        }
        let failed = |error: &dyn std::fmt::Display| NoResponse { sent: true, why: error.to_string() };
        let forwarded = Request::builder().method(request.method().as_str()).uri(&path).body(Body::from(body));
        let forwarded = forwarded.map_err(|error| failed(&error))?;
        let (status, mut answer) = answer_of(self.router, forwarded).await.map_err(|error| failed(&error))?;
        age(&mut answer);
        let response = axum::http::Response::builder().status(status).body(answer.to_string().into_bytes());
        Ok(response.map_err(|error| failed(&error))?.into())
    }

    async fn connect(&self) -> anyhow::Result<Runlog> {
        let journal = Journal::parse("http://older", None).context("a URL")?;
        let older = self.clone();
        let sender = HttpSender::new(client()?, move |request| Box::pin(older.clone().send(request)));
        let config = runlog_producer::Config { http: Some(sender), ..runlog_producer::Config::new(journal, "agent") };
        Ok(Runlog::connect(config).await?)
    }

    fn requests(&self) -> Vec<(String, String)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn book(run: &Run) -> Result<Answer, Error> {
    run.tool("book", &json!({"seat": 1})).once(|_| async { Ok(Json::from(json!("B-1"))) }).await
}

#[tokio::test]
async fn a_handle_works_with_an_older_server_and_sends_it_only_known_parameters() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let older = Older::new(&server);
    let run = older.connect().await?.open("trip").await?;
    ensure!(!book(&run).await?.recorded, "it is new");
    run.turn("user", "hello").await?;
    run.checkpoint(&LoopState::default()).await?;
    drop(run);
    let run = older.connect().await?.open("trip").await?;
    ensure!(run.recovery().checkpoint.is_some(), "the checkpoint is found");
    run.end(Outcome::Completed).await?;
    let known_parameters: BTreeSet<&str> = PARAMETERS.into_iter().chain(OTHERS).collect();
    let requests = older.requests();
    ensure!(requests.len() > 8, "{requests:?}");
    for (path, _) in requests {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let new = query.split('&').map(|term| term.split('=').next().unwrap_or_default());
        let new: Vec<&str> = new.filter(|name| !name.is_empty() && !known_parameters.contains(name)).collect();
        ensure!(new.is_empty(), "{path} has {new:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_handle_refuses_by_name_a_request_that_an_older_server_would_misunderstand() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let older = Older::new(&server);
    let run = older.connect().await?.open("trip").await?;
    older.holds.store(true, Ordering::SeqCst);
    // Cancelled during its read-back, the call never started: the handle records that next, in its own epoch.
    tokio::select! {
        answer = book(&run) => bail!("{answer:?}"),
        () = older.held.notified() => {}
    }
    let error = run.turn("user", "settles it").await.err().context("an older server accepts the decision")?;
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    ensure!(message.contains("does not have the feature revisions"), "{message}");
    let sent = older.requests();
    ensure!(sent.iter().all(|(_, body)| !body.contains("effect_resolution")), "{sent:?}");
    Ok(())
}

/// The request body with which the producer of commit 696bf14 posts a record: its golden file of version 1, which
/// that commit has, too.
fn golden_body(name: &str, sequencing: &Value) -> anyhow::Result<Value> {
    let file = here("..").join("schemas/golden/v1").join(format!("{name}.json"));
    let mut record: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let members = record.as_object_mut().context("a record")?;
    members.extend(sequencing.as_object().context("members")?.clone());
    // The golden files' hashes match no call; a producer sends no wrong hashes.
    if let Some(payload) = record["payload"].as_object_mut() {
        payload.remove("args_sha256");
        payload.remove("fingerprint");
    }
    Ok(record)
}

#[tokio::test]
async fn requests_of_an_older_client_are_answered_as_it_expects() -> anyhow::Result<()> {
    let server = Server::start().await?;
    server.read::<answer::Journal>("/v1/journal").await?;
    let (status, claim) = server.ask("POST", "/v1/runs/run-1/claims", r#"{"claimed_by": "one"}"#).await?;
    ensure!(status == 200 && claim["epoch"] == 1, "{status} {claim}");
    let mut offset = 0;
    for (number, name) in (1u64..).zip(["conversation_turn", "tool_call_requested"]) {
        let sequencing = json!({"run_id": "run-1", "record_id": name, "writer_id": claim["writer_id"], "writer_epoch": 1,
            "writer_seq": number, "journal_seq": number, "idempotency_key": null, "dedupe_key": null});
        let record = golden_body(name, &sequencing)?.to_string();
        let path = "/v1/runs/run-1/records?deadline_ms=10000";
        let (status, appended) = server.ask("POST", path, &record).await?;
        ensure!(status == 200 && appended["outcome"] == "applied", "{name}: {status} {appended}");
        let outcome: answer::Outcome = serde_json::from_value(appended)?;
        offset = outcome.position.offset.get();
    }
    let position = format!("position=0:{offset}:0&record_id=tool_call_requested");
    let path = format!("/v1/runs/run-1/outcome?{position}&consistency=latest&deadline_ms=10000");
    let read_back: answer::ReadBack = server.read(&path).await?;
    ensure!(read_back.epoch.get() == 1, "{read_back:?}");
    let path = "/v1/runs/run-1/recovery?full=true&from_start=false&content=true&limit=1000&deadline_ms=10000";
    let recovery: answer::Recovery = server.read(path).await?;
    ensure!(recovery.pending.len() == 1, "{recovery:?}");
    let path = "/v1/runs/run-1/records?whole=true&limit=1000&deadline_ms=10000&family=conversation_turn";
    server.read::<answer::Lines>(path).await?;

    // A decision without a revision would apply to any later state of the effect.
    let end = server.end().await?;
    let decision = r#"{"decision": "not_done", "who": "jo", "why": "the airline has no booking"}"#;
    let path = "/v1/runs/run-1/effects/tool_call_requested/resolution?deadline_ms=10000";
    let (status, problem) = server.ask("POST", path, decision).await?;
    let detail = problem["detail"].as_str().unwrap_or_default();
    ensure!(status == 400 && problem["kind"] == "invalid" && detail.contains("revision"), "{status} {problem}");
    ensure!(server.end().await? == end, "no record was appended");
    Ok(())
}
