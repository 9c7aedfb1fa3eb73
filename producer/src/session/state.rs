//! What the operations of a handle change, one at a time, and how each settles what earlier ones left behind.

use super::{
    appender::{RunAppender, WriterState},
    checkpoint::CheckpointBase,
    outbox::{HeldResult, NeverStarted, SharedOutbox},
    read_back::{AckedRecord, taken_over},
    replay::{CallKey, PendingCall, RecordedCall, Replay},
};
use crate::error::Error;
use runlog_schemas::{
    id::{JournalSeq, RecordId},
    payload::{EffectResolution, Payload},
    record::JournalRecord,
};

/// Changed by one operation at a time: behind the session's lock.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) appender: RunAppender,
    pub(crate) replay: Replay,
    pub(crate) checkpoint_base: CheckpointBase,
    pub(crate) outbox: SharedOutbox,
}

impl SessionState {
    /// Puts calls back that were dropped, so that they answer the next call or block new effects.
    pub(crate) fn restore_interrupted(&mut self) {
        let (abandoned, returned) = self.outbox.lock().take_interrupted();
        // In reverse, because each goes to the front.
        for (recorded, key) in abandoned.into_iter().rev() {
            self.replay.mark_uncertain(recorded.id.borrow(), key.is_some());
            self.replay.put_back(key, recorded);
        }
        for recorded in returned.into_iter().rev() {
            self.replay.put_back(None, recorded);
        }
    }

    /// The oldest result that no caller waits for.
    pub(crate) fn next_released(&self) -> Option<HeldResult> {
        self.outbox.lock().next_released()
    }

    /// Appends the results that no caller waits for.
    pub(crate) async fn record_released(&mut self) -> Result<(), Error> {
        while let Some(held) = self.next_released() {
            self.appender.append(held.record_id.clone(), held.payload.clone(), None).await?;
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
            let Some(intent) = self.outbox.lock().never_started.first().cloned() else { return Ok(()) };
            let NeverStarted { request, call, key, record_id, position } = intent;
            // A process that has lost the run cannot know what others have done since.
            if let Some(position) = position {
                let acked = AckedRecord {
                    record_id: record_id.clone(),
                    journal_seq: JournalSeq::ZERO,
                    position,
                    applied: false,
                    repeat: None,
                    holds_repeats: false,
                };
                let answer = self.appender.read_back(&acked, self.appender.config.read_back).await?;
                if !self.appender.is_writer_since(self.appender.epoch, &answer) {
                    let error = taken_over(self.appender.run_id.borrow(), &acked, &answer);
                    return Err(self.appender.lose(error));
                }
            }
            if key.is_none() {
                self.appender.append(self.appender.config.record_id()?, self.not_done(&request), None).await?;
            }
            self.restore_never_started(call, key, &record_id);
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

    /// The decision, in this process's own name, that the effect of `request` did not happen.
    pub(crate) fn not_done(&self, request: &RecordId) -> Payload {
        let config = &self.appender.config;
        let resolution = EffectResolution {
            request_record_id: request.clone(),
            decision: "not_done".into(),
            result: None,
            who: format!("{}, {}", config.agent_id, config.claimed_by),
            why: "this process recorded the intent and never started the effect".into(),
        };
        Payload::EffectResolution(resolution)
    }

    /// Appends one result as evidence.
    pub(crate) async fn append_evidence(&mut self, record_id: &RecordId, payload: Payload) -> Result<(), Error> {
        let record = self.appender.build_record(record_id.clone(), payload, None).await?;
        self.appender.append_evidence(record).await
    }

    /// Appends all released results as evidence, and the unacknowledged record if it is a result.
    pub(crate) async fn append_all_evidence(&mut self) -> Result<(), Error> {
        while let Some(held) = self.next_released() {
            self.append_evidence(&held.record_id, held.payload).await?;
            self.outbox.lock().remove(&held.record_id);
            if self.appender.unacknowledged.as_ref().is_some_and(|sent| sent.body.record_id == held.record_id) {
                self.appender.unacknowledged = None;
            }
        }
        if let Some(sent) = self.appender.unacknowledged.clone().filter(is_result) {
            self.appender.append_evidence(sent).await?;
        }
        self.appender.unacknowledged = None;
        Ok(())
    }

    /// Adds the pending effects of the journal that are missing here.
    pub(crate) async fn adopt_pending(&mut self) -> Result<(), Error> {
        let RunAppender { transport, run_id, .. } = &self.appender;
        if let Some(now) = transport.pending_recovery(run_id.borrow()).await? {
            self.replay.refresh(&now);
            let outbox = self.outbox.lock();
            self.replay.adopt(&now, |id| outbox.running.contains(id) || outbox.holds_result_of(id));
        }
        Ok(())
    }

    /// The run ended: nothing more is appended.
    pub(crate) fn end(&mut self, status: &str) {
        self.appender.state = WriterState::Ended(super::claim::ended(self.appender.run_id.borrow(), status));
    }
}

/// Whether a record is the result of an effect.
fn is_result(record: &JournalRecord) -> bool {
    matches!(record.body.facts.payload_type.as_str(), "tool_call_completed" | "tool_call_failed")
}
