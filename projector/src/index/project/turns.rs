//! `turns`: conversation turns by message id.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    Rows, facts,
    turns::{TurnRow, key},
};

/// Projects a turn.
pub fn project<R: Rows>(record: RunRecord<'_, '_>, at: RecordContext<'_>, changes: &mut Changes<'_, R>) {
    let Some(message_id) = record.facts.key.as_deref() else { return };
    let validity = facts::validity(&record);
    let row = TurnRow { record_id: record.record_id.to_owned(), journal_seq: record.journal_seq, validity };
    changes.put(key(record.run_id, message_id, at.offset, at.index), &row);
}
