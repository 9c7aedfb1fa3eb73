//! `pools`: the pools of a run, and the runs of a pool.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
    evolving,
};
use crate::index::store::{
    self, Rows,
    pools::{INDEX, member},
};
use runlog_schemas::judge::lifecycle::{LifecycleStatus, StatusReport};

/// Projects a record about a pool.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    evolving::project(INDEX, record, step, at, changes)?;
    match step.status.known() {
        Some(LifecycleStatus::RunJoined) => changes.mark(member(&step.key, record.run_id)),
        Some(LifecycleStatus::RunLeft) => changes.remove(member(&step.key, record.run_id)),
        _ => {}
    }
    Ok(())
}
