//! Computes the row changes of a record. Pure: it reads rows and collects changes; it writes nothing.
//!
//! ```text
//!   record ─┬────────▶ single ─▶ judge (by run_view) ─▶ one file per index ─▶ changes
//!           └─ batch ───▲
//! ```
//!
//! One file per index, named as in `store`; indices of lifecycle states share `evolving`.

use super::store::{self, Rows, meta};
use runlog_schemas::{
    codec::Unreadable, datum::Sha256, id::Offset, judge::Reason, partition::partition_of, record::RecordKind,
};

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
mod new_runs;
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
pub(crate) use new_runs::NewRuns;

/// Projects a run's record, in a journal of `partitions`.
pub fn record<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    if partition_of(record.run_id, partitions) != at.partition {
        anomalies::project_refusal(record, at, Reason::WrongPartition, changes)?;
        return Ok(Effect::Refused(Reason::WrongPartition));
    }
    let effect = match record.kind {
        RecordKind::Batch => batch::project(record, at, changes)?,
        _ => single::judge_and_project(record, at, changes)?,
    };
    if effect.is_kept_apart(record.kind) {
        deliveries::project(record, at, changes);
    }
    Ok(effect)
}

/// Projects a record of a run that a skip voids. It is not judged: an operator may have skipped it because that fails.
pub fn voided<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if partition_of(record.run_id, partitions) == at.partition && effects::project_voided(record, changes)? {
        deliveries::project(record, at, changes);
    }
    Ok(())
}

/// Projects a dead letter: unreadable bytes that do not stop the partition.
pub fn dead_letter<R: Rows>(at: RecordContext<'_>, why: &Unreadable, changes: &mut Changes<'_, R>) {
    dead_letters::project(at, why, changes);
}

/// Sets the store's progress, in the same write batch as the rows.
pub fn progress<R: Rows>(next_offset: Offset, offset: Offset, value: &[u8], changes: &mut Changes<'_, R>) {
    let last = Some(meta::Last { offset, hash: Sha256::of(value) });
    changes.put(meta::progress(), &meta::Progress { next_offset, last });
}
