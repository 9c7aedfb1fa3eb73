//! Writes rows to tables beside a store, to add them to it in one step.
//!
//! ```text
//!   rows ─┬─ of a growing column family ─▶ tables, in order of arrival ──────┬─▶ Store::ingest: all or none
//!         ├─ of another large family ──▶ tables of its own, in key order ────┤
//!         └─ of a small one ──▶ memory ─▶ a table with its small neighbours ─┘
//! ```
//!
//! Families may alternate. The rows of one family must come in key order, and the rows of one run together. Rows of events
//! must come in the order of `sort_key` (`store/buckets.rs`). RocksDB refuses a row out of order, so a mistake is an error
//! and never a wrong table.

use super::{
    bodies::{BodyMemory, BodyTable, is_body},
    budget::Budget,
    error::Error,
    meta::{self, BodiesRow},
    numbers,
    on_disk::{ColumnFamilyName, append_key},
    options,
};
use rocksdb::SstFileWriter;
use runlog_schemas::datum::Datum as _;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The sizes of tables, bytes of rows before compression.
#[derive(Clone, Copy, Debug)]
pub struct TableBytes {
    /// A smaller family has no table of its own, and is held in memory.
    pub min: usize,
    /// A table ends after the row that reaches this size.
    pub max: usize,
}

/// The maximum length of an encoded number, bytes.
const NUMBER_BYTES: usize = 9;

/// The files of tables, by their [`ColumnFamilyName`](super::ColumnFamilyName).
#[derive(Debug, Default)]
pub struct TableFiles {
    /// The number of runs that have a number.
    pub(super) runs: u64,
    pub(super) run_tables: Vec<PathBuf>,
    pub(super) event_tables: Vec<PathBuf>,
    pub(super) default: Vec<PathBuf>,
    /// The file of bodies.
    pub(super) bodies: Option<(PathBuf, BodiesRow)>,
}

/// The options of tables for a store.
pub struct TableOptions {
    tables: rocksdb::Options,
    bodies: Arc<BodyMemory>,
}

impl fmt::Debug for TableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableOptions")
    }
}

impl TableOptions {
    /// The options with which a store with this budget writes its own tables.
    pub fn new(budget: &Budget) -> Self {
        Self { tables: options::build(budget, ColumnFamilyName::Default), bodies: budget.bodies.clone() }
    }
}

/// Writes tables. If it is dropped, unfinished tables remain on disk; the caller owns their folder.
pub struct Tables<'o> {
    options: &'o TableOptions,
    folder: PathBuf,
    bytes: TableBytes,
    /// Families by the two leading bytes of their keys.
    families: BTreeMap<[u8; 2], Family<'o>>,
    files: Vec<PathBuf>,
    run_tables: Stream<'o>,
    event_tables: Stream<'o>,
    bodies: BodyTable,
    /// The run of the current rows, and its number.
    run: Option<(Vec<u8>, u64)>,
}

impl fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Tables of rows in the order of their arrival.
#[derive(Default)]
struct Stream<'o> {
    files: Vec<PathBuf>,
    /// The unfinished table, and its bytes.
    table: Option<(SstFileWriter<'o>, usize)>,
}

/// The rows of a family.
enum Family<'o> {
    Small {
        rows: Vec<(Vec<u8>, Vec<u8>)>,
        bytes: usize,
    },
    Large {
        table: SstFileWriter<'o>,
        bytes: usize,
    },
    /// A large family whose last table is full.
    Rolled,
}

impl<'o> Tables<'o> {
    /// Starts without rows. The folder must be on the store's file system; otherwise adding the tables copies them.
    pub fn new(options: &'o TableOptions, folder: PathBuf, bytes: TableBytes) -> Self {
        let (families, files, run_tables, event_tables) =
            (BTreeMap::new(), Vec::new(), Stream::default(), Stream::default());
        let bodies = BodyTable::new(&folder, options.bodies.clone());
        Self { options, folder, bytes, families, files, run_tables, event_tables, bodies, run: None }
    }

    /// Adds a row. Its key must be greater than every earlier key of its family, or of its run and family if it is stored
    /// by number.
    pub fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let mut on_disk = Vec::with_capacity(key.len() + NUMBER_BYTES);
        match append_key(key, &mut on_disk, |run| self.number(run).map(Some))? {
            Some(ColumnFamilyName::Default) | None => self.put_other(key, row),
            Some(cf) if is_body(key) => {
                let mut stored = Vec::new();
                self.bodies.encode(row, &mut stored)?;
                self.put_in_order(cf, &on_disk, &stored)
            }
            Some(cf) => self.put_in_order(cf, &on_disk, row),
        }
    }

    /// The number of the current run.
    fn number(&mut self, run: &[u8]) -> Result<u64, Error> {
        let number = match &self.run {
            Some((last, number)) if last == run => return Ok(*number),
            last => last.as_ref().map_or(0, |(_, number)| number + 1),
        };
        self.run = Some((run.to_vec(), number));
        self.put_other(&numbers::by_run(run), &numbers::row(number))?;
        self.put_in_order(ColumnFamilyName::Runs, &numbers::by_number(number), run)?;
        Ok(number)
    }

    fn put_in_order(&mut self, cf: ColumnFamilyName, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let Self { options, folder, bytes: TableBytes { max, .. }, run_tables, event_tables, .. } = self;
        let Stream { files, table: current } = if cf == ColumnFamilyName::Runs { run_tables } else { event_tables };
        if current.is_none() {
            *current = Some((create_table(options, &folder.join(cf.as_str()), files)?, 0));
        }
        if let Some((table, bytes)) = current {
            table.put(key, row).map_err(|source| Error::from_rocksdb(folder, source))?;
            *bytes += key.len() + row.len();
            if *bytes >= *max {
                table.finish().map_err(|source| Error::from_rocksdb(folder, source))?;
                *current = None;
            }
        }
        Ok(())
    }

    fn put_other(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let Self { options, folder, bytes: TableBytes { min, max }, families, files, .. } = self;
        let others = folder.join(ColumnFamilyName::Default.as_str());
        let small = || Family::Small { rows: Vec::new(), bytes: 0 };
        let family = families.entry([key[0], key[1]]).or_insert_with(small);
        if let Family::Small { rows, bytes } = family {
            *bytes += key.len() + row.len();
            rows.push((key.to_vec(), row.to_vec()));
            if *bytes < *min {
                return Ok(());
            }
            let mut table = create_table(options, &others, files)?;
            for (key, row) in &*rows {
                table.put(key, row).map_err(|source| Error::from_rocksdb(folder, source))?;
            }
            *family = Family::Large { table, bytes: *bytes };
            return Ok(());
        }
        if matches!(family, Family::Rolled) {
            *family = Family::Large { table: create_table(options, &others, files)?, bytes: 0 };
        }
        if let Family::Large { table, bytes } = family {
            table.put(key, row).map_err(|source| Error::from_rocksdb(folder, source))?;
            *bytes += key.len() + row.len();
            if *bytes >= *max {
                table.finish().map_err(|source| Error::from_rocksdb(folder, source))?;
                *family = Family::Rolled;
            }
        }
        Ok(())
    }

    /// Syncs and closes all tables, and returns their files. The tables do not overlap, so RocksDB puts them on one
    /// level.
    pub fn finish(mut self) -> Result<TableFiles, Error> {
        let no_bodies = BodyTable::new(&self.folder, self.options.bodies.clone());
        let bodies = std::mem::replace(&mut self.bodies, no_bodies).finish()?;
        if let Some((_, row)) = &bodies {
            self.put_other(meta::bodies().bytes(), &row.to_bytes())?;
        }
        let failed = |source| Error::from_rocksdb(&self.folder, source);
        for stream in [&mut self.run_tables, &mut self.event_tables] {
            if let Some((mut table, _)) = stream.table.take() {
                table.finish().map_err(failed)?;
            }
        }
        let others = self.folder.join(ColumnFamilyName::Default.as_str());
        let mut small: Option<SstFileWriter<'_>> = None;
        // Families are in the order of their keys.
        for family in std::mem::take(&mut self.families).into_values() {
            if let Family::Small { rows, .. } = family {
                let table = match &mut small {
                    Some(table) => table,
                    none => none.insert(create_table(self.options, &others, &mut self.files)?),
                };
                rows.iter().try_for_each(|(key, row)| table.put(key, row)).map_err(failed)?;
                continue;
            }
            // A table of small families must not span a large family.
            if let Some(mut table) = small.take() {
                table.finish().map_err(failed)?;
            }
            if let Family::Large { mut table, .. } = family {
                table.finish().map_err(failed)?;
            }
        }
        if let Some(mut table) = small {
            table.finish().map_err(failed)?;
        }
        let Self { files: default, run_tables, event_tables, run, .. } = self;
        let runs = run.map_or(0, |(_, last)| last + 1);
        Ok(TableFiles { runs, run_tables: run_tables.files, event_tables: event_tables.files, default, bodies })
    }
}

/// Creates a table; `name` is the beginning of its file name.
fn create_table<'o>(
    options: &'o TableOptions,
    name: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<SstFileWriter<'o>, Error> {
    let path = name.with_extension(format!("{}.sst", files.len()));
    let table = SstFileWriter::create(&options.tables);
    table.open(&path).map_err(|source| Error::from_rocksdb(&path, source))?;
    files.push(path);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::{Commit as _, Rows as _, Store};
    use super::*;
    use std::ops::ControlFlow;

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Writes tables: families of which [5, 0], [6, 2] and [9, 0] are large, and the numbered families of three runs.
    fn write_tables(options: &TableOptions, folder: PathBuf) -> (TableFiles, Rows) {
        std::fs::create_dir_all(&folder).expect("the disk has space");
        let mut tables = Tables::new(options, folder, TableBytes { min: 100, max: 300 });
        let mut rows = Rows::new();
        let mut put = |key: Vec<u8>, number| {
            // Records are bodies.
            let row = vec![number; if key.starts_with(&[2, 0]) { 300 } else { 10 }];
            tables.put(&key, &row).expect("the families' keys are in order");
            rows.insert(key, row);
        };
        for number in 0..100 {
            for family in [[9, 1], [1, 0], [5, 0], [5, 1], [6, 1], [6, 2], [9, 0]] {
                if number < 3 || matches!(family, [5 | 9, 0] | [6, 2]) {
                    put([&family[..], &[number]].concat(), number);
                }
            }
        }
        for bucket in 0..3_u32 {
            for list in *b"de" {
                for number in 0..10 {
                    let offset = u64::from(bucket << 20 | number);
                    put([&[17, 4, list, 0, 1][..], &offset.to_be_bytes(), &[0; 4]].concat(), list);
                }
            }
        }
        for run in *b"abc" {
            for family in [[2, 0], [2, 1], [3, 0]] {
                (0..20).for_each(|number| put([&family[..], &[run, 0, 1, number]].concat(), number));
            }
        }
        (tables.finish().expect("the disk has space"), rows)
    }

    fn rows_of(store: &Store) -> Rows {
        let mut rows = Rows::new();
        let mut visit = |key: &[u8], row: &[u8]| {
            // Index 0 is the store's own.
            if key.first() != Some(&0) {
                rows.insert(key.to_vec(), row.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        };
        store.scan(&[], &[], rocksdb::Direction::Forward, &mut visit).expect("it can be read");
        rows
    }

    #[test]
    fn added_tables_are_in_the_store_after_a_crash_and_replace_its_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let budget = Budget::new(8 << 20);
        let (files, mut rows) = write_tables(&TableOptions::new(&budget), folder.path().join("tables"));
        let open = || Store::open(&folder.path().join("store"), &budget).expect("a store");
        let store = open();
        let before = [(&[5, 0, 7][..], Some(&b"replaced"[..])), (&[7, 0, 7], Some(b"kept"))];
        store.commit(before.into_iter()).expect("the disk has space");
        rows.insert(vec![7, 0, 7], b"kept".to_vec());
        let progress = (meta::progress(), meta::Progress::default().to_bytes());
        store.commit(std::iter::once((progress.0.bytes(), Some(progress.1.as_slice())))).expect("the disk has space");
        store.ingest(files).expect("tables can be added");
        drop(store);
        let store = open();
        assert_eq!(rows_of(&store), rows);
        for (key, row) in &rows {
            assert_eq!(store.row(key).expect("it can be read").as_ref(), Some(row), "{key:?}");
        }
        // A later run gets a number of its own.
        let later: Vec<_> = [b"\x02\x00a\x00\x01z", b"\x02\x00d\x00\x01z"].map(|key| key.to_vec()).into();
        store.commit(later.iter().map(|key| (key.as_slice(), Some(&b"later"[..])))).expect("the disk has space");
        rows.extend(later.into_iter().map(|key| (key, b"later".to_vec())));
        assert_eq!(rows_of(&store), rows);
    }

    #[test]
    fn incompletely_added_tables_are_removed_after_a_crash() {
        let folder = tempfile::tempdir().expect("a folder");
        let budget = Budget::new(8 << 20);
        let open = || Store::open(&folder.path().join("store"), &budget).expect("a store");
        for _ in 0..2 {
            let (files, _) = write_tables(&TableOptions::new(&budget), folder.path().join("tables"));
            assert!(files.run_tables.len() > 3 && files.event_tables.len() > 3, "{files:?}");
            let store = open();
            store.ingest(TableFiles { default: Vec::new(), ..files }).expect("tables can be added");
            let (list, mut count) = (&[17, 4, b'd', 0, 1][..], 0);
            let mut visit = |_: &[u8], _: &[u8]| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            };
            store.scan(list, list, rocksdb::Direction::Forward, &mut visit).expect("it can be read");
            assert_eq!(count, 30, "the rows are visible before the crash");
            drop(store);
            assert_eq!(rows_of(&open()), Rows::new());
        }
    }

    #[test]
    fn no_two_tables_overlap() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = TableOptions::new(&Budget::new(8 << 20));
        let (TableFiles { run_tables, event_tables, default, .. }, _) =
            write_tables(&options, folder.path().join("tables"));
        assert!(default.len() > 7, "{default:?}");
        for (name, files) in [("runs", run_tables), ("events", event_tables), ("default", default)] {
            let store = rocksdb::DB::open(&options.tables, folder.path().join(name)).expect("a database");
            let mut ingest = rocksdb::IngestExternalFileOptions::default();
            // RocksDB numbers tables that overlap one another.
            ingest.set_allow_global_seqno(false);
            store.ingest_external_file_opts(&ingest, files).expect("they do not overlap");
        }
    }

    #[test]
    fn a_row_out_of_order_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = TableOptions::new(&Budget::new(8 << 20));
        for (first, second) in [(&[1, 0, 2][..], &[1, 0, 1][..]), (b"\x02\x00a\x00\x012", b"\x02\x00a\x00\x011")] {
            let mut tables = Tables::new(&options, folder.path().to_owned(), TableBytes { min: 0, max: 300 });
            tables.put(first, b"").expect("the first");
            assert!(tables.put(second, b"").is_err() && tables.put(first, b"").is_err());
        }
    }
}
