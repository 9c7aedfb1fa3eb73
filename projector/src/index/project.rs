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
    codec::Unreadable,
    datum::Sha256,
    id::{Offset, RunId},
    judge::Reason,
    partition::partition_of,
    record::RecordKind,
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
pub(crate) mod runs_by_time;
mod single;
mod skips;
pub mod tool_calls;
pub mod turns;
pub mod write_backs;

pub use changes::Changes;
pub use context::{Effect, RecordContext, RunRecord};
pub(crate) use new_runs::NewRuns;
pub(crate) use skips::run_of_key;

/// Whether a skip voids a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No skip voids it: it is judged.
    Judged,
    /// A skip voids it.
    Voided {
        /// The skip's own offset.
        by: Offset,
    },
}

impl Standing {
    /// The standing of a delivery that the skip at `by` voids, or that no skip voids.
    pub fn of(by: Option<Offset>) -> Self {
        by.map_or(Self::Judged, |by| Self::Voided { by })
    }
}

/// Projects the delivery of a run's record, in a journal of `partitions`. Returns the outcome of a judged record.
pub fn delivery<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    standing: Standing,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<Option<Effect>, store::Error> {
    match standing {
        Standing::Judged => self::record(record, at, partitions, changes).map(Some),
        Standing::Voided { .. } if partition_of(record.run_id, partitions) != at.partition => Ok(None),
        Standing::Voided { by } => skips::project_voided(record, at, by, partitions, changes).map(|()| None),
    }
}

/// Judges and projects a record of a run, in a journal of `partitions`.
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

/// Projects a delivery that cannot be read and that the skip at `by` voids, of the run that its message key names.
pub fn unread_voided<R: Rows>(
    run_id: RunId<&str>,
    offset: Offset,
    by: Offset,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    changes.mark(store::deliveries::unread(run_id, offset));
    skips::project_skip(run_id, (offset, by), skips::TakesBack::Number, changes)
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
