//! `write_backs`: staged operations, until they are committed or rejected.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
    evolving,
};
use crate::index::store::{
    self, Parts, Rows,
    evolving::StateRow,
    write_backs::{INDEX, open_of_number},
};
use runlog_schemas::judge::lifecycle::{LifecycleStatus, StatusReport, write_back_of};

/// Projects a record about a transaction.
///
/// A rejection of a number that its own epoch did not stage rejects the newest open operation with this number of an
/// earlier epoch. A successor thus gives up the operations of a dead writer. Without such an operation, the rejection gets
/// a row of its own.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if step.status == LifecycleStatus::Rejected
        && evolving::row(INDEX, record.run_id, &step.key, changes)?.is_none()
        && let Some((key, mut row)) = abandoned_operation(record, step, changes)?
    {
        evolving::put_report(INDEX, record, &StatusReport { key: key.clone(), ..step.clone() }, at, changes);
        row.state.status = step.status.clone();
        row.state.ended = true;
        row.state.set_by = record.payload_hash();
        row.record_id = record.record_id.to_owned();
        (row.offset, row.index) = (at.offset, at.index);
        evolving::put(INDEX, record.run_id, &key, row, Some(false), changes);
        return Ok(());
    }
    evolving::project(INDEX, record, step, at, changes)
}

/// The newest open operation of an earlier epoch with the number that `step` names.
fn abandoned_operation<R: Rows>(
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    changes: &Changes<'_, R>,
) -> Result<Option<(String, StateRow)>, store::Error> {
    let Some((txn, _)) = write_back_of(&step.key) else { return Ok(None) };
    let open = changes.rows_with_prefix(&open_of_number(record.run_id, &txn.to_string()))?;
    let Some((key, row)) = open.iter().next_back() else { return Ok(None) };
    let mut parts = Parts::new(key);
    let (_, Some(id)) = (parts.text(), parts.text()) else { return Ok(None) };
    Ok(Some((id, store::decode(key, row)?)))
}
