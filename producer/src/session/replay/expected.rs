//! The calls that a process which resumes is expected to make again, before it makes new ones.
//!
//! ```text
//!   recorded after the checkpoint   a  b  c
//!   requested by this process       a            then a new call: b and c were not requested
//! ```
//!
//! A program may leave out calls that failed, and pending calls that are safe to repeat without a key.

use super::{RecordedCall, Replay, pending_key};
use runlog_schemas::{
    answer::Recovery,
    id::{JournalSeq, RecordId},
    judge::{CallStatus, Class},
};
use std::collections::{BTreeMap, BTreeSet};

/// The expected calls.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The number and the tool of each request that was not requested yet.
    calls: BTreeMap<RecordId, (JournalSeq, String)>,
    /// The tools that this handle called as repeatable: leaving out their recorded calls repeats no effect.
    repeatable: BTreeSet<String>,
}

impl Expected {
    /// The calls that a recovery lists after its checkpoint.
    pub(super) fn new(recovery: &Recovery) -> Self {
        let covers = recovery.checkpoint.as_ref().map_or(JournalSeq::ZERO, |checkpoint| checkpoint.covers_journal_seq);
        let completed = recovery.completed.iter().filter(|done| done.status != CallStatus::Failed);
        let completed = completed.map(|done| (&done.id, done.journal_seq, &done.tool_name));
        let pending = recovery.pending.iter().filter(|pending| {
            let is_call = RecordedCall::from_pending(pending).is_some();
            is_call && (pending.class != Class::RetrySafe || pending_key(pending).is_some())
        });
        let pending = pending.map(|pending| (&pending.id, pending.journal_seq, &pending.tool_name));
        let after = completed.chain(pending).filter(|(_, journal_seq, _)| *journal_seq > covers);
        let calls = after.map(|(id, journal_seq, tool)| (id.clone(), (journal_seq, tool.clone()))).collect();
        Self { calls, repeatable: BTreeSet::new() }
    }

    /// Removes a call that this process requested.
    pub(super) fn mark_requested(&mut self, id: &RecordId) {
        self.calls.remove(id);
    }
}

impl Replay {
    /// Expects no recorded call of a tool any more, because its calls are repeatable.
    pub(crate) fn mark_repeatable(&mut self, tool: &str) {
        if !self.expected.repeatable.contains(tool) {
            self.expected.repeatable.insert(tool.to_owned());
        }
    }

    /// Expects no call any more: a checkpoint of this process covers them all.
    pub(crate) fn expect_no_call(&mut self) {
        self.expected.calls.clear();
    }

    /// The recorded calls after the checkpoint that this process has not requested, oldest first.
    pub(crate) fn not_requested(&self) -> Vec<RecordId> {
        let Expected { calls, repeatable } = &self.expected;
        let expected = calls.iter().filter(|(_, (_, tool))| !repeatable.contains(tool));
        let ordered: BTreeSet<_> = expected.map(|(id, (journal_seq, _))| (journal_seq, id)).collect();
        ordered.into_iter().map(|(_, id)| id.clone()).collect()
    }
}
