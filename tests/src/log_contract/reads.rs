//! Claims about reads.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use runlog_log::{Bounds, Kind, Log, Offset, PartitionId};

use super::{PARTITIONS, PATIENCE, append, assert_drained, bounds, kind, log_position, read, reader, texts, wait};

pub fn reading_starts_anywhere_between_the_bounds(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c", "d"]).unwrap();
    let Bounds { start, end } = bounds(log, 0);
    assert_eq!(texts(&read(&mut reader(log, &[(0, start)]), 4)), ["a", "b", "c", "d"]);
    assert_eq!(texts(&read(&mut reader(log, &[(0, offsets[2])]), 2)), ["c", "d"]);
    let mut at_end = reader(log, &[(0, end)]);
    assert_eq!(at_end.position(0.into()), Some(end));
    assert_drained(&mut at_end);
    append(log, 0, &["e"]).unwrap();
    assert_eq!(texts(&read(&mut at_end, 1)), ["e"]);
}

pub fn a_read_beyond_the_bounds_is_out_of_range(log: &Arc<dyn Log>) {
    append(log, 0, &["a"]).unwrap();
    let beyond = bounds(log, 0).end.next().unwrap();
    assert_eq!(kind(log.reader(&[log_position((1, 0)), log_position((0, beyond))])), Kind::OutOfRange);
    assert_eq!(kind(log.reader(&[log_position((1, 1))])), Kind::OutOfRange);
    let mut reader = reader(log, &[(0, 0)]);
    assert_eq!(kind(reader.seek(0.into(), beyond)), Kind::OutOfRange);
    assert_eq!(kind(reader.seek(1.into(), 1.into())), Kind::OutOfRange);
    assert_eq!((reader.position(0.into()), reader.position(1.into())), (Some(Offset::ZERO), None));
    assert_eq!(texts(&read(&mut reader, 1)), ["a"]);
}

pub fn bounds_cover_acknowledged_records(log: &Arc<dyn Log>) {
    assert_eq!(bounds(log, 1), Bounds { start: Offset::ZERO, end: Offset::ZERO });
    for value in ["a", "b", "c"] {
        let offset = append(log, 1, &[value]).unwrap()[0];
        assert!(bounds(log, 1).end > offset);
    }
    assert_eq!(bounds(log, 0), Bounds { start: Offset::ZERO, end: Offset::ZERO });
}

pub fn many_ask_for_bounds_at_once(log: &Arc<dyn Log>) {
    for partition in PartitionId::all(PARTITIONS) {
        append(log, partition, &vec!["x"; 1 + partition.index()]).unwrap();
    }
    let partitions = || PartitionId::all(PARTITIONS).cycle().take(400);
    let each = partitions().map(|partition| log.bounds(partition, PATIENCE));
    for (partition, bounds) in partitions().zip(wait(join_all(each))) {
        let end = (partition.get() + 1).into();
        assert_eq!(bounds.unwrap(), Bounds { start: Offset::ZERO, end });
    }
}

pub fn a_waiting_reader_is_woken_by_an_append(log: &Arc<dyn Log>) {
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    // The first poll connects, so that the test measures only the wake-up.
    assert_drained(&mut reader);
    let (waits, waiting) = mpsc::channel();
    let woken = thread::scope(|scope| {
        let woken = scope.spawn(move || {
            waits.send(Instant::now()).unwrap();
            let records = reader.poll(10, PATIENCE).unwrap();
            (texts(&records), Instant::now())
        });
        waiting.recv().unwrap();
        append(log, 1, &["wake"]).unwrap();
        let appended = Instant::now();
        let (texts, at) = woken.join().unwrap();
        assert_eq!(texts, ["wake"]);
        at.saturating_duration_since(appended)
    });
    assert!(woken < PATIENCE / 10, "{woken:?}");
}

pub fn an_idle_poll_ends_with_its_timeout(log: &Arc<dyn Log>) {
    let mut reader = reader(log, &[(0, 0)]);
    assert_eq!(reader.poll(0, PATIENCE).unwrap(), []);
    let started = Instant::now();
    assert_eq!(reader.poll(1, Duration::from_millis(200)).unwrap(), []);
    let took = started.elapsed();
    assert!(Duration::from_millis(190) < took && took < PATIENCE / 2, "{took:?}");
}

pub fn a_poll_returns_at_most_its_limit(log: &Arc<dyn Log>) {
    append(log, 0, &["a", "b", "c", "d", "e"]).unwrap();
    let mut reader = reader(log, &[(0, 0)]);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let records = reader.poll(2, PATIENCE).unwrap();
        assert!((1..=2).contains(&records.len()));
        seen.extend(texts(&records));
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
}

pub fn one_reader_serves_several_partitions(log: &Arc<dyn Log>) {
    for round in 0..20 {
        for partition in PartitionId::all(PARTITIONS) {
            append(log, partition, &[&format!("{partition} {round:02}")]).unwrap();
        }
    }
    let mut reader = reader(log, &[(0, 0), (2, 0), (3, 10)]);
    let records = read(&mut reader, 50);
    assert_drained(&mut reader);
    for (partition, count) in [(0, 20), (1, 0), (2, 20), (3, 10)] {
        let partition = PartitionId::from(partition);
        let here: Vec<_> = records.iter().filter(|record| record.partition == partition).cloned().collect();
        assert_eq!(here.len(), count);
        assert!(here.is_sorted_by_key(|record| record.offset) && texts(&here).is_sorted());
    }
}

pub fn positions_follow_the_deliveries_up_to_the_end(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    assert_eq!((reader.position(0.into()), reader.position(2.into())), (Some(Offset::ZERO), None));
    let first = reader.poll(1, PATIENCE).unwrap();
    assert_eq!(reader.position(0.into()), first[0].offset.next());
    read(&mut reader, 2);
    assert_eq!(reader.position(0.into()), offsets[2].next());
    let positions = (reader.position(0.into()), reader.position(1.into()));
    assert_eq!(positions, (Some(bounds(log, 0).end), Some(Offset::ZERO)));
}

pub fn a_partition_is_read_from_the_sought_offset(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    read(&mut reader, 3);
    reader.seek(0.into(), offsets[1]).unwrap();
    assert_eq!(reader.position(0.into()), Some(offsets[1]));
    assert_eq!(texts(&read(&mut reader, 2)), ["b", "c"]);
    reader.seek(0.into(), bounds(log, 0).end).unwrap();
    assert_drained(&mut reader);
    reader.seek(0.into(), Offset::ZERO).unwrap();
    reader.seek(0.into(), offsets[2]).unwrap();
    assert_eq!(texts(&read(&mut reader, 1)), ["c"]);
    append(log, 1, &["other"]).unwrap();
    assert_eq!(texts(&read(&mut reader, 1)), ["other"]);
}

pub fn a_seek_can_add_a_partition(log: &Arc<dyn Log>) {
    append(log, 3, &["a", "b"]).unwrap();
    let mut reader = log.reader(&[]).unwrap();
    assert_drained(&mut reader);
    reader.seek(3.into(), Offset::ZERO).unwrap();
    assert_eq!(texts(&read(&mut reader, 2)), ["a", "b"]);
}

pub fn a_released_partition_is_not_read_any_more(log: &Arc<dyn Log>) {
    append(log, 0, &["a", "b"]).unwrap();
    append(log, 1, &["c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    reader.release(0.into()).unwrap();
    reader.release(2.into()).unwrap();
    assert_eq!(reader.position(0.into()), None);
    assert_eq!(texts(&read(&mut reader, 1)), ["c"]);
    assert_drained(&mut reader);
    reader.seek(0.into(), Offset::ZERO).unwrap();
    assert_eq!(texts(&read(&mut reader, 2)), ["a", "b"]);
}

pub fn readers_do_not_disturb_each_other(log: &Arc<dyn Log>) {
    let mut early = reader(log, &[(0, 0)]);
    append(log, 0, &["a", "b"]).unwrap();
    let mut late = reader(log, &[(0, 0)]);
    assert_eq!(texts(&read(&mut early, 2)), ["a", "b"]);
    early.release(0.into()).unwrap();
    assert_eq!(texts(&read(&mut late, 2)), ["a", "b"]);
}
