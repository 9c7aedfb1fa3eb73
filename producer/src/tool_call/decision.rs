//! Decides by the recorded calls how a call continues, and builds the record of its intent or attempt.

use super::call_spec::CallSpec;
use crate::{
    error::{Action, Error},
    session::{
        replay::{Decision, PendingCall, RecordedCall},
        state::SessionState,
        taken_call::TakenCall,
    },
};
use futures_util::FutureExt;
use runlog_schemas::{
    answer::{ErrorKind, Feature, Pending},
    id::{ContentHash, Fingerprint, RecordId},
    payload::{Payload, ToolCallAttempt, ToolCallRequested},
    record::{JournalRecord, Unresolved},
};
use std::pin::pin;

/// The next step of a call that does not fail.
pub(super) enum Step {
    /// The call has ended: its answer is recorded.
    Answer(TakenCall),
    /// The call appends a record.
    Append(Box<ToIntend>),
}

impl Step {
    fn append(to_intend: ToIntend) -> Self {
        Self::Append(Box::new(to_intend))
    }
}

/// The record that a call appends.
pub(super) struct ToIntend {
    pub(super) payload: Payload,
    /// The call's state after the acknowledgement, and the number of the attempt.
    pub(super) call: RecordedCall,
    pub(super) attempt: u32,
    /// For an attempt: the pending call.
    pub(super) taken: Option<TakenCall>,
    /// For an attempt: the call's state that permits it, if the server supports bases.
    pub(super) basis: Option<ContentHash>,
}

/// Makes the handle ready for the call, and its recorded calls current. Returns the error of a run that has ended.
pub(super) async fn make_ready(spec: &CallSpec<'_>, state: &mut SessionState) -> Result<Option<Error>, Error> {
    let (session, client) = (spec.session, &spec.session.client);
    let ready = session.make_ready_for_intent(state).await;
    let ended = state.ended_or(ready)?;
    if state.intents.has_key(&spec.key()) {
        // The other call with this key decides the answer, once it is acknowledged or settled.
        session.make_ready(state).await?;
    }
    if ended.is_some() || state.replay.unresolved().is_some() || state.replay.has_revocable() {
        // A server's answer would lack intents in flight.
        state.drain_intents().await;
        // An operator may have decided the call meanwhile, or evidence may have revoked a decision. An answer older
        // than this handle's records is ignored: it may lack pending calls.
        let now = client.transport.pending_recovery(client.id()).await?;
        if let Some(now) = now.filter(|now| state.appender.check_current(now).is_ok()) {
            if ended.is_none() {
                state.appender.check_not_taken_over(&now)?;
            }
            state.replay.refresh(&now);
        }
    }
    Ok(ended)
}

/// Decides by the recorded calls how the call continues. `ended` is the error of a run that has ended.
pub(super) async fn decide(
    spec: &CallSpec<'_>,
    state: &mut SessionState,
    (request, fingerprint, record_id): (ToolCallRequested, Fingerprint, RecordId),
    ended: Option<Error>,
) -> Result<Step, Error> {
    let client = &spec.session.client;
    let recorded = match state.replay.take(&spec.name, spec.key.as_deref(), fingerprint.borrow()) {
        Decision::Conflict(id) => return Err(conflict(spec, &id)),
        Decision::Recorded(recorded) => recorded,
        Decision::New => match ended {
            Some(ended) => return Err(not_new(spec, ended)),
            None => return intend(spec, state, request, fingerprint, record_id).map(Step::append),
        },
    };
    let taken = TakenCall::new(&client.shared, &recorded, spec.key.is_some());
    if client.shared.lock().outbox.running.contains(&recorded.id) {
        return Err(running(spec, &recorded.id));
    }
    let Some(pending) = recorded.pending.clone() else { return Ok(Step::Answer(taken)) };
    let (pending, basis) = if client.transport.has(Feature::Bases) {
        match pending_now(state, &recorded.id, ended.is_some()).await? {
            // The call ended meanwhile.
            None => return Ok(Step::Answer(taken)),
            Some(now) => (PendingCall::from(&now), now.basis),
        }
    } else {
        (pending, None)
    };
    match ended.filter(|_| pending.retry_safe) {
        Some(ended) => Err(not_again(spec, &recorded.id, ended)),
        None => again(spec, taken, recorded, pending, basis).map(Step::append),
    }
}

/// Builds the record of an intent, or of an attempt with its number and basis. Stores a payload that is too large.
pub(super) async fn build_intent(
    spec: &CallSpec<'_>,
    state: &mut SessionState,
    (record_id, payload): (RecordId, Payload),
    attempt_at: Option<(u32, Option<ContentHash>)>,
) -> Result<JournalRecord, Error> {
    let client = &spec.session.client;
    let key = spec.key.as_deref().filter(|_| attempt_at.is_none());
    let mut building = pin!(client.build_record(record_id, payload, key));
    let mut record = match building.as_mut().now_or_never() {
        Some(record) => record?,
        None => {
            // The content is stored first. Calls whose intents are in flight must not wait for that.
            state.drain_intents().await;
            building.await?
        }
    };
    let facts = &mut record.body.facts;
    if let Some((attempt, basis)) = attempt_at {
        (facts.basis, facts.attempt) = (basis, basis.map(|_| attempt));
    } else if client.transport.has(Feature::Bases) {
        let allow = spec.session.allow_unresolved;
        facts.unresolved = Some(if allow { Unresolved::Allow } else { Unresolved::Refuse });
        facts.repeatable = spec.repeatable.then_some(true);
    }
    Ok(record)
}

/// Reads the pending call from the journal. Returns none if it is no longer pending. Fails if another process has the run, unless the
/// run has ended: the call's answer may be for another call of that process.
async fn pending_now(state: &mut SessionState, call: &RecordId, has_ended: bool) -> Result<Option<Pending>, Error> {
    let client = &state.appender.client;
    let now = client.transport.pending_recovery(client.id()).await?;
    if let Some(now) = now.as_ref().filter(|_| !has_ended) {
        state.appender.check_not_taken_over(now)?;
    }
    Ok(now.and_then(|now| now.pending.into_iter().find(|pending| pending.id == *call)))
}

/// Prepares an attempt of a pending call. The call runs again only if that is safe, after its attempt is read back
/// as applied.
fn again(
    spec: &CallSpec<'_>,
    taken: TakenCall,
    recorded: RecordedCall,
    pending: PendingCall,
    basis: Option<ContentHash>,
) -> Result<ToIntend, Error> {
    if !pending.retry_safe {
        return Err(spec.pending(&recorded.id, &pending.reason));
    }
    // A server may send any number.
    let attempt = pending.attempts.saturating_add(1);
    let payload = ToolCallAttempt { request_record_id: recorded.id.clone(), attempt, reason: pending.reason.clone() };
    let call = RecordedCall { pending: Some(PendingCall { attempts: attempt, ..pending }), ..recorded };
    Ok(ToIntend { payload: payload.into(), call, attempt, taken: Some(taken), basis })
}

/// Prepares the intent of a new call. No new effect runs while an older effect is unresolved.
fn intend(
    spec: &CallSpec<'_>,
    state: &SessionState,
    request: ToolCallRequested,
    fingerprint: Fingerprint,
    id: RecordId,
) -> Result<ToIntend, Error> {
    let session = spec.session;
    if !session.allow_unresolved
        && let Some(id) = state.replay.unresolved()
    {
        return Err(spec.pending_of(&id.to_owned(), "an earlier tool", "no new effect runs before it is resolved"));
    }
    let retry_safe = spec.key.is_some() || (spec.repeatable && session.client.transport.has(Feature::Bases));
    let pending = PendingCall { retry_safe, reason: "running in this process".into(), attempts: 1 };
    let call = RecordedCall { id, fingerprint, pending: Some(pending) };
    Ok(ToIntend { payload: request.into(), call, attempt: 1, taken: None, basis: None })
}

fn conflict(spec: &CallSpec<'_>, id: &RecordId) -> Error {
    let message = format!("the idempotency key belongs to call {id} of {}, which has other arguments", spec.name);
    Error::new(ErrorKind::Conflict, Action::FixTheInput, message).about_record(id.borrow())
}

fn running(spec: &CallSpec<'_>, id: &RecordId) -> Error {
    let message = format!("call {id} of {} is running in this process; retry when it has ended", spec.name);
    Error::new(ErrorKind::Unavailable, Action::Retry, message).about_record(id.borrow())
}

/// Makes the error of a call that could run again, but whose run has ended.
fn not_again(spec: &CallSpec<'_>, id: &RecordId, ended: Error) -> Error {
    let left = format!("call {id} of {} did not end, and is not run again", spec.name);
    let decide = spec.decide(id);
    ended.map_message(|ended| format!("{ended}; {left}; {decide}")).about_record(id.borrow())
}

/// Makes the error of a new call in a run that has ended.
fn not_new(spec: &CallSpec<'_>, ended: Error) -> Error {
    ended.map_message(|ended| format!("{ended}; no recorded call answers this one of {}", spec.name))
}
