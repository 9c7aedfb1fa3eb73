//! What each delivery changes in the indices, for whoever follows an index instead of asking it.
//!
//! ```text
//!   log, up to what is applied ─▶ delivery ─▶ its run as it was just before (past) ─▶ project::record ─▶ rows: old, new
//! ```
//!
//! Nothing is written for it, and the loop knows nothing of it. What a delivery changes follows from the log and from the
//! skips alone, by the same code as the index itself, so that a follower goes on at any place with neither gap nor repeat,
//! whatever was restarted or rebuilt meanwhile.
//!
//! Cost of a delivery: folding it once more; and the run up to there, where it is not among those kept.

use crate::index::{
    Error,
    as_of::{self, Limits, RunAsOf},
    fold,
    project::{self, Changes, RecordContext, RunRecord},
    store::{self, Memory, Rows},
};
use runlog_log::Delivery;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Schemas},
    id::{Offset, PartitionId, RunId},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

pub mod cursor;
pub mod shown;

/// What the runs may take that are kept, bytes of their keys and rows.
pub const CACHE_BYTES: usize = 32 << 20;
/// What a run counts for besides its rows, bytes.
const RUN_BYTES: usize = 512;

/// A row that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its key.
    pub key: Vec<u8>,
    /// As it was; none where it was not.
    pub old: Option<Vec<u8>>,
    /// As it is; none where it is not any more.
    pub new: Option<Vec<u8>>,
}

/// All that a delivery changed, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The run that the record names; none for what is no record of a run.
    pub run_id: Option<RunId>,
    /// Rows of all indices. A row that was set to what it was is not among them.
    pub rows: Vec<Changed>,
}

/// Deliveries to deltas. Those of a partition are to be given in offset order, none left out from the first one on.
#[derive(Debug)]
pub struct Deltas {
    partitions: u32,
    schemas: Arc<dyn Schemas>,
    cache: RunCache,
}

impl Deltas {
    /// For a journal of `partitions`, keeping runs of `cache_bytes` together.
    pub fn new(partitions: u32, schemas: Arc<dyn Schemas>, cache_bytes: usize) -> Self {
        Self { partitions, schemas, cache: RunCache { bytes_max: cache_bytes, ..RunCache::default() } }
    }

    /// What a delivery changed, which `index` has applied, with the skips that it knows.
    ///
    /// Errors: `TooLarge` for a run that does not fit memory; `Unavailable` where a schema is not told.
    pub fn of<R: Rows>(&mut self, index: &R, skips: &BTreeSet<Offset>, delivery: &Delivery) -> Result<Delta, Error> {
        if skips.contains(&delivery.offset) {
            return Ok(Delta::default());
        }
        let (framed, reframed) = fold::reframed(&delivery.value, &*self.schemas);
        let at = fold::at(delivery, &framed);
        match reframed.and_then(|()| codec::read(&framed)) {
            Ok(record) => match RunRecord::new(&record) {
                Some(record) => self.of_run(index, record, at),
                None => Ok(Delta::default()),
            },
            // It was read before, so that it is only not told now.
            Err(why) if why.stops() => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the record at partition {}, offset {} cannot be read: {why}", at.partition, at.offset),
            )),
            Err(why) => {
                let none = Memory::default();
                let mut changes = Changes::new(&none);
                project::dead_letter(at, &why, &mut changes);
                Ok(Delta { run_id: None, rows: changed(&changes, &none)? })
            }
        }
    }

    fn of_run<R: Rows>(&mut self, index: &R, record: RunRecord<'_, '_>, at: RecordContext<'_>) -> Result<Delta, Error> {
        let run_id = record.run_id.to_owned();
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
        run.take(record, at, |changes, before| {
            rows = changed(changes, before)?;
            Ok(())
        })?;
        self.cache.keep(id, run);
        Ok(Delta { run_id: Some(run_id), rows })
    }
}

/// What is otherwise than before, in key order.
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

/// Runs as they are behind the last delivery, the longest unused of which go first.
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
