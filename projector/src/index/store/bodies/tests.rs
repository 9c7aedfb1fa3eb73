//! Tests of a store's file of bodies: damage, cuts after a crash, and reads from memory.

use super::super::{Budget, Commit as _, Error, Rows as _, Store, meta, records};
use runlog_schemas::{
    datum::Datum as _,
    id::{Offset, RunId},
};
use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

const BUDGET: usize = 8 << 20;
const ROWS: u32 = 100;

fn open(dir: &Path) -> Result<Store, Error> {
    Store::open(dir, &Budget::new(BUDGET))
}

fn key(number: u32) -> Vec<u8> {
    records::key(RunId::new("run").expect("an id"), Offset::from(number), 0).into_bytes()
}

/// Of different lengths, the longest longer than a block.
fn row(number: u32) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(number as usize * 300).collect()
}

fn commit(store: &Store, number: u32) {
    // Without its progress, a store has no rows.
    let progress = meta::Progress { next_offset: Offset::from(number + 1), last: None }.to_bytes();
    let rows = [(key(number), row(number)), (meta::progress().into_bytes(), progress)];
    let rows = rows.iter().map(|(key, row)| (key.as_slice(), Some(row.as_slice())));
    store.commit(rows).expect("the disk has space");
}

/// A closed store with all rows, and its file.
fn written(folder: &Path) -> (PathBuf, PathBuf) {
    let dir = folder.join("store");
    let store = open(&dir).expect("the disk has space");
    (0..ROWS).for_each(|number| commit(&store, number));
    drop(store);
    let file = dir.join("bodies-0");
    assert!(file.exists());
    (dir, file)
}

fn torn(opened: Result<impl std::fmt::Debug, Error>) -> String {
    let error = opened.expect_err("the file is damaged");
    assert!(error.damaged(), "{error}");
    error.to_string()
}

#[test]
fn a_missing_a_short_and_a_foreign_file_are_found_when_the_store_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, file) = written(folder.path());
    let whole = fs::read(&file).expect("it can be read");

    fs::remove_file(&file).expect("it is ours");
    assert!(torn(open(&dir)).contains("is damaged: bodies-0: it is missing"));
    fs::write(&file, &whole[..whole.len() - 1]).expect("the disk has space");
    let bytes = whole.len();
    assert!(torn(open(&dir)).contains(&format!("it has {} bytes, and the index needs {bytes}", bytes - 1)));
    let other = folder.path().join("other");
    fs::create_dir_all(&other).expect("the disk has space");
    let (_, foreign) = written(&other);
    fs::copy(foreign, &file).expect("the disk has space");
    assert!(torn(open(&dir)).contains("it belongs to another index"));

    fs::write(&file, [&whole[..], b"bodies of commits that a crash lost"].concat()).expect("the disk has space");
    let store = open(&dir).expect("it has all bodies");
    assert_eq!(fs::read(&file).expect("it can be read"), whole);
    for number in 0..ROWS {
        assert_eq!(store.row(&key(number)).expect("it can be read"), Some(row(number)));
    }
}

#[test]
fn a_changed_block_is_an_error_and_never_another_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, file) = written(folder.path());
    let bytes = fs::metadata(&file).expect("it exists").len();
    // A byte of the last block's frame: neither a length nor a field that the decompressor ignores.
    let damaged = fs::OpenOptions::new().write(true).open(&file).expect("it is ours");
    damaged.write_all_at(&[0xa5; 3], bytes - 9).expect("the disk has space");
    let store = open(&dir).expect("the damage is not looked for");
    let error = torn(store.row(&key(ROWS - 1)));
    assert!(error.contains("is damaged: bodies-0: the block at byte"), "{error}");
    assert_eq!(store.row(&key(ROWS - 2)).expect("it can be read"), Some(row(ROWS - 2)));
}

#[test]
fn new_bodies_are_in_memory_and_older_ones_after_a_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, _) = written(folder.path());
    let store = open(&dir).expect("it is whole");
    commit(&store, ROWS);
    let cached = |number| store.cached_view().expect("no tables are added").row(&key(number));
    assert_eq!(cached(ROWS).expect("it is new"), Some(row(ROWS)));
    store.row(&key(1)).expect("it can be read");
    assert_eq!(cached(1).expect("it was read"), Some(row(1)));
    let store = open(folder.path().join("second").as_path()).expect("the disk has space");
    assert!(store.cached_view().expect("no tables are added").row(&key(1)).expect("no row").is_none());
}
