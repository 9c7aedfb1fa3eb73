//! Rows of objects with a lifecycle, shared by several indices.

use super::{
    changes::Changes,
    context::{RecordContext, RunRecord},
};
use crate::index::store::{
    self, INDICES, Index, Rows,
    evolving::{FactRow, StateRow, ended, fact, open},
    facts,
};
use runlog_schemas::{
    id::RunId,
    judge::lifecycle::{Family, State, StateChange, StatusReport},
};

/// The index of a family; none for effects, which have other rows.
pub(super) fn index(family: Family) -> Option<Index> {
    INDICES.into_iter().find(|index| index.lifecycle == Some(family))
}

/// Stores a record's report and the object's new state.
pub(super) fn project<R: Rows>(
    index: Index,
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    put_report(index, record, step, at, changes);
    let before = row(index, record.run_id, &step.key, changes)?;
    let has_ended = match step.change_from(before.as_ref().map(|row| &row.state.status)) {
        StateChange::Unchanged => return Ok(()),
        StateChange::Open => false,
        StateChange::Ended => true,
    };
    let began = before.as_ref().map(|row| (row.journal_seq, row.began_offset, row.began_index));
    let (journal_seq, began_offset, began_index) = began.unwrap_or((record.journal_seq, at.offset, at.index));
    let state = State {
        status: step.status.clone(),
        ended: has_ended,
        set_by: record.payload_hash(),
        has_counted_evidence: false,
    };
    let (offset, index_at) = (at.offset, at.index);
    let record_id = record.record_id.to_owned();
    let row = StateRow { state, journal_seq, began_offset, began_index, record_id, offset, index: index_at };
    put(index, record.run_id, &step.key, row, before.map(|row| row.state.ended), changes);
    Ok(())
}

/// Stores a record's report without a state change.
pub(super) fn put_report<R: Rows>(
    index: Index,
    record: RunRecord<'_, '_>,
    step: &StatusReport,
    at: RecordContext<'_>,
    changes: &mut Changes<'_, R>,
) {
    let validity = facts::validity(&record);
    let row = FactRow { status: step.status.to_string(), validity, record_id: record.record_id.to_owned() };
    changes.put(fact(index, record.run_id, &step.key, at.offset, at.index), &row);
}

/// Moves a row to the open or to the ended rows.
pub(super) fn put<R: Rows>(
    index: Index,
    run_id: RunId<&str>,
    key: &str,
    row: StateRow,
    had_ended: Option<bool>,
    changes: &mut Changes<'_, R>,
) {
    let place = |ends: bool| if ends { ended(index, run_id, key) } else { open(index, run_id, key) };
    if let Some(had_ended) = had_ended.filter(|had_ended| *had_ended != row.state.ended) {
        changes.remove(place(had_ended));
    }
    changes.put(place(row.state.ended), &row);
}

/// An object's state: one get if it is open, two otherwise.
pub(super) fn row<R: Rows>(
    index: Index,
    run_id: RunId<&str>,
    key: &str,
    changes: &Changes<'_, R>,
) -> Result<Option<StateRow>, store::Error> {
    match changes.get(&open(index, run_id, key))? {
        Some(row) => Ok(Some(row)),
        None => changes.get(&ended(index, run_id, key)),
    }
}
