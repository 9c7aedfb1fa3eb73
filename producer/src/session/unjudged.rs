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

use super::{
    appender::RunAppender,
    read_back::{AckedRecord, refused, took_effect},
};
use crate::{
    config::Config,
    error::{Action, Error},
    transport::{Transport, request::AppendUntil},
};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Outcome, Position},
    id::{RecordId, RunId},
    payload::Payload,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Results in one request; the server's limit.
const ASKED_MAX: usize = 16;

/// Shared by a handle's operations. Its lock is never held across an await.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unjudged(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
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

impl Unjudged {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the acknowledged result of `call`.
    pub(crate) fn add(&self, call: RecordId, acked: &AckedRecord) {
        let (record_id, position) = (acked.record_id.clone(), acked.position.clone());
        self.lock().results.push_back(UnjudgedResult { call, record_id, position, by_id: false });
    }

    /// The positions of the oldest results, for a request.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let state = self.lock();
        let results = state.results.iter().filter(|result| !result.by_id).take(ASKED_MAX);
        results.map(|result| result.position.clone()).collect()
    }

    /// Whether all results are judged.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().results.is_empty()
    }

    /// How many results are not judged yet.
    fn len(&self) -> usize {
        self.lock().results.len()
    }

    /// Applies the outcomes of the results at `positions`, in that order; `outcomes` is empty if the backend did not report
    /// them.
    pub(crate) fn apply_outcomes(&self, positions: &[Position], outcomes: &[Option<Outcome>]) {
        let mut state = self.lock();
        for (position, outcome) in positions.iter().zip(outcomes) {
            let Some(at) = state.results.iter().position(|result| result.position == *position) else { continue };
            match outcome {
                Some(outcome) => state.settle(at, Some(outcome)),
                None => state.results[at].by_id = true,
            }
        }
    }

    /// Requests the outcomes of all results.
    pub(crate) async fn ask(&self, transport: &Transport, config: &Config, run_id: RunId<&str>) -> Result<(), Error> {
        while let [first, rest @ ..] = &self.positions()[..] {
            let before = self.len();
            let answer = transport.read_back(run_id, first, None, rest, config.read_back).await;
            let also = match answer {
                Ok(answer) => [vec![Some(answer.outcome)], answer.also].concat(),
                Err(error) if error.kind() == ErrorKind::NotFound => vec![None],
                Err(error) => return Err(error),
            };
            self.apply_outcomes(&[std::slice::from_ref(first), rest].concat(), &also);
            if self.len() == before {
                // The position has no record.
                self.ask_by_id(transport, config, run_id).await?;
            }
        }
        self.ask_by_id(transport, config, run_id).await
    }

    /// Requests by id the outcomes of results that the journal does not have at their positions. Usually there are
    /// none.
    pub(crate) async fn ask_by_id(
        &self,
        transport: &Transport,
        config: &Config,
        run_id: RunId<&str>,
    ) -> Result<(), Error> {
        loop {
            let result = self.lock().results.iter().find(|result| result.by_id).cloned();
            let Some(UnjudgedResult { record_id, position, .. }) = result else { return Ok(()) };
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

    /// Requests the outcomes of all results if one request cannot cover them, which bounds their number.
    pub(crate) async fn ask_if_many(
        &self,
        transport: &Transport,
        config: &Config,
        run_id: RunId<&str>,
    ) -> Result<(), Error> {
        if self.len() > ASKED_MAX { self.ask(transport, config, run_id).await } else { Ok(()) }
    }

    /// Whether a result must be looked up by its id.
    pub(crate) fn has_by_id(&self) -> bool {
        self.lock().results.iter().any(|result| result.by_id)
    }

    /// The number of refused results so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    /// Whether a result was refused and no operation has reported it yet.
    pub(crate) fn has_refused(&self) -> bool {
        !self.lock().refused.is_empty()
    }

    /// Removes and returns the result with this record id if it was refused and not reported yet. The caller reports
    /// it.
    pub(crate) fn take_refused_record(&self, record_id: &RecordId) -> Option<RefusedResult> {
        let mut state = self.lock();
        let at = state.refused.iter().position(|refused| refused.record_id == *record_id)?;
        state.refused.remove(at)
    }

    /// Removes and returns the oldest refused result that no operation has reported yet. The caller reports it before
    /// it waits for anything.
    pub(crate) fn take_refused(&self) -> Option<RefusedResult> {
        self.lock().refused.pop_front()
    }
}

impl State {
    /// Removes the result at this index, with its outcome. Without an outcome it counts as refused.
    fn settle(&mut self, at: usize, outcome: Option<&Outcome>) {
        let Some(UnjudgedResult { call, record_id, .. }) = self.results.remove(at) else { return };
        if outcome.is_none_or(|outcome| !took_effect(outcome)) {
            self.refusals += 1;
            self.refused.push_back(RefusedResult { call, record_id, outcome: outcome.cloned() });
        }
    }
}

impl RunAppender {
    /// As [`RunAppender::append`], for the result of `call`: the next read-back requests its outcome.
    pub(crate) async fn append_result(
        &mut self,
        call: &RecordId,
        record_id: RecordId,
        payload: Payload,
    ) -> Result<AckedRecord, Error> {
        let acked = self.append_until(record_id, payload, AppendUntil::Acknowledged).await?;
        if !acked.applied && self.transport.has(Feature::AnswerAtAck) {
            self.unjudged.add(call.clone(), &acked);
        }
        Ok(acked)
    }

    /// Requests the outcomes of all acknowledged results.
    pub(crate) async fn ask_for_results(&self) -> Result<(), Error> {
        self.unjudged.ask(&self.transport, &self.config, self.run_id.borrow()).await
    }

    /// Fails, and stops the handle, if a result was refused after its acknowledgement and no operation has reported that yet. The
    /// caller returns the error before it waits for anything.
    pub(crate) fn check_results(&mut self) -> Result<(), Error> {
        let Some(refused) = self.unjudged.take_refused() else { return Ok(()) };
        self.mark_reported(&refused.record_id);
        Err(self.stop_or_lose(refused.error(self.run_id.borrow())))
    }

    /// Checks that all acknowledged results were applied. A refusal stops the handle; a failed request does not.
    pub(crate) async fn confirm_results(&mut self) -> Result<(), Error> {
        self.ask_for_results().await?;
        self.check_results()
    }

    /// Marks the refusal of a record as reported, so that no flush reports it again.
    pub(crate) fn mark_reported(&mut self, record_id: &RecordId) {
        self.last_acked = self.last_acked.take().filter(|last| last.record_id != *record_id);
    }
}
