//! Appends, readers and queries while the broker is killed and restarted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use runlog_log::{
    Delivery, Entry, Kind, Log, Offset, PartitionId, Reader,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_tests::{
    kafka::Broker,
    log_contract::{
        PARTITIONS, PATIENCE, append, bounds,
        crash::{self, Acked, about},
        entry, kind, read_up_to, reader, wait,
    },
};

fn connect(config: &KafkaConfig) -> Arc<dyn Log> {
    Arc::new(KafkaLog::connect(config.clone()).unwrap())
}

/// Appends to a partition until the receiver of the acknowledgements is dropped.
fn append_on(log: &Arc<dyn Log>, partition: PartitionId, acked: &mpsc::Sender<Acked>) {
    for round in 0.. {
        let values: Vec<String> = (0..16).map(|number| format!("{partition} {round} {number}")).collect();
        let acks: Vec<_> = values.iter().map(|value| log.append(partition, vec![entry(&value[..])])).collect();
        for (value, ack) in values.into_iter().zip(acks) {
            let Ok(offsets) = wait(ack) else { continue };
            if acked.send(Acked { partition, offset: offsets[0], value }).is_err() {
                return;
            }
        }
    }
}

/// Reads all partitions until `stop`. The reader reports errors while the broker is down, and continues afterwards.
fn read_on(reader: &mut Box<dyn Reader>, stop: &AtomicBool) -> Vec<Delivery> {
    let mut delivered = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        match reader.poll(1000, Duration::from_millis(100)) {
            Ok(records) => delivered.extend(records),
            Err(error) => assert_eq!(error.kind(), Kind::Retry, "{error:?}"),
        }
    }
    delivered
}

#[test]
fn acknowledged_records_survive_sigkill_of_the_broker() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(PARTITIONS).unwrap();
    let log = connect(&config);
    let from: Vec<_> = PartitionId::all(PARTITIONS).map(|partition| (partition, Offset::ZERO)).collect();
    let mut reader = reader(&log, &from);
    let stop = AtomicBool::new(false);
    let (acked, mut delivered) = thread::scope(|scope| {
        let (acks, acked) = mpsc::channel();
        for partition in PartitionId::all(PARTITIONS) {
            let (log, acks) = (&log, acks.clone());
            scope.spawn(move || append_on(log, partition, &acks));
        }
        let reading = scope.spawn(|| read_on(&mut reader, &stop));
        let next = || acked.recv_timeout(PATIENCE).expect("appends continue");
        let mut acknowledged = Vec::new();
        for _ in 0..2 {
            acknowledged.extend((0..about(500)).map(|_| next()));
            broker.kill().unwrap();
            broker.restart().unwrap();
        }
        acknowledged.extend((0..500).map(|_| next()));
        stop.store(true, Ordering::SeqCst);
        drop(acked);
        (acknowledged, reading.join().unwrap())
    });
    crash::assert_holds(&connect(&config), &acked);
    for partition in PartitionId::all(PARTITIONS) {
        delivered.extend(read_up_to(&mut reader, partition, bounds(&log, partition).end));
    }
    // The reader that ran all the time delivered every record once and in order.
    for partition in PartitionId::all(PARTITIONS) {
        let here = delivered.iter().filter(|record| record.partition == partition);
        let offsets = here.map(|record| record.offset.get());
        assert!(offsets.eq(0..bounds(&log, partition).end.get()), "offsets are dense without transactions");
    }
}

#[test]
fn every_operation_ends_while_the_broker_does_not_answer() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(1).unwrap().with("delivery.timeout.ms", "4000");
    let log = connect(&config);
    append(&log, 0, &["before"]).unwrap();
    let idle = reader(&log, &[(0, 0)]);
    broker.pause().unwrap();
    let started = Instant::now();

    let pending = log.append(0.into(), vec![entry("during")]);
    assert_eq!(kind(wait(log.bounds(0.into(), Duration::from_millis(500)))), Kind::Retry);
    assert_eq!(kind(wait(pending)), Kind::Unknown);
    // Long before librdkafka's own timeout of five minutes.
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());

    // The queue is bounded, and a batch enters it whole or not at all.
    let batch = || vec![Entry { value: vec![1; 100], ..Entry::default() }; 10_000];
    let acks: Vec<_> = (0..12).map(|_| log.append(0.into(), batch())).collect();
    let kinds: Vec<Kind> = wait(join_all(acks)).into_iter().map(kind).collect();
    assert_eq!(kinds, [[Kind::Unknown; 10].as_slice(), &[Kind::Retry; 2]].concat());

    // Dropping the log with an append in flight does not block.
    drop(log.append(0.into(), vec![entry("at the end")]));
    drop(idle);
    drop(log);

    broker.unpause().unwrap();
    let log = connect(&config);
    append(&log, 0, &["after"]).unwrap();
}
