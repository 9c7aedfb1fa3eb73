//! `runs`: each run's head after its last record.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, Rows,
    runs::{RunRow, key},
};
use runlog_schemas::judge::Head;

/// Stores the run's head after an applied record.
pub fn project<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    head: Head,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    let wrote_at_millis = if record.kind.unclaimed() {
        changes.get::<RunRow>(&key(record.run_id))?.unwrap_or_default().wrote_at_millis
    } else {
        at.logged_at_millis
    };
    let (offset, index, updated_at_millis) = (at.offset, at.index, at.logged_at_millis);
    let head = stored(head);
    changes.put(key(record.run_id), &RunRow { head, offset, index, updated_at_millis, wrote_at_millis });
    Ok(())
}

/// The head without what holds for the judged record alone.
fn stored(head: Head) -> Head {
    Head { is_unclaimed: false, ..head }
}

/// Stores the run's head if a repeat or a refusal consumed a number; returns whether it did. Such a record shows that the
/// run's writer is alive, unless its kind needs no claim. A run without applied records gets a row only in this case.
pub fn project_consumed_number<R: Rows>(
    record: RunRecord<'_, '_>,
    at: RecordContext<'_>,
    head: Head,
    changes: &mut Changes<'_, R>,
) -> Result<bool, store::Error> {
    let row: RunRow = changes.get(&key(record.run_id))?.unwrap_or_default();
    let head = stored(head);
    let moved = row.head != head;
    if moved {
        let wrote_at_millis = if record.kind.unclaimed() { row.wrote_at_millis } else { at.logged_at_millis };
        changes.put(key(record.run_id), &RunRow { head, wrote_at_millis, ..row });
    }
    Ok(moved)
}
