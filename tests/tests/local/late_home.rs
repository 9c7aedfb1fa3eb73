//! A server learns during an append that its log is a mirror. The home lacks the records, so the append is not acknowledged.

use anyhow::{Context, ensure};
use runlog_log::{
    Ack, Entry, Log, LogId, PartitionId,
    memory::{MemoryLog, MemoryOptions},
};
use runlog_producer::{Action, Config, Journal, Runlog};
use runlog_projector::{
    Projector,
    index::{
        home::{Carried, Home, header},
        store::meta::HomeRow,
    },
};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::{
    hooked_log::{Hooks, hook},
    served::Served,
};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

/// When the server learns the home.
#[derive(Clone, Copy, Debug)]
enum Learns {
    /// Before the acknowledgement, as from another partition.
    BeforeTheAck,
    /// From the record before the appended one.
    FromTheLog,
}

/// A log whose next append after `armed` is set teaches the server another home.
#[derive(Debug)]
struct Teacher {
    learns: Learns,
    armed: OnceLock<Arc<Projector>>,
}

fn home() -> Option<Home> {
    let log = LogId::memory("other")?;
    Some(Home { epoch: 7, log, from: None, who: String::new(), why: String::new() })
}

impl Hooks for Teacher {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let Some(projector) = self.armed.get().cloned() else { return log.append(partition, batch) };
        let home = home().expect("an id");
        match self.learns {
            Learns::BeforeTheAck => {
                let ack = log.append(partition, batch);
                let row = HomeRow {
                    epoch: home.epoch,
                    log: home.log.to_string(),
                    origin: home.log.to_string(),
                    rival: String::new(),
                    from: String::new(),
                    offset: 0_u32.into(),
                    logged_at_millis: 0,
                    who: String::new(),
                    why: String::new(),
                };
                Box::pin(async move {
                    let offsets = ack.await?;
                    projector.home().learn(&row);
                    Ok(offsets)
                })
            }
            Learns::FromTheLog => {
                let mut reader = log.reader(&[(partition, 0_u32.into())]).expect("a reader");
                let genesis = reader.poll(1, std::time::Duration::ZERO).expect("records").remove(0);
                let carrier =
                    Entry { key: genesis.key, value: genesis.value, headers: vec![header(&Carried::Home(home))] };
                let (first, ack) = (log.append(partition, vec![carrier]), log.append(partition, batch));
                Box::pin(async move {
                    first.await?;
                    ack.await
                })
            }
        }
    }
}

async fn site(learns: Learns) -> anyhow::Result<(Served, Arc<Teacher>)> {
    let options = MemoryOptions { partitions: 1, id: LogId::memory("own"), ..MemoryOptions::default() };
    let teacher = Arc::new(Teacher { learns, armed: OnceLock::new() });
    Ok((Served::over(hook(MemoryLog::with(options), &teacher)).await?, teacher))
}

fn turn_json(id: &str) -> Value {
    let turn = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": "x" });
    json!({ "run_id": "r", "record_id": id, "payload": turn })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_during_which_the_log_becomes_a_mirror_is_not_acknowledged() -> anyhow::Result<()> {
    let numbered = json!({ "run_id": "r", "record_id": "n", "writer_seq": 2, "journal_seq": 2, "payload": turn_json("n")["payload"] });
    let requests = [
        ("/v1/runs/r/records", turn_json("a")),
        ("/v1/runs/r/records", json!([turn_json("a"), turn_json("b")])),
        ("/v1/runs/r/records?consistency=latest", turn_json("a")),
        ("/v1/runs/r/records?return=ack", numbered),
        ("/v1/runs/r/claims", json!({ "record_id": "claim" })),
        ("/v1/skips?force=true", json!({ "partition": 0, "offset": 1, "who": "jo", "why": "y" })),
        (
            "/v1/horizons",
            json!({ "family": "conversation_turn", "until": "1970-01-02T00:00:00Z", "who": "jo", "why": "y" }),
        ),
    ];
    for learns in [Learns::BeforeTheAck, Learns::FromTheLog] {
        for (path, body) in &requests {
            if matches!(learns, Learns::FromTheLog) && path.starts_with("/v1/skips") {
                // A skip after another log's home names an offset of that log, and stops the partition.
                continue;
            }
            let (served, teacher) = site(learns).await?;
            let (status, answer) = served.post("/v1/runs/r/records", &turn_json("first")).await;
            ensure!(status == 200, "{answer}");
            teacher.armed.set(served.projector.clone()).ok().context("it is set once")?;
            let (status, answer) = served.post(path, body).await;
            if matches!(learns, Learns::FromTheLog) && path.ends_with("return=ack") {
                // The log acknowledged the record before the server could read the home.
                ensure!(status == 200 || status == 503, "{answer}");
                continue;
            }
            ensure!((status, &answer["kind"]) == (503, &json!("unavailable")), "{learns:?} {path}: {status} {answer}");
            // With the reason `mirror` a client would take the records for not appended.
            ensure!(answer["reason"].is_null(), "{learns:?} {path}: {answer}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_process_learns_that_the_outcome_is_unknown() -> anyhow::Result<()> {
    let (served, teacher) = site(Learns::BeforeTheAck).await?;
    let config = Config::new(Journal::Local("unused".into()), "agent");
    let run = Runlog::embedded(config, served.projector.clone()).open("r").await?;
    teacher.armed.set(served.projector.clone()).ok().context("it is set once")?;
    let error = run.turn("user", "hello").await.err().context("the home lacks the record")?;
    ensure!((error.kind(), error.action()) == (ErrorKind::Unavailable, Action::Reopen), "{error:?}");
    ensure!(error.to_string().contains("memory:other") && error.to_string().contains("the home lacks"), "{error}");
    Ok(())
}
