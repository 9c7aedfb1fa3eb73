//! A server on a mirror refuses what only the journal's home can answer, before it reads a body, and answers the rest.

use runlog_log::{
    Log, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::index::store::meta::HomeRow;
use runlog_schemas::id::{LogId, Offset};
use runlog_server::operations;
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const WAIT: Duration = Duration::from_secs(30);

/// The home of a journal, as a partition's row has it.
fn home(log: &str, rival: &str) -> HomeRow {
    HomeRow {
        epoch: 7,
        log: log.into(),
        origin: log.into(),
        rival: rival.into(),
        from: String::new(),
        offset: Offset::ZERO,
        logged_at_millis: 0,
        who: String::new(),
        why: String::new(),
    }
}

struct Site {
    log: MemoryLog,
    served: Served,
}

impl Site {
    async fn start() -> Self {
        let log =
            MemoryLog::with(MemoryOptions { partitions: 1, id: LogId::memory("own"), ..MemoryOptions::default() });
        let served = Served::over(Arc::new(log.clone())).await.unwrap();
        Self { log, served }
    }

    /// A server that has learned that another log is the home.
    async fn mirror() -> Self {
        let site = Self::start().await;
        site.served.projector.home().learn(&home("memory:other", ""));
        site
    }

    async fn end(&self) -> u64 {
        self.log.bounds(PartitionId::ZERO, WAIT).await.unwrap().end.get()
    }

    /// Sends a POST whose body is no JSON, which every handler refuses.
    async fn post_nonsense(&self, path: &str) -> (u16, Value) {
        let request = self.served.http.post(self.served.url(path)).header("content-type", "application/json");
        let response = request.body("no JSON").send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

/// The calls that append, each with a run, effect or the like of this name.
fn posts() -> Vec<String> {
    let appends = operations().filter(|(method, path)| *method == "post" && *path != "/v1/verify");
    appends.map(|(_, path)| path.replace("{run}", "r").replace("{id}", "e")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_refuses_each_call_that_appends_before_it_reads_the_body() {
    let site = Site::start().await;
    let before = site.end().await;
    for path in posts() {
        let (status, problem) = site.post_nonsense(&path).await;
        assert_eq!(status, 400, "without a home, {path} reads the body: {problem}");
    }
    site.served.projector.home().learn(&home("memory:other", ""));
    for path in posts() {
        let (status, problem) = site.post_nonsense(&path).await;
        let named = (&problem["kind"], &problem["reason"], &problem["home"], &problem["topic"]);
        let expected = (&json!("unavailable"), &json!("mirror"), &json!("memory:other"), &json!("runlog.journal"));
        assert_eq!((status, named), (503, expected), "{path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("memory:other"), "{path}: {problem}");
    }
    assert_eq!(site.end().await, before, "nothing was appended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_log_is_one_of_two_homes_refuses_as_a_mirror_does() {
    let site = Site::start().await;
    site.served.projector.home().learn(&home("memory:own", "memory:rival"));
    for path in posts() {
        let (status, problem) = site.post_nonsense(&path).await;
        assert_eq!((status, &problem["reason"]), (503, &json!("mirror")), "{path}: {problem}");
    }
    let (_, journal) = site.served.get("/v1/journal").await;
    assert_eq!(journal["role"], "contested", "{journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_reports_its_log_and_the_home_and_is_ready() {
    let site = Site::start().await;
    let (_, journal) = site.served.get("/v1/journal").await;
    assert_eq!(journal["log_id"], "memory:own", "{journal}");
    site.served.projector.home().learn(&home("memory:other", ""));
    let (_, journal) = site.served.get("/v1/journal").await;
    let named = (&journal["log_id"], &journal["home"], &journal["role"]);
    assert_eq!(named, (&json!("memory:own"), &json!({ "log": "memory:other", "epoch": 7 }), &json!("mirror")));
    let (status, ready) = site.served.get("/readyz").await;
    assert_eq!((status, &ready["ready"], &ready["role"]), (200, &json!(true), &json!("mirror")), "{ready}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_answers_lists_health_and_verifications() {
    let site = Site::mirror().await;
    for path in ["/v1/runs", "/v1/effects", "/v1/overview", "/v1/doctor", "/v1/horizons"] {
        let (status, answer) = site.served.get(path).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let (status, answer) = site.served.post("/v1/verify", &json!({})).await;
    assert_eq!((status, &answer["equal"]), (200, &json!(true)), "{answer}");
}
