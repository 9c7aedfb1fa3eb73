//! Tables of rows, written beside a store and then added to it in one step.
//!
//! ```text
//!   rows ─┬─ of a large family ──▶ tables of its own, in key order ────────┬─▶ Store::ingest: all or none
//!         └─ of a small one ──▶ kept ──▶ a table with its small neighbours ┘
//! ```
//!
//! Families may alternate; the rows of one family come in key order. RocksDB refuses a row out of order, so that a
//! mistake is an error and never a wrong table.

use super::{Budget, Error, options};
use rocksdb::SstFileWriter;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// Bytes of rows before compression that make a table.
#[derive(Clone, Copy, Debug)]
pub struct TableBytes {
    /// A family with fewer has no table of its own, and is held in memory.
    pub min: usize,
    /// A table ends with the row that reaches this.
    pub max: usize,
}

/// The options of the tables of a store on some budget.
pub struct TableOptions(rocksdb::Options);

impl fmt::Debug for TableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableOptions")
    }
}

impl TableOptions {
    /// Those that a store writes its own tables with.
    pub fn of(budget: &Budget) -> Self {
        Self(options::of(budget))
    }
}

/// Tables that are being written. Dropped, they remain on disk unfinished: their folder is the caller's.
pub struct Tables<'o> {
    options: &'o TableOptions,
    folder: PathBuf,
    bytes: TableBytes,
    /// By the two leading bytes of the keys.
    families: BTreeMap<[u8; 2], Family<'o>>,
    files: Vec<PathBuf>,
}

impl fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("folder", &self.folder).finish_non_exhaustive()
    }
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
    /// Between two tables.
    Rolled,
}

impl<'o> Tables<'o> {
    /// No rows yet. The folder must be on the file system of the store, or the tables are copied when they are added.
    pub fn new(options: &'o TableOptions, folder: PathBuf, bytes: TableBytes) -> Self {
        Self { options, folder, bytes, families: BTreeMap::new(), files: Vec::new() }
    }

    /// Adds a row, whose key is greater than that of every row of its family so far.
    pub fn put(&mut self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let Self { options, folder, bytes: TableBytes { min, max }, families, files } = self;
        let small = || Family::Small { rows: Vec::new(), bytes: 0 };
        let family = families.entry([key[0], key[1]]).or_insert_with(small);
        if let Family::Small { rows, bytes } = family {
            *bytes += key.len() + row.len();
            rows.push((key.to_vec(), row.to_vec()));
            if *bytes < *min {
                return Ok(());
            }
            let mut table = begin(options, folder, files)?;
            for (key, row) in &*rows {
                table.put(key, row).map_err(|source| Error::of(folder, source))?;
            }
            *family = Family::Large { table, bytes: *bytes };
            return Ok(());
        }
        if matches!(family, Family::Rolled) {
            *family = Family::Large { table: begin(options, folder, files)?, bytes: 0 };
        }
        if let Family::Large { table, bytes } = family {
            table.put(key, row).map_err(|source| Error::of(folder, source))?;
            *bytes += key.len() + row.len();
            if *bytes >= *max {
                table.finish().map_err(|source| Error::of(folder, source))?;
                *family = Family::Rolled;
            }
        }
        Ok(())
    }

    /// Syncs and closes all tables, and returns their files. No two of them overlap: RocksDB puts them on one level.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, Error> {
        let failed = |source| Error::of(&self.folder, source);
        let mut small: Option<SstFileWriter<'_>> = None;
        // In the order of their keys.
        for family in std::mem::take(&mut self.families).into_values() {
            if let Family::Small { rows, .. } = family {
                let table = match &mut small {
                    Some(table) => table,
                    none => none.insert(begin(self.options, &self.folder, &mut self.files)?),
                };
                rows.iter().try_for_each(|(key, row)| table.put(key, row)).map_err(failed)?;
                continue;
            }
            // What follows a large family goes to another table than what is before it.
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
        Ok(self.files)
    }
}

fn begin<'o>(options: &'o TableOptions, folder: &Path, files: &mut Vec<PathBuf>) -> Result<SstFileWriter<'o>, Error> {
    let path = folder.join(format!("{}.sst", files.len()));
    let table = SstFileWriter::create(&options.0);
    table.open(&path).map_err(|source| Error::of(folder, source))?;
    files.push(path);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::{Commit as _, Rows as _, Store};
    use super::*;
    use std::ops::ControlFlow;

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Rows of seven families, of which [2, 0], [5, 0] and [9, 0] are large.
    fn written(options: &TableOptions, folder: PathBuf) -> (Vec<PathBuf>, Rows) {
        std::fs::create_dir_all(&folder).expect("there is room");
        let mut tables = Tables::new(options, folder, TableBytes { min: 100, max: 300 });
        let mut rows = Rows::new();
        for number in 0..100 {
            for family in [[9, 1], [1, 0], [2, 0], [2, 1], [3, 0], [5, 0], [9, 0]] {
                if number < 3 || matches!(family, [2 | 5 | 9, 0]) {
                    let (key, row) = ([&family[..], &[number]].concat(), vec![number; 10]);
                    tables.put(&key, &row).expect("the families' keys are in order");
                    rows.insert(key, row);
                }
            }
        }
        (tables.finish().expect("there is room"), rows)
    }

    #[test]
    fn added_tables_are_in_the_store_after_a_crash_and_replace_its_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let budget = Budget::new(8 << 20);
        let (files, mut rows) = written(&TableOptions::of(&budget), folder.path().join("tables"));
        let open = || Store::open(&folder.path().join("store"), &budget).expect("a store");
        let store = open();
        let before = [(&[5, 0, 7][..], Some(&b"replaced"[..])), (&[4, 0, 7], Some(b"kept"))];
        store.commit(before.into_iter()).expect("there is room");
        rows.insert(vec![4, 0, 7], b"kept".to_vec());
        store.ingest(files).expect("tables can be added");
        drop(store);
        let mut found = Rows::new();
        let mut visit = |key: &[u8], row: &[u8]| {
            // Index 0 is the store's own.
            if key.first() != Some(&0) {
                found.insert(key.to_vec(), row.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        };
        open().scan(&[], &[], rocksdb::Direction::Forward, &mut visit).expect("it can be read");
        assert_eq!(found, rows);
    }

    #[test]
    fn no_two_tables_overlap() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = TableOptions::of(&Budget::new(8 << 20));
        let (files, _) = written(&options, folder.path().join("tables"));
        assert!(files.len() > 7, "{files:?}");
        let store = rocksdb::DB::open(&options.0, folder.path().join("store")).expect("a database");
        let mut ingest = rocksdb::IngestExternalFileOptions::default();
        // RocksDB numbers tables that overlap one another.
        ingest.set_allow_global_seqno(false);
        store.ingest_external_file_opts(&ingest, files).expect("they do not overlap");
    }

    #[test]
    fn a_row_out_of_order_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = TableOptions::of(&Budget::new(8 << 20));
        let mut tables = Tables::new(&options, folder.path().to_owned(), TableBytes { min: 0, max: 300 });
        tables.put(&[1, 0, 2], b"").expect("the first");
        assert!(tables.put(&[1, 0, 1], b"").is_err() && tables.put(&[1, 0, 2], b"").is_err());
    }
}
