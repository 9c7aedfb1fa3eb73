//! Before a handle does anything: its turn, whether it can append, and what it still owes.

use crate::{
    Action, Error,
    held::{Held, Key, NeverStarted, Notes},
    pen::{self, Halt, Pen, Written},
    reopen,
    resume::{Open, Recorded},
    run::{Shared, State, pending_recovery},
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{JournalSeq, RecordId},
    payload::{EffectResolution, Payload},
};
use std::sync::{Arc, PoisonError};
use tokio::{
    sync::{MutexGuard, OwnedSemaphorePermit},
    time::timeout,
};

impl Pen {
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.halt, Some(Halt::Lost(_)))
    }
}

impl Shared {
    pub(crate) fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This operation's turn. Past the deadline nothing was done.
    pub(crate) async fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        let deadline = self.config.deadline;
        timeout(deadline, self.state.lock()).await.map_err(|_| {
            let message = format!("what came before on run {} is still under way after {deadline:?}", self.run_id);
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        })
    }

    /// A slot for one more call; where there is none, it waits for one up to the deadline.
    pub(crate) async fn slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(slot) = self.calls.clone().try_acquire_owned() {
            return Ok(slot);
        }
        // A handle that stands still gives no slot back.
        self.lock().await?.pen.usable()?;
        let deadline = self.config.deadline;
        let full = || {
            let message = format!("run {} has {} calls under way", self.run_id, self.config.calls_max);
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        };
        timeout(deadline, self.calls.clone().acquire_owned()).await.ok().and_then(Result::ok).ok_or_else(full)
    }

    /// Makes the handle ready to append: reopens it where a checkpoint stopped it, notes what was dropped, and records what
    /// nobody else will record. An error where it stands still.
    pub(crate) async fn ready(&self, state: &mut State) -> Result<(), Error> {
        if let Err(error) = state.pen.usable() {
            if state.pen.is_lost() {
                // What cannot be left there now is kept for the next try.
                drop(self.leave_all(state).await);
                return Err(error);
            }
            if !matches!(state.pen.halt, Some(Halt::Stopped { checkpoint: true, .. })) {
                return Err(error);
            }
            // Rare, and large: not a part of every operation's future.
            Box::pin(reopen::reopen(self, state)).await?;
        }
        self.take_notes(state);
        self.settle_never_started(state).await?;
        while let Some(held) = self.left() {
            state.pen.append(held.record_id.clone(), held.payload.clone(), None).await?;
            self.recorded(state, &held.record_id);
        }
        Ok(())
    }

    /// What was given up or did not arrive stands there again.
    pub(crate) fn take_notes(&self, state: &mut State) {
        let (abandoned, returned) = self.notes().take();
        // The last one first: each goes to the front.
        for (recorded, key) in abandoned.into_iter().rev() {
            state.resume.uncertain(recorded.id.borrow(), key.is_some());
            state.resume.put_back(key, recorded);
        }
        for recorded in returned {
            state.resume.put_back(None, recorded);
        }
    }

    pub(crate) fn left(&self) -> Option<Held> {
        self.notes().left()
    }

    /// A held result is in the log: asked for again, its call is answered from there.
    pub(crate) fn recorded(&self, state: &mut State, record_id: &RecordId) {
        let settled = self.notes().settled(record_id);
        if let Some(Held { call, key, .. }) = settled {
            state.resume.restore(key, call);
        }
    }

    /// Intents whose effect never started here. One with a key stands there again, and so does one without, behind a record
    /// that says so: that it is true is known to nobody but this process.
    async fn settle_never_started(&self, state: &mut State) -> Result<(), Error> {
        loop {
            let Some(intent) = self.notes().never_started.first().cloned() else { return Ok(()) };
            let NeverStarted { request, call, key, record_id, position } = intent;
            // Whoever has lost the run says nothing any more about what others may have done since.
            if let Some(position) = position {
                let written = Written {
                    record_id: record_id.clone(),
                    journal_seq: JournalSeq::ZERO,
                    position,
                    applied: false,
                    repeat: None,
                };
                let writer = (&state.pen.writer_id, state.pen.epoch);
                let permitted =
                    pen::permit(&self.transport, &self.config, self.run_id.borrow(), &written, writer).await;
                permitted.map_err(|error| state.pen.stop_or_lose(error))?;
            }
            if key.is_none() {
                state.pen.append(self.config.record_id()?, self.not_done(&request), None).await?;
            }
            self.stands_again(state, call, key, &record_id);
        }
    }

    /// The intent is in the journal, pending, and may run.
    pub(crate) fn stands_again(&self, state: &mut State, call: Option<Recorded>, key: Key, record_id: &RecordId) {
        if let Some(call) = call {
            let attempts = call.pending.as_ref().map_or(1, |open| open.attempts);
            let open = Open { retry_safe: true, reason: "its effect was never started".into(), attempts };
            state.resume.restore(key, Recorded { pending: Some(open), ..call });
        }
        self.notes().never_started.retain(|other| other.record_id != *record_id);
    }

    /// A decision in the handle's own name.
    pub(crate) fn not_done(&self, request: &RecordId) -> Payload {
        let resolution = EffectResolution {
            request_record_id: request.clone(),
            decision: "not_done".into(),
            result: None,
            who: format!("{}, {}", self.config.agent_id, self.config.claimed_by),
            why: "this process recorded the intent and never started the effect".into(),
        };
        Payload::EffectResolution(resolution)
    }

    /// Leaves one result as evidence.
    pub(crate) async fn leave(&self, state: &mut State, record_id: &RecordId, payload: Payload) -> Result<(), Error> {
        let record = state.pen.stowed(record_id.clone(), payload, None).await?;
        state.pen.leave(record).await
    }

    /// Leaves every held result as evidence that nobody waits for, and the one that was sent last.
    pub(crate) async fn leave_all(&self, state: &mut State) -> Result<(), Error> {
        while let Some(held) = self.left() {
            self.leave(state, &held.record_id, held.payload).await?;
            self.notes().settled(&held.record_id);
            if state.pen.sent.as_ref().is_some_and(|sent| sent.body.record_id == held.record_id) {
                state.pen.sent = None;
            }
        }
        if let Some(sent) = state.pen.sent.clone().filter(reopen::is_result) {
            state.pen.leave(sent).await?;
        }
        state.pen.sent = None;
        Ok(())
    }

    /// Everything pending in the journal that is nowhere here.
    pub(crate) async fn adopt_pending(&self, state: &mut State) -> Result<(), Error> {
        if let Some(now) = pending_recovery(&self.transport, self.run_id.borrow()).await? {
            state.resume.refresh(&now);
            let notes = self.notes();
            state.resume.adopt(&now, |id| notes.running.contains(id) || notes.holds(id));
        }
        Ok(())
    }
}

/// Slots for calls.
pub(crate) fn slots(calls_max: usize) -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(calls_max.clamp(1, tokio::sync::Semaphore::MAX_PERMITS)))
}
