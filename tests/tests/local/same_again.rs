//! Handles, HTTP, server and projector under one scheduler and one virtual clock run deterministically.

use axum::{body::Body, http};
use futures_util::future::join_all;
use runlog_log::{
    Clock, Delivery, Log, Offset, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_producer::{Config, HttpSender, Journal, NoResponse, RecordFilter, Runlog};
use runlog_projector::{Executor, Projector};
use serde_json::json;
use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    runtime,
    time::{Instant, sleep, timeout},
};
use tower::ServiceExt;

/// The virtual time at which a story begins, milliseconds since the Unix epoch.
const EPOCH: u64 = 1_700_000_000_000;
const GATES: u64 = 20;
const AGENTS: u64 = 8;

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    static IDS: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> u64 {
    let since = BEGUN.get().expect("a story has begun").elapsed();
    EPOCH + u64::try_from(since.as_millis()).expect("a short story")
}

fn ids() -> String {
    IDS.set(IDS.get() + 1);
    format!("id-{}", IDS.get())
}

/// Every request with its answer, in the order of the answers.
type Transcript = Arc<Mutex<Vec<String>>>;

/// A network that takes five milliseconds each way.
fn network(projector: Arc<Projector>, transcript: Transcript) -> HttpSender {
    let router = runlog_server::router(projector);
    HttpSender::new(runlog_tests::server::client().expect("without TLS no file is read"), move |request| {
        let (router, transcript) = (router.clone(), transcript.clone());
        Box::pin(async move {
            let request_line = format!("{} {}", request.method(), request.url());
            let request = http::Request::<reqwest::Body>::try_from(request)?.map(Body::new);
            sleep(Duration::from_millis(5)).await;
            let Ok(response) = router.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let lost = |why| NoResponse { sent: true, why };
            let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| lost(error.to_string()))?;
            sleep(Duration::from_millis(5)).await;
            let line = format!("{} {request_line}: {} {}", clock(), parts.status, String::from_utf8_lossy(&body));
            transcript.lock().expect("a transcript").push(line);
            Ok(http::Response::from_parts(parts, body).into())
        })
    })
}

/// A process with a run of its own.
async fn agent(runlog: Runlog, n: u64) {
    let run = runlog.open(format!("r{n}").as_str()).await.expect("a run");
    for call in 0..3 {
        run.tool("book", &call).once(async |_| Ok(json!(call).into())).await.expect("an answer");
    }
}

/// Runs processes that wait for the same partition, then concurrent calls of one process, one of them cancelled
/// before its intent is acknowledged. Then another process recovers the run.
async fn story(journal: Journal) -> (Vec<Delivery>, Vec<String>) {
    BEGUN.set(Some(Instant::now()));
    IDS.set(0);
    let millis = || i64::try_from(clock()).expect("a time");
    let log = MemoryLog::with(MemoryOptions { partitions: 1, clock: Clock::new(millis), ..MemoryOptions::default() });
    let dir = tempfile::tempdir().expect("a folder");
    let settings = runlog_projector::Config {
        executor: Executor::Caller(Arc::new(|task| drop(tokio::spawn(task)))),
        ..runlog_projector::Config::new(dir.path(), clock, ids)
    };
    let projector = Arc::new(Projector::start(settings, Arc::new(log.clone())).await.expect("a projector"));
    let steps = tokio::spawn({
        let projector = projector.clone();
        async move {
            loop {
                projector.step(30);
                sleep(Duration::from_millis(3)).await;
            }
        }
    });
    let transcript = Transcript::default();
    let config = Config {
        http: Some(network(projector, transcript.clone())),
        log: Some(Arc::new(log.clone())),
        claimed_by: "a test".into(),
        clock,
        ids,
        ..Config::new(journal, "test")
    };
    let runlog = Runlog::connect(config).await.expect("a journal");
    for ended in join_all((0..AGENTS).map(|n| tokio::spawn(agent(runlog.clone(), n)))).await {
        ended.expect("an agent");
    }
    let run = runlog.open("r").await.expect("a run");
    let gate = async |n: u64| {
        let effect = |_| async move {
            sleep(Duration::from_millis(n * 7 % 5)).await;
            Ok(json!(n).into())
        };
        run.tool("book", &n).once(effect).await
    };
    for answer in join_all((0..GATES).map(gate)).await {
        answer.expect("an answer");
    }
    timeout(Duration::from_millis(7), gate(GATES)).await.expect_err("cancelled");
    let run = runlog.open("r").await.expect("a run");
    assert_eq!(run.recovery().completed.len() as u64, GATES, "{:?}", run.recovery());
    let read = runlog.records("r", &RecordFilter::default(), None, 1000).await.expect("records");
    assert!(read.records.len() as u64 > 2 * GATES, "{read:?}");
    steps.abort();
    let places: Vec<_> = PartitionId::all(log.partitions()).map(|partition| (partition, Offset::ZERO)).collect();
    let records = log.reader(&places).and_then(|mut reader| reader.poll(usize::MAX, Duration::ZERO));
    let answers = transcript.lock().expect("a transcript").clone();
    (records.expect("records"), answers)
}

/// Runs the story on a thread of its own, without other threads, sockets and real time.
fn run_story(journal: &Journal) -> (Vec<Delivery>, Vec<String>) {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(story(journal.clone()))
}

#[test]
fn the_same_program_gives_the_same_log_and_the_same_answers() {
    let server = "http://localhost".to_owned();
    // Appends by the server, and by the handle itself.
    for journal in [Journal::Http(server.clone()), Journal::Kafka { brokers: "none".into(), server }] {
        let (first, second) = (run_story(&journal), run_story(&journal));
        assert_eq!((first.0.len(), first.1.len()), (second.0.len(), second.1.len()));
        assert_eq!(first.1.iter().zip(&second.1).find(|(one, other)| one != other), None);
        assert_eq!(first.0.iter().zip(&second.0).find(|(one, other)| one != other), None);
    }
}
