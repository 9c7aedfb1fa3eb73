//! What holds of reading.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use runlog_log::{Bounds, Kind, Log};

use super::{PARTITIONS, PATIENCE, append, assert_drained, bounds, kind, read, reader, texts, wait};

pub fn reading_starts_anywhere_between_the_bounds(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c", "d"]).unwrap();
    let Bounds { start, end } = bounds(log, 0);
    assert_eq!(texts(&read(&mut reader(log, &[(0, start)]), 4)), ["a", "b", "c", "d"]);
    assert_eq!(texts(&read(&mut reader(log, &[(0, offsets[2])]), 2)), ["c", "d"]);
    let mut at_end = reader(log, &[(0, end)]);
    assert_eq!(at_end.position(0), Some(end));
    assert_drained(&mut at_end);
    append(log, 0, &["e"]).unwrap();
    assert_eq!(texts(&read(&mut at_end, 1)), ["e"]);
}

pub fn beyond_the_bounds_is_out_of_range(log: &Arc<dyn Log>) {
    append(log, 0, &["a"]).unwrap();
    let end = bounds(log, 0).end;
    assert_eq!(kind(log.reader(&[(1, 0), (0, end + 1)])), Kind::OutOfRange);
    assert_eq!(kind(log.reader(&[(1, 1)])), Kind::OutOfRange);
    let mut reader = reader(log, &[(0, 0)]);
    assert_eq!(kind(reader.seek(0, end + 1)), Kind::OutOfRange);
    assert_eq!(kind(reader.seek(1, 1)), Kind::OutOfRange);
    assert_eq!((reader.position(0), reader.position(1)), (Some(0), None));
    assert_eq!(texts(&read(&mut reader, 1)), ["a"]);
}

pub fn bounds_cover_what_was_acknowledged(log: &Arc<dyn Log>) {
    assert_eq!(bounds(log, 1), Bounds { start: 0, end: 0 });
    for value in ["a", "b", "c"] {
        let offset = append(log, 1, &[value]).unwrap()[0];
        assert!(bounds(log, 1).end > offset);
    }
    assert_eq!(bounds(log, 0), Bounds { start: 0, end: 0 });
}

pub fn many_ask_for_bounds_at_once(log: &Arc<dyn Log>) {
    for partition in 0..PARTITIONS {
        append(log, partition, &vec!["x"; 1 + partition as usize]).unwrap();
    }
    let each = (0..400).map(|number| log.bounds(number % PARTITIONS, PATIENCE));
    for (number, bounds) in wait(join_all(each)).into_iter().enumerate() {
        let end = 1 + number as u64 % u64::from(PARTITIONS);
        assert_eq!(bounds.unwrap(), Bounds { start: 0, end });
    }
}

pub fn a_waiting_reader_is_woken_by_an_append(log: &Arc<dyn Log>) {
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    // The first poll connects, so that what is measured is the waking.
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
    let begun = Instant::now();
    assert_eq!(reader.poll(1, Duration::from_millis(200)).unwrap(), []);
    let took = begun.elapsed();
    assert!(Duration::from_millis(190) < took && took < PATIENCE / 2, "{took:?}");
}

pub fn a_poll_returns_no_more_than_was_asked_for(log: &Arc<dyn Log>) {
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
        for partition in 0..PARTITIONS {
            append(log, partition, &[&format!("{partition} {round:02}")]).unwrap();
        }
    }
    let mut reader = reader(log, &[(0, 0), (2, 0), (3, 10)]);
    let records = read(&mut reader, 50);
    assert_drained(&mut reader);
    for (partition, count) in [(0, 20), (1, 0), (2, 20), (3, 10)] {
        let here: Vec<_> = records.iter().filter(|record| record.partition == partition).cloned().collect();
        assert_eq!(here.len(), count);
        assert!(here.is_sorted_by_key(|record| record.offset) && texts(&here).is_sorted());
    }
}

pub fn positions_follow_the_deliveries_up_to_the_end(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    assert_eq!((reader.position(0), reader.position(2)), (Some(0), None));
    let first = reader.poll(1, PATIENCE).unwrap();
    assert_eq!(reader.position(0), Some(first[0].offset + 1));
    read(&mut reader, 2);
    assert_eq!(reader.position(0), Some(offsets[2] + 1));
    assert_eq!((reader.position(0), reader.position(1)), (Some(bounds(log, 0).end), Some(0)));
}

pub fn a_sought_partition_is_read_from_there(log: &Arc<dyn Log>) {
    let offsets = append(log, 0, &["a", "b", "c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    read(&mut reader, 3);
    reader.seek(0, offsets[1]).unwrap();
    assert_eq!(reader.position(0), Some(offsets[1]));
    assert_eq!(texts(&read(&mut reader, 2)), ["b", "c"]);
    reader.seek(0, bounds(log, 0).end).unwrap();
    assert_drained(&mut reader);
    reader.seek(0, 0).unwrap();
    reader.seek(0, offsets[2]).unwrap();
    assert_eq!(texts(&read(&mut reader, 1)), ["c"]);
    append(log, 1, &["other"]).unwrap();
    assert_eq!(texts(&read(&mut reader, 1)), ["other"]);
}

pub fn a_sought_partition_may_be_a_new_one(log: &Arc<dyn Log>) {
    append(log, 3, &["a", "b"]).unwrap();
    let mut reader = reader(log, &[]);
    assert_drained(&mut reader);
    reader.seek(3, 0).unwrap();
    assert_eq!(texts(&read(&mut reader, 2)), ["a", "b"]);
}

pub fn a_released_partition_is_not_read_any_more(log: &Arc<dyn Log>) {
    append(log, 0, &["a", "b"]).unwrap();
    append(log, 1, &["c"]).unwrap();
    let mut reader = reader(log, &[(0, 0), (1, 0)]);
    reader.release(0).unwrap();
    reader.release(2).unwrap();
    assert_eq!(reader.position(0), None);
    assert_eq!(texts(&read(&mut reader, 1)), ["c"]);
    assert_drained(&mut reader);
    reader.seek(0, 0).unwrap();
    assert_eq!(texts(&read(&mut reader, 2)), ["a", "b"]);
}

pub fn readers_do_not_disturb_each_other(log: &Arc<dyn Log>) {
    let mut early = reader(log, &[(0, 0)]);
    append(log, 0, &["a", "b"]).unwrap();
    let mut late = reader(log, &[(0, 0)]);
    assert_eq!(texts(&read(&mut early, 2)), ["a", "b"]);
    early.release(0).unwrap();
    assert_eq!(texts(&read(&mut late, 2)), ["a", "b"]);
}
