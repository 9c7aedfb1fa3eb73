//! A topic that is deleted and created again while it is served, with more records than the old topic had.

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
};
use std::{sync::Arc, thread, time::Duration};

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
