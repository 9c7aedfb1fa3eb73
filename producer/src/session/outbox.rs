//! Holds unrecorded results, and dropped calls that operations must settle. No caller waits for a released result: the
//! handle's next operation records it.
//!
//! All of this is bounded. A call holds one of `Config::calls_max` slots from before its intent until its result is
//! recorded, and results take up to `Config::held_bytes_max` and one result more.

use super::replay::{CallKey, RecordedCall};
use runlog_schemas::{answer::Position, id::RecordId, payload::Payload};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use tokio::sync::OwnedSemaphorePermit;

/// The result of an effect that ran, until it is recorded. Its record keeps its id however often it is sent.
#[derive(Clone, Debug)]
pub(crate) struct HeldResult {
    pub(crate) record_id: RecordId,
    pub(crate) payload: Payload,
    pub(crate) bytes: usize,
    pub(crate) call: RecordedCall,
    pub(crate) key: CallKey,
    /// Whether no caller waits for it any more.
    pub(super) released: bool,
    /// The call's slot.
    pub(super) _slot: Option<Arc<OwnedSemaphorePermit>>,
}

/// An acknowledged intent, or attempt, whose effect this process never started.
#[derive(Clone, Debug)]
pub(crate) struct NeverStarted {
    /// The request.
    pub(crate) request: RecordId,
    /// The call, unless it is among the recorded calls already: an attempt of it, whose append was unknown.
    pub(crate) call: Option<RecordedCall>,
    pub(crate) key: CallKey,
    /// The record of the intent, or of the attempt.
    pub(crate) record_id: RecordId,
    /// The record's position; `None` if its append was unknown.
    pub(crate) position: Option<Position>,
}

/// A call that was dropped while its effect ran, with its tool and key.
pub(crate) type Abandoned = (RecordedCall, CallKey);

/// Results and calls that the handle still has to settle.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Calls in flight, by the record id of their request.
    pub(crate) running: BTreeSet<RecordId>,
    /// Calls that were dropped before their effect ended: the effect may have happened.
    pub(crate) abandoned: Vec<Abandoned>,
    /// Recorded calls that answered a call, but whose answer never reached the agent.
    pub(crate) returned: Vec<RecordedCall>,
    pub(crate) never_started: Vec<NeverStarted>,
    results: VecDeque<HeldResult>,
    /// The maximum bytes of `results`. An empty outbox accepts a result of any size.
    bytes_max: usize,
}

impl Outbox {
    /// An empty outbox; see [`Config::held_bytes_max`](crate::Config::held_bytes_max).
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Removes and returns the abandoned and the returned calls.
    pub(crate) fn take_interrupted(&mut self) -> (Vec<Abandoned>, Vec<RecordedCall>) {
        (std::mem::take(&mut self.abandoned), std::mem::take(&mut self.returned))
    }

    /// Adds a result, if there is space. Returns whether there was.
    pub(super) fn hold(&mut self, held: HeldResult) -> bool {
        let bytes: usize = self.results.iter().map(|held| held.bytes).sum();
        let fits = self.results.is_empty() || bytes + held.bytes <= self.bytes_max;
        if fits {
            self.results.push_back(held);
        }
        fits
    }

    /// Marks that no caller waits for this result any more. Returns whether the outbox has the result.
    pub(crate) fn release(&mut self, record_id: &RecordId) -> bool {
        let result = self.results.iter_mut().find(|held| held.record_id == *record_id);
        result.map(|held| held.released = true).is_some()
    }

    /// Changes the result's record id to `fresh`.
    pub(crate) fn rename(&mut self, record_id: &RecordId, fresh: &RecordId) {
        if let Some(held) = self.results.iter_mut().find(|held| held.record_id == *record_id) {
            held.record_id = fresh.clone();
        }
    }

    /// Puts another record in place of the result of a call, if the outbox has it.
    pub(super) fn replace(&mut self, request: &RecordId, record_id: &RecordId, payload: &Payload) {
        if let Some(held) = self.results.iter_mut().find(|held| held.call.id == *request) {
            (held.record_id, held.payload) = (record_id.clone(), payload.clone());
        }
    }

    /// The oldest released result. It stays in the outbox until [`Outbox::remove`].
    pub(crate) fn next_released(&self) -> Option<HeldResult> {
        self.results.iter().find(|held| held.released).cloned()
    }

    /// Removes a result that is recorded, or never will be.
    pub(crate) fn remove(&mut self, record_id: &RecordId) -> Option<HeldResult> {
        let at = self.results.iter().position(|held| held.record_id == *record_id)?;
        self.results.remove(at)
    }

    /// As [`Outbox::remove`], by the call.
    pub(super) fn remove_result_of(&mut self, request: &RecordId) -> Option<HeldResult> {
        let at = self.results.iter().position(|held| held.call.id == *request)?;
        self.results.remove(at)
    }

    /// As [`Outbox::release`], by the call.
    pub(super) fn release_result_of(&mut self, request: &RecordId) {
        if let Some(held) = self.results.iter_mut().find(|held| held.call.id == *request) {
            held.released = true;
        }
    }

    /// Removes an intent that is settled.
    pub(crate) fn forget_never_started(&mut self, record_id: &RecordId) {
        self.never_started.retain(|intent| intent.record_id != *record_id);
    }

    /// Whether something must be appended before any other record.
    pub(crate) fn is_due(&self) -> bool {
        !self.never_started.is_empty() || self.results.iter().any(|held| held.released)
    }

    /// Whether the result of this call waits to be recorded.
    pub(crate) fn holds_result_of(&self, request: &RecordId) -> bool {
        self.results.iter().any(|held| held.call.id == *request)
    }

    /// How many results wait to be recorded, and their bytes.
    pub(crate) fn count_and_bytes(&self) -> (usize, usize) {
        (self.results.len(), self.results.iter().map(|held| held.bytes).sum())
    }
}
