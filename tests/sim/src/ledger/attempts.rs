//! The requirements for attempts if the judge checks them: each has a permission of its own, from before it in the
//! log.

use super::Ledger;
use runlog_schemas::{payload::ToolCallAttempt, record::JournalRecord};

impl Ledger {
    /// An attempt was applied: it uses up its call's permission. A `not_done` about a process at work permits one
    /// too, which cannot be prevented.
    pub(super) fn attempted(&mut self, attempt: &ToolCallAttempt) {
        let request = attempt.request_record_id.as_str();
        let Some(call) = self.requests.get(request).and_then(|logical| self.calls.get_mut(logical)) else { return };
        let permitted = !call.spent || call.wronged;
        call.spent = true;
        self.permitted.insert((request.to_owned(), attempt.attempt), permitted);
    }

    /// A result was refused, and may be evidence: it revokes an earlier permission.
    pub(super) fn refused_result(&mut self, record: &JournalRecord) {
        let request = record.body.facts.answers.as_ref();
        let logical = request.and_then(|request| self.requests.get(request.as_str()));
        if let Some(call) = logical.and_then(|logical| self.calls.get_mut(logical)) {
            (call.spent, call.wronged) = (true, false);
        }
    }

    /// A process reports that it never started a permitted attempt: the permission is available again.
    pub(super) fn never_started(&mut self, request: &str) {
        if let Some(call) = self.requests.get(request).and_then(|logical| self.calls.get_mut(logical)) {
            call.spent = false;
        }
    }

    /// Whether an attempt had a permission; `None` if the judge does not check it, or it was not applied.
    pub(super) fn was_permitted(&self, request: &str, attempt: u32) -> Option<bool> {
        self.permitted.get(&(request.to_owned(), attempt)).copied().filter(|_| self.checks_attempts)
    }
}
