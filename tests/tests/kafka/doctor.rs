//! The doctor's findings on a topic whose settings change while a server runs, and on a topic that lost records.

use anyhow::{Context, ensure};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, ResourceSpecifier},
    client::DefaultClientContext,
};
use runlog_log::kafka::{KafkaConfig, admin as topic};
use runlog_tests::{
    kafka::Broker,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{
    future::Future,
    thread,
    time::{Duration, Instant},
};
use tempfile::tempdir;

/// How long a changed setting may take to be visible.
const ALTER_WAIT: Duration = Duration::from_secs(30);
/// The pause between two queries of the setting.
const LOOK: Duration = Duration::from_millis(50);

fn admin(config: &KafkaConfig) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", &config.brokers).create()?)
}

fn wait<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

/// The topic's `retention.ms`.
fn finding(config: &KafkaConfig) -> anyhow::Result<Option<String>> {
    Ok(topic::describe(config)?.and_then(|info| info.configs.get("retention.ms").cloned()))
}

/// Appends a record of a run.
fn say(server: &Server, id: &str) -> anyhow::Result<()> {
    let payload = json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": id });
    let record = json!({ "run_id": "r", "record_id": id, "payload": payload });
    let (status, said) = server.post("/v1/runs/r/records", &record)?;
    ensure!(status == 200 && said["outcome"] == "applied", "{status} {said}");
    Ok(())
}

/// The findings that are errors.
fn errors(doctor: &Value) -> Vec<&Value> {
    doctor["findings"].as_array().into_iter().flatten().filter(|finding| finding["severity"] == "error").collect()
}

#[test]
fn the_doctor_reports_a_topic_that_is_weakened_while_a_server_runs() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let launch = Launch::kafka(folder.path(), &config).partitions(1);
    let server = launch.start()?;
    server.runlog().json(&["doctor"])?.exits(0)?;
    let weaker = AlterConfig::new(ResourceSpecifier::Topic(&config.topic)).set("retention.ms", "604800000");
    let client = admin(&config)?;
    for altered in wait(client.alter_configs([&weaker], &AdminOptions::new()))?? {
        altered.map_err(|(_, code)| code).context("the topic is altered")?;
    }
    // The broker applies the setting after a moment.
    let started = Instant::now();
    while finding(&config)?.as_deref() != Some("604800000") {
        ensure!(started.elapsed() < ALTER_WAIT, "the topic is not altered: {:?}", finding(&config));
        thread::sleep(LOOK);
    }
    let doctor = server.runlog().json(&["doctor"])?.exits(1)?.json()?;
    let reported = errors(&doctor).iter().any(|finding| {
        finding["what"].as_str().is_some_and(|what| what.starts_with("retention.ms is 604800000, not -1"))
    });
    ensure!(reported, "{doctor}");
    ensure!(!server.stderr().contains("retention.ms"), "{}", server.stderr());
    server.terminate()?;
    let refused = launch.refused()?.exits(3)?;
    let message = refused.json()?["error"]["message"].as_str().unwrap_or_default().to_owned();
    for part in ["retention.ms is 604800000, not -1", "kafka-configs.sh", "--add-config retention.ms=-1"] {
        ensure!(message.contains(part), "no {part:?} in {message}");
    }
    launch.clone().with("--accept-lossy-topic").start()?.terminate()?;
    // A restarted server reports the setting, too.
    let again = launch.start()?;
    let named = again.stderr().lines().any(|line| {
        line.contains("WARN") && line.contains("retention.ms is 604800000, not -1") && line.contains(&config.topic)
    });
    ensure!(named, "a server logs the setting at its start: {}", again.stderr());
    again.terminate()?;
    Ok(())
}

#[test]
fn the_doctor_reports_partitions_that_were_added_to_the_topic() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let server = Launch::kafka(folder.path(), &config).partitions(1).start()?;
    let clean = server.runlog().json(&["doctor"])?.exits(0)?.json()?;
    ensure!(clean["findings"] == json!([]), "{clean}");
    let added =
        wait(admin(&config)?.create_partitions([&NewPartitions::new(&config.topic, 3)], &AdminOptions::new()))??;
    for added in added {
        added.map_err(|(_, code)| code).context("partitions are added")?;
    }
    // The metadata of the broker contains the partitions after a moment.
    let started = Instant::now();
    while topic::describe(&config)?.is_none_or(|info| info.partitions < 3) {
        ensure!(started.elapsed() < ALTER_WAIT, "the topic has no more partitions");
        thread::sleep(LOOK);
    }
    let doctor = server.runlog().json(&["doctor"])?.exits(0)?.json()?;
    let expected = format!("topic {} has 3 partitions, journal ", config.topic);
    let [finding] = doctor["findings"].as_array().map_or(&[][..], Vec::as_slice) else { anyhow::bail!("{doctor}") };
    let what = finding["what"].as_str().unwrap_or_default();
    ensure!(finding["severity"] == "warning" && what.starts_with(&expected) && what.ends_with(" has 1"), "{doctor}");
    say(&server, "it continues")
}

#[test]
fn an_index_that_the_log_start_overtook_is_kept() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    let launch = Launch::kafka(folder.path(), &config).partitions(1);
    let server = launch.start()?;
    say(&server, "first")?;
    // A graceful shutdown flushes the index.
    server.terminate()?;
    // Another server appends records that the index of this one never gets.
    let other = tempdir()?;
    let elsewhere = Launch::kafka(other.path(), &config).start()?;
    (0..5).try_for_each(|number| say(&elsewhere, &format!("later-{number}")))?;
    let mut until = TopicPartitionList::new();
    until.add_partition_offset(&config.topic, 0, Offset::Offset(5))?;
    let client = admin(&config)?;
    wait(client.delete_records(&until, &AdminOptions::new()))??;
    let server = launch.start()?;
    let doctor = server.runlog().json(&["doctor"])?.exits(1)?.json()?;
    let findings = errors(&doctor);
    let fix = findings.first().and_then(|finding| finding["fix"].as_str()).context("a finding")?;
    ensure!(fix.contains("keep the index") && fix.contains("retention.ms") && !fix.contains("delete"), "{doctor}");
    let (status, run) = server.get("/v1/runs/r?consistency=eventual")?;
    ensure!(status == 200 && run["records"] == 1, "the records of its index are answered: {status} {run}");
    let (status, said) = server.get("/v1/runs/r")?;
    ensure!(status == 503 && said["kind"] == "partition_stopped", "{status} {said}");
    // The server whose index is ahead continues.
    say(&elsewhere, "last")
}
