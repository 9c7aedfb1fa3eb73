//! Results that are acknowledged but not known to be applied. Read-backs also request their outcomes, so that a refusal
//! is reported before the handle does anything that depends on them.
//!
//! ```text
//!   acknowledged ─▶ asked with the next read-back ─┬─ applied ─────────────▶ forgotten
//!                                                  ├─ refused ─────────────▶ reported by an operation, once
//!                                                  └─ none at its position ─▶ requested by its id
//! ```
//!
//! Their number is at most the maximum of calls in flight plus 16: a call that finds more than 16 requests all their
//! outcomes before its effect runs.

use super::outcome::{AckedRecord, refused, took_effect};
use crate::error::{Action, Error};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position},
    id::{RecordId, RunId},
};
use std::collections::VecDeque;

/// Results in one request; the server's limit.
const ASKED_MAX: usize = 16;

/// The acknowledged results of a handle without a known outcome.
#[derive(Debug, Default)]
pub(crate) struct UnjudgedResults {
    /// The oldest first.
    results: VecDeque<UnjudgedResult>,
    /// Refused results that no operation has reported yet.
    refused: VecDeque<RefusedResult>,
    /// The number of refused results so far.
    refusals: u64,
}

/// The result of a call.
#[derive(Clone, Debug)]
struct UnjudgedResult {
    /// The request.
    call: RecordId,
    record_id: RecordId,
    position: Position,
    /// Whether to look it up by id, since the journal has no record at the position: a record that was delivered twice
    /// is at its first position.
    by_id: bool,
}

/// A result that was refused after its acknowledgement.
#[derive(Clone, Debug)]
pub(crate) struct RefusedResult {
    /// The request.
    pub(crate) call: RecordId,
    pub(crate) record_id: RecordId,
    /// None if the journal no longer has it.
    pub(crate) outcome: Option<Outcome>,
}

impl RefusedResult {
    /// Makes the error of the operation that reports it.
    pub(crate) fn error(&self, run_id: RunId<&str>) -> Error {
        let Self { call, record_id, outcome } = self;
        let error = match outcome {
            Some(outcome) => refused(run_id, Some(record_id.borrow()), outcome),
            None => {
                let message = format!("record {record_id} of run {run_id} is not in the journal: it was skipped");
                let error = Error::new(ErrorKind::Conflict, Action::Reopen, message);
                error.about_run(run_id).about_record(record_id.borrow())
            }
        };
        let ends = "the journal's entry for the call is its answer";
        error.map_message(|why| format!("the result of call {call} was acknowledged, and then refused: {why}; {ends}"))
    }
}

impl UnjudgedResults {
    /// Adds the acknowledged result of `call`.
    pub(crate) fn add(&mut self, call: RecordId, acked: &AckedRecord) {
        let (record_id, position) = (acked.record_id.clone(), acked.position.clone());
        self.results.push_back(UnjudgedResult { call, record_id, position, by_id: false });
    }

    /// The positions of the oldest results, for a request.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let results = self.results.iter().filter(|result| !result.by_id).take(ASKED_MAX);
        results.map(|result| result.position.clone()).collect()
    }

    /// How many results are not judged yet.
    pub(crate) fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether one request cannot cover all results.
    pub(crate) fn are_many(&self) -> bool {
        self.results.len() > ASKED_MAX
    }

    /// Applies the outcomes of the results at `positions`, in that order; `outcomes` is empty if the backend did not report
    /// them.
    pub(crate) fn apply_outcomes(&mut self, positions: &[Position], outcomes: &[Option<Outcome>]) {
        for (position, outcome) in positions.iter().zip(outcomes) {
            let Some(at) = self.results.iter().position(|result| result.position == *position) else { continue };
            match outcome {
                Some(outcome) => self.settle(at, Some(outcome)),
                None => self.results[at].by_id = true,
            }
        }
    }

    /// The record id and the position of a result that must be looked up by its id.
    pub(crate) fn next_by_id(&self) -> Option<(RecordId, Position)> {
        let result = self.results.iter().find(|result| result.by_id)?;
        Some((result.record_id.clone(), result.position.clone()))
    }

    /// Removes the result with this record id, with its outcome.
    pub(crate) fn settle_record(&mut self, record_id: &RecordId, outcome: Option<&Outcome>) {
        if let Some(at) = self.results.iter().position(|result| result.record_id == *record_id) {
            self.settle(at, outcome);
        }
    }

    /// The number of refused results so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Whether a result was refused and no operation has reported it yet.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Removes and returns the result with this record id if it was refused and not reported yet. The caller reports
    /// it.
    pub(crate) fn take_refused_record(&mut self, record_id: &RecordId) -> Option<RefusedResult> {
        let at = self.refused.iter().position(|refused| refused.record_id == *record_id)?;
        self.refused.remove(at)
    }

    /// Removes and returns the oldest refused result that no operation has reported yet. The caller reports it before
    /// it waits for anything.
    pub(crate) fn take_refused(&mut self) -> Option<RefusedResult> {
        self.refused.pop_front()
    }

    /// Removes the result at this index, with its outcome. Without an outcome it counts as refused.
    fn settle(&mut self, at: usize, outcome: Option<&Outcome>) {
        let Some(UnjudgedResult { call, record_id, .. }) = self.results.remove(at) else { return };
        if outcome.is_none_or(|outcome| !took_effect(outcome)) {
            self.refusals += 1;
            self.refused.push_back(RefusedResult { call, record_id, outcome: outcome.cloned() });
        }
    }
}
