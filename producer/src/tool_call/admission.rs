//! Whether the effect of a call may run: its intent or attempt is appended, and read back.

use super::{TakenCall, Tool, reconcile};
use crate::{
    config::failpoint,
    error::{Error, SideEffect},
    metrics::metric,
    session::{
        outbox::InFlightCall,
        read_back::{AckedRecord, not_own_intent, read_back, repeats_earlier, taken_over, too_late},
        replay::{Decision, PendingCall, RecordedCall},
        state::SessionState,
        unjudged::Unjudged,
    },
};
use runlog_schemas::{
    answer::ReadBack,
    id::{Epoch, Fingerprint},
    payload::{ToolCallAttempt, ToolCallRequested},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// A call whose intent or attempt is acknowledged, the number of the attempt, and its record.
type Admitted = (InFlightCall, u32, AckedRecord);

/// What is to be done for a call.
pub(super) enum Admission {
    /// It ended: its answer is recorded.
    Recorded(TakenCall),
    /// Its effect may run: so many attempts were made, this one included.
    Run(InFlightCall, u32),
}

impl Tool<'_> {
    /// Finds the recorded call or appends the intent, in one step under the handle's lock. Then reads the intent back without
    /// the lock.
    pub(super) async fn admit(
        &self,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admission, Error> {
        let session = self.session;
        let mut guard = session.lock().await?;
        session.make_ready(&mut guard).await?;
        if guard.replay.unresolved().is_some() {
            // An operator may have decided it in the meantime. An older answer may lack it because it did not know it yet.
            let now = session.transport.pending_recovery(session.run_id.borrow()).await?;
            if let Some(now) = now.filter(|now| guard.appender.check_current(now).is_ok()) {
                guard.replay.refresh(&now);
            }
        }
        let (mut in_flight, attempt, acked) =
            match guard.replay.take(&self.name, self.key.as_deref(), fingerprint.borrow()) {
                Decision::Conflict(id) => return Err(self.conflict(&id)),
                Decision::Recorded(recorded) => {
                    let taken = TakenCall::new(&session.outbox, &recorded, self.key.is_some());
                    if session.outbox.lock().running.contains(&recorded.id) {
                        return Err(self.running(&recorded.id));
                    }
                    match recorded.pending.clone() {
                        Some(pending) => self.again(&mut guard, taken, recorded, pending, slot).await?,
                        None => return Ok(Admission::Recorded(taken)),
                    }
                }
                Decision::New => self.intend(&mut guard, request, fingerprint, slot).await?,
            };
        let unknown = |error: Error| error.with_side_effect(SideEffect::Unknown);
        // What the intent's own answer said of earlier results, before another operation of the handle can report it.
        guard.appender.check_results().map_err(unknown)?;
        let (epoch, unjudged) = (guard.appender.epoch, guard.appender.unjudged.clone());
        drop(guard);
        (session.config.failpoints)(failpoint::INTENT_ACKNOWLEDGED);
        // Before the permission is looked at, which must not grow old.
        unjudged.ask_by_id(&session.transport, &session.config, session.run_id.borrow()).await.map_err(unknown)?;
        let may_run = match self.check_may_run(&acked, epoch, &unjudged).await? {
            Ok(answer) if repeats_earlier(&answer.outcome, acked.sent_after) => {
                // Not this call's: it says nothing about the effect of that one.
                in_flight.disown();
                Err(not_own_intent(session.run_id.borrow(), &acked, &answer.outcome.position))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = may_run {
            return Err(unknown(session.lock().await?.appender.stop_or_lose(error)));
        }
        if unjudged.has_refused() {
            // The effect does not run, also if another operation reports the refusal: the permission grows old meanwhile.
            let mut guard = session.lock().await.map_err(unknown)?;
            guard.appender.check_results().and_then(|()| guard.appender.check_ready()).map_err(unknown)?;
            return Err(unknown(too_late(session.run_id.borrow(), &acked, session.config.read_back)));
        }
        Ok(Admission::Run(in_flight, attempt))
    }

    /// Whether the effect of an intent, acknowledged in `epoch`, may run: the intent was applied, **and** this handle still
    /// writes the run. Both are read from one view at `latest` after the acknowledgement. A claim of another process leaves
    /// the intent applied and gives its effect to that process; one of this handle, which was reopened in the meantime, does
    /// not. Whether it was of this handle is known once a reopening that is under way has ended; an answer that is over its
    /// deadline by then is too old, because another process may have claimed the run meanwhile. A read-back that came with the
    /// acknowledgement counts from when the intent was sent.
    async fn check_may_run(
        &self,
        acked: &AckedRecord,
        epoch: Epoch,
        unjudged: &Unjudged,
    ) -> Result<Result<ReadBack, Error>, Error> {
        let session = self.session;
        let (run_id, deadline) = (session.run_id.borrow(), session.config.read_back);
        if let Some((_, begun)) = &acked.read_back {
            (session.config.failpoints)(failpoint::READ_BACK_ANSWERED);
            session.config.observe(metric::READ_BACK_SECONDS, *begun);
        }
        let told = acked.read_back.clone().filter(|(_, begun)| begun.elapsed() <= deadline);
        let (answer, begun) = match told {
            Some(told) => told,
            None => {
                let begun = Instant::now();
                match read_back(&session.transport, &session.config, run_id, acked, unjudged).await {
                    Ok(answer) => (answer, begun),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        if answer.epoch == epoch {
            return Ok(Ok(answer));
        }
        let lock = tokio::time::timeout_at(begun + deadline, session.lock()).await;
        match lock.map(|guard| guard.map(|guard| guard.appender.is_writer_since(epoch, &answer))) {
            Ok(Ok(true)) if begun.elapsed() <= deadline => Ok(Ok(answer)),
            Ok(Ok(false)) => Ok(Err(taken_over(run_id, acked, &answer))),
            Ok(Err(error)) => Err(error),
            _ => Ok(Err(too_late(run_id, acked, deadline))),
        }
    }

    /// A pending call: runs again only if that is safe, after an attempt that is read back as applied.
    async fn again(
        &self,
        state: &mut SessionState,
        taken: TakenCall,
        recorded: RecordedCall,
        pending: PendingCall,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admitted, Error> {
        let session = self.session;
        if !pending.retry_safe {
            return Err(reconcile(session.run_id.borrow(), recorded.id.borrow(), &self.name, &pending.reason));
        }
        let attempt = pending.attempts + 1;
        let payload =
            ToolCallAttempt { request_record_id: recorded.id.clone(), attempt, reason: pending.reason.clone() };
        let acked = state.appender.append_intent(session.config.record_id()?, payload.into(), None).await?;
        taken.keep();
        let call = RecordedCall { pending: Some(PendingCall { attempts: attempt, ..pending }), ..recorded };
        let by = (acked.record_id.clone(), acked.position.clone());
        Ok((InFlightCall::admitted(session.outbox.clone(), call, self.key(), by, slot), attempt, acked))
    }

    /// A new call: nothing new runs while an older effect is unresolved.
    async fn intend(
        &self,
        state: &mut SessionState,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admitted, Error> {
        let session = self.session;
        if !session.allow_unresolved
            && let Some(id) = state.replay.unresolved()
        {
            let why = "no new effect runs before it is resolved";
            return Err(reconcile(session.run_id.borrow(), id, "an earlier tool", why));
        }
        let acked =
            state.appender.append_intent(session.config.record_id()?, request.into(), self.key.as_deref()).await?;
        let pending =
            PendingCall { retry_safe: self.key.is_some(), reason: "running in this process".into(), attempts: 1 };
        let recorded = RecordedCall { id: acked.record_id.clone(), fingerprint, pending: Some(pending) };
        state.replay.add(acked.journal_seq, &self.name, self.key.as_deref(), recorded.clone());
        let by = (acked.record_id.clone(), acked.position.clone());
        Ok((InFlightCall::admitted(session.outbox.clone(), recorded, self.key(), by, slot), 1, acked))
    }
}
