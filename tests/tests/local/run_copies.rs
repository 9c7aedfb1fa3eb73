//! A copy of a run has its checkpoints, messages and host payloads, and answers no call.

use runlog_log::{Ack, Entry, Error, Kind, Log, Offset, PartitionId, memory::MemoryLog};
use runlog_tests::{
    hooked_log::{Hooks, hook},
    served::Served,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const DEADLINE: Duration = Duration::from_secs(30);

/// The number of appends that the log still accepts before it fails one.
#[derive(Debug)]
struct Failing(AtomicU64);

impl Hooks for Failing {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Box::pin(async { Err(Error::new(Kind::Retry, "runlog.journal", "the broker is away")) });
        }
        log.append(partition, batch)
    }
}

struct Site {
    served: Served,
    log: MemoryLog,
    appends_left: Arc<Failing>,
}

impl Site {
    async fn start() -> Self {
        let (log, appends_left) = (MemoryLog::new(1), Arc::new(Failing(u64::MAX.into())));
        let served = Served::over(hook(log.clone(), &appends_left)).await.unwrap();
        Self { served, log, appends_left }
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.served.get(&format!("/v1/runs/{path}")).await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.served.post(&format!("/v1/runs/{path}"), body).await
    }

    async fn append(&self, run: &str, id: &str, payload: Value) {
        self.append_all(run, vec![(id.to_owned(), payload)]).await;
    }

    async fn append_all(&self, run: &str, payloads: Vec<(String, Value)>) {
        let (_, head) = self.get(run).await;
        let record = |(id, payload): (String, Value)| {
            let mut record = json!({ "run_id": run, "record_id": id, "timestamp_millis": 7, "payload": payload });
            if let Some(writer) = head["writer_id"].as_str() {
                (record["writer_id"], record["writer_epoch"]) = (json!(writer), head["epoch"].clone());
            }
            if payload_type(&record) == "retraction" {
                // An assertion at the same time precedes it.
                record["timestamp_millis"] = json!(8);
            }
            if payload_type(&record) == "host_payload" {
                record["record_kind"] = json!("telemetry");
                record["correlation_keys"] = json!([{ "key": "thread", "value": run }]);
            }
            record
        };
        let records: Vec<Value> = payloads.into_iter().map(record).collect();
        let (status, answers) = self.post(&format!("{run}/records"), &json!(records)).await;
        let applied = answers.as_array().is_some_and(|all| all.iter().all(|one| one["outcome"] == "applied"));
        assert!(status == 200 && applied, "{answers}");
    }

    async fn records(&self, run: &str) -> Vec<Value> {
        let (status, page) = self.get(&format!("{run}/records?whole=true&limit=1000")).await;
        assert_eq!(status, 200, "{page}");
        page["records"].as_array().unwrap().iter().map(|line| line["record"].clone()).collect()
    }

    async fn end(&self) -> Offset {
        self.log.bounds(PartitionId::from(0), DEADLINE).await.unwrap().end
    }
}

fn payload_type(record: &Value) -> &str {
    record["payload"]["type"].as_str().unwrap()
}

fn turn_payload(id: &str) -> Value {
    json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "book", "arguments": { "n": id } })
}

fn host(number: u32) -> Value {
    json!({ "type": "host_payload", "family": "test", "payload_type": "thing", "schema_version": 1,
        "content_type": "application/octet-stream", "bytes": format!("{number:08x}") })
}

fn checkpoint(number: u64, covers: u64, messages: Value) -> Value {
    json!({ "type": "loop_checkpoint", "checkpoint_id": format!("c{number}"), "checkpoint_seq": number,
        "covers_journal_seq": covers, "schema_version": 1, "messages": messages, "state": { "step": number } })
}

/// Writes a run with every kind of record: claimed twice, with an ended call, a pending call, and a retracted turn.
async fn fill(site: &Site) {
    for _ in 0..2 {
        let (status, claim) = site.post("source/claims", &json!({})).await;
        assert_eq!(status, 200, "{claim}");
    }
    let done = json!({ "type": "tool_call_completed", "request_record_id": "done", "result": "it happened" });
    let retraction = json!({ "type": "retraction", "retracted_record_id": "wrong", "who": "jo", "why": "a test" });
    let prune = json!({ "type": "checkpoint_prune", "prune_covered_before": 4, "preserve_latest_terminal": false });
    for (id, payload) in [
        ("first", turn_payload("first")), // 1, in the copy 1
        ("point-1", checkpoint(1, 1, json!(["first"]))),
        ("done", call("done")), // 2
        ("done-result", done),  // 3
        ("thing", host(1)),     // 4, in the copy 2
        ("point-2", checkpoint(2, 4, json!(["first", "second"]))),
        ("wrong", turn_payload("wrong")), // 5, in the copy 3
        ("taken-back", retraction),
        ("pending", call("pending")), // 6
        ("prune", prune),
        ("point-3", checkpoint(3, 6, json!(["first", "second", "third"]))),
    ] {
        site.append("source", id, payload).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_checkpoints_messages_and_host_payloads_and_answers_no_gate() {
    let site = Site::start().await;
    fill(&site).await;
    let (_, claim) = site.post("copy/claims", &json!({})).await;
    let body = json!({ "from": "source", "writer_id": claim["writer_id"], "writer_epoch": 1 });
    let (status, copied) = site.post("copy/copies", &body).await;
    let (_, source) = site.get("source").await;
    assert_eq!((status, &copied["records"], &copied["left_out"]), (200, &json!(8), &json!(5)), "{copied}");
    assert_eq!(copied["as_of"], source["position"], "{copied}");

    let records = site.records("copy").await;
    let id_and_number =
        |record: &Value| (record["record_id"].as_str().unwrap().to_owned(), record["journal_seq"].as_u64().unwrap());
    let expected = [
        ("first", 1),
        ("point-1", 0),
        ("thing", 2),
        ("point-2", 0),
        ("wrong", 3),
        ("taken-back", 0),
        ("prune", 0),
        ("point-3", 0),
    ];
    let expected: Vec<_> = expected.iter().map(|(id, number)| ((*id).to_owned(), *number)).collect();
    assert_eq!(records[1..].iter().map(id_and_number).collect::<Vec<_>>(), expected);
    let thing = &records[3];
    assert_eq!((&thing["payload"], &thing["timestamp_millis"]), (&host(1), &json!(7)), "{thing}");
    assert_eq!(thing["subject_ref"]["id"], "copy", "the copy's answer equals the run's: {thing}");
    assert_eq!(thing["event_index"]["run_id"], "copy", "{thing}");

    // Checkpoints: the same ids and content, with their coverage in the copy. The first is pruned.
    let (_, list) = site.get("copy/checkpoints").await;
    let covers = |item: &Value| (item["checkpoint_id"].clone(), item["covers_journal_seq"].clone());
    let listed: Vec<_> = list["checkpoints"].as_array().unwrap().iter().map(covers).collect();
    assert_eq!(listed, [(json!("c3"), json!(3)), (json!("c2"), json!(2))]);
    for id in ["c2", "c3"] {
        let ((_, one), (_, other)) =
            (site.get(&format!("source/checkpoints/{id}")).await, site.get(&format!("copy/checkpoints/{id}")).await);
        assert_eq!((&one["messages"], &one["state"]), (&other["messages"], &other["state"]), "{one} {other}");
    }
    let (_, facts) = site.get("copy/facts?at=2100-01-01T00:00:00Z").await;
    let turns: Vec<_> = facts["facts"].as_array().unwrap().iter().map(|fact| fact["record_id"].clone()).collect();
    assert_eq!(turns, [json!("first")], "a retracted turn is retracted in the copy: {facts}");

    // No gate: no pending call, no ended call, and the claim is the copy's own.
    let (_, recovery) = site.get("copy/recovery?from_start=true").await;
    for list in ["pending", "completed"] {
        assert_eq!(recovery[list], json!([]), "{recovery}");
    }
    let (_, lookup) = site.get("copy/lookup?tool=book&args=%7B%22n%22%3A%22done%22%7D").await;
    assert_eq!(lookup["status"], "unknown", "{lookup}");
    let (_, head) = site.get("copy").await;
    assert_eq!(
        (&head["writer_id"], &head["epoch"], &head["next_journal_seq"]),
        (&claim["writer_id"], &json!(1), &json!(4))
    );

    // A second copy appends nothing; once the source has more records, it appends the rest.
    let end = site.end().await;
    assert_eq!(site.post("copy/copies", &body).await, (200, copied));
    assert_eq!(site.end().await, end);
    site.append("source", "more", turn_payload("more")).await;
    let (_, more) = site.post("copy/copies", &body).await;
    assert_eq!(more["records"], 9, "{more}");
    assert_eq!(site.records("copy").await.last().unwrap()["record_id"], "more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_failed_halfway_resumes_where_it_ended() {
    let site = Site::start().await;
    for part in 0..3 {
        let some = (0..200).map(|at| (format!("{part}-{at}"), host(part * 1000 + at))).collect();
        site.append_all("source", some).await;
    }
    site.appends_left.0.store(1, Ordering::Relaxed);
    let body = json!({ "from": "source" });
    let (status, failed) = site.post("copy/copies", &body).await;
    assert_eq!((status, &failed["kind"]), (503, &json!("unavailable")), "{failed}");
    let partial = site.records("copy").await;
    assert!((1..600).contains(&partial.len()), "{}", partial.len());
    site.appends_left.0.store(u64::MAX, Ordering::Relaxed);
    let end = site.end().await;
    let (status, copied) = site.post("copy/copies", &body).await;
    assert_eq!((status, &copied["records"]), (200, &json!(600)), "{copied}");
    assert_eq!(site.end().await.since(end), (600 - partial.len()) as u64, "each record is appended once");
    let of = |records: Vec<Value>| records.iter().map(|one| one["payload"]["bytes"].clone()).collect::<Vec<_>>();
    assert_eq!(of(site.records("source").await), of(site.records("copy").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_into_another_writers_run_or_by_a_superseded_writer_is_refused() {
    let site = Site::start().await;
    fill(&site).await;
    site.append("taken", "own", turn_payload("own")).await;
    let (_, lost) = site.post("claimed/claims", &json!({})).await;
    site.post("claimed/claims", &json!({})).await;
    let writer = json!({ "from": "source", "writer_id": lost["writer_id"], "writer_epoch": 1 });
    let end = site.end().await;
    for (target, body, status, kind) in [
        ("taken", json!({ "from": "source" }), 409, "conflict"),
        ("claimed", json!({ "from": "source" }), 409, "fenced"),
        ("claimed", writer, 409, "fenced"),
        ("source", json!({ "from": "source" }), 409, "conflict"),
        ("copy", json!({ "from": "nobody" }), 404, "not_found"),
        ("copy", json!({ "from": "source", "into": "copy" }), 400, "invalid"),
        ("copy", json!({}), 400, "invalid"),
    ] {
        let (found, problem) = site.post(&format!("{target}/copies"), &body).await;
        assert_eq!((found, &problem["kind"]), (status, &json!(kind)), "{target} {body}: {problem}");
    }
    assert_eq!(site.end().await, end, "no record was appended");
}
