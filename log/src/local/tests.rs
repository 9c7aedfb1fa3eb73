use std::{
    fs,
    sync::atomic::{AtomicI64, Ordering},
};

use super::*;

fn open(dir: &tempfile::TempDir) -> Result<LocalLog, Error> {
    LocalLog::open(LocalConfig::new(dir.path()))
}

fn append(log: &LocalLog, partition: impl Into<PartitionId>, values: &[&str]) -> Result<Vec<u64>, Error> {
    let entries = values.iter().map(|value| Entry { value: (*value).into(), ..Entry::default() });
    let ack = log.append(partition.into(), entries.collect());
    let offsets = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ack)?;
    Ok(offsets.into_iter().map(Offset::get).collect())
}

fn values(log: &LocalLog, partition: impl Into<PartitionId>) -> Vec<String> {
    let records = log.reader(&[(partition.into(), Offset::ZERO)]).unwrap().poll(1000, Duration::ZERO).unwrap();
    records.into_iter().map(|record| String::from_utf8(record.value).unwrap()).collect()
}

/// The newest file of the write-ahead log.
fn wal(dir: &tempfile::TempDir) -> PathBuf {
    let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap()
}

#[test]
fn acknowledged_records_are_in_the_log_after_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 1, &["a", "b"]).unwrap();
    drop(log);
    let log = open(&dir).unwrap();
    assert_eq!(append(&log, 1, &["c"]).unwrap(), [2]);
    assert_eq!(values(&log, 1), ["a", "b", "c"]);
    assert_eq!(log.partitions(), PARTITIONS_DEFAULT);
}

#[test]
fn a_second_opener_gets_an_error_that_names_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let _log = open(&dir).unwrap();
    let error = open(&dir).unwrap_err();
    assert_eq!(error.kind(), Kind::Retry);
    assert!(error.to_string().contains(&format!("{} is already open", dir.path().display())), "{error}");
}

#[test]
fn a_log_keeps_the_partition_count_that_it_was_created_with() {
    let dir = tempfile::tempdir().unwrap();
    let with = |partitions| LocalLog::open(LocalConfig { partitions, ..LocalConfig::new(dir.path()) });
    assert_eq!(with(Some(PARTITIONS_MAX + 1)).unwrap_err().kind(), Kind::Invalid);
    drop(with(Some(2)).unwrap());
    assert_eq!(with(Some(3)).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(with(None).unwrap().partitions(), 2);
}

#[test]
fn a_log_without_an_id_gets_one_at_the_first_opening_that_has_random_texts() {
    let dir = tempfile::tempdir().unwrap();
    let with = |ids| LocalLog::open(LocalConfig { ids, ..LocalConfig::new(dir.path()) });
    let id = |ids| with(ids).unwrap().id().map(ToString::to_string);
    assert_eq!(id(None), None, "as an older version creates it");
    let first = id(Some(|| "one".to_owned()));
    assert!(first.as_ref().is_some_and(|id| id.starts_with("local:")), "{first:?}");
    assert_eq!(id(Some(|| "two".to_owned())), first);
    assert_eq!(id(None), first);
    let log = with(None).unwrap();
    log.shared.store.put_id(b"LOCAL");
    drop(log);
    assert_eq!(with(None).unwrap_err().kind(), Kind::Damaged);
}

#[test]
fn timestamps_go_back_with_the_clock_only_by_more_than_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(100_000));
    let open = || {
        let read = Arc::clone(&now);
        let clock = Clock::new(move || read.load(Ordering::SeqCst));
        LocalLog::open(LocalConfig { clock, ..LocalConfig::new(dir.path()) }).unwrap()
    };
    let log = open();
    append(&log, 0, &["a"]).unwrap();
    now.store(40_000, Ordering::SeqCst);
    append(&log, 0, &["b"]).unwrap();
    append(&log, 1, &["other"]).unwrap();
    drop(log);
    let log = open();
    append(&log, 0, &["c"]).unwrap();
    now.store(39_999, Ordering::SeqCst);
    append(&log, 0, &["d"]).unwrap();
    let mut reader = log.reader(&[0, 1].map(|partition| (PartitionId::from(partition), Offset::ZERO))).unwrap();
    let mut stamps = reader.poll(9, Duration::ZERO).unwrap();
    stamps.sort_by_key(|record| (record.partition, record.offset));
    let stamps: Vec<i64> = stamps.iter().map(|record| record.timestamp_millis).collect();
    assert_eq!(stamps, [100_000, 100_000, 100_000, 39_999, 40_000]);
}

#[test]
fn readers_of_a_closed_log_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    let mut reader = log.reader(&[(PartitionId::ZERO, Offset::ZERO)]).unwrap();
    let waiting = thread::spawn(move || reader.poll(1, Duration::from_secs(60)).unwrap_err().kind());
    drop(log);
    assert_eq!(waiting.join().unwrap(), Kind::Fatal);
    // The reader held nothing: the directory is free.
    open(&dir).unwrap();
}

#[test]
fn enqueued_records_are_written_before_the_log_closes() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    for value in 0..1000 {
        let entry = Entry { value: format!("{value}").into(), ..Entry::default() };
        drop(log.append(PartitionId::ZERO, vec![entry]));
    }
    drop(log);
    assert_eq!(open(&dir).unwrap().shared.ends.end(PartitionId::ZERO), 1000.into());
}

#[test]
fn a_torn_tail_is_cut_off_and_the_log_continues() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 0, &["whole"]).unwrap();
    append(&log, 0, &["torn"]).unwrap();
    drop(log);
    let file = fs::OpenOptions::new().write(true).open(wal(&dir)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 3).unwrap();
    let log = open(&dir).unwrap();
    assert_eq!(append(&log, 0, &["after"]).unwrap(), [1]);
    assert_eq!(values(&log, 0), ["whole", "after"]);
}

#[test]
fn a_garbled_tail_alone_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 0, &["whole"]).unwrap();
    append(&log, 0, &["garbled"]).unwrap();
    drop(log);
    let mut bytes = fs::read(wal(&dir)).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    fs::write(wal(&dir), bytes).unwrap();
    let log = open(&dir).unwrap();
    assert_eq!(append(&log, 0, &["after"]).unwrap(), [1]);
    assert_eq!(values(&log, 0), ["whole", "after"]);
}

#[test]
fn damage_before_the_tail_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    for value in ["first", "second", "third"] {
        append(&log, 0, &[value]).unwrap();
    }
    drop(log);
    let mut bytes = fs::read(wal(&dir)).unwrap();
    let at = bytes.windows(6).position(|window| window == b"second").unwrap();
    bytes[at] ^= 1;
    fs::write(wal(&dir), bytes).unwrap();
    let error = open(&dir).unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged, "{error:?}");
}

#[test]
fn a_missing_record_is_damage_after_the_records_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 0, &["0", "1", "2", "3"]).unwrap();
    // The end, then a record in the middle, then the first: each read ends before the missing record.
    for missing in [3_u32, 1, 0] {
        log.shared.store.remove(PartitionId::ZERO, missing.into());
        let mut reader = log.reader(&[(PartitionId::ZERO, Offset::ZERO)]).unwrap();
        for offset in 0..missing {
            assert_eq!(reader.poll(1, Duration::ZERO).unwrap()[0].offset, offset.into());
        }
        let error = reader.poll(10, Duration::ZERO).unwrap_err();
        assert_eq!((error.kind(), error.subject().offset), (Kind::Damaged, Some(missing.into())), "{error}");
    }
}

#[test]
fn a_missing_last_record_is_damage_after_the_log_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 0, &["0", "1", "2"]).unwrap();
    append(&log, 1, &["0"]).unwrap();
    for (partition, missing) in [(0_u16, 2_u32), (1, 0)] {
        log.shared.store.remove(partition.into(), missing.into());
    }
    drop(log);
    let log = open(&dir).unwrap();
    // A new record does not take the place of the missing one.
    assert_eq!(append(&log, 0, &["3"]).unwrap(), [3]);
    for (partition, missing) in [(0_u16, 2_u32), (1, 0)] {
        let mut reader = log.reader(&[(partition.into(), Offset::ZERO)]).unwrap();
        if missing > 0 {
            assert_eq!(reader.poll(10, Duration::ZERO).unwrap().len(), missing as usize);
        }
        let error = reader.poll(10, Duration::ZERO).unwrap_err();
        assert_eq!((error.kind(), error.subject().offset), (Kind::Damaged, Some(missing.into())), "{error}");
        assert!(error.to_string().contains("restore this folder from a copy"), "{error}");
    }
}

#[test]
fn a_log_without_stored_ends_is_accepted_and_gets_one_with_the_next_append() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir).unwrap();
    append(&log, 0, &["0", "1", "2"]).unwrap();
    log.shared.store.remove_end(PartitionId::ZERO);
    log.shared.store.remove(PartitionId::ZERO, 2_u32.into());
    drop(log);
    let log = open(&dir).unwrap();
    assert_eq!(values(&log, 0), ["0", "1"], "an older program did not store the end");
    assert_eq!(append(&log, 0, &["new"]).unwrap(), [2]);
    log.shared.store.remove(PartitionId::ZERO, 2_u32.into());
    drop(log);
    let log = open(&dir).unwrap();
    let mut reader = log.reader(&[(PartitionId::ZERO, 2_u32.into())]).unwrap();
    assert_eq!(reader.poll(10, Duration::ZERO).unwrap_err().kind(), Kind::Damaged);
}
