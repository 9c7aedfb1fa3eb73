//! An operator gives a journal a home once, and lets runs continue after the loss of a home.

use runlog_log::{
    Entry, Log, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_projector::index::home::{Carried, Home, header};
use runlog_schemas::{
    codec,
    id::{LogId, RecordId},
    payload::{Genesis, Payload},
    record::JournalRecord,
};
use runlog_tests::served::Served;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const WAIT: Duration = Duration::from_secs(30);
const PARTITIONS: u32 = 2;

/// A genesis record of the journal, as a server before homes wrote it, or with a home.
fn genesis(home: Option<Home>) -> Entry {
    let genesis = Genesis { journal_id: "j".into(), partitions: PARTITIONS };
    let id = RecordId::new("genesis:j".to_owned()).unwrap();
    let record = JournalRecord::of_partition(id, "runlog", Payload::Genesis(genesis));
    let headers = home.map(|home| header(&Carried::Home(home))).into_iter().collect();
    Entry { value: codec::encode(&record), headers, ..Entry::default() }
}

struct Site {
    log: MemoryLog,
    served: Served,
}

impl Site {
    /// A server of a journal without a home.
    async fn start() -> Self {
        let options = MemoryOptions { partitions: PARTITIONS, id: LogId::memory("own"), ..MemoryOptions::default() };
        let log = MemoryLog::with(options);
        log.append(PartitionId::ZERO, vec![genesis(None)]).await.unwrap();
        let served = Served::over(Arc::new(log.clone())).await.unwrap();
        Self { log, served }
    }

    async fn ends(&self) -> Vec<u64> {
        let mut ends = Vec::new();
        for partition in PartitionId::all(PARTITIONS) {
            ends.push(self.log.bounds(partition, WAIT).await.unwrap().end.get());
        }
        ends
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.served.post(path, &body).await
    }

    async fn role(&self) -> Value {
        self.served.get("/v1/journal").await.1["role"].clone()
    }

    /// The ids of the runs that wait for an operator.
    async fn in_doubt(&self) -> Vec<String> {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let (_, page) =
                self.served.get(&format!("/v1/runs?in_doubt=true&limit=1&consistency=latest{cursor}")).await;
            ids.extend(page["runs"][0]["run_id"].as_str().map(str::to_owned));
            let Some(next) = page["next_cursor"].as_str() else { return ids };
            cursor = format!("&cursor={next}");
        }
    }

    /// Whether an agent may continue the run.
    async fn continues(&self, run: &str) -> bool {
        let (status, answer) = self.served.get(&format!("/v1/runs/{run}/recovery")).await;
        assert!(status != 409 || answer["reason"] == "doubt", "{answer}");
        status != 409
    }
}

fn named(log: &str) -> Value {
    json!({ "log_id": log, "who": "jo", "why": "agents write here" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_gets_a_home_once_and_only_at_the_log_that_the_operator_names() {
    let site = Site::start().await;
    let before = site.ends().await;
    assert_eq!(site.role().await, "unknown");
    let (status, problem) = site.post("/v1/home", named("memory:other")).await;
    assert_eq!((status, &problem["kind"]), (400, &json!("invalid")), "{problem}");
    let (status, plan) = site.post("/v1/home?dry_run=true", named("memory:own")).await;
    let home = json!({ "log": "memory:own", "epoch": 1 });
    let expected = json!({ "home": home, "outcome": "applied", "positions": [], "dry_run": true });
    assert_eq!((status, plan), (200, expected));
    assert_eq!((site.ends().await, site.role().await), (before.clone(), json!("unknown")), "no record was appended");

    let (status, set) = site.post("/v1/home", named("memory:own")).await;
    let answer = (&set["home"], &set["outcome"], set["positions"].as_array().map(Vec::len));
    assert_eq!((status, answer), (200, (&home, &json!("applied"), Some(2))), "{set}");
    let after: Vec<_> = before.iter().map(|end| end + 1).collect();
    assert_eq!((site.ends().await, site.role().await), (after.clone(), json!("home")));
    assert_eq!(set["positions"][0]["log"], "memory:own", "{set}");
    let (status, again) = site.post("/v1/home", named("memory:own")).await;
    let expected = json!({ "home": home, "outcome": "repeat", "positions": [], "dry_run": false });
    assert_eq!((status, again), (200, expected));
    assert_eq!(site.ends().await, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_doubt_continues_after_an_operator_accepts_it() {
    let site = Site::start().await;
    for run in ["a", "b"] {
        let turn = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "x" });
        let record = json!({ "run_id": run, "record_id": "m", "payload": turn });
        assert_eq!(site.post(&format!("/v1/runs/{run}/records"), record).await.0, 200);
    }
    let statement = |what: Value| {
        let mut body = json!({ "who": "jo", "why": "no effect happened" });
        body.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        body
    };
    // No home was lost, so every run continues.
    assert_eq!(site.in_doubt().await, [""; 0]);
    let before = site.ends().await;
    let (status, accepted) = site.post("/v1/home/accepts", statement(json!({ "run_id": "a" }))).await;
    assert_eq!((status, accepted, site.ends().await), (200, json!({ "outcomes": [] }), before));

    let home = Home {
        epoch: 2,
        log: LogId::memory("own").unwrap(),
        from: LogId::memory("lost"),
        who: "jo".into(),
        why: "x".into(),
    };
    for partition in PartitionId::all(PARTITIONS) {
        let offset = site.log.append(partition, vec![genesis(Some(home.clone()))]).await.unwrap()[0];
        site.served.projector.wait_until(partition, |progress| progress.applied > offset).await.unwrap();
    }
    let continuing = async || {
        let mut continuing = Vec::new();
        for run in ["a", "b", "unknown", "another"] {
            if site.continues(run).await {
                continuing.push(run);
            }
        }
        continuing
    };
    assert_eq!(continuing().await, [""; 0]);
    assert_eq!(site.in_doubt().await, ["a", "b"]);
    for wrong in [json!({}), json!({ "run_id": "a", "unknown_runs": true })] {
        let (status, problem) = site.post("/v1/home/accepts", statement(wrong)).await;
        assert_eq!((status, &problem["kind"]), (400, &json!("usage")), "{problem}");
    }
    let (status, accepted) = site.post("/v1/home/accepts", statement(json!({ "run_id": "a" }))).await;
    assert_eq!((status, accepted["outcomes"].as_array().map(Vec::len)), (200, Some(1)), "{accepted}");
    assert_eq!(continuing().await, ["a"]);
    assert_eq!(site.in_doubt().await, ["b"]);
    // An operator's retraction proves nothing about the run.
    let retraction = json!({ "type": "retraction", "retracted_record_id": "m", "who": "jo", "why": "x" });
    let record = json!({ "run_id": "unknown", "record_id": "retraction", "payload": retraction });
    let (status, retracted) = site.post("/v1/runs/unknown/records", record).await;
    assert_eq!((status, continuing().await), (200, vec!["a"]), "{retracted}");
    let (status, accepted) = site.post("/v1/home/accepts", statement(json!({ "unknown_runs": true }))).await;
    assert_eq!((status, accepted["outcomes"].as_array().map(Vec::len)), (200, Some(2)), "{accepted}");
    assert_eq!(continuing().await, ["a", "another"]);
    let before = site.ends().await;
    for again in [json!({ "run_id": "a" }), json!({ "unknown_runs": true })] {
        let (status, again) = site.post("/v1/home/accepts", statement(again)).await;
        assert_eq!((status, again, site.ends().await), (200, json!({ "outcomes": [] }), before.clone()), "not needed");
    }
}
