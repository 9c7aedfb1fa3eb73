//! Numbers and appends the records of a run: one at a time, or several intents together. Acknowledgements are processed
//! in order, and no record follows a failed append. [`WriterState`] has the states.

use super::{
    claim::{Claims, Head, epoch_of, not_writer},
    client::RunClient,
    numbering::Numbers,
    outcome::{AckedRecord, fenced, refused, repeat_of, repeats_earlier, took_effect},
    sent_at::SentAt,
    writer_state::WriterState,
};
use crate::{
    config::failpoint,
    error::{Action, Error, SideEffect},
    metrics::metric,
    transport::request::{AppendAsk, AppendUntil, Appended, ToAppend},
};
use runlog_schemas::{
    answer::{ErrorKind, Feature, Outcome, Position, ReadBack, Recovery, Writer},
    id::{Epoch, Offset, RecordId},
    judge::Reason,
    payload::{Payload, PayloadType},
    record::{JournalRecord, RecordKind},
};

/// Appends records to one run as its writer.
#[derive(Debug)]
pub(crate) struct RunAppender {
    pub(crate) client: RunClient,
    pub(crate) numbers: Numbers,
    pub(super) claims: Claims,
    pub(crate) state: WriterState,
    /// The last sent record that is not an intent, until it is acknowledged; at most one. If one is left when the next
    /// record comes, its append failed or was cancelled, and it may be in the log.
    pub(crate) unacknowledged: Option<JournalRecord>,
    /// The last acknowledged record.
    pub(crate) last_acked: Option<AckedRecord>,
}

impl RunAppender {
    /// Continues as the run's current writer. `head` is `None` for a run without records.
    pub(crate) fn new(client: RunClient, head: Option<&impl Head>, claims: Claims, state: WriterState) -> Self {
        let mut numbers = Numbers::first();
        if let Some(head) = head {
            numbers.sync_to_head(head);
        }
        Self { client, numbers, claims, state, unacknowledged: None, last_acked: None }
    }

    /// Checks that an answer is not older than this handle's claim and its acknowledged records.
    pub(crate) fn check_current(&self, head: &impl Head) -> Result<(), Error> {
        self.numbers.check_current(head, self.client.id())
    }

    /// Checks that a recovery does not name another process as the run's writer, which marks the handle as lost. An answer that is older
    /// than the handle's claim shows nothing.
    pub(crate) fn check_not_taken_over(&mut self, now: &Recovery) -> Result<(), Error> {
        let is_own = self.numbers.is_writer_in(Some(now))
            || self.claims.in_flight.as_ref().is_some_and(|claim| claim.is_held_in(now));
        if is_own || now.epoch < self.numbers.epoch {
            return Ok(());
        }
        let error = fenced(self.client.id(), &now.writer_id, now.epoch);
        Err(self.lose(error))
    }

    /// Whether a read-back names this handle as the writer, if the handle wrote the run in `epoch`. Each of its claims
    /// takes the next epoch, so all epochs from `epoch` to the current one belong to it. The epoch of its claim in
    /// flight belongs to it, too.
    pub(crate) fn is_writer_since(&self, epoch: Epoch, answer: &ReadBack) -> bool {
        let claimed = || self.claims.in_flight.as_ref().is_some_and(|claim| claim.is_named_in(answer));
        !self.state.is_lost() && ((epoch..=self.numbers.epoch).contains(&answer.epoch) || claimed())
    }

    /// Claims the epoch after this handle's own and continues from the run's head after the claim, which is returned.
    /// `head` is the run's current head; `head_after_claim` reads it again and is awaited once the claim's outcome is
    /// known.
    ///
    /// Errors: `ClaimLost` if another process writes the run. After an error or a cancellation it can be called again: the
    /// claim stays the same record until its outcome is known.
    pub(crate) async fn take_over<H: Head>(
        &mut self,
        mut head: Option<H>,
        head_after_claim: impl Future<Output = Result<Option<H>, Error>>,
    ) -> Result<H, Error> {
        let claim = self.claims.next(&self.numbers.writer_id, self.numbers.epoch, &self.client)?;
        if !head.as_ref().is_some_and(|head| claim.is_held_in(head)) {
            self.numbers.check_writer_in(head.as_ref(), self.client.id())?;
            claim.send(&self.client).await?;
            head = head_after_claim.await?;
        }
        let seen = epoch_of(head.as_ref());
        let head = head.filter(|head| claim.is_held_in(head));
        let head = head.ok_or_else(|| not_writer(self.client.id(), claim.epoch(), seen))?;
        self.numbers.sync_to_head(&head);
        self.claims.mark_applied(&claim);
        Ok(head)
    }

    /// Checks that the handle can append. A cancelled append stops the handle here.
    pub(crate) fn check_ready(&mut self) -> Result<(), Error> {
        if let Some(sent) = self.unacknowledged.as_ref().filter(|_| self.state.is_ready()) {
            let message = format!(
                "the append of record {} to run {} was cancelled before it was acknowledged: it may be in the log; \
                 reopen the run",
                sent.body.record_id, self.client.run_id
            );
            let error = Error::new(ErrorKind::Unavailable, Action::Reopen, message);
            let error = error.about_run(self.client.id()).about_record(sent.body.record_id.borrow());
            self.stop(error);
        }
        self.state.error().map_or(Ok(()), |error| Err(error.without_side_effect()))
    }

    /// Numbers and appends a record, and waits for its acknowledgement.
    ///
    /// A payload that is too large for a record goes to the content store first; if that fails or is cancelled, no
    /// number is used. A record that is refused before it is sent uses no number, and the handle stays ready. Any other
    /// failure stops the handle, as does a refusal in the acknowledgement. An acknowledged `applied` does not show who
    /// writes the run now; a read-back does.
    pub(crate) async fn append(&mut self, record_id: RecordId, payload: Payload) -> Result<AckedRecord, Error> {
        self.append_until(record_id, payload, AppendUntil::Judged).await
    }

    async fn append_until(
        &mut self,
        record_id: RecordId,
        payload: Payload,
        until: AppendUntil,
    ) -> Result<AckedRecord, Error> {
        self.check_ready()?;
        let record = self.client.build_record(record_id, payload, None).await?;
        self.send_until(record, until).await
    }

    /// As [`RunAppender::append`], for a complete record under an id that its caller chose: also waits for its outcome.
    /// A refusal, or an unknown outcome, stops the handle. A repeat has the first record's position.
    pub(crate) async fn append_record(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        self.check_ready()?;
        let record = self.client.offload_payload(record).await?;
        self.send_record(record).await
    }

    /// As [`RunAppender::send`], for a record that may repeat another, or a batch with such records. A repeat takes no number
    /// of the run, so the next numbers are known only once its outcome is.
    pub(crate) async fn send_record(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        let sent = record.clone();
        let batch = sent.body.record_kind == RecordKind::Batch;
        let mut acked = self.send(record).await?;
        if acked.applied && acked.repeat.is_none() && !batch {
            return Ok(acked);
        }
        // Stays set until the numbers are known: if this is cancelled or fails, the handle is stopped.
        self.unacknowledged = Some(sent);
        if !acked.applied {
            let answer = self.client.outcome_of(&acked).await;
            let outcome = answer.map_err(|error| self.stop(error).with_side_effect(SideEffect::Unknown))?.outcome;
            if !took_effect(&outcome) {
                let Some(sent) = self.unacknowledged.take() else { return Err(self.not_sent()) };
                return Err(self.stop_for_refusal(sent, &outcome));
            }
            acked.repeat = repeat_of(&outcome);
            (acked.applied, acked.position) = (true, outcome.position);
        }
        if batch || acked.repeat.is_some() {
            let (writer_seq, expected) = (self.numbers.writer_seq, self.numbers.journal_seq);
            let synced = self.sync_numbers().await;
            synced.map_err(|error| self.stop(error).with_side_effect(SideEffect::Unknown))?;
            if self.numbers.writer_seq != writer_seq {
                let message = format!(
                    "after record {} the next writer_seq of run {} is {writer_seq}, not {} as the server says; reopen the run",
                    acked.record_id, self.client.run_id, self.numbers.writer_seq
                );
                let error = Error::new(ErrorKind::Stale, Action::Reopen, message);
                return Err(self.stop(error).with_side_effect(SideEffect::Unknown));
            }
            acked.holds_repeats = batch && (acked.repeat.is_some() || self.numbers.journal_seq != expected);
        }
        self.unacknowledged = None;
        self.last_acked = Some(acked.clone());
        Ok(acked)
    }

    fn number(&self, record: &mut JournalRecord) {
        self.numbers.number(record, (self.client.config.clock)());
    }

    /// Sends a record under the next numbers, in any state: reopening a stopped handle does this.
    pub(crate) async fn send(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        self.send_until(record, AppendUntil::Judged).await
    }

    async fn send_until(&mut self, mut record: JournalRecord, until: AppendUntil) -> Result<AckedRecord, Error> {
        let _permit = self.client.transport.permit(&record).await?;
        self.number(&mut record);
        let (record, config) = (&*self.unacknowledged.insert(record), &self.client.config);
        (config.failpoints)(failpoint::RECORD_NUMBERED);
        let (trace, sent_at) = ((config.traceparent)(), SentAt::now(config));
        let sent = ToAppend::new(record, trace.as_deref());
        // An answer at the acknowledgement cannot contain outcomes.
        let also = if until == AppendUntil::Acknowledged { Vec::new() } else { self.client.unjudged() };
        match self.client.transport.append_one(sent, AppendAsk { until, also: &also }).await {
            Ok(appended) => {
                self.client.shared.lock().results.apply_outcomes(&also, &appended.also);
                let Some(record) = self.unacknowledged.take() else { return Err(self.not_sent()) };
                self.acknowledged(record, appended, (sent_at, self.numbers.seen))
            }
            Err(failed) if failed.untouched => {
                self.client.config.count(metric::APPEND_FAILED);
                // A handle that is not ready keeps the record: reopening it sends the record again.
                if self.state.is_ready() {
                    self.unacknowledged = None;
                }
                Err(failed.error)
            }
            Err(failed) => {
                self.client.config.count(metric::APPEND_FAILED);
                Err(self.stop(failed.error).with_side_effect(SideEffect::Unknown))
            }
        }
    }

    /// Applies the acknowledgement of a record, with the time when it was sent and the run's last known offset at that
    /// time. Records that were sent together are acknowledged in order.
    pub(super) fn acknowledged(
        &mut self,
        record: JournalRecord,
        appended: Appended,
        (sent_at, sent_after): (SentAt, Offset),
    ) -> Result<AckedRecord, Error> {
        self.client.config.count(metric::APPENDED);
        self.client.config.observe(metric::APPEND_SECONDS, sent_at.instant);
        let Appended { position, outcome, writer, changed, .. } = appended;
        let read_back = writer.zip(outcome.clone()).map(|(writer, outcome)| {
            let Writer { writer_id, epoch } = writer;
            ReadBack { outcome, epoch, writer_id, changed, also: Vec::new() }
        });
        // A repeat of an earlier record takes no number of the run. A second delivery of this record does not matter:
        // the first took the number.
        let repeats_earlier = outcome.as_ref().is_some_and(|outcome| repeats_earlier(outcome, sent_after));
        let journal_seq = self.numbers.journal_seq;
        self.numbers.advance_past(&record);
        if repeats_earlier {
            self.numbers.journal_seq = journal_seq;
        }
        if let Some(outcome) = outcome.as_ref().filter(|outcome| !took_effect(outcome)) {
            return Err(self.stop_for_refusal(record, outcome));
        }
        self.numbers.seen = self.numbers.seen.max(position.offset);
        let acked = AckedRecord {
            applied: outcome.is_some(),
            repeat: outcome.as_ref().and_then(repeat_of),
            read_back,
            sent_after,
            repeats_earlier,
            ..AckedRecord::new(record.body.record_id, record.place.journal_seq, position, sent_at)
        };
        self.last_acked = Some(acked.clone());
        Ok(acked)
    }

    /// Makes the error of a handle that does not write the run according to an answer as of epoch `seen`. Marks the
    /// handle as lost, unless the answer is older than its own claim.
    pub(crate) fn not_writer_in(&mut self, seen: Epoch) -> Error {
        let error = not_writer(self.client.id(), self.numbers.epoch, seen);
        if error.kind() == ErrorKind::ClaimLost { self.lose(error) } else { error }
    }

    /// Checks that this handle writes the run.
    pub(crate) async fn check_writer(&mut self) -> Result<(), Error> {
        let head = self.client.transport.run(self.client.id()).await?;
        if self.numbers.is_writer_in(head.as_ref()) { Ok(()) } else { Err(self.not_writer_in(epoch_of(head.as_ref()))) }
    }

    /// Reads the next numbers from the journal. If another process writes the run, the handle is lost.
    async fn sync_numbers(&mut self) -> Result<(), Error> {
        let head = self.client.transport.run(self.client.id()).await?;
        let seen = epoch_of(head.as_ref());
        if let Some(head) = head.filter(|head| self.numbers.is_writer_in(Some(head))) {
            (self.numbers.writer_seq, self.numbers.journal_seq, _) = Head::next(&head);
            return Ok(());
        }
        let error = self.not_writer_in(seen);
        if error.kind() == ErrorKind::ClaimLost { Ok(()) } else { Err(error) }
    }

    /// Returns the positions of the records `ids` of an acknowledged batch, in order. A repeat has the first record's
    /// position.
    pub(crate) async fn positions(&self, acked: &AckedRecord, ids: &[RecordId]) -> Result<Vec<Position>, Error> {
        let mut positions = Vec::with_capacity(ids.len());
        for (nth, id) in (0..).zip(ids) {
            let first_record = if acked.holds_repeats {
                let RunClient { transport, .. } = &self.client;
                let landed = transport.landed(self.client.id(), id.borrow(), Some(&acked.position)).await;
                landed.map_err(|error| error.with_side_effect(SideEffect::Unknown))?
            } else {
                None
            };
            let in_batch = Position { index: acked.position.index.saturating_add(nth), ..acked.position.clone() };
            positions.push(first_record.map_or(in_batch, |read_back| read_back.outcome.position));
        }
        Ok(positions)
    }

    fn not_sent(&self) -> Error {
        let message = format!("run {}: a record was acknowledged that was not sent", self.client.run_id);
        Error::new(ErrorKind::Internal, Action::Operator, message)
    }

    /// Stops the handle for a refusal that the backend reported with the acknowledgement.
    fn stop_for_refusal(&mut self, record: JournalRecord, outcome: &Outcome) -> Error {
        let error = refused(self.client.id(), Some(record.body.record_id.borrow()), outcome);
        if error.kind() == ErrorKind::Fenced {
            return self.lose(error);
        }
        let checkpoint = record.body.record_kind == RecordKind::LoopCheckpoint;
        if outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Gap) && !is_intent(&record) {
            // The record was refused because of its numbers, so it used none and can be sent again.
            self.unacknowledged = Some(record);
        }
        self.stop_as(error, checkpoint)
    }

    /// Reads back the outcome of an acknowledged record. Anything but applied stops the handle.
    pub(crate) async fn read_back(&mut self, acked: &AckedRecord) -> Result<ReadBack, Error> {
        match self.client.read_back(acked).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    self.mark_reported(&acked.record_id);
                }
                Err(self.stop_or_lose(error))
            }
        }
    }

    /// Appends a result for a writer that has lost the run, or whose run ended. The journal refuses it, and keeps it as
    /// evidence for the decision about its effect. Returns whether the journal keeps it. If not, a late earlier try
    /// took its number, and the result needs another record id.
    pub(crate) async fn append_evidence(&mut self, mut record: JournalRecord) -> Result<bool, Error> {
        if !self.state.is_lost() && !record.body.record_kind.unclaimed() {
            // The numbers of an own record are judged before the run's status.
            self.sync_numbers().await?;
        }
        self.number(&mut record);
        let config = &self.client.config;
        (config.failpoints)(failpoint::RECORD_NUMBERED);
        let (trace, sent_at) = ((config.traceparent)(), SentAt::now(config));
        let evidence = ToAppend::new(&record, trace.as_deref());
        let appended = self.client.transport.append_one(evidence, AppendAsk::JUDGED).await;
        let appended = appended.map_err(|failed| failed.error)?;
        if self.state.is_lost() {
            return Ok(true);
        }
        let outcome = match appended.outcome {
            Some(outcome) => outcome,
            None => {
                let (record_id, journal_seq) = (record.body.record_id, record.place.journal_seq);
                let acked = AckedRecord::new(record_id, journal_seq, appended.position, sent_at);
                self.client.outcome_of(&acked).await?.outcome
            }
        };
        Ok(outcome.reason.is_none_or(|reason| reason.known().is_some_and(|reason| reason.settles_result())))
    }

    pub(crate) fn stop(&mut self, error: Error) -> Error {
        let is_checkpoint = |sent: &JournalRecord| sent.body.record_kind == RecordKind::LoopCheckpoint;
        let checkpoint = self.unacknowledged.as_ref().is_some_and(is_checkpoint);
        self.stop_as(error, checkpoint)
    }

    pub(crate) fn stop_for_checkpoint(&mut self, error: Error) {
        self.stop_as(error, true);
    }

    /// Stops the handle. The first reason stays.
    fn stop_as(&mut self, error: Error, checkpoint: bool) -> Error {
        let error = error.stopping();
        if self.state.is_ready() {
            self.state = WriterState::Stopped { error: error.clone(), checkpoint };
        }
        error
    }

    /// Marks the handle as lost in any state: another process writes the run.
    pub(crate) fn lose(&mut self, error: Error) -> Error {
        if !self.state.is_lost() {
            self.client.config.count(metric::LOST);
        }
        self.state = WriterState::Lost(error.clone());
        error
    }

    pub(crate) fn stop_or_lose(&mut self, error: Error) -> Error {
        if error.kind() == ErrorKind::Fenced { self.lose(error) } else { self.stop(error) }
    }

    /// As [`RunAppender::append`], for the result of `call`: the next read-back requests its outcome.
    pub(crate) async fn append_result(
        &mut self,
        call: &RecordId,
        record_id: RecordId,
        payload: Payload,
    ) -> Result<AckedRecord, Error> {
        let acked = self.append_until(record_id, payload, AppendUntil::Acknowledged).await?;
        if !acked.applied && self.client.transport.has(Feature::AnswerAtAck) {
            self.client.shared.lock().results.add(call.clone(), &acked);
        }
        Ok(acked)
    }

    /// Fails, and stops the handle, if a result was refused after its acknowledgement and no operation has reported that yet. The
    /// caller returns the error before it waits for anything.
    pub(crate) fn check_results(&mut self) -> Result<(), Error> {
        let refused = self.client.shared.lock().results.take_refused();
        let Some(refused) = refused else { return Ok(()) };
        self.mark_reported(&refused.record_id);
        Err(self.stop_or_lose(refused.error(self.client.id())))
    }

    /// Checks that all acknowledged results were applied. A refusal stops the handle; a failed request does not.
    pub(crate) async fn confirm_results(&mut self) -> Result<(), Error> {
        self.client.ask_for_results().await?;
        self.check_results()
    }

    /// Marks the refusal of a record as reported, so that no flush reports it again.
    pub(crate) fn mark_reported(&mut self, record_id: &RecordId) {
        self.last_acked = self.last_acked.take().filter(|last| last.record_id != *record_id);
    }
}

/// Whether a record is the intent of a call, or another attempt.
fn is_intent(record: &JournalRecord) -> bool {
    let kind = record.body.facts.payload_type.known();
    matches!(kind, Some(PayloadType::ToolCallRequested | PayloadType::ToolCallAttempt))
}
