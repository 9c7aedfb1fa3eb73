//! Continues after a failed, unknown or cancelled append, without losing or repeating a record.
//!
//! ```text
//!   stopped ─▶ claim own epoch + 1 ─▶ after it: keep the records in the log, send the others again ─▶ ready
//!                    └─ another writer has the run: append held results as evidence ─▶ claim_lost
//! ```
//!
//! After the claim, records in flight under the old epoch can no longer take effect, so reads after the claim are
//! final. A record that is sent again keeps its id and its content. It gets new sequence numbers, which are not part of
//! the content hash. If the first copy arrives after all, one of the two is a repeat or is fenced.
//!
//! Reopening can be repeated after a cancellation at any point: the claim stays the same record until its outcome is
//! known, and every record stays in the outbox until it is known to be in the log.

use super::{
    checkpoint::CheckpointBase,
    claim::{claim_lost, not_writer},
    client::RunClient,
    outbox::NeverStarted,
    outcome::{refused, took_effect},
    replay::{PendingCall, RecordedCall, Replay, pending_key},
    state::{SessionState, ends_run},
    writer_state::WriterState,
};
use crate::{error::Error, metrics::metric};
use runlog_schemas::{
    answer::{ErrorKind, OrOther, Pending, ReadBack, Recovery},
    id::RecordId,
    judge::{Class, Reason, RunStatus},
    payload::Payload,
    record::{JournalRecord, RecordKind},
};
use std::collections::BTreeSet;

/// The findings and actions of [`Run::reopen`](crate::Run::reopen). If the handle was not stopped, only `refused_results` may
/// be non-empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reopened {
    /// The number of records with an unknown append that were in the log.
    pub landed: usize,
    /// The number of appended records: records that were not in the log, and held results.
    pub appended: usize,
    /// The ids of records in the log that were refused for their content, with reasons. A result that was refused because of
    /// its number is appended again under another id; other records are not.
    pub refused: Vec<(RecordId, OrOther<Reason>)>,
    /// The calls whose result was acknowledged and then refused, with the reason. `None` if the journal skipped the record and
    /// no longer has it. The journal's entry for the call is its answer.
    pub refused_results: Vec<(RecordId, Option<OrOther<Reason>>)>,
    /// The number of intents whose effect never started: recorded as not done, and safe to request again. If the server refuses
    /// that decision, the call stays pending and is not counted.
    pub not_done: usize,
}

impl Reopened {
    /// Adds the findings and actions of a later reopening.
    pub(crate) fn add(&mut self, later: Self) {
        let Self { landed, appended, refused, refused_results, not_done } = later;
        self.landed += landed;
        self.appended += appended;
        self.refused.extend(refused);
        self.refused_results.extend(refused_results);
        self.not_done += not_done;
    }
}

/// Reopens the handle; see [`Run::reopen`](crate::Run::reopen).
pub(crate) async fn reopen(state: &mut SessionState) -> Result<Reopened, Error> {
    // This notices a cancelled append.
    drop(state.appender.check_ready());
    match &state.appender.state {
        WriterState::Ready => return Ok(Reopened::default()),
        WriterState::Ended(error) => {
            let ended = error.without_side_effect();
            // The evidence of calls that outlived the run.
            return Err(state.append_all_evidence().await.err().map_or(ended, Error::stopping));
        }
        WriterState::Lost(_) => return Err(lose(state).await),
        WriterState::Stopped { .. } => {}
    }
    match resume(state).await {
        Err(error) if matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced) => Err(lose(state).await),
        Err(error) => Err(error.stopping()),
        Ok(done) => {
            let RunClient { config, run_id, .. } = &state.appender.client;
            config.count(metric::REOPENED);
            tracing::info!(run = run_id.as_str(), epoch = state.appender.numbers.epoch.get(), ?done, "reopened");
            Ok(done)
        }
    }
}

async fn resume(state: &mut SessionState) -> Result<Reopened, Error> {
    let head = take_over(state).await?;
    let mut done = Reopened::default();
    state.appender.client.ask_for_results().await?;
    if head.status != RunStatus::Open {
        end(state, head.status.as_str()).await?;
        return Ok(done);
    }
    state.restore_interrupted();
    settle_unacknowledged(state, &head, &mut done).await?;
    settle_unknown_intents(state, &head, &mut done).await?;
    if let WriterState::Ended(_) = state.appender.state {
        state.append_all_evidence().await?;
        return Ok(done);
    }
    settle_held(state, &head, &mut done).await?;
    let now = state.adopt_pending().await?;
    decide_never_started(state, &now, &mut done).await?;
    state.appender.state = WriterState::Ready;
    Ok(done)
}

/// Claims the epoch after this handle's own, and returns the head after the claim. A run that this handle ended needs no claim.
async fn take_over(state: &mut SessionState) -> Result<Recovery, Error> {
    // Reads the run at `latest`, with all that is pending.
    let before = state.appender.client.pending_recovery().await?;
    if state.appender.numbers.is_writer_in(Some(&before)) {
        if before.status != RunStatus::Open {
            return Ok(before);
        }
        decide_before_the_claim(state, &before).await?;
    }
    let client = state.appender.client.clone();
    state.appender.take_over(Some(before), async { client.pending_recovery().await.map(Some) }).await
}

/// Records, in the epoch of their intents, which effects never started. After the claim, a server accepts that record
/// only from a credential with the scope `resolve`. [`decide_never_started`] handles intents that land after `before`
/// was read.
async fn decide_before_the_claim(state: &mut SessionState, before: &Recovery) -> Result<(), Error> {
    let unknown = state
        .intents
        .unknown
        .iter()
        .map(|JournalRecord { body, .. }| body.facts.answers.as_ref().unwrap_or(&body.record_id));
    let mut never_started: BTreeSet<RecordId> = unknown.cloned().collect();
    never_started.extend(state.shared().outbox.never_started.iter().map(|intent| intent.request.clone()));
    let undecided = |pending: &&Pending| pending.class != Class::RetrySafe && pending.evidence.is_empty();
    for pending in before.pending.iter().filter(undecided).filter(|pending| never_started.contains(&pending.id)) {
        state.leave_not_done(&pending.id).await?;
    }
    Ok(())
}

/// Another process has the run. Held results are appended as evidence first; if that fails, the next call tries again.
async fn lose(state: &mut SessionState) -> Error {
    let lost = claim_lost(state.appender.client.id());
    if !state.appender.state.is_lost() {
        state.appender.lose(lost.clone());
    }
    state.shared().outbox.never_started.clear();
    match state.append_all_evidence().await {
        Ok(()) => lost,
        Err(error) => error.stopping(),
    }
}

/// Handles that the handle's own record ended the run: later results are evidence.
async fn end(state: &mut SessionState, status: &str) -> Result<(), Error> {
    state.append_all_evidence().await?;
    state.end(status);
    Ok(())
}

/// Reads the outcome of a record by its id, at least as of the position of `head`, which was read after the claim. A
/// server that has not reached this position would report that the record is not in the log.
async fn outcome(state: &SessionState, record_id: &RecordId, head: &Recovery) -> Result<Option<ReadBack>, Error> {
    let client = &state.appender.client;
    client.transport.landed(client.id(), record_id.borrow(), Some(&head.position)).await
}

/// Reads the outcome of a record that this handle sent, after the claim.
async fn landed(
    state: &SessionState,
    record_id: &RecordId,
    (head, done): (&Recovery, &mut Reopened),
) -> Result<Landed, Error> {
    let (numbers, run_id) = (&state.appender.numbers, state.appender.client.id());
    let Some(found) = outcome(state, record_id, head).await? else { return Ok(Landed::No) };
    if (&found.writer_id, found.epoch) != (&numbers.writer_id, numbers.epoch) {
        return Err(not_writer(run_id, numbers.epoch, found.epoch));
    }
    if took_effect(&found.outcome) {
        done.landed += 1;
        return Ok(Landed::Applied);
    }
    let refusal = found.outcome.outcome.known().and(found.outcome.reason.as_ref());
    let Some(reason) = refusal.cloned() else {
        return Err(refused(run_id, Some(record_id.borrow()), &found.outcome));
    };
    tracing::warn!(
        run = run_id.as_str(),
        record = record_id.as_str(),
        %reason,
        "a record whose append was unknown was refused"
    );
    done.refused.push((record_id.clone(), reason.clone()));
    Ok(Landed::Refused(reason))
}

/// The outcome of a record that was sent before the claim.
enum Landed {
    No,
    Applied,
    /// Refused for its content: it is never applied under this id.
    Refused(OrOther<Reason>),
}

/// Settles the record whose append was unknown.
async fn settle_unacknowledged(state: &mut SessionState, head: &Recovery, done: &mut Reopened) -> Result<(), Error> {
    let Some(sent) = state.appender.unacknowledged.clone() else { return Ok(()) };
    let id = sent.body.record_id.clone();
    if state.shared().outbox.release(&id) || sent.body.record_kind == RecordKind::EffectResolution {
        // The record is a held result, or a decision about an effect that never started: `decide_never_started` decides
        // again.
        state.appender.unacknowledged = None;
        return Ok(());
    }
    match landed(state, &id, (head, &mut *done)).await? {
        Landed::Applied => take_effect(state, &sent),
        Landed::Refused(_) => state.appender.unacknowledged = None,
        Landed::No => {
            let sending = state.appender.send_record(sent.clone()).await;
            if sending.as_ref().is_err_and(|error| error.kind().never_accepted()) {
                // The record is not in the log, and cannot land after the claim.
                state.appender.unacknowledged = None;
            }
            sending?;
            done.appended += 1;
            take_effect(state, &sent);
        }
    }
    Ok(())
}

/// Settles the intents whose append was unknown. An intent that is not in the log needs no record: its effect never
/// started, and its caller got an error.
async fn settle_unknown_intents(state: &mut SessionState, head: &Recovery, done: &mut Reopened) -> Result<(), Error> {
    while let Some(sent) = state.intents.unknown.front().cloned() {
        if let Landed::Applied = landed(state, &sent.body.record_id, (head, &mut *done)).await? {
            let intent = landed_intent(&mut state.replay, &sent);
            state.shared().outbox.never_started.push(intent);
        }
        state.intents.unknown.pop_front();
    }
    Ok(())
}

/// Handles an intent or attempt that is in the log after all. The request of an attempt is already known. A new request
/// is added to the recorded calls, so that it answers the same call in any state.
fn landed_intent(replay: &mut Replay, sent: &JournalRecord) -> NeverStarted {
    let (record_id, facts) = (sent.body.record_id.clone(), &sent.body.facts);
    let intent = NeverStarted { request: record_id.clone(), call: None, key: None, record_id, position: None };
    if let Some(request) = facts.answers.clone() {
        return NeverStarted { request, ..intent };
    }
    let (Some(tool), Some(fingerprint)) = (facts.tool_name.clone(), facts.fingerprint.clone()) else { return intent };
    let key = sent.body.idempotency_key.as_deref();
    let pending = PendingCall { retry_safe: true, reason: "its effect was never started".into(), attempts: 1 };
    let call = RecordedCall { id: intent.request.clone(), fingerprint, pending: Some(pending) };
    replay.add(sent.place.journal_seq, &tool, key, call.clone());
    NeverStarted { call: Some(call), key: key.map(|key| (tool, key.to_owned())), ..intent }
}

/// Records the results of effects that ran.
async fn settle_held(state: &mut SessionState, head: &Recovery, done: &mut Reopened) -> Result<(), Error> {
    while let Some(held) = state.next_released() {
        let mut record_id = held.record_id.clone();
        // An operator decided how the call ended, or must decide: the result is evidence.
        let is_settled = |reason: Reason| reason.settles_result() && !reason.may_be_resent();
        let send = match landed(state, &record_id, (head, &mut *done)).await? {
            Landed::Applied => false,
            Landed::Refused(OrOther::Known(reason)) if is_settled(reason) => false,
            // The result was refused because of its number, and can be applied as another record.
            Landed::Refused(_) => {
                let fresh = state.appender.client.config.record_id()?;
                state.shared().outbox.rename(&record_id, &fresh);
                record_id = fresh;
                true
            }
            Landed::No => true,
        };
        if send {
            if let Err(error) = send_result(state, record_id.clone(), held.payload.clone()).await {
                let (fresh, payload) = state.without_content(&held.call.id, (&record_id, &held.payload), error)?;
                send_result(state, fresh.clone(), payload).await?;
                record_id = fresh;
            }
            done.appended += 1;
        }
        state.mark_recorded(&record_id);
    }
    Ok(())
}

async fn send_result(state: &mut SessionState, record_id: RecordId, payload: Payload) -> Result<(), Error> {
    let record = state.appender.client.build_record(record_id, payload, None).await?;
    state.appender.send(record).await.map(drop)
}

/// Updates the handle for a record that is in the log.
fn take_effect(state: &mut SessionState, record: &JournalRecord) {
    state.appender.unacknowledged = None;
    let facts = &record.body.facts;
    match record.body.record_kind {
        RecordKind::CheckpointPrune => state.checkpoint_base = CheckpointBase::default(),
        RecordKind::LoopCheckpoint => {
            let next = &mut state.appender.numbers.checkpoint_seq;
            *next = facts.checkpoint_seq.map_or(0, |seq| seq.saturating_add(1)).max(*next);
        }
        _ => {}
    }
    if let Some(status) = ends_run(record) {
        state.end(status.as_str());
    }
    state.mark_recorded(&record.body.record_id);
}

/// Settles intents in the log whose effect never started. A process that resumes the run elsewhere could not know that.
async fn decide_never_started(state: &mut SessionState, head: &Recovery, done: &mut Reopened) -> Result<(), Error> {
    loop {
        let Some(intent) = state.shared().outbox.never_started.last().cloned() else { return Ok(()) };
        let pending = head.pending.iter().find(|pending| pending.id == intent.request);
        let Some((pending, call)) = pending.and_then(|pending| Some((pending, never_started(pending)?))) else {
            // The intent was refused, or an operator has decided it.
            let read_back = outcome(state, &intent.request, head).await?;
            if read_back.is_none_or(|read_back| !took_effect(&read_back.outcome)) {
                state.replay.forget(&intent.request);
            } else if let Some(call) = intent.call {
                state.replay.restore(intent.key, RecordedCall { pending: None, ..call });
            }
            state.shared().outbox.forget_never_started(&intent.record_id);
            continue;
        };
        let key = pending_key(pending);
        if key.is_none() {
            // If an earlier attempt may have had an effect, somebody else must decide.
            let settled = pending.class == Class::RetrySafe
                || (pending.evidence.is_empty() && state.decide_not_done(&call.id).await?);
            if !settled {
                if let Some(call) = RecordedCall::from_pending(pending) {
                    state.replay.restore(None, call);
                }
                state.shared().outbox.forget_never_started(&intent.record_id);
                continue;
            }
            done.not_done += 1;
        }
        state.restore_never_started(Some(call), key, &intent.record_id);
    }
}

fn never_started(pending: &Pending) -> Option<RecordedCall> {
    let mut recorded = RecordedCall::from_pending(pending)?;
    recorded.pending = recorded.pending.map(|pending| PendingCall { retry_safe: true, ..pending });
    Some(recorded)
}
