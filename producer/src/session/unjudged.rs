//! Results that are acknowledged and not known to be applied. A read-back asks about them too, so that a refusal is told
//! before the handle does anything else that counts on them.
//!
//! ```text
//!   acknowledged ─▶ asked with the next read-back ─┬─ applied ─────────────▶ forgotten
//!                                                  ├─ refused ─────────────▶ told by an operation, once
//!                                                  └─ none at its position ─▶ asked by its id
//! ```
//!
//! There is at most one for each call that may be in flight: each call reads back its intent before its result is appended.

use super::read_back::{AckedRecord, refused, took_effect};
use crate::{
    config::Config,
    error::{Action, Error},
    transport::Transport,
};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position},
    id::{RecordId, RunId},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Results in one question: what a server takes.
const ASKED_MAX: usize = 16;

/// Shared by a handle's operations. Its lock is never held across an await.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unjudged(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    results: VecDeque<UnjudgedResult>,
    /// Those that were refused, until an operation tells it.
    refused: VecDeque<RefusedResult>,
}

/// The result of a call.
#[derive(Clone, Debug)]
struct UnjudgedResult {
    /// The request.
    call: RecordId,
    record_id: RecordId,
    position: Position,
    /// The journal has no record at the position: one that was delivered twice is where it was first.
    by_id: bool,
}

/// A result that was refused after its acknowledgement.
#[derive(Clone, Debug)]
pub(crate) struct RefusedResult {
    /// The request.
    pub(crate) call: RecordId,
    pub(crate) record_id: RecordId,
    /// None if the journal does not have it any more.
    pub(crate) outcome: Option<Outcome>,
}

impl RefusedResult {
    /// The error of the operation that tells it.
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
        let ends = "the call's answer is what the journal has for it";
        error.of(|why| format!("the result of call {call} was acknowledged, and then refused: {why}; {ends}"))
    }
}

impl Unjudged {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of `call` is acknowledged.
    pub(crate) fn add(&self, call: RecordId, acked: &AckedRecord) {
        let (record_id, position) = (acked.record_id.clone(), acked.position.clone());
        self.lock().results.push_back(UnjudgedResult { call, record_id, position, by_id: false });
    }

    /// Where the oldest results are, to be asked about.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let state = self.lock();
        let asked = state.results.iter().filter(|result| !result.by_id).take(ASKED_MAX);
        asked.map(|result| result.position.clone()).collect()
    }

    /// How many results are not judged yet.
    pub(crate) fn len(&self) -> usize {
        self.lock().results.len()
    }

    /// Takes in the outcomes of the results at `asked`, in that order; none if the backend did not tell them.
    pub(crate) fn judged(&self, asked: &[Position], outcomes: &[Option<Outcome>]) {
        let mut state = self.lock();
        for (position, outcome) in asked.iter().zip(outcomes) {
            let Some(at) = state.results.iter().position(|result| result.position == *position) else { continue };
            match outcome {
                Some(outcome) => state.settle(at, Some(outcome)),
                None => state.results[at].by_id = true,
            }
        }
    }

    /// Asks by their ids for the results that the journal does not have at their positions. Rare: none are there otherwise.
    pub(crate) async fn ask_by_id(
        &self,
        transport: &Transport,
        config: &Config,
        run_id: RunId<&str>,
    ) -> Result<(), Error> {
        loop {
            let asked = self.lock().results.iter().find(|result| result.by_id).cloned();
            let Some(UnjudgedResult { record_id, position, .. }) = asked else { return Ok(()) };
            let answer = transport.read_back(run_id, &position, Some(record_id.borrow()), &[], config.read_back).await;
            let outcome = match answer {
                Ok(answer) => Some(answer.outcome),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let mut state = self.lock();
            if let Some(at) = state.results.iter().position(|result| result.record_id == record_id) {
                state.settle(at, outcome.as_ref());
            }
        }
    }

    /// Whether a result was refused and no operation has told it yet.
    pub(crate) fn has_refused(&self) -> bool {
        !self.lock().refused.is_empty()
    }

    /// The refusal of the result that this record is, if no operation has told it yet: it is told now.
    pub(crate) fn take_refused_record(&self, record_id: &RecordId) -> Option<RefusedResult> {
        let mut state = self.lock();
        let at = state.refused.iter().position(|refused| refused.record_id == *record_id)?;
        state.refused.remove(at)
    }

    /// The oldest refusal that was not told yet: it is told now, so the caller must not wait for anything before it does.
    pub(crate) fn take_refused(&self) -> Option<RefusedResult> {
        self.lock().refused.pop_front()
    }
}

impl State {
    /// The result at this place has an outcome, or none.
    fn settle(&mut self, at: usize, outcome: Option<&Outcome>) {
        let Some(UnjudgedResult { call, record_id, .. }) = self.results.remove(at) else { return };
        if outcome.is_none_or(|outcome| !took_effect(outcome)) {
            self.refused.push_back(RefusedResult { call, record_id, outcome: outcome.cloned() });
        }
    }
}
