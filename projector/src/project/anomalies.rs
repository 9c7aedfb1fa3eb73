//! `anomalies`: what was refused, and why.

use super::{At, Changes, OfRun};
use crate::store::{
    self, Rows,
    anomalies::{by_id, key, of_run},
    records,
};
use runlog_schemas::judge::{Reason, Seen};

/// Keeps a refused record's place, reason and writer. One refused for its content is remembered by id as well, unless
/// that id already stands for another record.
pub fn refused<R: Rows>(
    record: OfRun<'_, '_>,
    at: At<'_>,
    reason: Reason,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    changes.put(key(at.offset, at.index), &super::anomaly_row(record, reason));
    changes.mark(of_run(record.run_id, at.offset, at.index));
    let id = by_id(record.run_id, record.record_id);
    if !reason.of_place() && !changes.has(&id)? && !changes.has(&records::by_id(record.run_id, record.record_id))? {
        let seen =
            Seen { content_hash: record.content_hash(), offset: at.offset, index: at.index, refused: Some(reason) };
        changes.put(id, &seen);
    }
    Ok(())
}
