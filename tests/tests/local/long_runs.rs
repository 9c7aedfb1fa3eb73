//! Runs with many calls: which requests of a handle find a call that the last checkpoint covers.

use anyhow::{Context, ensure};
use axum::{Router, body::Body, http::Request};
use runlog_log::memory::MemoryLog;
use runlog_producer::{Answer, Config, Error, HttpSender, Journal, Json, LoopState, NoResponse, Run, Runlog};
use runlog_projector::Projector;
use runlog_schemas::answer::ErrorKind;
use runlog_tests::server::client;
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering},
};
use tempfile::TempDir;
use tower::ServiceExt;

const CALLS: u32 = 6;
const BODY_MAX: usize = 1 << 20;

/// How the server differs from one of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Current,
    /// It has no feature `call_keys`.
    Older,
    /// The connection's first server has the feature, and the server that answers lookups has not.
    Mixed,
    /// Lookups have no answer.
    Silent,
}

/// A server in this process, and the requests that it received.
#[derive(Clone)]
struct Site {
    _dir: Arc<TempDir>,
    router: Router,
    server: Server,
    received: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start() -> anyhow::Result<Self> {
        let (dir, log) = (tempfile::tempdir()?, MemoryLog::new(1));
        let config =
            runlog_projector::Config::new(dir.path(), || 1_700_000_000_000, || uuid::Uuid::new_v4().to_string());
        let projector = Projector::start(config, Arc::new(log)).await?;
        let router = runlog_server::router(Arc::new(projector));
        Ok(Self { _dir: Arc::new(dir), router, server: Server::Current, received: Arc::default() })
    }

    /// The same journal through another server.
    fn through(&self, server: Server) -> Self {
        Self { server, received: Arc::default(), ..self.clone() }
    }

    async fn send(self, request: reqwest::Request) -> Result<reqwest::Response, NoResponse> {
        let failed = |error: &dyn std::fmt::Display| NoResponse { sent: true, why: error.to_string() };
        let url = request.url();
        let mut path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        if path.contains("/lookup?") && self.server == Server::Silent {
            return Err(failed(&"no answer"));
        }
        if self.server == Server::Mixed {
            // A server that does not know the parameter.
            path = path.replace("&key=", "&unknown=");
        }
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
        let forwarded = Request::builder().method(request.method().as_str()).uri(&path).body(Body::from(body));
        let Ok(response) = self.router.oneshot(forwarded.map_err(|error| failed(&error))?).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), BODY_MAX).await.map_err(|error| failed(&error))?;
        let mut answer: Value = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
        if self.server == Server::Older
            && let Some(features) = answer["features"].as_array_mut()
        {
            features.retain(|feature| feature != "call_keys");
        }
        let response = axum::http::Response::builder().status(status).body(answer.to_string().into_bytes());
        Ok(response.map_err(|error| failed(&error))?.into())
    }

    /// A producer for which every run with a checkpoint is long.
    async fn connect(&self) -> anyhow::Result<Runlog> {
        let site = self.clone();
        let sender = HttpSender::new(client()?, move |request| Box::pin(site.clone().send(request)));
        let journal = Journal::parse("http://site", None).context("a URL")?;
        let config = Config { http: Some(sender), covered_list_max: 0, ..Config::new(journal, "agent") };
        Ok(Runlog::connect(config).await?)
    }

    /// The numbers of lists of ended calls and of lookups that were requested.
    fn reads(&self) -> (usize, usize) {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let is_list = |path: &&String| path.contains("from_start=true") && !path.contains("&limit=1&");
        (received.iter().filter(is_list).count(), received.iter().filter(|path| path.contains("/lookup?")).count())
    }

    fn lookups(&self) -> Vec<String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.iter().filter(|path| path.contains("/lookup?")).cloned().collect()
    }
}

async fn pay(run: &Run, key: Option<&str>, number: u32, ran: &AtomicU32) -> Result<Answer, Error> {
    let tool = run.tool("pay", &number);
    let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
    tool.once(|_| async { Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst)))) }).await
}

/// A run whose checkpoint covers some calls with a key and one without.
async fn long_run() -> anyhow::Result<(Site, AtomicU32)> {
    let (site, ran) = (Site::start().await?, AtomicU32::new(0));
    let run = site.connect().await?.open("long").await?;
    for number in 0..CALLS {
        pay(&run, Some(&format!("k{number}")), number, &ran).await?;
    }
    pay(&run, None, CALLS, &ran).await?;
    run.checkpoint(&LoopState::default()).await?;
    ensure!(site.reads() == (0, 0), "a run without a checkpoint has no covered call: {:?}", site.reads());
    Ok((site, ran))
}

#[tokio::test]
async fn opening_a_run_and_a_call_with_a_key_read_no_list_of_covered_calls() -> anyhow::Result<()> {
    let (site, ran) = long_run().await?;
    let site = site.through(Server::Current);
    let run = site.connect().await?.open("long").await?;
    ensure!(run.recovery().checkpoint.is_some() && site.reads() == (0, 0), "{:?}", site.reads());
    for key in ["k4", "k1", "k4"] {
        let number = key[1..].parse()?;
        ensure!(pay(&run, Some(key), number, &ran).await?.recorded, "{key} is recorded");
    }
    ensure!(site.reads() == (0, 2), "each key is looked up once: {:?}", site.reads());
    for recorded in [false, true] {
        ensure!(pay(&run, Some("new"), 9, &ran).await?.recorded == recorded, "it is new once");
    }
    ensure!(!pay(&run, None, CALLS, &ran).await?.recorded, "the process resumes at the checkpoint");
    run.checkpoint(&LoopState::default()).await?;
    ensure!(site.reads() == (0, 3), "{:?}", site.reads());
    // An answer at `latest` of a server that reads from a deposed leader may lack the call.
    let claim = run.recovery().position.offset;
    for lookup in site.lookups() {
        let consistency = format!("consistency=at-least%3D0%3A{claim}");
        ensure!(lookup.split(['?', '&']).any(|term| term == consistency), "{lookup} has no {consistency}");
    }
    Ok(())
}

#[tokio::test]
async fn a_process_that_begins_at_the_start_lists_covered_calls_once_it_needs_them() -> anyhow::Result<()> {
    let (site, ran) = long_run().await?;
    let site = site.through(Server::Current);
    let run = site.connect().await?.open("long").await?;
    ensure!(pay(&run, Some("k2"), 2, &ran).await?.recorded && site.reads() == (0, 1), "{:?}", site.reads());
    ensure!(pay(&run, None, CALLS, &ran).await?.recorded && site.reads() == (1, 1), "{:?}", site.reads());
    ensure!(pay(&run, Some("k3"), 3, &ran).await?.recorded && site.reads() == (1, 1), "{:?}", site.reads());
    ensure!(!pay(&run, None, CALLS, &ran).await?.recorded, "it answers once");
    Ok(())
}

#[tokio::test]
async fn a_key_that_no_server_looks_up_is_found_in_the_list() -> anyhow::Result<()> {
    let (site, ran) = long_run().await?;
    for (server, lookups) in [(Server::Older, 0), (Server::Mixed, 1)] {
        let site = site.through(server);
        let run = site.connect().await?.open("long").await?;
        ensure!(run.recovery().checkpoint.is_some(), "it resumes");
        for number in [3, 1] {
            ensure!(pay(&run, Some(&format!("k{number}")), number, &ran).await?.recorded, "{server:?}");
        }
        ensure!(site.reads() == (1, lookups), "{server:?}: {:?}", site.reads());
    }
    let site = site.through(Server::Current);
    let run = site.connect().await?.open("long").await?;
    ensure!(!pay(&run, Some(&"k".repeat(1100)), 1, &ran).await?.recorded, "a URL has no place for the key");
    ensure!(site.reads() == (1, 0), "{:?}", site.reads());
    Ok(())
}

#[tokio::test]
async fn an_effect_does_not_run_if_its_key_cannot_be_looked_up() -> anyhow::Result<()> {
    let (site, ran) = long_run().await?;
    let before = ran.load(Ordering::SeqCst);
    let run = site.through(Server::Silent).connect().await?.open("long").await?;
    for (key, number) in [("k1", 1), ("new", 9)] {
        let error = pay(&run, Some(key), number, &ran).await.err().context("there is no answer")?;
        ensure!(error.kind() == ErrorKind::Unavailable, "{key}: {error}");
    }
    ensure!(ran.load(Ordering::SeqCst) == before, "no effect ran");
    Ok(())
}
