//! Change data capture: the rows that each delivery changes, for clients that follow an index.
//!
//! ```text
//!   log, up to the applied offset ─▶ delivery ─▶ its run just before it (as_of) ─▶ project::delivery ─▶ rows: old, new
//! ```
//!
//! It writes nothing, and the projection loop takes no part. A delivery's changes follow only from the log and the skips,
//! by the index's own code. So a follower resumes at any offset without gap or repeat, also after a restart or rebuild.
//!
//! Cost of a delivery: one fold; and if its run is not cached, a fold of the run up to it.

use super::{
    as_of::{self, Limits, RunAsOf},
    error::Error,
    fold::{self, Voided},
    project::{self, Changes, RecordContext, RunRecord, Standing},
    store::{self, Memory, Rows},
};
use runlog_log::Delivery;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Schemas, Unreadable},
    id::{Offset, PartitionId, RunId},
    subject::Subject,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub mod cursor;
pub mod shown;

/// Memory for cached runs, bytes of their keys and rows.
pub const CACHE_BYTES: usize = 32 << 20;
/// Overhead of a cached run, bytes.
const RUN_BYTES: usize = 512;

/// A row that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its key.
    pub key: Vec<u8>,
    /// The row before the delivery; `None` if it did not exist.
    pub old: Option<Vec<u8>>,
    /// The row after the delivery; `None` if it was removed.
    pub new: Option<Vec<u8>>,
}

/// The rows that a delivery changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The record's run; `None` for partition-level records and dead letters.
    pub run_id: Option<RunId>,
    /// Rows of all indices, in key order, without rows that were set to an equal value.
    pub rows: Vec<Changed>,
}

/// Turns deliveries into deltas. Each partition's deliveries must come in offset order without gaps.
#[derive(Debug)]
pub struct Deltas {
    partitions: u32,
    schemas: Arc<dyn Schemas>,
    cache: RunCache,
}

impl Deltas {
    /// For a journal of `partitions`, with a cache of runs of at most `cache_bytes` in all.
    pub fn new(partitions: u32, schemas: Arc<dyn Schemas>, cache_bytes: usize) -> Self {
        Self { partitions, schemas, cache: RunCache { bytes_max: cache_bytes, ..RunCache::default() } }
    }

    /// Computes the rows that a delivery changed. `index` has applied it and knows `skips`.
    ///
    /// Errors: `TooLarge` for a run that does not fit memory; `Unavailable` while the registry does not resolve a
    /// schema.
    pub fn compute<R: Rows>(
        &mut self,
        index: &R,
        skips: &BTreeMap<Offset, Offset>,
        delivery: &Delivery,
    ) -> Result<Delta, Error> {
        if let Some(by) = skips.get(&delivery.offset).copied() {
            let (schemas, partitions) = (self.schemas.clone(), self.partitions);
            let compute = |voided: Voided<'_>, at: RecordContext<'_>| match voided.run_id() {
                Some(run_id) => {
                    self.compute_for_run(index, run_id, at, |run, look| run.take_voided(&voided, (at, by), look))
                }
                None => Ok(Delta::default()),
            };
            let computed = fold::read_voided(delivery, &*schemas, partitions, compute);
            return computed.unwrap_or_else(|why| Err(unavailable(delivery, &why)));
        }
        let (framed, reframed) = fold::reframe(&delivery.value, &*self.schemas);
        let at = fold::record_context(delivery, &framed);
        match reframed.and_then(|()| codec::read(&framed)) {
            Ok(record) => match RunRecord::new(&record) {
                Some(record) => self.compute_for_run(index, record.run_id, at, |run, look| {
                    run.take(record, at, Standing::Judged, look).map(|_| ())
                }),
                None => Ok(Delta::default()),
            },
            // The record was readable when it was applied, so only the registry can be unavailable.
            Err(why) if why.stops() || matches!(why, Unreadable::Unresolved { .. }) => Err(unavailable(delivery, &why)),
            Err(why) => {
                let none = Memory::default();
                let mut changes = Changes::new(&none);
                project::dead_letter(at, &why, &mut changes);
                Ok(Delta { run_id: None, rows: changed(&changes, &none)? })
            }
        }
    }

    /// Computes the rows that a delivery of a run changes. `take` folds the delivery.
    fn compute_for_run<R: Rows>(
        &mut self,
        index: &R,
        run_id: RunId<&str>,
        at: RecordContext<'_>,
        take: impl FnOnce(&mut RunAsOf, Look<'_>) -> Result<(), Error>,
    ) -> Result<Delta, Error> {
        let run_id = run_id.to_owned();
        let id = (at.partition, run_id.clone());
        let mut run = match self.cache.take(&id) {
            Some(run) => run,
            None => {
                let mut run = RunAsOf::new(run_id.clone(), at.partition, self.partitions);
                if let Some(before) = at.offset.get().checked_sub(1) {
                    run.fold(index, Offset::new(before)?, Limits { bytes: as_of::BYTES_MAX, until: None })?;
                }
                run
            }
        };
        let mut rows = Vec::new();
        take(
            &mut run,
            Box::new(|changes, before| {
                rows = changed(changes, before)?;
                Ok(())
            }),
        )?;
        self.cache.keep(id, run);
        Ok(Delta { run_id: Some(run_id), rows })
    }
}

/// The error about an applied record that cannot be read now.
pub fn unavailable(delivery: &Delivery, why: &Unreadable) -> Error {
    let Delivery { partition, offset, .. } = *delivery;
    let subject = Subject { partition: Some(partition), offset: Some(offset), ..Subject::default() };
    let message = format!("the record at partition {partition}, offset {offset} cannot be read: {why}");
    Error::new(ErrorKind::Unavailable, message).about(subject)
}

/// Gets the changes and the rows before them.
type Look<'l> = Box<dyn FnOnce(&Changes<'_, Memory>, &Memory) -> Result<(), store::Error> + 'l>;

/// The rows that differ from before, in key order.
fn changed(changes: &Changes<'_, Memory>, before: &Memory) -> Result<Vec<Changed>, store::Error> {
    let mut rows = Vec::new();
    for (key, new) in changes.rows() {
        let old = before.row(key)?;
        if old.as_deref() != new {
            rows.push(Changed { key: key.to_vec(), old, new: new.map(<[u8]>::to_vec) });
        }
    }
    Ok(rows)
}

type Id = (PartitionId, RunId);

/// An LRU cache of runs as of their last delivery.
#[derive(Debug, Default)]
struct RunCache {
    bytes_max: usize,
    bytes: usize,
    clock: u64,
    runs: HashMap<Id, (u64, RunAsOf)>,
    by_use: BTreeMap<u64, Id>,
}

impl RunCache {
    fn take(&mut self, id: &Id) -> Option<RunAsOf> {
        let (used, run) = self.runs.remove(id)?;
        self.by_use.remove(&used);
        self.bytes -= size(&run);
        Some(run)
    }

    fn keep(&mut self, id: Id, run: RunAsOf) {
        self.clock += 1;
        self.bytes += size(&run);
        self.by_use.insert(self.clock, id.clone());
        self.runs.insert(id, (self.clock, run));
        while self.bytes > self.bytes_max
            && let Some((_, oldest)) = self.by_use.pop_first()
            && let Some((_, run)) = self.runs.remove(&oldest)
        {
            self.bytes -= size(&run);
        }
    }
}

fn size(run: &RunAsOf) -> usize {
    run.rows().bytes() + RUN_BYTES
}
