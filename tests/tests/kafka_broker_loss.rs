//! What becomes of appends, readers and questions when the broker is killed and comes back.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use runlog_log::{
    Entry, Kind, Log, Offset,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_tests::{
    kafka::Broker,
    log_contract::{
        PARTITIONS, PATIENCE, append, bounds,
        crash::{self, Acked, about},
        entry, kind, reader, wait,
    },
};

fn connect(config: &KafkaConfig) -> Arc<dyn Log> {
    Arc::new(KafkaLog::connect(config.clone()).unwrap())
}

/// Appends until it is told to stop; returns what was acknowledged.
fn append_until(stop: &AtomicBool, log: &Arc<dyn Log>, partition: u32) -> Vec<Acked> {
    let mut acked = Vec::new();
    for round in 0.. {
        let values: Vec<String> = (0..16).map(|number| format!("{partition} {round} {number}")).collect();
        let acks: Vec<_> = values.iter().map(|value| log.append(partition, vec![entry(&value[..])])).collect();
        for (value, ack) in values.into_iter().zip(acks) {
            if let Ok(offsets) = wait(ack) {
                acked.push(Acked { partition, offset: offsets[0], value });
            }
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    acked
}

#[test]
fn acknowledged_survives_kill_9_of_the_broker() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(PARTITIONS).unwrap();
    let log = connect(&config);
    let stop = AtomicBool::new(false);
    let from: Vec<(u32, Offset)> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    let mut reader = reader(&log, &from);
    let (acked, delivered) = thread::scope(|scope| {
        let appenders: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                scope.spawn({
                    let (log, stop) = (&log, &stop);
                    move || append_until(stop, log, partition)
                })
            })
            .collect();
        let reading = scope.spawn(|| {
            let mut delivered = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                // While the broker is away the reader says so, and goes on afterwards.
                match reader.poll(1000, Duration::from_millis(100)) {
                    Ok(records) => delivered.extend(records),
                    Err(error) => assert_eq!(error.kind(), Kind::Retry, "{error:?}"),
                }
            }
            delivered
        });
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(about(1000) as u64));
            broker.kill().unwrap();
            broker.restart().unwrap();
        }
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::SeqCst);
        let acked: Vec<Acked> = appenders.into_iter().flat_map(|appender| appender.join().unwrap()).collect();
        (acked, reading.join().unwrap())
    });
    assert!(acked.len() > 100, "only {} appends were acknowledged", acked.len());
    crash::assert_holds(&connect(&config), &acked);
    // The reader that saw all of it delivered each record once and in order, and gets to the end.
    for partition in 0..PARTITIONS {
        let here = delivered.iter().filter(|record| record.partition == partition).map(|record| record.offset);
        assert!(here.is_sorted_by(|earlier, later| earlier < later));
        let end = bounds(&log, partition).end;
        let begun = Instant::now();
        while reader.position(partition) < Some(end) {
            assert!(begun.elapsed() < PATIENCE);
            let _ = reader.poll(1000, Duration::from_millis(100));
        }
    }
    append(&log, 0, &["the same log goes on"]).unwrap();
}

#[test]
fn while_the_broker_does_not_answer_everything_ends_in_time() {
    let broker = Broker::start().unwrap();
    let config = broker.topic(1).unwrap().with("delivery.timeout.ms", "4000");
    let log = connect(&config);
    append(&log, 0, &["before"]).unwrap();
    let idle = reader(&log, &[(0, 0)]);
    broker.pause().unwrap();
    let begun = Instant::now();

    let pending = log.append(0, vec![entry("during")]);
    assert_eq!(kind(wait(log.bounds(0, Duration::from_millis(500)))), Kind::Retry);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(kind(wait(pending)), Kind::Unknown);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());

    // The queue is bounded, and a batch enters it whole or not at all.
    let batch = || vec![Entry { value: vec![1; 100], ..Entry::default() }; 10_000];
    let acks: Vec<_> = (0..12).map(|_| log.append(0, batch())).collect();
    let kinds: Vec<Kind> = wait(join_all(acks)).into_iter().map(kind).collect();
    assert_eq!(kinds, [[Kind::Unknown; 10].as_slice(), &[Kind::Retry; 2]].concat());

    // Nothing hangs in the end either, with an append under way.
    drop(log.append(0, vec![entry("at the end")]));
    let begun = Instant::now();
    drop(idle);
    drop(log);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());

    broker.unpause().unwrap();
    let log = connect(&config);
    append(&log, 0, &["after"]).unwrap();
}
