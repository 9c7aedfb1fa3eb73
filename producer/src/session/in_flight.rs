//! Calls in flight: each notes the state of its effect when it is dropped.
//!
//! ```text
//!   intent acknowledged ─▶ admitted ─▶ running ─▶ ended (its result is in the outbox) ─▶ recorded
//!   dropped there:        never started  abandoned   the result is released
//! ```

use super::{
    outbox::{HeldResult, NeverStarted},
    replay::{CallKey, PendingCall, RecordedCall},
    shared::Shared,
};
use runlog_schemas::{answer::Position, id::RecordId, payload::Payload};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The stage of an admitted call.
#[derive(Debug)]
enum Stage {
    Admitted { record_id: RecordId, position: Position },
    Running,
    Ended,
    Recorded,
}

/// A call after its intent is acknowledged. On drop, it notes the state of its effect in the outbox.
#[derive(Debug)]
pub(crate) struct InFlightCall {
    shared: Shared,
    call: RecordedCall,
    key: CallKey,
    stage: Stage,
    slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl InFlightCall {
    /// A call whose intent, or attempt, is acknowledged: the record `admitted_by`.
    pub(crate) fn admitted(
        shared: Shared,
        call: RecordedCall,
        key: CallKey,
        admitted_by: (RecordId, Position),
        slot: OwnedSemaphorePermit,
    ) -> Self {
        shared.lock().outbox.running.insert(call.id.clone());
        let (record_id, position) = admitted_by;
        Self { shared, call, key, stage: Stage::Admitted { record_id, position }, slot: Some(Arc::new(slot)) }
    }

    pub(crate) fn id(&self) -> &RecordId {
        &self.call.id
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Whether the outbox holds the call's result.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.lock().outbox.holds_result_of(&self.call.id)
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
        let fits = self.shared.lock().outbox.hold(result);
        if fits {
            self.stage = Stage::Ended;
        }
        fits
    }

    /// Marks that another call sent the intent before: this process knows nothing about its effect.
    pub(crate) fn disown(&mut self) {
        self.stage = Stage::Recorded;
    }

    /// Marks the result as recorded.
    pub(crate) fn mark_recorded(&mut self) {
        if let Stage::Ended = std::mem::replace(&mut self.stage, Stage::Recorded) {
            self.shared.lock().outbox.remove_result_of(&self.call.id);
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
        let outbox = &mut self.shared.lock().outbox;
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
            Stage::Ended => outbox.release_result_of(&call.id),
            Stage::Recorded => {}
        }
    }
}
