//! The judge's view of a run.

use super::{changes::Changes, checkpoints, effects, evolving};
use crate::index::store::{
    self, Rows,
    checkpoints::{CheckpointRow, by_id},
};
use runlog_schemas::{
    id::{ContentHash, Offset, RecordId, RunId},
    judge::{
        CallState, CheckpointState, FirstJudgement, Head, PendingEffect, View,
        lifecycle::{Family, State},
    },
};

/// Answers the judge's lookups from the rows of one run.
pub(super) struct RunView<'v, 'a, R> {
    pub(super) run_id: RunId<&'v str>,
    /// The offset of the judged record.
    offset: Offset,
    pub(super) changes: &'v mut Changes<'a, R>,
    /// The call that the judge read last.
    pub(super) call: Option<store::tool_calls::CallRow>,
}

impl<'v, 'a, R> RunView<'v, 'a, R> {
    pub(super) fn new(run_id: RunId<&'v str>, offset: Offset, changes: &'v mut Changes<'a, R>) -> Self {
        Self { run_id, offset, changes, call: None }
    }
}

/// The run's head for the record at `offset`, if the run has a row.
pub(super) fn head_at<R: Rows>(
    run_id: RunId<&str>,
    offset: Offset,
    changes: &Changes<'_, R>,
) -> Result<Option<Head>, store::Error> {
    let row: Option<store::runs::RunRow> = changes.get(&store::runs::key(run_id))?;
    Ok(row.map(|row| {
        let is_unclaimed = row.head.unclaimed_until.is_some_and(|until| offset < until);
        Head { is_unclaimed, ..row.head }
    }))
}

impl<R: Rows> View for RunView<'_, '_, R> {
    type Error = store::Error;

    fn head(&mut self) -> Result<Head, store::Error> {
        let head = head_at(self.run_id, self.offset, self.changes)?;
        if head.is_none() {
            self.changes.record_new_run(&store::runs::key(self.run_id));
        }
        Ok(head.unwrap_or_default())
    }

    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<FirstJudgement>, store::Error> {
        match self.changes.may_have_refusals() {
            true => store::seen(self.run_id, record_id, |key| self.changes.get(key)),
            false => self.changes.get(&store::records::by_id(self.run_id, record_id)),
        }
    }

    fn seen_conflict(
        &mut self,
        record_id: RecordId<&str>,
        content: ContentHash,
    ) -> Result<Option<FirstJudgement>, store::Error> {
        self.changes.get(&store::anomalies::by_content(self.run_id, record_id, content))
    }

    fn call(&mut self, request_record_id: RecordId<&str>) -> Result<Option<CallState>, store::Error> {
        self.call = self.changes.get(&store::tool_calls::key(self.run_id, request_record_id))?;
        Ok(self.call.as_ref().map(store::tool_calls::CallRow::state))
    }

    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, store::Error> {
        match evolving::index(family) {
            Some(index) => Ok(evolving::row(index, self.run_id, key, self.changes)?.map(|row| row.state)),
            None => effects::state(family, self.run_id, key, self.changes),
        }
    }

    fn pending_effect(
        &mut self,
        id: RecordId<&str>,
        basis: Option<ContentHash>,
    ) -> Result<Option<PendingEffect>, store::Error> {
        effects::pending_effect(self.run_id, (id, basis), self.offset, self.changes)
    }

    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, store::Error> {
        let row: Option<CheckpointRow> = self.changes.get(&by_id(self.run_id, checkpoint_id))?;
        Ok(row.map(|row| CheckpointState { messages: row.list.messages, pruned: row.pruned }))
    }

    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, store::Error> {
        let row: Option<CheckpointRow> = self.changes.get(&by_id(self.run_id, checkpoint_id))?;
        row.map_or(Ok(0), |row| checkpoints::bytes_of(self.changes, self.run_id, &row.list, from, count))
    }
}
