//! `pools`: which pools a run is in, and which runs a pool has.

use super::{Changes, RecordContext, RunRecord, evolving};
use crate::index::store::{
    self, Rows,
    pools::{INDEX, member},
};
use runlog_schemas::judge::lifecycle::{LifecycleStatus, StatusReport};

/// Takes in what a record says of a pool.
pub fn applied<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    evolving::applied(INDEX, record, step, at, changes)?;
    match step.status.known() {
        Some(LifecycleStatus::RunJoined) => changes.mark(member(&step.key, record.run_id)),
        Some(LifecycleStatus::RunLeft) => changes.remove(member(&step.key, record.run_id)),
        _ => {}
    }
    Ok(())
}
