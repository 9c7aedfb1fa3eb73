//! Consumers resume after a pause of their broker, and a consumer without answers is replaced. `make nightly-faults` pauses
//! the brokers of servers, at any moment and for up to a minute.

use std::{sync::Arc, thread, time::Duration};

use runlog_log::{
    Client, Log, Offset, PartitionId, Reader,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_tests::{
    kafka::Broker,
    log_contract::{append, bounds, read_up_to, reader},
    tcp_proxy::TcpProxy,
};

/// Logs with a consumer each: in every pause, each consumer may lose its broker.
const CONSUMERS: u16 = 8;
/// Longer than a broker's session timeout: the controller in the same process then usually fences the broker, and metadata
/// list no broker for a moment.
const PAUSE: Duration = Duration::from_secs(10);

fn connect(config: &KafkaConfig) -> Arc<dyn Log> {
    Arc::new(KafkaLog::connect(config.clone()).unwrap())
}

#[test]
fn consumers_resume_after_a_pause_of_the_only_broker() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(u32::from(CONSUMERS)).unwrap();
    let logs: Vec<_> = (0..CONSUMERS).map(|_| connect(&config)).collect();
    let from: Vec<_> = PartitionId::all(u32::from(CONSUMERS)).map(|partition| (partition, Offset::ZERO)).collect();
    let mut readers: Vec<Box<dyn Reader>> = logs.iter().map(|log| log.reader(&from).unwrap()).collect();
    broker.pause().unwrap();
    thread::sleep(PAUSE);
    broker.unpause().unwrap();
    for (partition, log) in (0..CONSUMERS).zip(&logs) {
        append(log, partition, &["after"]).unwrap();
    }
    for reader in &mut readers {
        for partition in 0..CONSUMERS {
            read_up_to(reader, partition, bounds(&logs[0], partition).end);
        }
    }
}

#[test]
fn a_consumer_that_gets_no_answers_is_replaced() {
    let proxy = TcpProxy::start().unwrap();
    let broker = Broker::start_behind(&proxy).unwrap();
    // The timeout after which librdkafka itself closes the connection.
    let config = broker.topic(1).unwrap().with("socket.timeout.ms", "300000");
    let log = connect(&config);
    append(&log, 0, &["before"]).unwrap();
    let mut reader = reader(&log, &[(0, 0)]);
    read_up_to(&mut reader, 0, 1.into());
    proxy.silence();
    append(&connect(&config), 0, &["after"]).unwrap();
    read_up_to(&mut reader, 0, 2.into());
    let clients = log.clients();
    assert!(clients.replaced.contains_key(&Client::Consumer), "{clients:?}");
    assert!(clients.last.unwrap().reason.contains("partition 0"), "the reason names the partition");
}
