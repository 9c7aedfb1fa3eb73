//! A topic that is deleted and created again while it is served, with more records than the old topic had.

use anyhow::ensure;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    producer::{BaseProducer, BaseRecord, Producer},
};
use runlog_log::{
    Kind, Log, PartitionId,
    kafka::{KafkaConfig, KafkaLog, admin},
};
use runlog_projector::{Config, Consistency, Projector};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::{
    agent::{Agent, entry},
    kafka::Broker,
    log_contract::wait,
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::{sync::Arc, thread, time::Duration};
use tempfile::tempdir;

const DEADLINE: Duration = Duration::from_secs(60);
const PARTITION: PartitionId = PartitionId::ZERO;

/// Another client deletes the topic, creates it again at once, and fills it.
async fn recreate(config: &KafkaConfig, records: usize) {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers);
    let operator: AdminClient<DefaultClientContext> = client.create().unwrap();
    operator.delete_topics(&[&config.topic], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
    while !admin::create_topic(config, 1).unwrap() {
        thread::sleep(Duration::from_millis(1));
    }
    let producer: BaseProducer = client.create().unwrap();
    for number in 0..records {
        let mut agent = Agent::new(&format!("of-the-new-topic-{number}"));
        let value = entry(&agent.turn("hello")).value;
        producer.send(BaseRecord::<(), [u8]>::to(&config.topic).partition(0).payload(&value)).unwrap();
    }
    producer.flush(DEADLINE).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_created_again_stops_every_partition_and_nothing_of_it_is_applied() {
    let config = Broker::shared().topic(1).unwrap();
    let log: Arc<dyn Log> = Arc::new(KafkaLog::connect(config.clone()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let projector = Projector::start(Config::new(dir.path(), || 0, || "journal".into()), log.clone()).await.unwrap();
    let mut agent = Agent::new("run");
    for _ in 0..3 {
        log.append(PARTITION, vec![entry(&agent.turn("hello"))]).await.unwrap();
    }
    projector.wait(PARTITION, Consistency::Latest, DEADLINE).await.unwrap();
    let applied = projector.progress(PARTITION).unwrap().applied;

    recreate(&config, 100).await;
    let stopped = projector.wait_until(PARTITION, |progress| progress.stopped.is_some() || progress.applied > applied);
    let progress = tokio::time::timeout(DEADLINE, stopped).await.expect("it is noticed").unwrap();
    let stop = progress.stopped.expect("the partition is stopped");
    assert_eq!((stop.kind.as_str(), progress.applied), ("log_diverged", applied), "{}", stop.error);
    let refused = projector.wait(PARTITION, Consistency::Latest, DEADLINE).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PartitionStopped, "{refused}");
    let refused = log.append(PARTITION, vec![entry(&agent.turn("hello"))]).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Replaced, "{refused}");
    projector.wait(PARTITION, Consistency::Eventual, DEADLINE).await.expect("applied records stay");
    assert_eq!(projector.progress(PARTITION).unwrap().applied, applied);
}

/// An answer about the completed call.
fn looked_up(server: &Server, consistency: &str) -> anyhow::Result<(u16, Value)> {
    server.get(&format!("/v1/runs/r/lookup?tool=pay&args=%7B%7D&consistency={consistency}&deadline_ms=2000"))
}

#[test]
fn a_server_that_starts_on_a_topic_created_again_answers_from_its_index_and_refuses_latest() -> anyhow::Result<()> {
    let (folder, config) = (tempdir()?, Broker::shared().unique_topic());
    ensure!(admin::create_topic(&config, 1)?, "the topic exists");
    let launch = Launch::kafka(folder.path(), &config).partitions(1);
    let mut server = launch.clone().with("--new-journal").start()?;
    let payload = |payload: Value| json!({ "run_id": "r", "record_id": payload["id"], "payload": payload["of"] });
    let request = json!({ "id": "q", "of": { "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay",
        "arguments": {} } });
    let result = json!({ "id": "a", "of": { "type": "tool_call_completed", "request_record_id": "q", "result": 1 } });
    for record in [request, result] {
        let (status, said) = server.post("/v1/runs/r/records", &payload(record))?;
        ensure!(status == 200 && said["outcome"] == "applied", "{said}");
    }
    wait(recreate(&config, 0));
    for _ in 0..2 {
        server.restart_whole(&launch)?;
        let (status, said) = looked_up(&server, "latest")?;
        ensure!(status == 503, "{status} {said}");
        let (status, said) = looked_up(&server, "eventual")?;
        ensure!(status == 200 && said["status"] == "completed", "{status} {said}");
    }
    Ok(())
}
