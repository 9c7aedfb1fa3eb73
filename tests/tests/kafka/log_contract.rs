//! The contract of `Log` on a real broker, and claims that only Kafka needs.

use std::{any::Any, sync::Arc};

use rdkafka::{
    ClientConfig, Offset as Place, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};
use runlog_log::{
    Kind, Log,
    kafka::{KafkaConfig, KafkaLog, admin},
};
use runlog_tests::{
    kafka::Broker,
    log_contract::{
        PARTITIONS, PATIENCE, append, assert_drained, bounds,
        crash::{self, about},
        kind, log_position, read, read_up_to, reader, texts, wait,
    },
};

fn new_log() -> (Arc<dyn Log>, impl Any) {
    (Arc::new(Broker::shared().log(PARTITIONS).unwrap()) as Arc<dyn Log>, ())
}

runlog_tests::log_contract!(new_log);

/// The configuration of a plain Kafka client for the topic's brokers.
fn foreign_client(config: &KafkaConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &config.brokers).set("message.max.bytes", "2000000");
    client
}

fn connect(config: &KafkaConfig) -> Arc<dyn Log> {
    Arc::new(KafkaLog::connect(config.clone()).unwrap())
}

/// Runs a transaction of one record in partition 0, which ends with a control record.
fn transact(producer: &BaseProducer, topic: &str, value: &str, commit: bool) {
    producer.begin_transaction().unwrap();
    producer.send(BaseRecord::<(), str>::to(topic).partition(0).payload(value)).unwrap();
    let ended = if commit { producer.commit_transaction(PATIENCE) } else { abort(producer) };
    ended.unwrap();
}

/// Aborts the transaction. Records that were not sent yet never get into the log.
fn abort(producer: &BaseProducer) -> Result<(), rdkafka::error::KafkaError> {
    producer.flush(PATIENCE)?;
    producer.abort_transaction(PATIENCE)
}

#[test]
fn positions_step_over_control_records_up_to_the_high_watermark() {
    let config = Broker::shared().topic(1).unwrap();
    let log = connect(&config);
    let producer: BaseProducer =
        foreign_client(&config).set("transactional.id", format!("{}-foreign", config.topic)).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    let mut reader = reader(&log, &[(0, 0)]);
    for (value, commit) in [("a", true), ("b", false), ("c", true)] {
        transact(&producer, &config.topic, value, commit);
        let record = read(&mut reader, 1).remove(0);
        // Uncommitted and aborted records are read like all others.
        assert_eq!(record.value, value.as_bytes());
        // The control record may appear shortly after the answer to the commit or abort.
        let end = record.offset.saturating_add(2);
        assert_eq!(read_up_to(&mut reader, 0, end), []);
        assert_eq!(bounds(&log, 0).end, end);
    }
    // A reader that starts at a control record delivers no record and still reaches the end.
    let end = bounds(&log, 0).end;
    let mut at_marker = log.reader(&[log_position((0, end.saturating_sub(1)))]).unwrap();
    assert_eq!(read_up_to(&mut at_marker, 0, end), []);
    // Seeks over control records, backwards and forwards, leave no stale position.
    at_marker.seek(0.into(), 1.into()).unwrap();
    assert_eq!(at_marker.position(0.into()), Some(1.into()));
    assert_eq!(texts(&read(&mut at_marker, 2)), ["b", "c"]);
    let offset = append(&log, 0, &["ours"]).unwrap()[0];
    assert_eq!(offset, end);
    assert_eq!(read(&mut reader, 1)[0].offset, end);
}

#[test]
fn a_log_that_is_read_committed_has_no_record_of_aborted_transactions_and_ends_before_an_open_one() {
    let config = Broker::shared().topic(1).unwrap();
    let home = connect(&config);
    let log = home.committed().expect("Kafka has transactions").unwrap();
    assert!(log.reads_committed() && !home.reads_committed() && log.committed().is_none());
    assert_eq!((log.id(), log.partitions()), (home.id(), 1));
    let producer = |name: &str| -> BaseProducer {
        let id = format!("{}-{name}", config.topic);
        let producer: BaseProducer = foreign_client(&config).set("transactional.id", id).create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer
    };
    let (copier, hanging) = (producer("copier"), producer("hanging"));
    let mut reader = reader(&log, &[(0, 0)]);
    for (value, commit) in [("a", false), ("a", true), ("b", true)] {
        transact(&copier, &config.topic, value, commit);
    }
    assert_eq!(texts(&read(&mut reader, 2)), ["a", "b"]);
    let stable = append(&home, 0, &["c"]).unwrap()[0].saturating_add(1);
    assert_eq!(texts(&read_up_to(&mut reader, 0, stable)), ["c"]);
    hanging.begin_transaction().unwrap();
    hanging.send(BaseRecord::<(), str>::to(&config.topic).partition(0).payload("open")).unwrap();
    hanging.flush(PATIENCE).unwrap();
    append(&home, 0, &["d"]).unwrap();
    assert_eq!(bounds(&home, 0).end, stable.saturating_add(2));
    assert_eq!((bounds(&log, 0).end, wait(log.end(0.into(), PATIENCE)).unwrap()), (stable, stable));
    assert_drained(&mut reader);
    assert_eq!(reader.position(0.into()), Some(stable));
    abort(&hanging).unwrap();
    assert_eq!(texts(&read(&mut reader, 1)), ["d"]);
    // The marker of the abort follows.
    assert_eq!(read_up_to(&mut reader, 0, stable.saturating_add(3)), []);
}

#[test]
fn a_foreign_record_is_delivered_however_large_or_empty_it_is() {
    let config = Broker::shared().topic(1).unwrap();
    let log = connect(&config);
    let producer: BaseProducer = foreign_client(&config).create().unwrap();
    let oversized = vec![7; log.value_bytes_max() + 500_000];
    producer.send(BaseRecord::<str, [u8]>::to(&config.topic).partition(0).payload(&oversized)).unwrap();
    producer.send(BaseRecord::<str, [u8]>::to(&config.topic).partition(0).key("gone")).unwrap();
    producer.flush(PATIENCE).unwrap();
    let records = read(&mut reader(&log, &[(0, 0)]), 2);
    assert!(records[0].value == oversized);
    assert_eq!((&records[1].key[..], &records[1].value[..]), (&b"gone"[..], &b""[..]));
}

#[test]
fn a_reader_before_the_moved_start_gets_an_error_and_can_seek() {
    // Prefetches little, so that most records are deleted before they are fetched.
    let config = Broker::shared().topic(2).unwrap().with("queued.min.messages", "1");
    let config = config.with("fetch.message.max.bytes", "1000");
    let log = connect(&config);
    for number in 0..30 {
        append(&log, 0, &[&format!("{number} {}", "x".repeat(2000))]).unwrap();
    }
    let mut early = reader(&log, &[(0, 0), (1, 0)]);
    read(&mut early, 1);
    delete_before(&config, 25);
    assert_eq!(bounds(&log, 0).start, 25.into());
    let error = loop {
        match early.poll(10, PATIENCE) {
            Ok(records) => assert!(records.iter().all(|record| record.offset < 25.into())),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.subject().partition), (Kind::OutOfRange, Some(0.into())), "{error:?}");
    let place = format!("partition 0, offset {}", early.position(0.into()).unwrap());
    assert!(error.to_string().contains(&place), "{error}");
    assert_eq!(kind(log.reader(&[(0.into(), 24.into())])), Kind::OutOfRange);
    // The other partition continues, and so does this one after a seek to the log start.
    append(&log, 1, &["other"]).unwrap();
    assert_eq!(texts(&read(&mut early, 1)), ["other"]);
    early.seek(0.into(), 25.into()).unwrap();
    assert_eq!(read(&mut early, 5)[0].offset, 25.into());
}

/// Moves the log start of partition 0, as an operator can.
fn delete_before(config: &KafkaConfig, start: i64) {
    let admin: AdminClient<DefaultClientContext> = foreign_client(config).create().unwrap();
    let mut until = TopicPartitionList::new();
    until.add_partition_offset(&config.topic, 0, Place::Offset(start)).unwrap();
    wait(admin.delete_records(&until, &AdminOptions::new())).unwrap();
}

#[test]
fn a_missing_topic_is_refused_and_asking_for_it_does_not_create_it() {
    // The broker creates missing topics for clients that allow it.
    let config = Broker::shared().unique_topic();
    let error = KafkaLog::connect(config.clone()).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("no such topic"), "{error}");
    assert_eq!(admin::describe(&config).unwrap(), None);
    let consumer: BaseConsumer = foreign_client(&config).create().unwrap();
    let metadata = consumer.fetch_metadata(None, PATIENCE).unwrap();
    assert!(metadata.topics().iter().all(|topic| topic.name() != config.topic));
}

#[test]
fn a_topic_that_brokers_learn_of_while_it_is_opened_is_found() {
    let config = Broker::shared().unique_topic();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| KafkaLog::connect(config.clone()));
        assert!(admin::create_topic(&config, 1).unwrap(), "it is new");
        assert_eq!(opened.join().unwrap().unwrap().partitions(), 1);
    });
}

#[test]
fn a_created_topic_has_no_weakness_and_a_topic_of_defaults_has() {
    let config = Broker::shared().topic(3).unwrap();
    let info = admin::describe(&config).unwrap().unwrap();
    assert_eq!((info.partitions, info.replication, info.brokers), (3, 1, 1));
    assert_eq!(admin::weaknesses(&info), []);
    assert!(!admin::create_topic(&config, 5).unwrap(), "the existing topic is not changed");
    assert_eq!(KafkaLog::connect(config.clone()).unwrap().partitions(), 3);

    let weak = Broker::shared().unique_topic();
    let client: AdminClient<DefaultClientContext> = foreign_client(&weak).create().unwrap();
    let topic = NewTopic::new(&weak.topic, 1, TopicReplication::Fixed(1)).set("cleanup.policy", "compact");
    wait(client.create_topics([&topic], &AdminOptions::new())).unwrap().remove(0).unwrap();
    let info = std::iter::from_fn(|| Some(admin::describe(&weak).unwrap())).flatten().next().unwrap();
    let reported = admin::weaknesses(&info);
    for name in ["retention.ms", "cleanup.policy", "message.timestamp.type", "max.message.bytes"] {
        assert!(reported.iter().any(|weakness| weakness.what.starts_with(name)), "{name}: {reported:?}");
    }
}

#[test]
fn a_given_partition_count_may_be_lower_than_the_live_count_but_not_higher() {
    let config = Broker::shared().topic(3).unwrap();
    let log = KafkaLog::connect_with_partitions(config.clone(), 2).unwrap();
    assert_eq!(log.partitions(), 2);
    let log: Arc<dyn Log> = Arc::new(log);
    assert_eq!(kind(append(&log, 2, &["x"])), Kind::Invalid);
    assert_eq!(kind(KafkaLog::connect_with_partitions(config, 4)), Kind::Invalid);
}

#[test]
fn records_carry_the_brokers_time_and_not_the_clients() {
    let config = Broker::shared().topic(1).unwrap();
    let log = connect(&config);
    append(&log, 0, &["ours"]).unwrap();
    let producer: BaseProducer = foreign_client(&config).create().unwrap();
    producer.send(BaseRecord::<(), str>::to(&config.topic).partition(0).payload("old").timestamp(1)).unwrap();
    producer.flush(PATIENCE).unwrap();
    let records = read(&mut reader(&log, &[(0, 0)]), 2);
    assert!(records[0].timestamp_millis <= records[1].timestamp_millis);
}

const BROKERS: &str = "RUNLOG_CHILD_BROKERS";
const TOPIC: &str = "RUNLOG_CHILD_TOPIC";

#[test]
fn acknowledged_records_survive_sigkill_of_the_appending_process() {
    let config = Broker::shared().topic(PARTITIONS).unwrap();
    let environment = [(BROKERS, &config.brokers[..]), (TOPIC, &config.topic)];
    let mut acked = Vec::new();
    for round in 0..3 {
        acked.extend(crash::kill_after("log_contract::child_appends_to_kafka", &environment, about(200 << round)));
        crash::assert_holds(&connect(&config), &acked);
    }
}

#[test]
#[ignore = "the process that is killed"]
fn child_appends_to_kafka() {
    let [brokers, topic] = [BROKERS, TOPIC].map(|name| std::env::var(name).unwrap());
    crash::append_until_killed(&connect(&KafkaConfig::new(brokers, topic)));
}

#[test]
fn an_unreachable_cluster_is_an_error() {
    // No process listens on port 9, the discard port of RFC 863.
    let config = KafkaConfig::new("127.0.0.1:9", "t");
    assert_eq!(kind(KafkaLog::connect(config.clone())), Kind::Retry);
    assert_eq!(kind(admin::describe(&config)), Kind::Retry);
}

#[test]
fn an_idle_reader_stays_silent_and_its_drop_returns() {
    let (log, _kept) = new_log();
    let mut reader = reader(&log, &[(0, 0)]);
    assert_drained(&mut reader);
    drop(reader);
    drop(log);
}
