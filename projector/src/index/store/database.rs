//! Rows in a RocksDB database, where [`on_disk`](super::on_disk) says.
//!
//! All column families are flushed together (`atomic_flush`), so that what is on disk is always of one commit.

use super::{
    Area, Budget, Commit, Error, Memtable, OnDisk, Rows, TableFiles, Visit, buckets, meta,
    numbers::{self, Numbers, Parts},
    on_disk::place,
    options,
};
use rocksdb::{ColumnFamily, DBRawIterator, Direction, ReadTier, properties};
use runlog_schemas::id::Offset;
use std::{
    collections::HashMap,
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Bytes that a row has in a write batch beside its key and value.
const ROW_BYTES: usize = 12;
/// Sorts after everything that may follow in a key.
const END: [u8; 24] = [0xff; 24];

/// A database in a folder, written without a write-ahead log.
pub(super) struct Database {
    db: rocksdb::DB,
    dir: PathBuf,
    numbers: Numbers,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or creates the database in `dir`. The write-ahead log of an older version's folder is read and flushed. A database
    /// with an older layout gets no further column families: the version that wrote it could no longer open it.
    pub(super) fn open(budget: &Budget, dir: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(dir).ok();
        let failed = |source| Error::of(dir, source);
        let options = options::of(budget, Area::Default);
        let names = if dir.join("CURRENT").exists() {
            rocksdb::DB::list_cf(&options, dir).map_err(failed)?
        } else {
            vec![Area::Default.name().to_owned()]
        };
        let area = |name: &str| Area::ALL.into_iter().find(|area| area.name() == name).unwrap_or(Area::Default);
        let named = names.into_iter().map(|name| {
            let options = options::of(budget, area(&name));
            (name, options)
        });
        let mut db = rocksdb::DB::open_cf_with_opts(&options, dir, named).map_err(failed)?;
        if db.get_pinned(meta::layout().bytes()).map_err(failed)?.is_none() {
            for area in Area::ALL {
                if db.cf_handle(area.name()).is_none() {
                    db.create_cf(area.name(), &options::of(budget, area)).map_err(failed)?;
                }
            }
        }
        let database = Self { db, dir: dir.to_owned(), numbers: Numbers::default() };
        database.forget_part_of_tables()?;
        *database.numbers.next() = database.next_number()?;
        Ok(database)
    }

    fn rocks(&self, source: rocksdb::Error) -> Error {
        Error::of(&self.dir, source)
    }

    /// An area's column family. Only a store of an older layout, of which nothing but `meta` is asked, lacks some.
    fn family(&self, area: Area) -> &ColumnFamily {
        let family = self.db.cf_handle(area.name());
        family.unwrap_or_else(|| panic!("rows of the older layout in {} are asked for", self.dir.display()))
    }

    /// All column families.
    fn families(&self) -> impl Iterator<Item = &ColumnFamily> {
        Area::ALL.into_iter().filter_map(|area| self.db.cf_handle(area.name()))
    }

    /// Flushes what is committed: until it is on disk if it `waits`, otherwise in the background.
    pub(super) fn flush(&self, waits: bool) -> Result<(), Error> {
        let mut options = rocksdb::FlushOptions::default();
        options.set_wait(waits);
        self.db.flush_cfs_opt(&self.families().collect::<Vec<_>>(), &options).map_err(|source| self.rocks(source))
    }

    /// The next offset as it is on disk.
    pub(super) fn durable(&self) -> Result<Offset, Error> {
        let mut options = rocksdb::ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let key = meta::progress();
        let row = self.db.get_pinned_opt(key.bytes(), &options).map_err(|source| self.rocks(source))?;
        let Some(row) = row else { return Ok(Offset::ZERO) };
        let progress: meta::Progress = super::decode(key.bytes(), &row)?;
        Ok(progress.next_offset)
    }

    /// What is not on disk.
    pub(super) fn memtable(&self) -> Memtable {
        let sum = |property| self.families().filter_map(|family| self.int_property(family, property)).sum::<usize>();
        let bytes = sum(properties::CUR_SIZE_ACTIVE_MEM_TABLE);
        Memtable { bytes, flushing: sum(properties::NUM_IMMUTABLE_MEM_TABLE) != 0 }
    }

    fn int_property(&self, family: &ColumnFamily, property: &properties::PropName) -> Option<usize> {
        self.db.property_int_value_cf(family, property).ok().flatten()?.try_into().ok()
    }

    /// Adds tables, all or none and durably, and moves them. What was committed before is on disk before them. They number
    /// runs from 0: the database has no rows of runs, and no progress, before them.
    ///
    /// The default column family's, which have the progress, are added last. Without it the others do not count: what a crash
    /// leaves of them is removed at the next opening.
    pub(super) fn ingest(&self, files: TableFiles) -> Result<(), Error> {
        self.flush(true)?;
        let mut options = rocksdb::IngestExternalFileOptions::default();
        options.set_move_files(true);
        let mut next = self.numbers.next();
        assert!(*next == 0, "tables are added to a store in {} that numbers runs already", self.dir.display());
        let TableFiles { default, of_runs, of_events } = files;
        let mut added = Ok(());
        for (area, files) in [(Area::Runs, of_runs), (Area::Events, of_events), (Area::Default, default)] {
            if added.is_ok() && !files.is_empty() {
                added = self.db.ingest_external_file_cf_opts(self.family(area), &options, files);
            }
        }
        if let Err(source) = added {
            self.forget_part_of_tables()?;
            return Err(self.rocks(source));
        }
        *next = self.next_number()?;
        Ok(())
    }

    /// Removes what a database without progress has beside its default column family: of tables that were not all added.
    fn forget_part_of_tables(&self) -> Result<(), Error> {
        let is_begun = self.db.get_pinned(meta::progress().bytes()).map_err(|source| self.rocks(source))?.is_some();
        let mut options = rocksdb::WriteOptions::default();
        options.disable_wal(true);
        let mut any = false;
        for area in [Area::Runs, Area::Events] {
            let Some(family) = self.db.cf_handle(area.name()).filter(|_| !is_begun) else { continue };
            let mut rows = self.db.raw_iterator_cf(family);
            rows.seek_to_first();
            if !rows.valid() {
                rows.status().map_err(|source| self.rocks(source))?;
                continue;
            }
            drop(rows);
            any = true;
            let (from, to) = (&[][..], &END[..]);
            let removed = self.db.delete_file_in_range_cf(family, from, to);
            let removed = removed.and_then(|()| self.db.delete_range_cf_opt(family, from, to, &options));
            removed.map_err(|source| self.rocks(source))?;
        }
        if any { self.flush(true) } else { Ok(()) }
    }

    /// A snapshot: every read through it is of one log position.
    pub(super) fn snapshot(&self) -> DatabaseSnapshot<'_> {
        DatabaseSnapshot { snapshot: self.db.snapshot(), database: self }
    }

    /// The number of the next run that has none.
    fn next_number(&self) -> Result<u64, Error> {
        let Some(runs) = self.db.cf_handle(Area::Runs.name()) else { return Ok(0) };
        let mut rows = self.db.raw_iterator_cf(runs);
        rows.seek_to_last();
        rows.status().map_err(|source| self.rocks(source))?;
        let last = rows.key().map(numbers::in_key).transpose()?;
        Ok(last.map_or(0, |(number, _)| number + 1))
    }

    /// A run's number; none if it has no rows by number. At most one get.
    fn number(&self, run: &[u8]) -> Result<Option<u64>, Error> {
        if let Some(number) = self.numbers.known(run) {
            return Ok(Some(number));
        }
        let key = numbers::by_run(run);
        let row = self.db.get_pinned(&key).map_err(|source| self.rocks(source))?;
        let number = row.map(|row| numbers::in_row(&key, &row)).transpose()?;
        if let Some(number) = number {
            self.numbers.know(run, number);
        }
        Ok(number)
    }

    /// Where a key's row is, and its key there; none if its run has no number, so that there is no row.
    fn place(&self, key: &[u8]) -> Result<Option<(Area, Vec<u8>)>, Error> {
        let mut on_disk = Vec::with_capacity(key.len() + 4);
        let area = place(key, &mut on_disk, |run| self.number(run))?;
        Ok(area.map(|area| (area, on_disk)))
    }

    /// Rows as they would be written now. Runs without a number get the next ones, from `next` on.
    fn encode<'a>(
        &self,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        mut next: u64,
    ) -> Result<OnDisk<'a>, Error> {
        let mut new = Vec::new();
        let mut found: HashMap<&[u8], Option<u64>, foldhash::fast::RandomState> = HashMap::default();
        let mut encoded = OnDisk::of(rows, |run, gives| {
            let number = match found.get(run) {
                Some(number) => *number,
                None => self.number(run)?,
            };
            let number = number.or_else(|| {
                gives.then(|| {
                    new.push((run.to_vec(), next));
                    next += 1;
                    next - 1
                })
            });
            found.insert(run, number);
            Ok(number)
        })?;
        encoded.new = new;
        Ok(encoded)
    }

    /// Rows as a commit would write them now.
    pub(super) fn on_disk<'a>(
        &self,
        rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<OnDisk<'a>, Error> {
        let next = *self.numbers.next();
        self.encode(rows, next)
    }

    /// Scans by iterators of one moment.
    fn scan_by(
        &self,
        iterate: &Iterate<'_, '_>,
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        if let Some(parts) = numbers::split(prefix) {
            return self.scan_run(iterate, parts, start, direction, visit).map(drop);
        }
        if prefix.len() < 2 {
            return self.scan_areas(iterate, prefix, visit);
        }
        if numbers::is_numbered(prefix) {
            return self.scan_runs(iterate, prefix, start, direction, visit);
        }
        if buckets::is_bucketed(prefix) {
            return self.scan_buckets(iterate, prefix, start, direction, visit);
        }
        self.walk(&mut iterate(Area::Default), prefix, start, direction, visit).map(drop)
    }

    /// Visits all rows of an index, or of all indices: of each family in some order.
    fn scan_areas(&self, iterate: &Iterate<'_, '_>, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        if self.walk(&mut iterate(Area::Default), prefix, prefix, Direction::Forward, visit)?.is_break() {
            return Ok(());
        }
        let (mut at, mut key, mut run_end) = (None, Vec::new(), 2);
        let mut of_runs = |on_disk: &[u8], row: &[u8]| {
            let (number, rest) = numbers::in_key(on_disk)?;
            if rest.is_empty() {
                key.clear();
                [&[0; 2], row].into_iter().for_each(|part| key.extend_from_slice(part));
                (at, run_end) = (Some(number), key.len());
                return Ok(ControlFlow::Continue(()));
            }
            let parts = rest.split_at_checked(2).filter(|_| at == Some(number));
            let (head, rest) = parts.ok_or_else(|| numbers::no_run(on_disk))?;
            if !head.starts_with(prefix) {
                return Ok(ControlFlow::Continue(()));
            }
            key.truncate(run_end);
            key[..2].copy_from_slice(head);
            key.extend_from_slice(rest);
            visit(&key, row)
        };
        if self.walk(&mut iterate(Area::Runs), &[], &[], Direction::Forward, &mut of_runs)?.is_break() {
            return Ok(());
        }
        let mut of_events = |on_disk: &[u8], row: &[u8]| {
            let (_, key) = numbers::in_key(on_disk)?;
            if key.starts_with(prefix) { visit(key, row) } else { Ok(ControlFlow::Continue(())) }
        };
        self.walk(&mut iterate(Area::Events), &[], &[], Direction::Forward, &mut of_events).map(drop)
    }

    /// Scans a numbered family across runs, in the order of their ids: a step and a seek for each run.
    fn scan_runs(
        &self,
        iterate: &Iterate<'_, '_>,
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        assert!(matches!(direction, Direction::Forward), "a scan across runs goes against their order");
        let (head, all) = (&prefix[..2], meta::run_numbers());
        let from = numbers::split(start).map_or(start, |parts| &start[..2 + parts.run.len()]);
        let from = [all.bytes(), from.get(2..).unwrap_or_default()].concat();
        let mut of_run = Vec::new();
        let mut each = |key: &[u8], _: &[u8]| {
            of_run.clear();
            [head, &key[all.bytes().len()..]].into_iter().for_each(|part| of_run.extend_from_slice(part));
            if !of_run.starts_with(prefix) {
                return Ok(ControlFlow::Continue(()));
            }
            let parts = numbers::split(&of_run).ok_or_else(|| numbers::no_run(key))?;
            let start = if start > of_run.as_slice() { start } else { &of_run };
            self.scan_run(iterate, parts, start, direction, visit)
        };
        self.walk(&mut iterate(Area::Default), all.bytes(), &from, direction, &mut each).map(drop)
    }

    /// Scans a bucketed family: list by list, and each of them bucket by bucket with a seek for each. Where the prefix is not
    /// one list, a seek in each bucket finds the next list.
    fn scan_buckets(
        &self,
        iterate: &Iterate<'_, '_>,
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let mut rows = iterate(Area::Events);
        rows.seek_to_last();
        rows.status().map_err(|source| self.rocks(source))?;
        let Some((last, _)) = rows.key().map(numbers::in_key).transpose()? else { return Ok(()) };
        if let Some(list) = buckets::list_of(prefix) {
            return self.scan_list(&mut rows, (list, last), prefix, start, direction, visit).map(drop);
        }
        assert!(matches!(direction, Direction::Forward), "a scan across lists goes against their order");
        let mut from = start.max(prefix).to_vec();
        loop {
            let mut next: Option<Vec<u8>> = None;
            for bucket in 0..=last {
                rows.seek(buckets::key_in(bucket, &from));
                let found =
                    rows.key().and_then(|on_disk| on_disk.strip_prefix(buckets::key_in(bucket, &[]).as_slice()));
                let list = found.filter(|key| key.starts_with(prefix)).and_then(buckets::list_of);
                if let Some(list) = list.filter(|list| next.as_deref().is_none_or(|next| *list < next)) {
                    next = Some(list.to_vec());
                }
                rows.status().map_err(|source| self.rocks(source))?;
            }
            let Some(list) = next else { return Ok(()) };
            if self.scan_list(&mut rows, (&list, last), &list, &from, direction, visit)?.is_break() {
                return Ok(());
            }
            from = [&list[..], &END].concat();
        }
    }

    /// Scans one list, up to the bucket `last`.
    fn scan_list(
        &self,
        rows: &mut DBRawIterator<'_>,
        (list, last): (&[u8], u64),
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let within = start.strip_prefix(list);
        let (buckets, beside) = match (direction, within) {
            (Direction::Forward, Some(place)) => (buckets::from(place)..=last, false),
            (Direction::Forward, None) => (0..=last, start > list),
            (Direction::Reverse, Some(place)) => (0..=last.min(buckets::from(place)), false),
            (Direction::Reverse, None) => (0..=last, start < list),
        };
        if beside {
            return Ok(ControlFlow::Continue(()));
        }
        let mut in_bucket = |bucket: u64| {
            let prefix = buckets::key_in(bucket, prefix);
            let from = match (direction, within) {
                (Direction::Forward, None) => prefix.clone(),
                (Direction::Reverse, None) => [&prefix[..], &END].concat(),
                // In all buckets but that of the start, it is before or after all rows.
                (_, Some(_)) => buckets::key_in(bucket, start),
            };
            let head = buckets::key_in(bucket, &[]).len();
            self.walk(rows, &prefix, &from, direction, &mut |on_disk, row| visit(&on_disk[head..], row))
        };
        let (first, last) = buckets.into_inner();
        for nth in 0..(last + 1).saturating_sub(first) {
            let bucket = if matches!(direction, Direction::Forward) { first + nth } else { last - nth };
            if in_bucket(bucket)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Scans rows of one run.
    fn scan_run(
        &self,
        iterate: &Iterate<'_, '_>,
        of: Parts<'_>,
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let Some(number) = self.number(of.run)? else { return Ok(ControlFlow::Continue(())) };
        let mut key = [of.head, of.run].concat();
        let (run_end, mut prefix) = (key.len(), Vec::new());
        numbers::put_key(of, number, &mut prefix);
        let prefix_end = prefix.len() - of.rest.len();
        // A start beside the family's own keys is before or after all of them.
        let from = match (start.strip_prefix(key.as_slice()), direction) {
            (Some(rest), _) => [&prefix[..prefix_end], rest].concat(),
            (None, Direction::Forward) if start < key.as_slice() => prefix.clone(),
            (None, Direction::Reverse) if start > key.as_slice() => [&prefix[..], &END].concat(),
            (None, _) => return Ok(ControlFlow::Continue(())),
        };
        self.walk(&mut iterate(Area::Runs), &prefix, &from, direction, &mut |on_disk, row| {
            key.truncate(run_end);
            key.extend_from_slice(&on_disk[prefix_end..]);
            visit(&key, row)
        })
    }

    /// Visits rows for as long as their keys on disk start with `prefix` and the visitor wants more. Says whether it wanted no
    /// more.
    fn walk(
        &self,
        rows: &mut DBRawIterator<'_>,
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        match direction {
            Direction::Forward => rows.seek(start),
            Direction::Reverse => rows.seek_for_prev(start),
        }
        while let Some((key, row)) = rows.item() {
            if !key.starts_with(prefix) {
                return Ok(ControlFlow::Continue(()));
            }
            if visit(key, row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            match direction {
                Direction::Forward => rows.next(),
                Direction::Reverse => rows.prev(),
            }
        }
        rows.status().map_err(|source| self.rocks(source))?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Makes an iterator over an area, of one moment.
type Iterate<'f, 'i> = dyn Fn(Area) -> DBRawIterator<'i> + 'f;

impl Commit for Database {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), Error> {
        let mut next = self.numbers.next();
        let rows = self.encode(rows, *next)?;
        let mut batch = rocksdb::WriteBatch::with_capacity_bytes(rows.bytes() + rows.len() * ROW_BYTES);
        for (run, number) in &rows.new {
            batch.put(numbers::by_run(run), numbers::row(*number));
            batch.put_cf(self.family(Area::Runs), numbers::by_number(*number), run);
        }
        // Rows of an area come together.
        let mut family = None;
        for (area, key, row) in rows.rows() {
            let (_, family) = match family {
                Some((last, family)) if last == area => (last, family),
                _ => *family.insert((area, self.family(area))),
            };
            match row {
                Some(row) => batch.put_cf(family, key, row),
                None => batch.delete_cf(family, key),
            }
        }
        let mut options = rocksdb::WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(|source| self.rocks(source))?;
        *next += rows.new.len() as u64;
        rows.new.iter().for_each(|(run, number)| self.numbers.know(run, *number));
        Ok(())
    }
}

impl Rows for Database {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some((area, key)) = self.place(key)? else { return Ok(None) };
        self.db.get_cf(self.family(area), key).map_err(|source| self.rocks(source))
    }

    fn scan(&self, prefix: &[u8], start: &[u8], direction: Direction, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.scan_by(&|area| self.db.raw_iterator_cf(self.family(area)), prefix, start, direction, visit)
    }
}

/// A database at one moment.
pub struct DatabaseSnapshot<'a> {
    snapshot: rocksdb::Snapshot<'a>,
    /// Which also has the numbers of runs that are younger than the snapshot: of these, there are no rows in it.
    database: &'a Database,
}

impl fmt::Debug for DatabaseSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSnapshot").field("dir", &self.database.dir).finish_non_exhaustive()
    }
}

impl Rows for DatabaseSnapshot<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some((area, key)) = self.database.place(key)? else { return Ok(None) };
        self.snapshot.get_cf(self.database.family(area), key).map_err(|source| self.database.rocks(source))
    }

    fn scan(&self, prefix: &[u8], start: &[u8], direction: Direction, visit: &mut Visit<'_>) -> Result<(), Error> {
        let iterate = |area| self.snapshot.raw_iterator_cf(self.database.family(area));
        self.database.scan_by(&iterate, prefix, start, direction, visit)
    }
}
