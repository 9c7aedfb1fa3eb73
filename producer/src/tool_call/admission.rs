//! Decides whether the effect of a call may run: appends its intent or attempt, and reads it back.

use super::{TakenCall, Tool, reconcile};
use crate::{
    config::failpoint,
    error::{Error, SideEffect},
    metrics::metric,
    session::{
        build::build_record,
        intents::{Admitted, Intent},
        outbox::InFlightCall,
        places::{Place, earlier_late, not_started},
        read_back::{
            AckedRecord, is_of_another_epoch, not_own_intent, read_back, repeats_earlier, sent_too_long_ago,
            taken_over, too_late,
        },
        replay::{Decision, PendingCall, RecordedCall},
        sent_at::{START_WITHIN, SentAt},
        state::SessionState,
        unjudged::Unjudged,
    },
};
use futures_util::FutureExt;
use runlog_schemas::{
    answer::{ErrorKind, Feature, Pending, ReadBack},
    id::{ContentHash, Epoch, Fingerprint, RecordId},
    payload::{Payload, ToolCallAttempt, ToolCallRequested},
    record::Unresolved,
};
use std::pin::pin;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::{timeout, timeout_at},
};

/// How to continue a call.
pub(super) enum Admission {
    /// The call has ended: its answer is recorded.
    Recorded(TakenCall),
    /// Its effect may run; with the number of attempts, including this one.
    Run(InFlightCall, u32),
}

/// The record that a call appends.
struct ToIntend {
    payload: Payload,
    /// The call's state after the acknowledgement, and the number of the attempt.
    call: RecordedCall,
    attempt: u32,
    /// For an attempt: the pending call.
    taken: Option<TakenCall>,
    /// For an attempt: the call's state that permits it, if the server supports bases.
    basis: Option<ContentHash>,
}

/// A read-back that permits an effect, and when it was requested.
type Permission = (ReadBack, SentAt);

impl Tool<'_> {
    /// Finds the recorded call or appends the intent, in the order of the calls. Then reads the intent back,
    /// concurrently with other calls. If the effect of an earlier open call may not run, this call's effect does not
    /// run either.
    pub(super) async fn admit(
        &self,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        slot: OwnedSemaphorePermit,
    ) -> Result<Admission, Error> {
        let session = self.session;
        let mut guard = session.lock().await?;
        let ready = session.make_ready_for_intent(&mut guard).await;
        let ended = guard.ended_or(ready)?;
        if guard.intents.has_key(&self.key()) {
            // The other call with this key decides the answer, once it is acknowledged or settled.
            session.make_ready(&mut guard).await?;
        }
        if ended.is_some() || guard.replay.unresolved().is_some() || guard.replay.has_revocable() {
            // A server's answer would lack intents in flight.
            guard.drain_intents().await;
            // An operator may have decided the call meanwhile, or evidence may have revoked a decision. An answer older
            // than this handle's records is ignored: it may lack pending calls.
            let now = session.transport.pending_recovery(session.run_id.borrow()).await?;
            if let Some(now) = now.filter(|now| guard.appender.check_current(now).is_ok()) {
                guard.replay.refresh(&now);
            }
        }
        let record_id = session.config.record_id()?;
        let names_basis = session.transport.has(Feature::Bases);
        let ToIntend { payload, call, attempt, taken, basis } =
            match guard.replay.take(&self.name, self.key.as_deref(), fingerprint.borrow()) {
                Decision::Conflict(id) => return Err(self.conflict(&id)),
                Decision::Recorded(recorded) => {
                    let taken = TakenCall::new(&session.outbox, &recorded, self.key.is_some());
                    if session.outbox.lock().running.contains(&recorded.id) {
                        return Err(self.running(&recorded.id));
                    }
                    match recorded.pending.clone() {
                        None => return Ok(Admission::Recorded(taken)),
                        Some(pending) => {
                            let (pending, basis) = if names_basis {
                                match self.pending_now(&recorded.id).await? {
                                    // The call ended meanwhile.
                                    None => return Ok(Admission::Recorded(taken)),
                                    Some(now) => (PendingCall::from(&now), now.basis),
                                }
                            } else {
                                (pending, None)
                            };
                            if let Some(ended) = ended.filter(|_| pending.retry_safe) {
                                return Err(self.not_again(&recorded.id, ended));
                            }
                            self.again(taken, recorded, pending, basis)?
                        }
                    }
                }
                Decision::New => match ended {
                    Some(ended) => return Err(self.not_new(ended)),
                    None => self.intend(&guard, request, fingerprint, record_id.clone())?,
                },
            };
        let key = self.key.as_deref().filter(|_| taken.is_none());
        let building =
            build_record(&session.transport, &session.config, session.run_id.borrow(), (record_id, payload, key));
        let mut building = pin!(building);
        let mut record = match building.as_mut().now_or_never() {
            Some(record) => record?,
            None => {
                // The content is stored first. Calls whose intents are in flight must not wait for that.
                guard.drain_intents().await;
                building.await?
            }
        };
        let facts = &mut record.body.facts;
        if taken.is_some() {
            (facts.basis, facts.attempt) = (basis, basis.map(|_| attempt));
        } else if names_basis {
            facts.unresolved = Some(if session.allow_unresolved { Unresolved::Allow } else { Unresolved::Refuse });
            facts.repeatable = self.repeatable.then_some(true);
        }
        let permit = session.permit(&mut guard, &record).await?;
        let trace = (session.config.traceparent)();
        let (reply, answer) = oneshot::channel();
        let (key, tool) = (self.key(), self.name.clone());
        let place = guard.intents.places.next();
        let intent = Intent { record, trace, call, attempt, key, tool, taken, slot, permit, place, reply };
        let admitted = session.append_intent(guard, intent, answer).await?;
        (session.config.failpoints)(failpoint::INTENT_ACKNOWLEDGED);
        let Admitted { call, attempt, acked, epoch, place, unjudged, refusals } = admitted;
        match self.permit(call, acked, epoch, (&unjudged, refusals), &place).await {
            Ok(call) => Ok(Admission::Run(call, attempt)),
            Err(error) => {
                place.fail(&error);
                Err(error)
            }
        }
    }

    /// Reads an acknowledged intent back, and waits for the verdicts on earlier calls. Fails if a result was refused
    /// after the intent was sent; `refusals` is the count at that time.
    async fn permit(
        &self,
        mut in_flight: InFlightCall,
        mut acked: AckedRecord,
        epoch: Epoch,
        (unjudged, refusals): (&Unjudged, u64),
        place: &Place,
    ) -> Result<InFlightCall, Error> {
        let session = self.session;
        let (transport, config, run_id) = (&session.transport, &session.config, session.run_id.borrow());
        let unknown = |error: Error| error.with_side_effect(SideEffect::Unknown);
        let may_run = loop {
            // Asks before it fetches the permission, which must be used while it is fresh.
            unjudged.ask_by_id(transport, config, run_id).await.map_err(unknown)?;
            unjudged.ask_if_many(transport, config, run_id).await.map_err(unknown)?;
            match self.check_may_run(&acked, epoch, unjudged).await.map_err(unknown)? {
                Ok((answer, _))
                    if repeats_earlier(&answer.outcome, acked.sent_after)
                        || is_of_another_epoch(&answer.outcome, epoch) =>
                {
                    // The outcome belongs to another call's record, so it says nothing about this call's effect.
                    in_flight.disown();
                    break Err(not_own_intent(run_id, &acked, &answer.outcome.position));
                }
                Ok((_, requested_at)) => {
                    // Bounded, because an earlier call may never be polled.
                    match timeout(config.read_back, place.earlier_failed()).await {
                        Ok(None) => {}
                        Ok(Some(error)) => return Err(not_started(in_flight.id(), &error)),
                        Err(_) => {
                            let error = earlier_late(in_flight.id(), config.read_back);
                            place.fail_with_earlier(&error);
                            break Err(error);
                        }
                    }
                    if acked.sent_at.age() > START_WITHIN {
                        break Err(sent_too_long_ago(run_id, &acked));
                    }
                    if requested_at.age() <= config.read_back && !unjudged.has_by_id() {
                        break Ok(());
                    }
                    // The permission expired during an earlier call's read-back.
                    acked.read_back = None;
                }
                Err(error) => {
                    // Another call waited too long for this unpolled call and stopped the handle, which may be ready
                    // again.
                    if error.kind() == ErrorKind::Stale
                        && let Some(other) = place.failure()
                    {
                        return Err(not_started(in_flight.id(), &other));
                    }
                    break Err(error);
                }
            }
        };
        if let Err(error) = may_run {
            // Calls that fail because of this one get the error with which the handle stops.
            let error = if error.kind() == ErrorKind::Fenced { error } else { error.stopping() };
            // Fails the place before waiting for the lock, since the call may be cancelled there.
            place.fail(&error);
            let stopped = session.lock().await.map(|mut state| {
                // Fails the calls whose intents were sent meanwhile, too.
                place.fail_later(&error);
                state.appender.stop_or_lose(error.clone())
            });
            return Err(unknown(stopped.unwrap_or(error)));
        }
        if unjudged.refusals() != refusals {
            // The effect does not run, even if another operation reports the refusal: the permission expires meanwhile.
            let mut guard = session.lock().await.map_err(unknown)?;
            guard.appender.check_results().and_then(|()| guard.appender.check_ready()).map_err(unknown)?;
            return Err(unknown(too_late(run_id, &acked, config.read_back)));
        }
        Ok(in_flight)
    }

    /// Whether the effect of an intent, acknowledged in `epoch`, may run: the intent was applied, **and** this handle
    /// still writes the run. Both come from one view at `latest` after the acknowledgement.
    ///
    /// After another process claims the run, the intent stays applied, but its effect belongs to that process. A claim
    /// of this handle, which was reopened meanwhile, does not change that. Whose claim it was is known after a
    /// reopening in progress has ended. An answer past its deadline by that time is too old, since another process may
    /// have claimed the run.
    ///
    /// A read-back that came with the acknowledgement counts from when the intent was sent.
    async fn check_may_run(
        &self,
        acked: &AckedRecord,
        epoch: Epoch,
        unjudged: &Unjudged,
    ) -> Result<Result<Permission, Error>, Error> {
        let session = self.session;
        let (run_id, deadline) = (session.run_id.borrow(), session.config.read_back);
        if acked.read_back.is_some() {
            (session.config.failpoints)(failpoint::READ_BACK_ANSWERED);
            session.config.observe(metric::READ_BACK_SECONDS, acked.sent_at.instant);
        }
        let (answer, requested_at) = match acked.read_back.clone().filter(|_| acked.sent_at.age() <= deadline) {
            Some(answer) => (answer, acked.sent_at),
            None => {
                let requested_at = SentAt::now(&session.config);
                match read_back(&session.transport, &session.config, run_id, acked, unjudged).await {
                    Ok(answer) => (answer, requested_at),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        if answer.epoch == epoch {
            return Ok(Ok((answer, requested_at)));
        }
        let lock = timeout_at(requested_at.instant + deadline, session.lock()).await;
        match lock.map(|guard| guard.map(|guard| guard.appender.is_writer_since(epoch, &answer))) {
            Ok(Ok(true)) if requested_at.age() <= deadline => Ok(Ok((answer, requested_at))),
            Ok(Ok(false)) => Ok(Err(taken_over(run_id, acked, &answer))),
            Ok(Err(error)) => Err(error),
            _ => Ok(Err(too_late(run_id, acked, deadline))),
        }
    }

    /// Reads the pending call from the journal. Returns none if it is no longer pending.
    async fn pending_now(&self, call: &RecordId) -> Result<Option<Pending>, Error> {
        let session = self.session;
        let now = session.transport.pending_recovery(session.run_id.borrow()).await?;
        Ok(now.and_then(|now| now.pending.into_iter().find(|pending| pending.id == *call)))
    }

    /// Makes the error of a call that could run again, but whose run has ended.
    fn not_again(&self, id: &RecordId, ended: Error) -> Error {
        let (run_id, tool) = (&self.session.run_id, &self.name);
        let left = format!("call {id} of {tool} did not end, and is not run again");
        let decide = format!("find out whether it happened, then `runlog effects resolve {run_id} {id} …`");
        ended.map_message(|ended| format!("{ended}; {left}; {decide}")).about_record(id.borrow())
    }

    /// Makes the error of a new call in a run that has ended.
    fn not_new(&self, ended: Error) -> Error {
        ended.map_message(|ended| format!("{ended}; no recorded call answers this one of {}", self.name))
    }

    /// Prepares an attempt of a pending call. The call runs again only if that is safe, after its attempt is read back
    /// as applied.
    fn again(
        &self,
        taken: TakenCall,
        recorded: RecordedCall,
        pending: PendingCall,
        basis: Option<ContentHash>,
    ) -> Result<ToIntend, Error> {
        if !pending.retry_safe {
            return Err(reconcile(self.session.run_id.borrow(), recorded.id.borrow(), &self.name, &pending.reason));
        }
        // A server may send any number.
        let attempt = pending.attempts.saturating_add(1);
        let payload =
            ToolCallAttempt { request_record_id: recorded.id.clone(), attempt, reason: pending.reason.clone() };
        let call = RecordedCall { pending: Some(PendingCall { attempts: attempt, ..pending }), ..recorded };
        Ok(ToIntend { payload: payload.into(), call, attempt, taken: Some(taken), basis })
    }

    /// Prepares the intent of a new call. No new effect runs while an older effect is unresolved.
    fn intend(
        &self,
        state: &SessionState,
        request: ToolCallRequested,
        fingerprint: Fingerprint,
        id: RecordId,
    ) -> Result<ToIntend, Error> {
        let session = self.session;
        if !session.allow_unresolved
            && let Some(id) = state.replay.unresolved()
        {
            let why = "no new effect runs before it is resolved";
            return Err(reconcile(session.run_id.borrow(), id, "an earlier tool", why));
        }
        let retry_safe = self.key.is_some() || (self.repeatable && session.transport.has(Feature::Bases));
        let pending = PendingCall { retry_safe, reason: "running in this process".into(), attempts: 1 };
        let call = RecordedCall { id, fingerprint, pending: Some(pending) };
        Ok(ToIntend { payload: request.into(), call, attempt: 1, taken: None, basis: None })
    }
}
