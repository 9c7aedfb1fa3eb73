//! The id of a log in Kafka: made of the ids that the broker itself reports, and another id for a topic that was
//! created again.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
};
use runlog_log::{
    Log, LogId,
    kafka::{KafkaConfig, KafkaLog, admin},
};
use runlog_tests::{
    kafka::Broker,
    log_contract::{PATIENCE, ids, wait},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Duration,
};

fn open(config: &KafkaConfig) -> Arc<dyn Log> {
    Arc::new(KafkaLog::connect(config.clone()).unwrap())
}

#[test]
fn a_log_keeps_its_id_when_it_is_opened_again_and_another_topic_has_another_id() {
    let [config, other] = [1, 2].map(|partitions| Broker::shared().topic(partitions).unwrap());
    ids::a_log_keeps_its_id_when_it_is_opened_again(|| open(&config), &open(&other));
}

#[test]
fn a_topic_that_is_created_again_is_another_log() {
    let config = Broker::shared().topic(1).unwrap();
    let log = open(&config);
    let operator: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &config.brokers).create().unwrap();
    wait(operator.delete_topics(&[&config.topic], &AdminOptions::new())).unwrap().remove(0).unwrap();
    while !admin::create_topic(&config, 1).unwrap() {
        thread::sleep(Duration::from_millis(1));
    }
    let again = open(&config);
    assert_ne!(again.id().unwrap(), log.id().unwrap());
    assert_eq!(again.id(), reported_id(&config).as_ref());
}

/// librdkafka logs ids in another base64 alphabet than Kafka's own tools print. Half of all random ids show the difference.
#[test]
fn the_id_of_a_log_has_the_form_of_kafkas_own_tools() {
    for _ in 0..10 {
        let config = Broker::shared().topic(1).unwrap();
        assert_eq!(open(&config).id(), reported_id(&config).as_ref());
    }
}

/// Requests the ids of the cluster and of the topic from the broker, without librdkafka, and writes the topic's id as Kafka's
/// `Uuid.toString` does: base64 in the URL-safe alphabet, without padding.
fn reported_id(config: &KafkaConfig) -> Option<LogId> {
    let mut broker = TcpStream::connect(&config.brokers).unwrap();
    broker.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    // Header version 2: Metadata (3), version 12, correlation id 7, no client id, no tagged fields.
    request.extend([0, 3, 0, 12, 0, 0, 0, 7, 0xff, 0xff, 0]);
    // One topic: a zero id, its name, no tagged fields. Lengths are one greater than the count.
    request.push(2);
    request.extend([0; 16]);
    request.push(u8::try_from(config.topic.len() + 1).unwrap());
    request.extend(config.topic.as_bytes());
    // No tagged fields of the topic; no creation of topics; no authorized operations; no tagged fields.
    request.extend([0, 0, 0, 0]);
    broker.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    broker.write_all(&request).unwrap();
    let mut length = [0; 4];
    broker.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    broker.read_exact(&mut answer).unwrap();

    let mut rest = &answer[..];
    // Correlation id, tagged fields, throttle time.
    take(&mut rest, 4 + 1 + 4);
    for _ in 1..take(&mut rest, 1)[0] {
        // A broker: id, host, port, rack, tagged fields.
        take(&mut rest, 4);
        text(&mut rest);
        take(&mut rest, 4);
        text(&mut rest);
        take(&mut rest, 1);
    }
    let cluster = text(&mut rest).to_owned();
    // The controller, the number of topics, the topic's error.
    take(&mut rest, 4 + 1 + 2);
    assert_eq!(text(&mut rest), config.topic);
    LogId::kafka(&cluster, &BASE64_URL_SAFE_NO_PAD.encode(take(&mut rest, 16)))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    rest.split_off(..count).unwrap()
}

/// Reads a short string; a null string is empty.
fn text<'a>(rest: &mut &'a [u8]) -> &'a str {
    let length = usize::from(take(rest, 1)[0]).saturating_sub(1);
    str::from_utf8(take(rest, length)).unwrap()
}
