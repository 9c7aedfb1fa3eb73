//! The runs by status and time, and their numbers by status. Both derive from the changed rows of runs when these are
//! committed: so a run moves at most once in a commit, and the commit deletes no row that the store never had.

use super::changes::Changes;
use crate::index::store::{
    self, Key, Parts, Rows, meta,
    runs::{self, RunRow},
    runs_by_time,
};
use runlog_schemas::{answer::RunsByStatus, id::RunId};

/// The row by time of a run's row. Runs without an applied record have none.
fn listed(key: &[u8], row: &[u8]) -> Result<Option<(Key, RunRow)>, store::Error> {
    let row: RunRow = store::decode(key, row)?;
    let run_id = Parts::new(key).id::<RunId>().filter(|_| row.head.records > 0);
    Ok(run_id.map(|run_id| (runs_by_time::key(run_id.borrow(), &row), row)))
}

/// Adds the rows by time of all changed runs, and the numbers of runs. Must be the last projection before a commit. One get for each
/// changed run.
pub(crate) fn project<R: Rows>(changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    let prefix = runs::prefix("");
    let changed = changes.unordered_rows().filter(|(key, _)| key.starts_with(prefix.bytes()));
    let changed: Vec<_> = changed.filter_map(|(key, row)| Some((key.to_vec(), row?.to_vec()))).collect();
    let mut counts: Option<RunsByStatus> = None;
    for (key, row) in changed {
        let stored = changes.below().row(&key)?;
        let before = stored.map(|stored| listed(&key, &stored)).transpose()?.flatten();
        let after = listed(&key, &row)?;
        if before.as_ref().map(|(key, _)| key.bytes()) == after.as_ref().map(|(key, _)| key.bytes()) {
            continue;
        }
        let status = |listed: &Option<(Key, RunRow)>| listed.as_ref().map(|(_, row)| row.head.status);
        if status(&before) != status(&after) {
            let mut changed = match counts {
                Some(counts) => counts,
                None => changes.get(&meta::run_counts())?.unwrap_or_default(),
            };
            if let Some(status) = status(&before) {
                *changed.number_mut(status) = changed.number(status).saturating_sub(1);
            }
            if let Some(status) = status(&after) {
                *changed.number_mut(status) += 1;
            }
            counts = Some(changed);
        }
        if let Some((key, _)) = before {
            changes.remove(key);
        }
        if let Some((key, _)) = after {
            changes.mark(key);
        }
    }
    if let Some(counts) = counts {
        changes.put(meta::run_counts(), &counts);
    }
    Ok(())
}

/// The row by time that belongs to a row of a bulk fold, if that is a run's, which is counted.
pub(crate) fn of_folded(key: &[u8], row: &[u8], counts: &mut RunsByStatus) -> Result<Option<Key>, store::Error> {
    if !key.starts_with(runs::prefix("").bytes()) {
        return Ok(None);
    }
    let Some((by_time, row)) = listed(key, row)? else { return Ok(None) };
    *counts.number_mut(row.head.status) += 1;
    Ok(Some(by_time))
}
