//! A batch that is damaged on the broker's disk.

use runlog_log::{Kind, Log, PartitionId, kafka::KafkaLog};
use runlog_tests::{
    kafka::Broker,
    log_contract::{PATIENCE, append, read, reader, texts},
};
use std::sync::Arc;

#[test]
fn a_damaged_batch_is_reported_for_its_partition_and_other_partitions_continue() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(3).unwrap();
    let log: Arc<dyn Log> = Arc::new(KafkaLog::connect(config.clone()).unwrap());
    for partition in PartitionId::all(3) {
        append(&log, partition, &["first"]).unwrap();
        append(&log, partition, &["second"]).unwrap();
    }
    append(&log, 1, &["the damaged record"]).unwrap();
    append(&log, 1, &["after it"]).unwrap();
    broker.damage(&config.topic, 1, "the damaged record").unwrap();
    let mut reader = reader(&log, &[(0, 0), (1, 0), (2, 0)]);
    let mut delivered = Vec::new();
    let error = loop {
        match reader.poll(100, PATIENCE) {
            Ok(records) => delivered.extend(records),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.subject().partition), (Kind::Damaged, Some(1.into())), "{error:?}");
    assert_eq!(error.subject().offset, Some(2.into()));
    append(&log, 0, &["third"]).unwrap();
    append(&log, 2, &["third"]).unwrap();
    delivered.extend(read(&mut reader, 8 - delivered.len()));
    let whole = [(0, &["first", "second", "third"][..]), (1, &["first", "second"][..])];
    for (partition, expected) in whole.map(|(partition, expected)| (PartitionId::from(partition), expected)) {
        let here: Vec<_> = delivered.iter().filter(|record| record.partition == partition).cloned().collect();
        assert_eq!(texts(&here), expected, "partition {partition}");
    }
}
