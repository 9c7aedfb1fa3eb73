//! What the operations of a handle change, one at a time, and how each settles what earlier ones left behind.

use super::{
    appender::RunAppender,
    checkpoint::CheckpointBase,
    intents::Intents,
    numbering,
    outbox::{HeldResult, NeverStarted, SharedOutbox},
    read_back::{AckedRecord, taken_over},
    replay::{CallKey, PendingCall, RecordedCall, Replay, pending_key},
    sent_at::SentAt,
    writer_state::WriterState,
};
use crate::{
    error::{Action, Error},
    transport::run_without_records,
};
use runlog_schemas::{
    answer::{ErrorKind, Recovery},
    id::{JournalSeq, RecordId},
    judge::{RunStatus, lifecycle},
    payload::{EffectResolution, Payload, PayloadType},
    record::JournalRecord,
};

/// How often a result is sent as evidence before the operation fails. Each earlier try whose answer was lost can take one
/// number.
const EVIDENCE_TRIES: u32 = 3;

/// Changed by one operation at a time: behind the session's lock.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) appender: RunAppender,
    pub(crate) replay: Replay,
    pub(crate) checkpoint_base: CheckpointBase,
    pub(crate) outbox: SharedOutbox,
    pub(crate) intents: Intents,
}

impl SessionState {
    /// Puts calls back that were dropped, so that they answer the next call or block new effects.
    pub(crate) fn restore_interrupted(&mut self) {
        let (abandoned, returned) = self.outbox.lock().take_interrupted();
        // In reverse, because each goes to the front.
        for (recorded, key) in abandoned.into_iter().rev() {
            // It may be there already: reopening adopts what is pending in the journal.
            self.replay.restore(key, recorded);
        }
        for recorded in returned.into_iter().rev() {
            // It may have been decided since it was taken. As an unresolved call it is asked about before the next call.
            if let Some(open) = &recorded.pending
                && !self.outbox.lock().running.contains(&recorded.id)
            {
                self.replay.mark_uncertain(recorded.id.borrow(), open.retry_safe);
            }
            self.replay.put_back(None, recorded);
        }
    }

    /// Why nothing new is recorded if the run ended: it still answers. Any other error of making the handle ready is returned.
    pub(crate) fn ended_or(&self, ready: Result<(), Error>) -> Result<Option<Error>, Error> {
        match self.appender.state.ended() {
            Some(ended) => Ok(Some(ended.without_side_effect())),
            None => ready.map(|()| None),
        }
    }

    /// Settles what calls left that were dropped.
    pub(crate) async fn settle(&mut self) -> Result<(), Error> {
        self.restore_interrupted();
        self.settle_never_started().await?;
        self.record_released().await
    }

    /// The oldest result that no caller waits for.
    pub(crate) fn next_released(&self) -> Option<HeldResult> {
        self.outbox.lock().next_released()
    }

    /// Appends the results that no caller waits for.
    pub(crate) async fn record_released(&mut self) -> Result<(), Error> {
        while let Some(held) = self.next_released() {
            self.appender.append_result(&held.call.id, held.record_id.clone(), held.payload.clone()).await?;
            self.mark_recorded(&held.record_id);
        }
        Ok(())
    }

    /// A held result is in the log: the same call is now answered from there.
    pub(crate) fn mark_recorded(&mut self, record_id: &RecordId) {
        let removed = self.outbox.lock().remove(record_id);
        if let Some(HeldResult { call, key, .. }) = removed {
            self.replay.restore(key, call);
        }
    }

    /// Settles intents whose effect this process never started, so that they can run when they are asked for again. One
    /// without a key first needs a record that says so, because only this process knows it.
    pub(crate) async fn settle_never_started(&mut self) -> Result<(), Error> {
        loop {
            // The last one first, because each goes to the front of those that look the same.
            let Some(intent) = self.outbox.lock().never_started.last().cloned() else { return Ok(()) };
            let NeverStarted { request, call, key, record_id, position } = intent;
            // A process that has lost the run cannot know what others have done since.
            if let Some(position) = position {
                let acked =
                    AckedRecord::new(record_id.clone(), JournalSeq::ZERO, position, SentAt::now(&self.appender.config));
                let answer = self.appender.read_back(&acked).await?;
                if !self.appender.is_writer_since(self.appender.epoch, &answer) {
                    let error = taken_over(self.appender.run_id.borrow(), &acked, &answer);
                    return Err(self.appender.lose(error));
                }
            }
            self.appender.check_ready()?;
            if key.is_some() || self.decide_not_done(&request).await? {
                self.restore_never_started(call, key, &record_id);
            } else {
                self.leave_to_others(&request, call).await?;
                self.outbox.lock().never_started.retain(|other| other.record_id != record_id);
            }
        }
    }

    /// Takes over the journal's state of a call whose effect never started: pending, or decided by an operator meanwhile.
    async fn leave_to_others(&mut self, request: &RecordId, call: Option<RecordedCall>) -> Result<(), Error> {
        let now = self.adopt_pending().await?;
        let found = now.pending.iter().find(|pending| pending.id == *request);
        let key = found.and_then(pending_key);
        let call = match found {
            Some(pending) => RecordedCall::from_pending(pending),
            None => call.map(|call| RecordedCall { pending: None, ..call }),
        };
        if let Some(call) = call {
            self.replay.restore(key, call);
        }
        Ok(())
    }

    /// Appends the decision, in this process's own name, that the effect of `request` did not happen. Only once it is applied
    /// may the effect run: evidence may have come since the journal was read.
    ///
    /// Returns `false` if the server forbids this process to decide, or knows a result: the call stays pending, and an operator
    /// decides.
    pub(crate) async fn decide_not_done(&mut self, request: &RecordId) -> Result<bool, Error> {
        let record = self.not_done(request).await?;
        let Err(error) = self.appender.send_record(record).await else { return Ok(true) };
        if !was_not_decided(&error) {
            return Err(error);
        }
        self.appender.unacknowledged = None;
        let run = self.appender.run_id.as_str();
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
            Err(error) if !was_not_decided(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The intent is pending in the journal, and its effect may run.
    pub(crate) fn restore_never_started(&mut self, call: Option<RecordedCall>, key: CallKey, record_id: &RecordId) {
        if let Some(call) = call {
            let attempts = call.pending.as_ref().map_or(1, |pending| pending.attempts);
            let pending = PendingCall { retry_safe: true, reason: "its effect was never started".into(), attempts };
            self.replay.restore(key, RecordedCall { pending: Some(pending), ..call });
        }
        self.outbox.lock().never_started.retain(|other| other.record_id != *record_id);
    }

    /// The decision, in this process's own name, that the effect of `request` did not happen. It is applied only as long as
    /// this process has the run: another one may have started the effect since.
    async fn not_done(&self, request: &RecordId) -> Result<JournalRecord, Error> {
        let config = &self.appender.config;
        let resolution = EffectResolution {
            request_record_id: request.clone(),
            decision: "not_done".into(),
            result: None,
            who: format!("{}, {}", config.agent_id, config.claimed_by),
            why: "this process recorded the intent and never started the effect".into(),
        };
        let payload = Payload::EffectResolution(resolution);
        let mut record = self.appender.build_record(config.record_id()?, payload, None).await?;
        record.body.facts.epoch = Some(self.appender.epoch);
        Ok(record)
    }

    /// Appends one result as evidence, and returns whether it is kept; see [`RunAppender::append_evidence`].
    pub(crate) async fn append_evidence(&mut self, record_id: &RecordId, payload: Payload) -> Result<bool, Error> {
        let record = self.appender.build_record(record_id.clone(), payload, None).await?;
        self.appender.append_evidence(record).await
    }

    /// Appends all released results as evidence, and the unacknowledged record if it is a result. If the run was not lost, also
    /// records which intents never started: a process that resumed the run would look for an effect that may have happened.
    pub(crate) async fn append_all_evidence(&mut self) -> Result<(), Error> {
        if let Some(sent) = self.appender.unacknowledged.clone().filter(is_result)
            && !self.outbox.lock().release(&sent.body.record_id)
        {
            self.keep_evidence(sent).await?;
        }
        self.appender.unacknowledged = None;
        self.intents.unknown.clear();
        while let Some(held) = self.next_released() {
            let record = self.appender.build_record(held.record_id, held.payload, None).await?;
            let record_id = self.keep_evidence(record).await?;
            self.outbox.lock().remove(&record_id);
        }
        self.append_not_done().await
    }

    /// Records after the run's end that the effects of intents never started. It changes nothing for a call that was decided
    /// or has evidence: the journal refuses that record.
    async fn append_not_done(&mut self) -> Result<(), Error> {
        loop {
            if self.appender.state.is_lost() {
                self.outbox.lock().never_started.clear();
            }
            let Some(intent) = self.outbox.lock().never_started.first().cloned() else { return Ok(()) };
            if intent.key.is_none() {
                self.leave_not_done(&intent.request).await?;
            }
            self.outbox.lock().never_started.retain(|other| other.record_id != intent.record_id);
        }
    }

    /// Appends a result as evidence until it is kept; returns the id that it is kept under.
    async fn keep_evidence(&mut self, mut record: JournalRecord) -> Result<RecordId, Error> {
        for _ in 0..EVIDENCE_TRIES {
            let record_id = record.body.record_id.clone();
            if self.appender.append_evidence(record.clone()).await? {
                return Ok(record_id);
            }
            record.body.record_id = self.appender.config.record_id()?;
            self.outbox.lock().rename(&record_id, &record.body.record_id);
        }
        let message = format!(
            "run {}: a result was refused {EVIDENCE_TRIES} times for its number and is not kept as evidence yet",
            self.appender.run_id
        );
        Err(Error::new(ErrorKind::Unavailable, Action::Reopen, message))
    }

    /// Adds the pending effects of the journal that are missing here. Returns the run as it is, with all that is pending.
    pub(crate) async fn adopt_pending(&mut self) -> Result<Recovery, Error> {
        let RunAppender { transport, run_id, .. } = &self.appender;
        let now = transport.pending_recovery(run_id.borrow()).await?;
        let now = now.ok_or_else(|| run_without_records(run_id.borrow()))?;
        self.appender.check_current(&now)?;
        self.replay.refresh(&now);
        let outbox = self.outbox.lock();
        self.replay.adopt(&now, |id| outbox.running.contains(id) || outbox.holds_result_of(id));
        drop(outbox);
        Ok(now)
    }

    /// The run ended: nothing more is appended.
    pub(crate) fn end(&mut self, status: &str) {
        self.appender.state = WriterState::Ended(super::claim::ended(self.appender.run_id.borrow(), status));
    }
}

/// Whether an own decision was not appended: the server forbids it, or knows a result that it contradicts.
fn was_not_decided(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::ReconcileRequired)
}

/// Whether a record is the result of an effect.
fn is_result(record: &JournalRecord) -> bool {
    matches!(record.body.facts.payload_type.known(), Some(PayloadType::ToolCallCompleted | PayloadType::ToolCallFailed))
}

/// The status that a record, or one of a batch, ends its run with.
pub(crate) fn ends_run(record: &JournalRecord) -> Option<RunStatus> {
    numbering::members(record).iter().find_map(|record| {
        let facts = &record.body.facts;
        lifecycle::run_ends_as(&facts.payload_type, facts.status.as_deref()?)
    })
}
