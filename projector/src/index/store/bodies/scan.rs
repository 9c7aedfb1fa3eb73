//! Replaces references by bodies during a scan.

use super::{Reference, Stored, cache::Bodies, file::BodyFile, is_body, slice};
use crate::index::store::{error::Error, rows::Visit};
use std::{mem, ops::ControlFlow};

/// A scan of all rows reads the bodies of about this many bytes of keys together, in the order of the file. A block
/// contains bodies of many runs, and would otherwise be read once for each.
const KEYS_BYTES: usize = 4 << 20;
/// Bytes counted for a row, in addition to its key.
const ROW_BYTES: usize = 64;

/// A scan's bodies.
pub(in super::super) struct BodyScan<'f> {
    file: &'f BodyFile,
    cached_only: bool,
    /// The block of the last body.
    last: Option<(u64, Bodies)>,
    /// Rows whose bodies are read later, if the scan's order does not matter.
    later: Option<Vec<(Reference, Vec<u8>)>>,
    bytes: usize,
}

impl<'f> BodyScan<'f> {
    /// Begins a scan; `in_any_order` if its rows may come in any order.
    pub(in super::super) fn new(file: &'f BodyFile, cached_only: bool, in_any_order: bool) -> Self {
        Self { file, cached_only, last: None, later: in_any_order.then(Vec::new), bytes: 0 }
    }

    /// Visits a row of the database, now or later.
    pub(in super::super) fn visit(
        &mut self,
        key: &[u8],
        row: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Error> {
        let row = if is_body(key) { Stored::decode(key, row)? } else { Stored::Short(row) };
        let flow = match (row, &mut self.later) {
            (Stored::Short(row), _) => visit(key, row)?,
            (Stored::Reference(reference), None) => self.visit_body(key, reference, visit)?,
            (Stored::Reference(reference), Some(later)) => {
                later.push((reference, key.to_vec()));
                self.bytes += key.len() + ROW_BYTES;
                if self.bytes < KEYS_BYTES { ControlFlow::Continue(()) } else { self.visit_later(visit)? }
            }
        };
        if flow.is_break() {
            self.later = None;
        }
        Ok(flow)
    }

    /// Visits the rows that have not been visited.
    pub(in super::super) fn finish(mut self, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.visit_later(visit).map(drop)
    }

    fn visit_later(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        let mut rows = self.later.as_mut().map(mem::take).unwrap_or_default();
        self.bytes = 0;
        rows.sort_unstable_by_key(|(at, _)| (at.block, at.start));
        for (reference, key) in rows {
            if self.visit_body(&key, reference, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_body(&mut self, key: &[u8], at: Reference, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        let block = match self.last.take() {
            Some((position, block)) if position == at.block => block,
            _ => self.file.block(at.block, self.cached_only)?,
        };
        let (_, block) = self.last.insert((at.block, block));
        visit(key, slice(key, block, at)?)
    }
}
