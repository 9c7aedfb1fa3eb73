//! Holds unrecorded results. `Drop` fills it and cannot await, so it has its own synchronous lock.
//!
//! ```text
//!   intent acknowledged ─▶ admitted ─▶ running ─▶ ended (its result is in the outbox) ─▶ recorded
//!   dropped there:        never started  abandoned   the result is released
//! ```
//!
//! No caller waits for a released result: the handle's next operation records it.
//!
//! All of this is bounded. A call holds one of `Config::calls_max` slots from before its intent until its result is
//! recorded, and results take up to `Config::held_bytes_max` and one result more.

use super::replay::{CallKey, PendingCall, RecordedCall};
use runlog_schemas::{answer::Position, id::RecordId, payload::Payload};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    released: bool,
    /// The call's slot.
    _slot: Option<Arc<OwnedSemaphorePermit>>,
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
    /// Removes and returns the abandoned and the returned calls.
    pub(crate) fn take_interrupted(&mut self) -> (Vec<Abandoned>, Vec<RecordedCall>) {
        (std::mem::take(&mut self.abandoned), std::mem::take(&mut self.returned))
    }

    /// Adds a result, if there is space. Returns whether there was.
    fn hold(&mut self, held: HeldResult) -> bool {
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

    /// The oldest released result. It stays in the outbox until [`Outbox::remove`].
    pub(crate) fn next_released(&self) -> Option<HeldResult> {
        self.results.iter().find(|held| held.released).cloned()
    }

    /// Removes a result that is recorded, or never will be.
    pub(crate) fn remove(&mut self, record_id: &RecordId) -> Option<HeldResult> {
        let at = self.results.iter().position(|held| held.record_id == *record_id)?;
        self.results.remove(at)
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

/// The outbox of a handle, shared by its operations and by its calls in flight. Its lock is never held across an await.
#[derive(Clone, Debug)]
pub(crate) struct SharedOutbox(Arc<Mutex<Outbox>>);

impl SharedOutbox {
    /// An empty outbox; see [`Config::held_bytes_max`](crate::Config::held_bytes_max).
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Outbox { bytes_max, ..Outbox::default() })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stage of a call in flight.
#[derive(Debug)]
enum Stage {
    Admitted { record_id: RecordId, position: Position },
    Running,
    Ended { record_id: RecordId },
    Recorded,
}

/// A call after its intent is acknowledged. On drop, it notes the state of its effect in the outbox.
#[derive(Debug)]
pub(crate) struct InFlightCall {
    outbox: SharedOutbox,
    call: RecordedCall,
    key: CallKey,
    stage: Stage,
    slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl InFlightCall {
    /// A call whose intent, or attempt, is acknowledged: the record `admitted_by`.
    pub(crate) fn admitted(
        outbox: SharedOutbox,
        call: RecordedCall,
        key: CallKey,
        admitted_by: (RecordId, Position),
        slot: OwnedSemaphorePermit,
    ) -> Self {
        outbox.lock().running.insert(call.id.clone());
        let (record_id, position) = admitted_by;
        Self { outbox, call, key, stage: Stage::Admitted { record_id, position }, slot: Some(Arc::new(slot)) }
    }

    pub(crate) fn id(&self) -> &RecordId {
        &self.call.id
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Marks the start of the effect.
    pub(crate) fn start(&mut self) {
        self.stage = Stage::Running;
    }

    /// Marks the end of the effect, with the result `payload`. Returns whether the outbox has space for it.
    pub(crate) fn end(&mut self, record_id: &RecordId, payload: Payload, bytes: usize) -> bool {
        let result = HeldResult {
            record_id: record_id.clone(),
            payload,
            bytes,
            call: RecordedCall { pending: None, ..self.call.clone() },
            key: self.key.clone(),
            released: false,
            _slot: self.slot.clone(),
        };
        let fits = self.outbox.lock().hold(result);
        if fits {
            self.stage = Stage::Ended { record_id: record_id.clone() };
        }
        fits
    }

    /// Marks that another call sent the intent before: this process knows nothing about its effect.
    pub(crate) fn disown(&mut self) {
        self.stage = Stage::Recorded;
    }

    /// Marks the result as recorded.
    pub(crate) fn mark_recorded(&mut self) {
        if let Stage::Ended { record_id } = std::mem::replace(&mut self.stage, Stage::Recorded) {
            self.outbox.lock().remove(&record_id);
        }
    }

    /// Marks that the result can never be recorded: the call stays pending.
    pub(crate) fn mark_unrecordable(&mut self) {
        self.mark_recorded();
        self.stage = Stage::Running;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Recorded);
        let (call, key) = (self.call.clone(), self.key.take());
        let mut outbox = self.outbox.lock();
        outbox.running.remove(&call.id);
        match stage {
            Stage::Admitted { record_id, position } => {
                let position = Some(position);
                let (request, call) = (call.id.clone(), Some(call));
                outbox.never_started.push(NeverStarted { request, call, key, record_id, position });
            }
            Stage::Running => {
                let reason = "cancelled while the effect ran: it may have happened".into();
                let attempts = call.pending.as_ref().map_or(1, |pending| pending.attempts);
                let pending = PendingCall { retry_safe: key.is_some(), reason, attempts };
                outbox.abandoned.push((RecordedCall { pending: Some(pending), ..call }, key));
            }
            Stage::Ended { record_id } => drop(outbox.release(&record_id)),
            Stage::Recorded => {}
        }
    }
}
