//! Computes the row changes of a record. Pure: it reads rows and collects changes; it writes nothing.
//!
//! ```text
//!   record ─┬────────▶ single ─▶ judge (by run_view) ─▶ one file per index ─▶ changes
//!           └─ batch ───▲
//! ```
//!
//! One file per index, named as in `store`; indices of lifecycle states share `evolving`.

use crate::index::store::{self, Index, Rows, meta};
use runlog_schemas::{
    codec::Unreadable, datum::Sha256, id::Offset, judge::Reason, partition::partition_of, record::RecordKind,
};
use std::ops::ControlFlow;

pub mod anomalies;
mod batch;
mod changes;
pub mod checkpoints;
pub mod contents;
mod context;
pub mod dead_letters;
pub mod deliveries;
pub mod effects;
pub mod events;
mod evolving;
pub mod facts;
pub mod horizons;
pub mod keys;
pub mod markers;
pub mod pools;
pub mod records;
mod run_view;
pub mod runs;
mod single;
pub mod tool_calls;
pub mod turns;
pub mod write_backs;

pub use changes::Changes;
pub use context::{Effect, RecordContext, RunRecord};

/// Projects a run's record, in a journal of `partitions`.
pub fn record<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    if partition_of(record.run_id, partitions) != at.partition {
        anomalies::refused(record, at, Reason::WrongPartition, changes)?;
        return Ok(Effect::Refused(Reason::WrongPartition));
    }
    let effect = match record.kind {
        RecordKind::Batch => batch::record(record, at, changes)?,
        _ => single::one(record, at, changes)?,
    };
    if effect.is_kept_apart(record.kind) {
        deliveries::kept(record, at, changes);
    }
    Ok(effect)
}

/// Projects a dead letter: unreadable bytes that do not stop the partition.
pub fn dead_letter<R: Rows>(at: RecordContext<'_>, why: &Unreadable, changes: &mut Changes<'_, R>) {
    dead_letters::unreadable(at, why, changes);
}

/// Sets the store's progress, in the same write batch as the rows.
pub fn progress<R: Rows>(next_offset: Offset, offset: Offset, value: &[u8], changes: &mut Changes<'_, R>) {
    let last = Some(meta::Last { offset, hash: Sha256::of(value) });
    changes.put(meta::progress(), &meta::Progress { next_offset, last });
}

/// Counts and digests one index: SHA-256 over its rows in key order, each as length-prefixed key and row.
pub fn digest<R: Rows>(rows: &R, index: Index) -> Result<(u64, Sha256), store::Error> {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    let mut count = 0u64;
    let prefix = [index.byte];
    rows.scan(&prefix, &prefix, rocksdb::Direction::Forward, &mut |key, row| {
        count += 1;
        for part in [key, row] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((count, Sha256(hasher.finalize().into())))
}
