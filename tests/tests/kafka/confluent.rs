//! A journal on Kafka whose records carry the ids of a schema registry, with the registry running and stopped.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "the stub belongs to the registry's own tests")]

#[path = "../../../registry/tests/stub/mod.rs"]
mod stub;

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use runlog_log::{
    Log, PartitionId,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_producer::{Config, Journal, Json, Runlog};
use runlog_schemas::schema::JOURNAL_RECORD;
use runlog_tests::{command, kafka::Broker, server::Launch};
use serde_json::{Value, json};
use stub::{FIRST, Stub};
use tempfile::tempdir;

const PARTITIONS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(30);

/// The bytes of every record of a topic.
fn values(config: &KafkaConfig) -> anyhow::Result<Vec<Vec<u8>>> {
    let log = KafkaLog::connect(config.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut values = Vec::new();
    for partition in PartitionId::all(PARTITIONS) {
        let bounds = runtime.block_on(log.bounds(partition, DEADLINE))?;
        let mut reader = log.reader(&[(partition, bounds.start)])?;
        while reader.position(partition).context("it is read")? < bounds.end {
            values.extend(reader.poll(1000, DEADLINE)?.into_iter().map(|delivery| delivery.value));
        }
    }
    Ok(values)
}

/// An agent that appends directly to the topic books once.
fn books(config: &KafkaConfig, server: &str, run_id: &str) -> anyhow::Result<()> {
    let journal = Journal::Kafka { brokers: config.brokers.clone(), server: server.to_owned() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let run = Runlog::connect(Config::new(journal, "test")).await?.open(run_id).await?;
        let seat = Json::from(json!("12A"));
        let answer = run.tool("book", &json!({"run": run_id})).once(|_| async { Ok(seat.clone()) }).await?;
        ensure!(answer.result.as_ref() == Some(&seat) && !answer.recorded, "{answer:?}");
        Ok(())
    })
}

#[test]
fn every_writer_of_a_journal_with_a_registry_carries_its_id_and_readers_need_it_once() -> anyhow::Result<()> {
    let registry = Stub::start();
    let folder = tempdir()?;
    let kafka = Broker::shared().unique_topic();
    let launch = Launch::kafka(&folder.path().join("a"), &kafka).partitions(PARTITIONS);
    let with_registry = launch.clone().with("--registry").with(&registry.url);
    let server = with_registry.start()?;
    let runlog = server.runlog();
    // Writes over HTTP, directly to Kafka, and by an import directly to Kafka.
    let turn = json!({"run_id": "typed", "record_id": "t", "payload": {"type": "conversation_turn", "message_id": "m",
        "kind": "user", "content": "hello"}});
    runlog.json_with_input(&["publish"], &turn.to_string())?.exits(0)?;
    books(&kafka, &server.url, "agent")?;
    let recorded = json!([{"task_id": 1, "trial": 0, "reward": 1.0, "traj": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I see"}]}]);
    let file = folder.path().join("recorded.json");
    fs::write(&file, recorded.to_string())?;
    let file = file.to_str().context("UTF-8")?;
    let import = [
        "import",
        "tau-bench",
        file,
        "--brokers",
        &kafka.brokers,
        "--topic",
        &kafka.topic,
        "--registry",
        &registry.url,
    ];
    runlog.answer(&import)?;

    let subject = format!("{}-value", kafka.topic);
    let state = registry.state();
    ensure!(state.subjects.get(&subject) == Some(&vec![FIRST]), "{:?}", state.subjects);
    let registered: Value = serde_json::from_str(&state.schemas[0])?;
    ensure!(registered == serde_json::from_str::<Value>(JOURNAL_RECORD)?, "the contract itself is registered");
    drop(state);
    let framed = [&[0][..], &FIRST.to_be_bytes()].concat();
    let values = values(&kafka)?;
    ensure!(values.len() > 10 && values.iter().all(|value| value.starts_with(&framed)), "{} records", values.len());
    let check = |runlog: &command::Runlog| -> anyhow::Result<()> {
        let booked = runlog.answer(&["lookup", "agent", "--tool", "book", "--args", r#"{"run":"agent"}"#])?;
        ensure!(booked["status"] == "completed" && booked["result"] == "12A", "{booked}");
        ensure!(
            runlog.answer(&["checkpoint", "tau-bench:1:0"])?["messages"] == recorded[0]["traj"],
            "the imported messages"
        );
        ensure!(runlog.json(&["show", "typed"])?.exits(0)?.documents()?.len() == 1, "the record over HTTP");
        runlog.verified()?;
        Ok(())
    };
    check(&runlog)?;
    server.kill()?;

    // A server without a registry reports the missing schema id, and does not return incomplete answers as complete.
    let elsewhere = Launch::kafka(&folder.path().join("b"), &kafka).partitions(PARTITIONS);
    let ignorant = elsewhere.start();
    let complaint = match ignorant {
        Ok(server) => {
            let refused = server.runlog().json(&["show", "typed"])?.exits(4)?;
            ensure!(refused.error_kind()? == "partition_stopped", "{}", refused.stdout);
            refused.stdout
        }
        Err(error) => format!("{error:#}"),
    };
    ensure!(complaint.contains(&format!("id {FIRST}")) && complaint.contains("registry"), "{complaint}");

    // Without the registry, a server rebuilds its index from the schemas that it stored before.
    drop(registry);
    fs::remove_dir_all(folder.path().join("a/index"))?;
    let server = with_registry.start()?;
    check(&server.runlog())?;
    books(&kafka, &server.url, "later")
}
