//! Claims about appends.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use std::{sync::Arc, thread};

use runlog_log::{BATCH_ENTRIES_MAX, Entry, Kind, LABEL_BYTES_MAX, Log, Offset, PartitionId};

use super::{PARTITIONS, append, assert_drained, bounds, entry, kind, read, reader, texts, wait};

pub fn records_come_back_in_the_order_of_their_appends(log: &Arc<dyn Log>) {
    let mut acks = Vec::new();
    for batch in 0..100 {
        acks.push(log.append(2.into(), (0..batch % 5 + 1).map(|index| entry(format!("{batch}.{index}"))).collect()));
    }
    let offsets: Vec<Offset> = acks.into_iter().flat_map(|ack| wait(ack).unwrap()).collect();
    assert!(offsets.is_sorted_by(|earlier, later| earlier < later));
    let records = read(&mut reader(log, &[(2, 0)]), offsets.len());
    assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), offsets);
    let expected = (0..100).flat_map(|batch| (0..batch % 5 + 1).map(move |index| format!("{batch}.{index}")));
    assert_eq!(texts(&records), expected.collect::<Vec<_>>());
}

pub fn keys_values_headers_and_timestamps_are_carried(log: &Arc<dyn Log>) {
    let headers = vec![("traceparent".into(), b"00-1-2-01".to_vec()), ("empty".into(), Vec::new())];
    let full = Entry { key: vec![0, 255, 7], value: (0..=255).collect(), headers };
    let bare = Entry { key: Vec::new(), value: b"x".to_vec(), headers: Vec::new() };
    let offsets = wait(log.append(1.into(), vec![full.clone(), bare.clone()])).unwrap();
    let records = read(&mut reader(log, &[(1, 0)]), 2);
    for ((record, entry), offset) in records.iter().zip([full, bare]).zip(offsets) {
        assert_eq!((record.partition, record.offset), (1.into(), offset));
        assert_eq!((&record.key, &record.value, &record.headers), (&entry.key, &entry.value, &entry.headers));
    }
    let year_2020 = 1_577_836_800_000;
    assert!(year_2020 < records[0].timestamp_millis && records[0].timestamp_millis <= records[1].timestamp_millis);
}

pub fn the_largest_record_is_accepted(log: &Arc<dyn Log>) {
    let largest = Entry {
        key: vec![b'k'; LABEL_BYTES_MAX - 4],
        // Incompressible bytes, so that the value is equally large on the wire.
        value: (0..log.value_bytes_max() as u64)
            .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
            .collect(),
        headers: vec![("h".into(), vec![1, 2, 3])],
    };
    wait(log.append(0.into(), vec![largest.clone(), largest.clone()])).unwrap();
    for record in read(&mut reader(log, &[(0, 0)]), 2) {
        assert!(record.value == largest.value && record.key == largest.key);
    }
}

pub fn an_oversized_record_refuses_its_whole_batch_and_the_log_continues(log: &Arc<dyn Log>) {
    let oversized = entry(vec![1; log.value_bytes_max() + 1]);
    assert_eq!(kind(wait(log.append(0.into(), vec![entry("before"), oversized.clone()]))), Kind::Invalid);
    assert_eq!(kind(wait(log.append(0.into(), vec![oversized]))), Kind::Invalid);
    let labelled = Entry { key: vec![1; LABEL_BYTES_MAX + 1], ..entry("x") };
    assert_eq!(kind(wait(log.append(0.into(), vec![labelled]))), Kind::Invalid);
    assert_eq!(kind(wait(log.append(0.into(), vec![entry("x"); BATCH_ENTRIES_MAX + 1]))), Kind::Invalid);
    assert_eq!(kind(wait(log.append(0.into(), vec![entry(vec![1; log.value_bytes_max()]); 17]))), Kind::Invalid);
    append(log, 0, &["after"]).unwrap();
    let mut reader = reader(log, &[(0, 0)]);
    assert_eq!(texts(&read(&mut reader, 1)), ["after"]);
    assert_drained(&mut reader);
}

pub fn records_that_kafka_cannot_carry_are_refused(log: &Arc<dyn Log>) {
    assert_eq!(kind(wait(log.append(0.into(), vec![entry("before"), entry("")]))), Kind::Invalid, "a tombstone");
    let named = Entry { headers: vec![("a\0b".into(), Vec::new())], ..entry("x") };
    assert_eq!(kind(wait(log.append(0.into(), vec![named]))), Kind::Invalid, "a name with NUL");
    assert_eq!(bounds(log, 0).end, Offset::ZERO);
}

pub fn an_unknown_partition_is_refused(log: &Arc<dyn Log>) {
    assert_eq!(log.partitions(), PARTITIONS);
    let unknown = PartitionId::new(PARTITIONS).unwrap();
    assert_eq!(kind(append(log, unknown, &["x"])), Kind::Invalid);
    assert_eq!(kind(log.reader(&[(unknown, Offset::ZERO)])), Kind::Invalid);
    assert_eq!(kind(wait(log.bounds(unknown, super::PATIENCE))), Kind::Invalid);
}

pub fn an_empty_batch_is_no_append(log: &Arc<dyn Log>) {
    assert!(wait(log.append(0.into(), Vec::new())).unwrap().is_empty());
    assert_eq!(bounds(log, 0).end, Offset::ZERO);
}

pub fn concurrent_appenders_keep_their_order_in_each_partition(log: &Arc<dyn Log>) {
    let (appenders, batches, entries) = (8, 40, 25);
    thread::scope(|scope| {
        for appender in 0..appenders {
            scope.spawn(move || append_batches(log, appender, batches, entries));
        }
    });
    let from: Vec<_> = PartitionId::all(PARTITIONS).map(|partition| (partition, 0)).collect();
    let records = read(&mut reader(log, &from), (appenders * batches * entries) as usize);
    for partition in PartitionId::all(PARTITIONS) {
        let here: Vec<_> = records.iter().filter(|record| record.partition == partition).cloned().collect();
        let here = texts(&here);
        for appender in 0..appenders {
            let of = |text: &String| text.strip_prefix(&format!("{appender} ")).map(|number| number.parse::<u32>());
            let numbers: Vec<u32> = here.iter().filter_map(of).map(|number| number.unwrap()).collect();
            assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "{appender}: {numbers:?}");
        }
        // The records of a batch are adjacent.
        assert!(here.chunks(entries as usize).all(|batch| batch.iter().all(|text| text[..2] == batch[0][..2])));
    }
}

/// Appends batches without waiting in between, then checks their offsets.
fn append_batches(log: &Arc<dyn Log>, appender: u32, batches: u32, entries: u32) {
    let mut acks = Vec::new();
    for batch in 0..batches {
        let values = (0..entries).map(|index| entry(format!("{appender} {}", batch * entries + index)));
        let partition = PartitionId::new(batch % PARTITIONS).unwrap();
        acks.push((partition, log.append(partition, values.collect())));
    }
    let mut ends = [Offset::ZERO; PARTITIONS as usize];
    for (partition, ack) in acks {
        for offset in wait(ack).unwrap() {
            assert!(offset >= ends[partition.index()]);
            ends[partition.index()] = offset.next().unwrap();
        }
    }
}

pub fn a_dropped_append_is_still_appended(log: &Arc<dyn Log>) {
    drop(log.append(3.into(), vec![entry("unawaited")]));
    assert_eq!(texts(&read(&mut reader(log, &[(3, 0)]), 1)), ["unawaited"]);
}
