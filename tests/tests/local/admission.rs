//! A server at its limits refuses requests and appends nothing. An append completes even if its client disconnects.

use axum::http::header;
use futures_util::{StreamExt, stream::FuturesUnordered};
use runlog_log::{
    Ack, Entry, Kind, Log, PartitionId,
    memory::{AppendFault, MemoryLog},
};
use runlog_producer::{Action, Journal, Runlog, SideEffect};
use runlog_projector::{Config, Projector, index::APPENDS_MAX};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    draft::Draft,
    id::RunId,
};
use runlog_server::{access::AllowedHosts, append::Appender};
use runlog_tests::{
    hooked_log::{Hooks, hook},
    served,
    server::client,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};

/// Appends beyond the bound.
const BEYOND: usize = 10;
const RUN: &str = "r";
const DEADLINE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_millis(200);

/// Appends land once permitted.
#[derive(Debug)]
struct Gate {
    permits: Semaphore,
    arrived: Notify,
}

impl Hooks for Gate {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let (gate, log) = (self.clone(), log.clone());
        gate.arrived.notify_one();
        let landed = tokio::spawn(async move {
            gate.permits.acquire().await.unwrap().forget();
            log.append(partition, batch).await
        });
        Box::pin(async { landed.await.unwrap() })
    }
}

async fn projector(log: Arc<dyn Log>) -> (TempDir, Arc<Projector>) {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path(), || 0, || "journal".into());
    (dir, Arc::new(Projector::start(config, log).await.unwrap()))
}

/// An appender with a closed gate.
async fn gated() -> (TempDir, Arc<Appender>, Arc<Gate>) {
    let gate = Arc::new(Gate { permits: Semaphore::new(1), arrived: Notify::new() });
    let (dir, projector) = projector(hook(MemoryLog::new(1), &gate)).await;
    gate.arrived.notified().await;
    (dir, Arc::new(Appender::new(projector)), gate)
}

fn record(id: &str) -> Value {
    let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id });
    json!({ "run_id": RUN, "record_id": id, "payload": payload })
}

type Appending = JoinHandle<Result<Vec<Outcome>, runlog_projector::Error>>;

fn append(appender: &Arc<Appender>, id: &str, deadline: Duration) -> Appending {
    let (appender, draft) = (appender.clone(), Draft::parse(&record(id).to_string()).unwrap());
    tokio::spawn(async move { appender.append(RunId::new(RUN).unwrap(), vec![draft], deadline).await })
}

/// Waits for a future that must complete soon.
async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(2 * DEADLINE, what).await.expect("the future completes in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_not_reused_while_an_abandoned_append_may_still_land() {
    let (_dir, appender, gate) = gated().await;
    let first = append(&appender, "first", DEADLINE);
    within(gate.arrived.notified()).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());

    let refused = append(&appender, "impatient", SOON).await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    let second = append(&appender, "second", DEADLINE);
    tokio::time::timeout(SOON, gate.arrived.notified()).await.ok();
    gate.permits.add_permits(2);
    let outcome = within(second).await.unwrap().unwrap().remove(0);
    assert_eq!((outcome.outcome, outcome.reason), (Disposition::Applied.into(), None));
    let again = within(append(&appender, "first", DEADLINE)).await.unwrap().unwrap().remove(0);
    assert_eq!(again.outcome, Disposition::Repeat, "the abandoned append landed first");
    assert!(again.position.offset < outcome.position.offset);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_is_answered_within_its_deadline_although_the_log_does_not_answer() {
    let (_dir, appender, gate) = gated().await;
    let unknown = within(append(&appender, "first", SOON)).await.unwrap().unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable, "it may land: {unknown}");
    gate.permits.add_permits(1);
    let again = append(&appender, "first", DEADLINE).await.unwrap().unwrap().remove(0);
    assert_eq!(again.outcome, Disposition::Repeat);
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_beyond_the_bound_are_refused_without_an_effect() {
    let (_dir, appender, gate) = gated().await;
    let appending = (0..APPENDS_MAX + BEYOND).map(|nth| append(&appender, &nth.to_string(), DEADLINE));
    let mut appending: FuturesUnordered<_> = appending.collect();
    for _ in 0..BEYOND {
        // The others wait for the log.
        let refused = within(appending.next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    }
    gate.permits.add_permits(APPENDS_MAX);
    while let Some(one) = within(appending.next()).await {
        assert_eq!(one.unwrap().unwrap()[0].outcome, Disposition::Applied);
    }
    assert_eq!(gate.permits.available_permits(), 0, "all other appends landed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_the_log_refuses_is_overloaded_and_the_handle_stays_usable() {
    let log = MemoryLog::new(1);
    let (_dir, projector) = projector(Arc::new(log.clone())).await;
    let url = format!("http://{}", served::start(projector, AllowedHosts::default()).await.unwrap());
    let post = |id| client().unwrap().post(format!("{url}/v1/runs/{RUN}/records")).json(&record(id)).send();

    log.fail_next(AppendFault::Refused(Kind::Retry));
    let answer = post("one").await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()[header::RETRY_AFTER].as_bytes()), (429, &b"1"[..]));
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(answer.json::<Value>().await.unwrap()["kind"], "overloaded");
    log.fail_next(AppendFault::UnknownLost);
    let answer = post("two").await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get(header::RETRY_AFTER)), (503, None));
    assert_eq!(answer.json::<Value>().await.unwrap()["kind"], "unavailable", "it may have landed");

    let journal = Journal::parse(&url, None).unwrap();
    let runlog = Runlog::connect(runlog_producer::Config::new(journal, "test")).await.unwrap();
    let run = runlog.open("handle").await.unwrap();
    log.fail_next(AppendFault::Refused(Kind::Retry));
    let error = run.turn("user", "one").await.unwrap_err();
    let classification = (error.kind(), error.action(), error.side_effect());
    assert_eq!(classification, (ErrorKind::Overloaded, Action::Retry, SideEffect::None), "{error}");
    run.turn("user", "one").await.expect("the same again");
    run.flush().await.unwrap();
    run.end(runlog_producer::Outcome::Completed).await.unwrap();
}
