//! The state that a handle's operations change, one at a time. Each operation settles the calls and results that
//! earlier ones left.

use super::{
    appender::RunAppender,
    checkpoint::CheckpointBase,
    client::RunClient,
    intents::{Ack, Intents},
    marker::{Reason, without_content},
    numbering::members,
    outbox::{HeldResult, NeverStarted},
    outcome::{AckedRecord, taken_over},
    replay::{CallKey, PendingCall, RecordedCall, Replay, pending_key},
    sent_at::SentAt,
    shared,
    writer_state::WriterState,
};
use crate::{
    error::{Action, Error},
    transport::{request::RecoveryQuery, run_without_records},
};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Pending, Recovery},
    id::{JournalSeq, RecordId},
    judge::{Class, RunStatus, lifecycle},
    payload::{EffectResolution, Payload},
    record::JournalRecord,
};
use std::sync::MutexGuard;

/// How often a result is sent as evidence before the operation fails. Each earlier try whose answer was lost can take one
/// number.
const EVIDENCE_TRIES: u32 = 3;

/// The maximum bytes of a tool and a key that are looked up: proxies limit the length of a URL.
const KEY_BYTES_MAX: usize = 1024;

/// Guarded by the session's lock: one operation at a time changes it.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) appender: RunAppender,
    pub(crate) replay: Replay,
    pub(crate) checkpoint_base: CheckpointBase,
    pub(crate) intents: Intents,
}

impl SessionState {
    /// Locks the state that calls in flight share.
    pub(crate) fn shared(&self) -> MutexGuard<'_, shared::State> {
        self.appender.client.shared.lock()
    }

    /// Settles an acknowledged append of intents, and sends waiting ones; see [`Intents::advance`].
    pub(crate) fn advance_intents(&mut self) -> Option<Ack> {
        self.intents.advance(&mut self.appender, &mut self.replay)
    }

    /// Waits until no intent is in flight or waits for another intent.
    pub(crate) async fn drain_intents(&mut self) {
        self.intents.drain(&mut self.appender, &mut self.replay).await;
    }

    /// Restores dropped calls, so that they answer the next call or block new effects.
    pub(crate) fn restore_interrupted(&mut self) {
        let (abandoned, returned) = self.shared().outbox.take_interrupted();
        for (recorded, key) in abandoned {
            // The call may be there already: reopening adopts the journal's pending calls.
            self.replay.restore(key, recorded);
        }
        for recorded in returned {
            // The call may have been decided since it was taken. As an unresolved call, it is read again before the
            // next call.
            if let Some(open) = &recorded.pending
                && !self.shared().outbox.running.contains(&recorded.id)
            {
                self.replay.mark_uncertain(recorded.id.borrow(), open.retry_safe);
            }
            self.replay.put_back(None, recorded);
        }
    }

    /// Returns the error of an ended run as a value, since the handle still answers recorded calls. Fails with any
    /// other error of `ready`.
    pub(crate) fn ended_or(&self, ready: Result<(), Error>) -> Result<Option<Error>, Error> {
        match self.appender.state.ended() {
            Some(ended) => Ok(Some(ended.without_side_effect())),
            None => ready.map(|()| None),
        }
    }

    /// Settles dropped calls.
    pub(crate) async fn settle(&mut self) -> Result<(), Error> {
        self.restore_interrupted();
        self.settle_never_started().await?;
        self.record_released().await
    }

    /// The oldest result that no caller waits for.
    pub(crate) fn next_released(&self) -> Option<HeldResult> {
        self.shared().outbox.next_released()
    }

    /// Appends the results that no caller waits for.
    pub(crate) async fn record_released(&mut self) -> Result<(), Error> {
        while let Some(HeldResult { call, record_id, payload, .. }) = self.next_released() {
            self.append_result(&call.id, record_id, payload).await?;
            self.mark_result_recorded(&call.id);
        }
        Ok(())
    }

    /// Appends the result of a call; see [`RunAppender::append_result`]. If the journal never accepts the result, a marker ends the
    /// call.
    pub(crate) async fn append_result(
        &mut self,
        call: &RecordId,
        record_id: RecordId,
        payload: Payload,
    ) -> Result<AckedRecord, Error> {
        match self.appender.append_result(call, record_id.clone(), payload.clone()).await {
            Err(error) => {
                let (record_id, payload) = self.without_content(call, (&record_id, &payload), error)?;
                self.appender.append_result(call, record_id, payload).await
            }
            acked => acked,
        }
    }

    /// The record that ends a call in place of one whose content the journal never accepts, also in the outbox. Returns the error
    /// if it has another cause.
    pub(crate) fn without_content(
        &mut self,
        call: &RecordId,
        (record_id, payload): (&RecordId, &Payload),
        error: Error,
    ) -> Result<(RecordId, Payload), Error> {
        let why = error.to_string();
        let Some(payload) = Reason::from_error(&error).and_then(|reason| without_content(payload, reason, &why)) else {
            return Err(error);
        };
        let fresh = self.appender.client.config.record_id()?;
        self.shared().outbox.replace(call, &fresh, &payload);
        if self.appender.unacknowledged.as_ref().is_some_and(|sent| sent.body.record_id == *record_id) {
            // The record is not in the log: it was refused before it was appended.
            self.appender.unacknowledged = None;
        }
        let run = self.appender.client.run_id.as_str();
        tracing::warn!(run, call = call.as_str(), "the result of a call is not recorded: {why}");
        Ok((fresh, payload))
    }

    /// Marks a held result as recorded: the journal now answers the same call.
    pub(crate) fn mark_recorded(&mut self, record_id: &RecordId) {
        let removed = self.shared().outbox.remove(record_id);
        self.restore_recorded(removed);
    }

    /// As [`SessionState::mark_recorded`], by the call.
    fn mark_result_recorded(&mut self, call: &RecordId) {
        let removed = self.shared().outbox.remove_result_of(call);
        self.restore_recorded(removed);
    }

    fn restore_recorded(&mut self, removed: Option<HeldResult>) {
        if let Some(HeldResult { call, key, .. }) = removed {
            self.replay.restore(key, call);
        }
    }

    /// Settles intents whose effect this process never started, so that the calls can run again. Unless a call may run again
    /// anyway, a record must first state that the effect did not happen, because only this process knows it.
    pub(crate) async fn settle_never_started(&mut self) -> Result<(), Error> {
        loop {
            let Some(intent) = self.shared().outbox.never_started.last().cloned() else { return Ok(()) };
            let NeverStarted { request, call, key, record_id, position } = intent;
            // A process that has lost the run does not know the later actions of others.
            if let Some(position) = position {
                let sent_at = SentAt::now(&self.appender.client.config);
                let acked = AckedRecord::new(record_id.clone(), JournalSeq::ZERO, position, sent_at);
                let answer = self.appender.read_back(&acked).await?;
                if !self.appender.is_writer_since(self.appender.numbers.epoch, &answer) {
                    let error = taken_over(self.appender.client.id(), &acked, &answer);
                    return Err(self.appender.lose(error));
                }
            }
            self.appender.check_ready()?;
            let mut now = self.adopt_pending().await?;
            if needs_not_done(&now, &request) {
                if self.decide_not_done(&request).await? {
                    self.restore_never_started(call, key, &record_id);
                    continue;
                }
                now = self.adopt_pending().await?;
            }
            self.restore_pending(&now, &request, call, key);
            self.shared().outbox.forget_never_started(&record_id);
        }
    }

    /// Restores a call whose effect never started, with the journal's state: pending, or decided by an operator meanwhile.
    fn restore_pending(&mut self, now: &Recovery, request: &RecordId, call: Option<RecordedCall>, key: CallKey) {
        let pending = pending_in(now, request);
        let key = pending.and_then(pending_key).or(key);
        let call = match pending {
            Some(pending) => RecordedCall::from_pending(pending),
            None => call.map(|call| RecordedCall { pending: None, ..call }),
        };
        if let Some(call) = call {
            self.replay.restore(key, call);
        }
    }

    /// Appends the decision, in this process's own name, that the effect of `request` did not happen. Only once it is applied
    /// may the effect run: evidence may have come since the journal was read.
    ///
    /// Returns `false` if the server forbids this process to decide, or knows a result: the call stays pending, and an operator
    /// decides. An error names the request: reopening makes the decision again, under another id.
    pub(crate) async fn decide_not_done(&mut self, request: &RecordId) -> Result<bool, Error> {
        let record = self.not_done(request).await?;
        let Err(error) = self.appender.send_record(record).await else { return Ok(true) };
        if !was_not_decided(&error) {
            return Err(error.of_record(request.borrow()));
        }
        self.appender.unacknowledged = None;
        let run = self.appender.client.run_id.as_str();
        tracing::warn!(
            run,
            call = request.as_str(),
            "the effect of a call never started, and the call stays pending: {error}"
        );
        Ok(false)
    }

    /// Appends the same decision and ignores a refusal.
    pub(crate) async fn leave_not_done(&mut self, request: &RecordId) -> Result<(), Error> {
        let record = self.not_done(request).await?;
        match self.appender.append_evidence(record).await {
            Err(error) if !was_not_decided(&error) => Err(error.of_record(request.borrow())),
            _ => Ok(()),
        }
    }

    /// Restores an intent that is pending in the journal: its effect may run.
    pub(crate) fn restore_never_started(&mut self, call: Option<RecordedCall>, key: CallKey, record_id: &RecordId) {
        if let Some(call) = call {
            let attempts = call.pending.as_ref().map_or(1, |pending| pending.attempts);
            let pending = PendingCall { retry_safe: true, reason: "its effect was never started".into(), attempts };
            self.replay.restore(key, RecordedCall { pending: Some(pending), ..call });
        }
        self.shared().outbox.forget_never_started(record_id);
    }

    /// Makes the decision, in this process's own name, that the effect of `request` did not happen. The journal applies
    /// it only while this process has the run: another process may have started the effect since.
    async fn not_done(&self, request: &RecordId) -> Result<JournalRecord, Error> {
        let RunAppender { client, numbers, .. } = &self.appender;
        let config = &client.config;
        let resolution = EffectResolution {
            request_record_id: request.clone(),
            decision: "not_done".into(),
            result: None,
            who: format!("{}, {}", config.agent_id, config.claimed_by),
            why: "this process recorded the intent and never started the effect".into(),
        };
        let payload = Payload::EffectResolution(resolution);
        let mut record = client.build_record(config.record_id()?, payload, None).await?;
        record.body.facts.epoch = Some(numbers.epoch);
        Ok(record)
    }

    /// Appends the result of a call as evidence, and returns whether the journal keeps it; see [`RunAppender::append_evidence`]. If
    /// the journal never accepts the result, a marker is the evidence.
    pub(crate) async fn append_evidence(
        &mut self,
        call: &RecordId,
        record_id: RecordId,
        payload: Payload,
    ) -> Result<bool, Error> {
        match self.send_evidence(record_id.clone(), payload.clone()).await {
            Err(error) => {
                let (record_id, payload) = self.without_content(call, (&record_id, &payload), error)?;
                self.send_evidence(record_id, payload).await
            }
            is_kept => is_kept,
        }
    }

    async fn send_evidence(&mut self, record_id: RecordId, payload: Payload) -> Result<bool, Error> {
        let record = self.appender.client.build_record(record_id, payload, None).await?;
        self.appender.append_evidence(record).await
    }

    /// Appends all released results as evidence, and the unacknowledged record if it is a result. If the run was not lost, also
    /// records which intents never started: a process that resumed the run would look for an effect that may have happened.
    pub(crate) async fn append_all_evidence(&mut self) -> Result<(), Error> {
        if let Some(sent) = self.appender.unacknowledged.clone().filter(is_result)
            && !self.shared().outbox.release(&sent.body.record_id)
        {
            self.keep_evidence(sent).await?;
        }
        self.appender.unacknowledged = None;
        self.intents.unknown.clear();
        while let Some(held) = self.next_released() {
            let HeldResult { call, record_id, payload, .. } = held;
            if let Err(error) = self.keep_result(record_id.clone(), payload.clone()).await {
                let (record_id, payload) = self.without_content(&call.id, (&record_id, &payload), error)?;
                self.keep_result(record_id, payload).await?;
            }
            self.shared().outbox.remove_result_of(&call.id);
        }
        self.append_not_done().await
    }

    /// Records after the run's end that the effects of intents never started. It changes nothing for a call that was decided
    /// or has evidence: the journal refuses that record.
    async fn append_not_done(&mut self) -> Result<(), Error> {
        loop {
            if self.appender.state.is_lost() {
                self.shared().outbox.never_started.clear();
            }
            let Some(intent) = self.shared().outbox.never_started.first().cloned() else { return Ok(()) };
            let now = self.appender.client.pending_recovery().await?;
            if needs_not_done(&now, &intent.request) {
                self.leave_not_done(&intent.request).await?;
            }
            self.shared().outbox.forget_never_started(&intent.record_id);
        }
    }

    async fn keep_result(&mut self, record_id: RecordId, payload: Payload) -> Result<(), Error> {
        let record = self.appender.client.build_record(record_id, payload, None).await?;
        self.keep_evidence(record).await
    }

    /// Appends a result as evidence until the journal keeps it.
    async fn keep_evidence(&mut self, mut record: JournalRecord) -> Result<(), Error> {
        for _ in 0..EVIDENCE_TRIES {
            let record_id = record.body.record_id.clone();
            if self.appender.append_evidence(record.clone()).await? {
                return Ok(());
            }
            record.body.record_id = self.appender.client.config.record_id()?;
            self.shared().outbox.rename(&record_id, &record.body.record_id);
        }
        let message = format!(
            "run {}: a result was refused {EVIDENCE_TRIES} times for its number and is not kept as evidence yet",
            self.appender.client.run_id
        );
        Err(Error::new(ErrorKind::Unavailable, Action::Reopen, message))
    }

    /// Adds the journal's pending effects that are missing here. Returns the run's current state with all pending
    /// effects.
    pub(crate) async fn adopt_pending(&mut self) -> Result<Recovery, Error> {
        let now = self.appender.client.pending_recovery().await?;
        self.adopt(&now)?;
        Ok(now)
    }

    fn adopt(&mut self, now: &Recovery) -> Result<(), Error> {
        self.appender.check_current(now)?;
        self.appender.check_not_taken_over(now)?;
        self.replay.refresh(now);
        let shared = self.appender.client.shared.lock();
        let is_busy = |id: &RecordId| shared.outbox.running.contains(id) || shared.outbox.holds_result_of(id);
        self.replay.adopt(now, is_busy);
        Ok(())
    }

    /// Adds the recorded calls that the checkpoint covers and that may answer a call with this key, or a call without one.
    pub(crate) async fn find_covered(&mut self, key: &CallKey) -> Result<(), Error> {
        if !self.replay.needs_covered(key) {
            return Ok(());
        }
        let is_settled = match key {
            // Rare and large: kept out of every operation's future.
            Some(key) => Box::pin(self.look_up(key)).await?,
            None => false,
        };
        if !is_settled {
            Box::pin(self.read_covered()).await?;
        }
        // Calls may have been dropped meanwhile.
        self.restore_interrupted();
        Ok(())
    }

    /// Looks up a key. Returns whether that settles which recorded call answers; otherwise the list does.
    async fn look_up(&mut self, key: &(String, String)) -> Result<bool, Error> {
        let Some(at_least) = self.replay.covered_up_to().filter(|_| self.can_look_up(key)) else { return Ok(false) };
        let client = &self.appender.client;
        match client.transport.call_with_key(client.id(), (&key.0, &key.1), at_least).await {
            Ok(first) if self.replay.add_looked_up(key, first.as_ref()) => Ok(true),
            Ok(_) => {
                // The call may be pending, and unknown here. An answer would lack intents in flight.
                self.drain_intents().await;
                self.adopt_pending().await?;
                Ok(false)
            }
            // Another server of the connection answered, which lacks the feature.
            Err(error) if error.kind() == ErrorKind::Usage => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a lookup costs less than the list, and the journal has it.
    fn can_look_up(&self, (tool, key): &(String, String)) -> bool {
        let RunClient { transport, config, .. } = &self.appender.client;
        let is_long = self.replay.covers().get() > config.covered_list_max;
        is_long && tool.len() + key.len() <= KEY_BYTES_MAX && transport.has(Feature::CallKeys)
    }

    /// Adds all calls that the checkpoint covers.
    async fn read_covered(&mut self) -> Result<(), Error> {
        // Otherwise later pages would be answers about a past state, which are expensive.
        self.drain_intents().await;
        let client = self.appender.client.clone();
        let now = client.transport.whole_recovery(client.id(), RecoveryQuery::ENDED).await?;
        let now = now.ok_or_else(|| run_without_records(client.id()))?;
        // A skip may have voided the end of a covered call since this process opened the run: the call is pending.
        self.adopt(&now)?;
        self.replay.add_covered(&now.completed);
        Ok(())
    }

    /// Appends a complete record, and waits for its outcome. Its end of the run is the handle's end.
    pub(crate) async fn append_record(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        let status = ends_run(&record);
        let acked = self.appender.append_record(record).await?;
        if let Some(status) = status {
            self.end(status.as_str());
        }
        Ok(acked)
    }

    /// Marks the run as ended: no more records are appended.
    pub(crate) fn end(&mut self, status: &str) {
        self.appender.state = WriterState::Ended(super::claim::ended(self.appender.client.id(), status));
    }
}

fn pending_in<'a>(now: &'a Recovery, request: &RecordId) -> Option<&'a Pending> {
    now.pending.iter().find(|pending| pending.id == *request)
}

/// Whether this process must record that a call did not happen, so that it can run again. This process started neither its last
/// intent nor its last attempt.
///
/// A call with a key, or a repeatable one, may run again anyway, and an earlier attempt of it may have happened: a `not_done`
/// would be false. Any other call gets an attempt only after a decision that it did not happen. If a result of an earlier
/// attempt arrived since, somebody else decides.
fn needs_not_done(now: &Recovery, request: &RecordId) -> bool {
    pending_in(now, request).is_some_and(|pending| pending.class != Class::RetrySafe && pending.evidence.is_empty())
}

/// Whether the server did not append an own decision: it forbids the decision, or knows a result that contradicts it.
fn was_not_decided(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::ReconcileRequired)
}

/// Whether a record is the result of an effect.
fn is_result(record: &JournalRecord) -> bool {
    record.body.facts.payload_type.known().is_some_and(|known| known.is_call_result())
}

/// The status with which a record, or a record of a batch, ends its run.
pub(crate) fn ends_run(record: &JournalRecord) -> Option<RunStatus> {
    members(record).iter().find_map(|record| {
        let facts = &record.body.facts;
        lifecycle::run_ends_as(&facts.payload_type, facts.status.as_deref()?)
    })
}
