//! What a handle still owes the journal, noted where nobody can wait: in a `Drop`, while another operation has the handle.
//!
//! ```text
//!   intent acknowledged ─▶ admitted ─▶ running ─▶ ended (its result is in the outbox) ─▶ recorded
//!   dropped there:        never started  abandoned   left in the outbox
//! ```
//!
//! Everything here is bounded: a call has one of `Config::calls_max` slots from before its intent until its result is
//! recorded, and the outbox holds no more than [`HELD_BYTES_MAX`] and one result.

use crate::{
    resume::{Open, Recorded},
    run::Shared,
};
use runlog_schemas::{answer::Position, id::RecordId, payload::Payload};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of results that wait to be recorded; one more is taken whatever its size.
pub(crate) const HELD_BYTES_MAX: usize = 64 << 20;

/// The tool and the key that a call was made with.
pub(crate) type Key = Option<(String, String)>;

/// A result of an effect that ran, until it is recorded. Its record keeps its id however often it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) record_id: RecordId,
    pub(crate) payload: Payload,
    pub(crate) bytes: usize,
    pub(crate) call: Recorded,
    pub(crate) key: Key,
    /// Nobody waits for it any more: whoever uses the handle next records it.
    left: bool,
    /// The call's slot.
    _slot: Option<Arc<OwnedSemaphorePermit>>,
}

/// An acknowledged intent, or attempt, whose effect was never started by this process.
#[derive(Clone, Debug)]
pub(crate) struct NeverStarted {
    /// The request.
    pub(crate) request: RecordId,
    /// The call; none where only its record is known.
    pub(crate) call: Option<Recorded>,
    pub(crate) key: Key,
    /// The intent, or the attempt.
    pub(crate) record_id: RecordId,
    /// Where that is; none where its append was unknown.
    pub(crate) position: Option<Position>,
}

/// A call that was given up in its middle, with the tool and the key that it was made with.
pub(crate) type Abandoned = (Recorded, Key);

/// What is noted.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Calls under way, by their request's record id.
    pub(crate) running: BTreeSet<RecordId>,
    /// Given up before their effect ended: whether it happened is unknown.
    pub(crate) abandoned: Vec<Abandoned>,
    /// Recorded calls that were taken and whose answer did not arrive.
    pub(crate) returned: Vec<Recorded>,
    pub(crate) never_started: Vec<NeverStarted>,
    outbox: VecDeque<Held>,
}

impl Notes {
    /// What was abandoned and returned since.
    pub(crate) fn take(&mut self) -> (Vec<Abandoned>, Vec<Recorded>) {
        (std::mem::take(&mut self.abandoned), std::mem::take(&mut self.returned))
    }

    /// Takes a result in; not where there is no room.
    fn hold(&mut self, held: Held) -> bool {
        let bytes: usize = self.outbox.iter().map(|held| held.bytes).sum();
        let room = self.outbox.is_empty() || bytes + held.bytes <= HELD_BYTES_MAX;
        if room {
            self.outbox.push_back(held);
        }
        room
    }

    /// Nobody waits for it any more. Returns whether it is held.
    pub(crate) fn leave(&mut self, record_id: &RecordId) -> bool {
        let held = self.outbox.iter_mut().find(|held| held.record_id == *record_id);
        held.map(|held| held.left = true).is_some()
    }

    /// The result is recorded under another id from now on.
    pub(crate) fn rename(&mut self, record_id: &RecordId, fresh: &RecordId) {
        if let Some(held) = self.outbox.iter_mut().find(|held| held.record_id == *record_id) {
            held.record_id = fresh.clone();
        }
    }

    /// The oldest result that nobody waits for. It stays until it is [`Notes::settled`].
    pub(crate) fn left(&self) -> Option<Held> {
        self.outbox.iter().find(|held| held.left).cloned()
    }

    /// A result is recorded, or never will be.
    pub(crate) fn settled(&mut self, record_id: &RecordId) -> Option<Held> {
        let at = self.outbox.iter().position(|held| held.record_id == *record_id)?;
        self.outbox.remove(at)
    }

    /// Whether the end of this call waits to be recorded.
    pub(crate) fn holds(&self, request: &RecordId) -> bool {
        self.outbox.iter().any(|held| held.call.id == *request)
    }

    /// How many results wait to be recorded, and their bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.outbox.len(), self.outbox.iter().map(|held| held.bytes).sum())
    }
}

/// Where a call is.
#[derive(Debug)]
enum Stage {
    Admitted { record_id: RecordId, position: Position },
    Running,
    Ended { record_id: RecordId },
    Over,
}

/// A call under way, from its acknowledged intent on. Dropped, it notes what is known of its effect by then.
#[derive(Debug)]
pub(crate) struct UnderWay {
    shared: Arc<Shared>,
    call: Recorded,
    key: Key,
    stage: Stage,
    slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl UnderWay {
    pub(crate) fn admitted(
        shared: Arc<Shared>,
        call: Recorded,
        key: Key,
        by: (RecordId, Position),
        slot: OwnedSemaphorePermit,
    ) -> Self {
        shared.notes().running.insert(call.id.clone());
        let (record_id, position) = by;
        Self { shared, call, key, stage: Stage::Admitted { record_id, position }, slot: Some(Arc::new(slot)) }
    }

    pub(crate) fn id(&self) -> &RecordId {
        &self.call.id
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The effect is started now.
    pub(crate) fn runs(&mut self) {
        self.stage = Stage::Running;
    }

    /// The effect has ended, and `payload` says how. Returns whether there was room to hold that.
    pub(crate) fn ends(&mut self, record_id: &RecordId, payload: Payload, bytes: usize) -> bool {
        let held = Held {
            record_id: record_id.clone(),
            payload,
            bytes,
            call: Recorded { pending: None, ..self.call.clone() },
            key: self.key.clone(),
            left: false,
            _slot: self.slot.clone(),
        };
        let held = self.shared.notes().hold(held);
        if held {
            self.stage = Stage::Ended { record_id: record_id.clone() };
        }
        held
    }

    /// How it ended is recorded.
    pub(crate) fn is_over(&mut self) {
        if let Stage::Ended { record_id } = std::mem::replace(&mut self.stage, Stage::Over) {
            self.shared.notes().settled(&record_id);
        }
    }

    /// How it ended cannot be recorded, ever: the call stays pending.
    pub(crate) fn is_uncertain(&mut self) {
        self.is_over();
        self.stage = Stage::Running;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (call, key) = (self.call.clone(), self.key.take());
        let mut notes = self.shared.notes();
        notes.running.remove(&call.id);
        match stage {
            Stage::Admitted { record_id, position } => {
                let position = Some(position);
                let (request, call) = (call.id.clone(), Some(call));
                notes.never_started.push(NeverStarted { request, call, key, record_id, position });
            }
            Stage::Running => {
                let reason = "given up in its middle: the effect may have happened".into();
                let attempts = call.pending.as_ref().map_or(1, |open| open.attempts);
                let open = Open { retry_safe: key.is_some(), reason, attempts };
                notes.abandoned.push((Recorded { pending: Some(open), ..call }, key));
            }
            Stage::Ended { record_id } => drop(notes.leave(&record_id)),
            Stage::Over => {}
        }
    }
}
