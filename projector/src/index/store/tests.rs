//! Tests of a store after a crash, and of reads from memory alone.

mod places;

use super::{Budget, Commit, Error, Rows, Store, database::CACHED_ROWS_MAX, meta, records};
use runlog_schemas::{
    datum::Datum as _,
    id::{Offset, RunId},
};
use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// So little memory that RocksDB flushes full memtables itself.
const BYTES: usize = 2 << 20;
const COMMITS: u32 = 300;

fn open(dir: &Path) -> Store {
    Store::open(dir, &Budget::new(BYTES)).expect("the disk has space")
}

/// The rows of a commit: a row and a body of its own, and the offset after it.
fn commit(number: u32) -> [(Vec<u8>, Vec<u8>); 3] {
    let progress = meta::Progress { next_offset: Offset::from(number + 1), last: None };
    let bytes = (number % 7 * 9000) as usize + 8;
    let row: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(bytes).collect();
    let body: Vec<u8> = row.iter().map(|byte| !byte).collect();
    [(row_key(number), row), (body_key(number), body), (meta::progress().into_bytes(), progress.to_bytes())]
}

fn body_key(number: u32) -> Vec<u8> {
    let run = RunId::new(if number.is_multiple_of(2) { "even" } else { "odd" }).expect("an id");
    records::key(run, number.into(), 0).into_bytes()
}

fn row_key(number: u32) -> Vec<u8> {
    [&[1, 0][..], &number.reverse_bits().to_be_bytes()].concat()
}

fn rows(commit: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    commit.iter().map(|(key, row)| (key.as_slice(), Some(row.as_slice())))
}

fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(dir).expect("a folder").flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len()))).collect()
}

/// Copies a folder as `kill -9` would leave it now.
fn killed(dir: &Path, to: &Path) {
    loop {
        fs::create_dir_all(to).expect("the disk has space");
        let before = files(dir);
        let copied = before.keys().all(|path| fs::copy(path, to.join(path.file_name().unwrap_or_default())).is_ok());
        if copied && files(dir) == before {
            return;
        }
        fs::remove_dir_all(to).expect("it is ours");
    }
}

/// Asserts that the store has the rows of every commit up to its offset, and no others. Returns the offset.
fn reached(store: &Store) -> u32 {
    let progress: meta::Progress = store.get(&meta::progress()).expect("it can be read").unwrap_or_default();
    let next = u32::try_from(progress.next_offset.get()).expect("a number of commits");
    for number in 0..COMMITS {
        for (nth, key) in [row_key(number), body_key(number)].into_iter().enumerate() {
            let row = store.row(&key).expect("it can be read");
            let expected = (number < next).then(|| commit(number)[nth].1.clone());
            assert!(row == expected, "row {nth} of commit {number} of a store at {next}");
        }
    }
    next
}

#[test]
fn a_crash_loses_only_the_last_commits() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder.path().join("store"));
    let mut left = Vec::new();
    for number in 0..COMMITS {
        store.commit(rows(&commit(number))).expect("the disk has space");
        if number % 70 == 35 {
            store.begin_flush().expect("the disk has space");
        }
        if number % 30 == 17 {
            let durable = store.durable().expect("it can be read");
            let copy = folder.path().join(number.to_string());
            killed(store.dir(), &copy);
            let reached = reached(&open(&copy));
            assert!(durable <= reached.into() && reached <= number + 1, "{durable}, {reached} of {}", number + 1);
            left.push(reached);
        }
    }
    left.dedup();
    assert!(left.len() > 3, "the last commits are lost, not all of them: {left:?}");

    store.flush().expect("the disk has space");
    assert_eq!(store.durable().expect("it can be read"), COMMITS.into());
    let copy = folder.path().join("flushed");
    killed(store.dir(), &copy);
    assert_eq!(reached(&open(&copy)), COMMITS, "the flushed commits are on disk");
    drop(store);
    let reopened = open(&folder.path().join("store"));
    assert_eq!(reached(&reopened), COMMITS, "so it is after an orderly end");
}

#[test]
fn the_write_ahead_log_of_an_older_version_is_read_and_no_longer_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let logged = || {
        let files = files(&copy).into_iter();
        files
            .filter(|(path, _)| path.extension().is_some_and(|ending| ending == "log"))
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
    };
    {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        let older = rocksdb::DB::open(&options, &dir).expect("the disk has space");
        older.put(meta::layout().bytes(), meta::LAYOUT.to_bytes()).expect("the disk has space");
        for number in 0..COMMITS {
            let mut batch = rocksdb::WriteBatch::default();
            let [row, _, progress] = commit(number);
            [row, progress].iter().for_each(|(key, row)| batch.put(key, row));
            older.write(batch).expect("the disk has space");
        }
        killed(&dir, &copy);
        assert!(logged() > 0, "all of it is in the log");
    }
    let store = open(&copy);
    assert_eq!(store.durable().expect("it can be read"), COMMITS.into());
    for number in 0..COMMITS {
        assert!(store.row(&row_key(number)).expect("it can be read").as_ref() == Some(&commit(number)[0].1));
    }
    let [row, _, progress] = commit(0);
    store.commit(rows(&[row, progress])).expect("the disk has space");
    assert_eq!(logged(), 0, "the log is removed, and no new log is written");
}

#[test]
fn a_folder_of_an_older_layout_can_still_be_opened_by_its_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    let progress = meta::Progress { next_offset: Offset::from(7_u32), last: None };
    let older = rocksdb::DB::open(&options, folder.path()).expect("the disk has space");
    older.put(meta::layout().bytes(), (meta::LAYOUT - 1).to_bytes()).expect("the disk has space");
    older.put(meta::progress().bytes(), progress.to_bytes()).expect("the disk has space");
    older.flush().expect("the disk has space");
    drop(older);
    let store =
        Store::open_any(folder.path(), &Budget::new(BYTES)).expect("the progress of a store of any layout can be read");
    assert_eq!(store.layout().expect("it can be read"), meta::LAYOUT - 1);
    assert_eq!(store.view().get(&meta::progress()).expect("it can be read"), Some(progress));
    store.flush().expect("the disk has space");
    drop(store);
    assert!(Store::open(folder.path(), &Budget::new(BYTES)).is_err());
    assert_eq!(rocksdb::DB::list_cf(&options, folder.path()).expect("a database"), ["default"]);
}

#[test]
fn a_cached_view_returns_a_bounded_number_of_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path(), &Budget::new(BYTES)).expect("the disk has space");
    let keys: Vec<_> = (0..=CACHED_ROWS_MAX).map(|number| [&[5, 0][..], &number.to_be_bytes()].concat()).collect();
    store.commit(keys.iter().map(|key| (key.as_slice(), Some(&b"row"[..])))).expect("the disk has space");
    let view = store.cached_view().expect("no tables are added");
    for key in &keys[1..] {
        assert!(view.row(key).expect("it is in a memtable").is_some());
    }
    assert!(matches!(view.row(&keys[0]), Err(Error::NotCached)));
    let (view, mut rows) = (store.cached_view().expect("no tables are added"), 0);
    let mut visit = |_: &[u8], _: &[u8]| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    };
    let scanned = view.scan(&[5, 0], &[5, 0], rocksdb::Direction::Forward, &mut visit);
    assert!(matches!(scanned, Err(Error::NotCached)), "{scanned:?}");
    assert_eq!(rows, CACHED_ROWS_MAX);
}

#[test]
fn a_cached_view_never_reports_an_uncached_row_as_absent() {
    let folder = tempfile::tempdir().expect("a folder");
    // The cache can hold all rows.
    let open = || Store::open(folder.path(), &Budget::new(32 * BYTES)).expect("the disk has space");
    let large = vec![7; 4 << 10];
    // Far from the rows that opening reads: the progress, and the last run. Rows by a run's number, and others.
    let others: Vec<_> = (0..100_u8).map(|number| vec![5, 0, number]).collect();
    let of_runs = (b'a'..=b'z').flat_map(|run| (0..10).map(move |number| vec![2, 0, run, 0, 1, number]));
    let keys: Vec<_> = others.into_iter().chain(of_runs).collect();
    let store = open();
    let progress = meta::Progress { next_offset: Offset::from(1_u32), last: None }.to_bytes();
    store.commit(std::iter::once((meta::progress().bytes(), Some(progress.as_slice())))).expect("the disk has space");
    store.commit(keys.iter().map(|key| (key.as_slice(), Some(large.as_slice())))).expect("the disk has space");
    store.flush().expect("the disk has space");
    drop(store);
    for key in [&[5, 0, 50][..], b"\x02\x00b\x00\x01\x05"] {
        let store = open();
        let cached = || store.cached_view().expect("no tables are added");
        let count = |view: super::View<'_>| {
            let mut rows = 0;
            let mut visit = |_: &[u8], _: &[u8]| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            };
            view.scan(&key[..key.len() - 1], key, rocksdb::Direction::Forward, &mut visit).map(|()| rows)
        };
        assert!(matches!(cached().row(key), Err(Error::NotCached)));
        assert_eq!(store.view().row(key).expect("it is on disk").as_ref(), Some(&large));
        assert_eq!(cached().row(key).expect("its block is cached").as_ref(), Some(&large));
        let scanned = count(cached());
        assert!(matches!(scanned, Err(Error::NotCached)), "the next block is not: {scanned:?}");
        let rows = count(store.view()).expect("they are on disk");
        assert_eq!(count(cached()).expect("all blocks are cached"), rows);
    }
}
