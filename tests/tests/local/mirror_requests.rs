//! A server on a mirror refuses what only the journal's home can answer, before it reads a body, and answers the rest. A server of
//! a home that took over from a lost one refuses to continue runs in doubt.

use runlog_log::{
    Log, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::index::store::meta::HomeRow;
use runlog_schemas::{
    answer::{ErrorKind, ProblemReason},
    draft::Draft,
    id::{LogId, RunId},
};
use runlog_server::{append::Appender, operations};
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const WAIT: Duration = Duration::from_secs(30);

/// The home of a journal, as a partition's row has it.
fn home(log: &str, rival: &str) -> HomeRow {
    HomeRow { epoch: 7, log: log.into(), origin: log.into(), rival: rival.into(), ..HomeRow::default() }
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
    assert_eq!(site.end().await, before, "no record was appended");
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

/// The status, and the reason of a refusal.
async fn outcome_of(site: &Site, path: &str) -> (u16, Value) {
    let response = site.served.http.get(site.served.url(path)).send().await.unwrap();
    let (status, body) = (response.status().as_u16(), response.text().await.unwrap());
    let problem: Value = serde_json::from_str(&body).unwrap_or_default();
    (status, problem["reason"].clone())
}

/// Writes a run with a refused record and two applied ones. Returns the position of the last one as a request names it.
async fn fill(site: &Site, run: &str) -> String {
    let mut last = Value::Null;
    let turn = |id: &str| json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": "x" });
    let refused = json!({ "type": "tool_call_completed", "request_record_id": "nobody", "result": null });
    for (id, payload) in [("refused", refused), ("first", turn("first")), ("second", turn("second"))] {
        let record = json!({ "run_id": run, "record_id": id, "payload": payload });
        let (status, answer) = site.served.post(&format!("/v1/runs/{run}/records"), &record).await;
        assert_eq!(status, 200, "{answer}");
        last = answer["position"].clone();
    }
    assert_eq!(last["log"], "memory:own", "{last}");
    format!("{}:{}@{}", last["partition"], last["offset"], last["log"].as_str().unwrap())
}

/// Requests with each position and cursor that the server returned.
async fn returned(site: &Site) -> Vec<String> {
    let position = fill(site, "a").await;
    fill(site, "b").await;
    let mut requests = vec![
        format!("/v1/runs/a?consistency=at-least={position}"),
        format!("/v1/runs/a/recovery?as_of={position}"),
        format!("/v1/runs/a/outcome?position={position}&also={position},{position}"),
        format!("/v1/dead-letters/{position}"),
    ];
    for list in
        ["/v1/runs?limit=1", "/v1/runs?limit=1&newest=true", "/v1/runs/a/records?limit=1", "/v1/anomalies?limit=1"]
    {
        let (_, page) = site.served.get(list).await;
        requests.push(format!(
            "{list}&cursor={}",
            page["next_cursor"].as_str().unwrap_or_else(|| panic!("{list}: {page}"))
        ));
    }
    for stream in ["/v1/runs/a/tail", "/v1/tail", "/v1/indices/runs/changes"] {
        let events = site.served.http.get(site.served.url(&format!("{stream}?until_end=true"))).send().await.unwrap();
        let events = events.text().await.unwrap();
        let cursor =
            events.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_else(|| panic!("{stream}: {events}"));
        requests.push(format!("{stream}?until_end=true&from={cursor}"));
    }
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_takes_back_its_own_positions_and_cursors_and_refuses_another_logs() {
    let site = Site::start().await;
    let requests = returned(&site).await;
    for request in &requests {
        assert!(request.contains("@memory:own"), "{request} does not name its log");
        let expected = if request.starts_with("/v1/dead-letters/") { 404 } else { 200 };
        assert_eq!(outcome_of(&site, request).await.0, expected, "{request}");
        let foreign = request.replace("@memory:own", "@memory:other");
        assert_eq!(outcome_of(&site, &foreign).await, (409, json!("foreign_log")), "{foreign}");
        let untagged = request.replace("@memory:own", "");
        assert_eq!(outcome_of(&site, &untagged).await.0, expected, "{untagged}");
    }
    // The log has become a mirror: the same offsets may name other records of the journal.
    site.served.projector.home().learn(&home("memory:other", ""));
    for request in requests.iter().filter(|request| !request.starts_with("/v1/dead-letters/")) {
        let untagged = format!("{}&consistency=eventual", request.replace("@memory:own", ""));
        let has_consistency = request.contains("consistency=");
        let untagged = if has_consistency { request.replace("@memory:own", "") } else { untagged };
        assert_eq!(outcome_of(&site, &untagged).await, (409, json!("foreign_log")), "{untagged}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_beside_the_server_fails_on_a_mirror_and_names_the_home() {
    let site = Site::mirror().await;
    let before = site.end().await;
    let run = RunId::new("r".to_owned()).unwrap();
    let record =
        json!({ "run_id": "r", "record_id": "x", "payload": { "type": "run_lifecycle", "status": "started" } });
    let draft = Draft::parse(&record.to_string()).unwrap();
    let appender = Arc::new(Appender::new(site.served.projector.clone()));
    let error = appender.append(run.borrow(), vec![draft], WAIT).await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, Some(ProblemReason::Mirror)), "{error}");
    assert_eq!((error.home(), site.end().await), (LogId::memory("other").as_ref(), before), "{error}");
}

/// Requests by which an agent continues a run, and their bodies.
fn continuing(run: &str) -> Vec<(String, Option<Value>)> {
    let record = json!({ "run_id": run, "record_id": "late", "payload": { "type": "conversation_turn", "message_id": "late",
        "kind": "user", "content": "x" } });
    let copy = (format!("/v1/runs/copy-of-{run}/copies"), Some(json!({ "from": run })));
    let run = format!("/v1/runs/{run}");
    vec![
        copy,
        (run.clone(), None),
        (format!("{run}?consistency=eventual"), None),
        (format!("{run}/recovery"), None),
        (format!("{run}/lookup?tool=t&args=%7B%7D"), None),
        (format!("{run}/lookup?tool=t&key=k"), None),
        (format!("{run}/calls/first"), None),
        (format!("{run}/checkpoints"), None),
        (format!("{run}/checkpoints/latest"), None),
        (format!("{run}/checkpoints/c"), None),
        (format!("{run}/outcome?record_id=first"), None),
        (format!("{run}/records"), Some(record.clone())),
        (format!("{run}/records?check=true"), Some(record)),
        (format!("{run}/claims"), Some(json!({ "record_id": "claim" }))),
    ]
}

/// The other operations on a run: they show it to people, store content, or record what an operator decides.
const OTHERS: &[(&str, &str)] = &[
    ("get", "/v1/runs/{run}/records"),
    ("post", "/v1/runs/{run}/contents"),
    ("get", "/v1/runs/{run}/tail"),
    ("get", "/v1/runs/{run}/standing/{list}"),
    ("get", "/v1/runs/{run}/facts"),
    ("post", "/v1/runs/{run}/effects/{id}/resolution"),
];

#[test]
fn each_operation_on_a_run_either_continues_it_or_does_not() {
    let continues = |(method, template): &(&str, &str)| {
        continuing("r").iter().any(|(path, body)| {
            let path: Vec<_> = path.split('?').next().unwrap_or_default().split('/').collect();
            let template: Vec<_> = template.split('/').collect();
            let is_same = path.iter().zip(&template).all(|(text, name)| name.starts_with('{') || text == name);
            is_same && path.len() == template.len() && (*method == "post") == body.is_some()
        })
    };
    let of_run = operations().filter(|(_, path)| path.contains("{run}"));
    let others: Vec<_> = of_run.filter(|operation| !continues(operation)).collect();
    assert_eq!(others, OTHERS, "a new operation that continues a run must refuse runs in doubt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_lost_home_may_have_continued_is_only_shown() {
    let site = Site::start().await;
    let position = fill(&site, "open").await;
    fill(&site, "ended").await;
    let end =
        json!({ "run_id": "ended", "record_id": "end", "payload": { "type": "run_lifecycle", "status": "completed" } });
    assert_eq!(site.served.post("/v1/runs/ended/records", &end).await.0, 200);
    let in_doubt = async |run: &str| {
        let mut in_doubt = Vec::new();
        for (path, body) in continuing(run) {
            let (status, answer) = match &body {
                Some(body) => site.served.post(&path, body).await,
                None => site.served.get(&path).await,
            };
            if answer["reason"] == "doubt" {
                assert_eq!((status, &answer["kind"]), (409, &json!("reconcile_required")), "{path}: {answer}");
                in_doubt.push(path);
            }
        }
        in_doubt
    };
    let before = site.end().await;
    let taken_over = HomeRow { epoch: 2, from: "memory:lost".into(), ..home("memory:own", "") };
    site.served.projector.home().learn(&taken_over);
    for run in ["open", "unknown"] {
        let expected: Vec<_> = continuing(run).into_iter().map(|(path, _)| path).collect();
        assert_eq!(in_doubt(run).await, expected);
    }
    assert_eq!(site.end().await, before, "no record was appended");
    // The run itself can be copied, but its copy is unknown here.
    assert_eq!(in_doubt("ended").await, ["/v1/runs/copy-of-ended/copies"]);
    let as_of = format!("/v1/runs/open/recovery?as_of={position}");
    for path in
        ["/v1/runs/open/records", "/v1/runs/open/facts", "/v1/effects", "/v1/anomalies?run=open", "/v1/runs", &as_of]
    {
        assert_eq!(site.served.get(path).await.0, 200, "{path}");
    }
    let decision = json!({ "decision": "give_up", "revision": 1, "who": "jo", "why": "y" });
    let (status, answer) = site.served.post("/v1/runs/open/effects/none/resolution", &decision).await;
    assert_eq!(
        (status, &answer["kind"]),
        (404, &json!("not_found")),
        "a decision is not refused for the doubt: {answer}"
    );
}
