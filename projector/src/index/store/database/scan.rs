//! Scans rows in the order of their keys, although their order on disk is another one.
//!
//! ```text
//!   prefix ─┬─ with a run ──────────▶ that run's rows: one seek
//!           ├─ a numbered family ───▶ run by run, in the order of ids: a seek each
//!           ├─ a list of events ────▶ bucket by bucket: a seek each
//!           ├─ several such lists ──▶ list by list, each found by a seek in each bucket
//!           ├─ an index, or nothing ▶ column family by column family, in no order: for reads of all rows
//!           └─ any other ───────────▶ as they are: one seek
//! ```

use super::{Database, END};
use crate::index::store::{
    buckets,
    error::Error,
    meta,
    numbers::{self, Parts},
    on_disk::ColumnFamilyName,
    rows::Visit,
};
use rocksdb::{DBRawIterator, Direction, ReadTier};
use std::ops::ControlFlow;

/// Creates an iterator over a column family. The iterators of a snapshot all show its moment.
type Iterate<'f, 'i> = dyn Fn(ColumnFamilyName) -> DBRawIterator<'i> + 'f;

/// The rows of a scan: under `prefix`, from `start` on.
#[derive(Clone, Copy)]
struct Span<'s> {
    prefix: &'s [u8],
    start: &'s [u8],
    direction: Direction,
}

impl Database {
    /// Scans with the iterators that `iterate` creates. `tier` is for lookups of a run's number.
    pub(super) fn scan_by(
        &self,
        (iterate, tier): (&Iterate<'_, '_>, ReadTier),
        prefix: &[u8],
        start: &[u8],
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let span = Span { prefix, start, direction };
        if let Some(parts) = numbers::split(prefix) {
            let Some(number) = self.number(parts.run, tier)? else { return Ok(()) };
            return self.scan_run(&mut iterate(ColumnFamilyName::Runs), (parts, number), span, visit).map(drop);
        }
        if prefix.len() < 2 {
            assert!(
                start == prefix && matches!(direction, Direction::Forward),
                "a scan of all rows has no start and no direction"
            );
            return self.scan_areas(iterate, prefix, visit);
        }
        if numbers::is_numbered(prefix) {
            return self.scan_runs(iterate, span, visit);
        }
        if buckets::is_bucketed(prefix) {
            return self.scan_buckets(iterate, span, visit);
        }
        self.walk(&mut iterate(ColumnFamilyName::Default), span, visit).map(drop)
    }

    /// Visits all rows of an index, or of all indices. Each family's rows come in no particular order.
    ///
    /// Errors: `Damaged` if the rows id → number and number → id contradict each other: queries read the former, this scan
    /// the latter.
    fn scan_areas(&self, iterate: &Iterate<'_, '_>, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let (numbered, mut count) = (meta::run_numbers(), 0_u64);
        let mut others = |key: &[u8], row: &[u8]| {
            count += u64::from(key.starts_with(numbered.bytes()));
            visit(key, row)
        };
        let all = |prefix| Span { prefix, start: prefix, direction: Direction::Forward };
        if self.walk(&mut iterate(ColumnFamilyName::Default), all(prefix), &mut others)?.is_break() {
            return Ok(());
        }
        let (mut at, mut key, mut run_end, mut runs) = (None, Vec::new(), 2, 0_u64);
        let mut by_run = iterate(ColumnFamilyName::Default);
        let mut of_runs = |on_disk: &[u8], row: &[u8]| {
            let (number, rest) = numbers::in_key(on_disk)?;
            if rest.is_empty() {
                let named = numbers::by_run(row);
                by_run.seek(&named);
                by_run.status().map_err(|source| self.rocks(source))?;
                let entry = by_run.item().filter(|(key, _)| *key == named);
                if entry.map(|(key, row)| numbers::in_row(key, row)).transpose()? != Some(number) {
                    return Err(numbers::no_run(on_disk));
                }
                key.clear();
                [&[0; 2], row].into_iter().for_each(|part| key.extend_from_slice(part));
                (at, run_end) = (Some(number), key.len());
                runs += 1;
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
        if self.walk(&mut iterate(ColumnFamilyName::Runs), all(&[]), &mut of_runs)?.is_break() {
            return Ok(());
        }
        if prefix.is_empty() && runs != count {
            return Err(numbers::no_run(numbered.bytes()));
        }
        let mut of_events = |on_disk: &[u8], row: &[u8]| {
            let (_, key) = numbers::in_key(on_disk)?;
            if key.starts_with(prefix) { visit(key, row) } else { Ok(ControlFlow::Continue(())) }
        };
        self.walk(&mut iterate(ColumnFamilyName::Events), all(&[]), &mut of_events).map(drop)
    }

    /// Scans a numbered family across runs, in the order of their ids: a step and a seek for each run.
    fn scan_runs(&self, iterate: &Iterate<'_, '_>, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Span { prefix, start, direction } = span;
        assert!(matches!(direction, Direction::Forward), "a scan across runs must be forward");
        let (head, all) = (&prefix[..2], meta::run_numbers());
        let from = numbers::split(start).map_or(start, |parts| &start[..2 + parts.run.len()]);
        let from = [all.bytes(), from.get(2..).unwrap_or_default()].concat();
        let within = [all.bytes(), &prefix[2..]].concat();
        let (mut rows, mut of_run) = (iterate(ColumnFamilyName::Runs), Vec::new());
        let mut each = |key: &[u8], row: &[u8]| {
            of_run.clear();
            [head, &key[all.bytes().len()..]].into_iter().for_each(|part| of_run.extend_from_slice(part));
            let parts = numbers::split(&of_run).ok_or_else(|| numbers::no_run(key))?;
            let start = if start > of_run.as_slice() { start } else { &of_run };
            let span = Span { prefix: &of_run, start, direction };
            self.scan_run(&mut rows, (parts, numbers::in_row(key, row)?), span, visit)
        };
        self.walk(&mut iterate(ColumnFamilyName::Default), Span { prefix: &within, start: &from, direction }, &mut each)
            .map(drop)
    }

    /// Scans a bucketed family: list by list, and each list bucket by bucket, with a seek for each. If the prefix is not
    /// one list, a seek in each bucket finds the next list.
    fn scan_buckets(&self, iterate: &Iterate<'_, '_>, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), Error> {
        let Span { prefix, start, direction } = span;
        let mut rows = iterate(ColumnFamilyName::Events);
        rows.seek_to_last();
        rows.status().map_err(|source| self.rocks(source))?;
        let Some((last, _)) = rows.key().map(numbers::in_key).transpose()? else { return Ok(()) };
        if let Some(list) = buckets::list_of(prefix) {
            return self.scan_list(&mut rows, (list, last), span, visit).map(drop);
        }
        assert!(matches!(direction, Direction::Forward), "a scan across lists must be forward");
        let mut from = start.max(prefix).to_vec();
        loop {
            let mut next: Option<Vec<u8>> = None;
            for bucket in 0..=last {
                rows.seek(buckets::key_in(bucket, &from));
                let key = rows.key().and_then(|on_disk| on_disk.strip_prefix(buckets::key_in(bucket, &[]).as_slice()));
                let list = key.filter(|key| key.starts_with(prefix)).and_then(buckets::list_of);
                if let Some(list) = list.filter(|list| next.as_deref().is_none_or(|next| *list < next)) {
                    next = Some(list.to_vec());
                }
                rows.status().map_err(|source| self.rocks(source))?;
            }
            let Some(list) = next else { return Ok(()) };
            let span = Span { prefix: &list, start: &from, direction };
            if self.scan_list(&mut rows, (&list, last), span, visit)?.is_break() {
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
        Span { prefix, start, direction }: Span<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let within = start.strip_prefix(list);
        let (buckets, beside) = match (direction, within) {
            (Direction::Forward, Some(suffix)) => (buckets::bucket_of(suffix)..=last, false),
            (Direction::Forward, None) => (0..=last, start > list),
            (Direction::Reverse, Some(suffix)) => (0..=last.min(buckets::bucket_of(suffix)), false),
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
                // In all buckets except the start's own, this key is before or after all rows.
                (_, Some(_)) => buckets::key_in(bucket, start),
            };
            let head = buckets::key_in(bucket, &[]).len();
            let span = Span { prefix: &prefix, start: &from, direction };
            self.walk(rows, span, &mut |on_disk, row| visit(&on_disk[head..], row))
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

    /// Scans rows of one run, by its number. `parts` must be the parts of the span's prefix.
    fn scan_run(
        &self,
        rows: &mut DBRawIterator<'_>,
        (parts, number): (Parts<'_>, u64),
        Span { start, direction, .. }: Span<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let mut key = [parts.head, parts.run].concat();
        let (run_end, mut prefix) = (key.len(), Vec::new());
        numbers::put_key(parts, number, &mut prefix);
        let prefix_end = prefix.len() - parts.rest.len();
        // A start outside the family's keys is before or after all of them.
        let from = match (start.strip_prefix(key.as_slice()), direction) {
            (Some(rest), _) => [&prefix[..prefix_end], rest].concat(),
            (None, Direction::Forward) if start < key.as_slice() => prefix.clone(),
            (None, Direction::Reverse) if start > key.as_slice() => [&prefix[..], &END].concat(),
            (None, _) => return Ok(ControlFlow::Continue(())),
        };
        self.walk(rows, Span { prefix: &prefix, start: &from, direction }, &mut |on_disk, row| {
            key.truncate(run_end);
            key.extend_from_slice(&on_disk[prefix_end..]);
            visit(&key, row)
        })
    }

    /// Visits rows as long as their keys on disk start with `prefix` and the visitor continues. Returns `Break` if the
    /// visitor ended the scan.
    fn walk(
        &self,
        rows: &mut DBRawIterator<'_>,
        Span { prefix, start, direction }: Span<'_>,
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
