//! Numbers and appends the records of a run: one at a time, or several intents together. Acknowledgements are processed
//! in order, and no record follows a failed append. [`WriterState`] has the states.

use super::{
    build::{build_record, offload_payload},
    claim::{Claim, Head, PreviousClaim, epoch_of, not_writer},
    numbering,
    read_back::{AckedRecord, outcome_of, read_back, refused, repeat_of, repeats_earlier, took_effect},
    sent_at::SentAt,
    unjudged::Unjudged,
    writer_state::WriterState,
};
use crate::{
    config::{Config, failpoint},
    error::{Action, Error, SideEffect},
    metrics::metric,
    transport::{
        Transport, old_answer,
        request::{AppendAsk, AppendUntil, Appended, ToAppend},
    },
};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position, ReadBack, Writer},
    id::{Epoch, JournalSeq, Offset, OrEmpty, PrevHash, RecordId, RunId, Secret, WriterId, WriterSeq},
    judge::Reason,
    payload::{Payload, PayloadType},
    record::{JournalRecord, RecordKind},
};
use std::sync::Arc;

/// Appends records to one run as its writer.
#[derive(Debug)]
pub(crate) struct RunAppender {
    pub(crate) transport: Arc<Transport>,
    pub(crate) config: Arc<Config>,
    pub(crate) run_id: RunId,
    pub(crate) writer_id: OrEmpty<WriterId>,
    /// Whether `writer_id` is this handle's, and not the previous writer's.
    pub(crate) has_claimed: bool,
    /// The secret of this handle's last claim. `None` if its claims have no commitment.
    pub(crate) secret: Option<Secret>,
    pub(crate) epoch: Epoch,
    pub(crate) next_writer_seq: WriterSeq,
    pub(crate) next_journal_seq: JournalSeq,
    pub(crate) prev_hash: Option<PrevHash>,
    pub(crate) next_checkpoint_seq: u64,
    /// The claim that makes a stopped handle ready again, until its outcome is known.
    pub(crate) claiming: Option<Claim>,
    pub(crate) state: WriterState,
    /// The last sent record that is not an intent, until it is acknowledged; at most one. If one is left when the next
    /// record comes, its append failed or was cancelled, and it may be in the log.
    pub(crate) unacknowledged: Option<JournalRecord>,
    /// The last acknowledged record.
    pub(crate) last_acked: Option<AckedRecord>,
    /// The offset of the run's last known record.
    pub(super) seen: Offset,
    /// Results whose outcomes the next read-back requests.
    pub(crate) unjudged: Unjudged,
}

impl RunAppender {
    /// Continues as the run's current writer. `head` is `None` for a run without records.
    pub(crate) fn new(
        transport: Arc<Transport>,
        config: Arc<Config>,
        run_id: RunId<&str>,
        head: Option<&impl Head>,
        state: WriterState,
    ) -> Self {
        let mut appender = Self {
            transport,
            config,
            run_id: run_id.to_owned(),
            writer_id: OrEmpty::NONE,
            has_claimed: false,
            secret: None,
            epoch: Epoch::ZERO,
            next_writer_seq: WriterSeq::from(1),
            next_journal_seq: JournalSeq::from(1),
            prev_hash: None,
            next_checkpoint_seq: 1,
            claiming: None,
            state,
            unacknowledged: None,
            last_acked: None,
            seen: Offset::ZERO,
            unjudged: Unjudged::default(),
        };
        if let Some(head) = head {
            appender.sync_to_head(head);
        }
        appender
    }

    /// Takes writer, epoch, sequence numbers and hash from the run's head.
    fn sync_to_head(&mut self, head: &impl Head) {
        let (writer_id, epoch) = head.writer();
        (self.writer_id, self.epoch) = (writer_id.into(), epoch);
        (self.next_writer_seq, self.next_journal_seq, self.next_checkpoint_seq) = head.next();
        self.prev_hash = Some(head.hash().into());
        self.seen = self.seen.max(head.position().offset);
    }

    /// Whether this handle is still the run's writer. `None` is a run without records.
    pub(crate) fn is_writer_in(&self, head: Option<&impl Head>) -> bool {
        head.map_or((None, Epoch::ZERO), Head::writer) == (self.writer_id.borrow(), self.epoch)
    }

    /// Checks that an answer is not older than this handle's claim and its acknowledged records. A server that reads
    /// from a deposed leader gives such an answer: it may lack pending effects.
    pub(crate) fn check_current(&self, head: &impl Head) -> Result<(), Error> {
        let ((_, epoch), (_, next, _)) = (head.writer(), head.next());
        if (epoch, next) >= (self.epoch, self.next_journal_seq) {
            return Ok(());
        }
        Err(old_answer(self.run_id.borrow(), (self.epoch, self.next_journal_seq), (epoch, next)))
    }

    /// Whether a read-back names this handle as the writer, if the handle wrote the run in `epoch`. Each of its claims
    /// takes the next epoch, so all epochs from `epoch` to the current one belong to it. The epoch of its claim in
    /// flight belongs to it, too.
    pub(crate) fn is_writer_since(&self, epoch: Epoch, answer: &ReadBack) -> bool {
        let claimed = || self.claiming.as_ref().is_some_and(|claim| claim.is_named_in(answer));
        !self.state.is_lost() && ((epoch..=self.epoch).contains(&answer.epoch) || claimed())
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
        let run_id = self.run_id.clone();
        let claim = match self.claiming.take().filter(|claim| Some(claim.epoch()) == self.epoch.next()) {
            Some(claim) => claim,
            None => {
                let own = self.writer_id.0.clone().filter(|_| self.has_claimed);
                let previous = own.map(|writer_id| PreviousClaim { writer_id, secret: self.secret });
                let secret = self.secret.map(|_| self.config.secret());
                Claim::after(self.epoch, previous, secret, &self.config, run_id.borrow())?
            }
        };
        self.claiming = Some(claim.clone());
        if !head.as_ref().is_some_and(|head| claim.is_held_in(head)) {
            if !self.is_writer_in(head.as_ref()) {
                return Err(not_writer(run_id.borrow(), self.epoch, epoch_of(head.as_ref())));
            }
            claim.send(&self.transport, &self.config, run_id.borrow()).await?;
            head = head_after_claim.await?;
        }
        let seen = epoch_of(head.as_ref());
        let head = head.filter(|head| claim.is_held_in(head));
        let head = head.ok_or_else(|| not_writer(run_id.borrow(), claim.epoch(), seen))?;
        self.sync_to_head(&head);
        (self.claiming, self.has_claimed, self.secret) = (None, true, claim.secret());
        Ok(head)
    }

    /// Checks that the handle can append. A cancelled append stops the handle here.
    pub(crate) fn check_ready(&mut self) -> Result<(), Error> {
        if let Some(sent) = self.unacknowledged.as_ref().filter(|_| self.state.is_ready()) {
            let message = format!(
                "the append of record {} to run {} was cancelled before it was acknowledged: it may be in the log; \
                 reopen the run",
                sent.body.record_id, self.run_id
            );
            let error = Error::new(ErrorKind::Unavailable, Action::Reopen, message);
            let error = error.about_run(self.run_id.borrow()).about_record(sent.body.record_id.borrow());
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

    pub(super) async fn append_until(
        &mut self,
        record_id: RecordId,
        payload: Payload,
        until: AppendUntil,
    ) -> Result<AckedRecord, Error> {
        self.check_ready()?;
        let record = self.build_record(record_id, payload, None).await?;
        self.send_until(record, until).await
    }

    /// As [`RunAppender::append`], for a complete record under an id that its caller chose: also waits for its outcome.
    /// A refusal, or an unknown outcome, stops the handle. A repeat has the first record's position.
    pub(crate) async fn append_record(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        self.check_ready()?;
        let record = offload_payload(&self.transport, &self.config, record).await?;
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
        let (config, run_id) = (self.config.clone(), self.run_id.clone());
        if !acked.applied {
            let answer = outcome_of(&self.transport, &config, run_id.borrow(), &acked, &self.unjudged).await;
            let outcome = answer.map_err(|error| self.stop(error).with_side_effect(SideEffect::Unknown))?.outcome;
            if !took_effect(&outcome) {
                let Some(sent) = self.unacknowledged.take() else { return Err(self.not_sent()) };
                return Err(self.stop_for_refusal(sent, &outcome));
            }
            acked.repeat = repeat_of(&outcome);
            (acked.applied, acked.position) = (true, outcome.position);
        }
        if batch || acked.repeat.is_some() {
            let (writer_seq, expected) = (self.next_writer_seq, self.next_journal_seq);
            let synced = self.sync_numbers().await;
            synced.map_err(|error| self.stop(error).with_side_effect(SideEffect::Unknown))?;
            if self.next_writer_seq != writer_seq {
                let message = format!(
                    "after record {} the next writer_seq of run {run_id} is {writer_seq}, not {} as the server says; reopen \
                     the run",
                    acked.record_id, self.next_writer_seq
                );
                let error = Error::new(ErrorKind::Stale, Action::Reopen, message);
                return Err(self.stop(error).with_side_effect(SideEffect::Unknown));
            }
            acked.holds_repeats = batch && (acked.repeat.is_some() || self.next_journal_seq != expected);
        }
        self.unacknowledged = None;
        self.last_acked = Some(acked.clone());
        Ok(acked)
    }

    /// Builds a record without numbers. A payload that is too large goes to the content store.
    pub(crate) async fn build_record(
        &self,
        record_id: RecordId,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<JournalRecord, Error> {
        build_record(&self.transport, &self.config, self.run_id.borrow(), (record_id, payload, key)).await
    }

    fn number(&self, record: &mut JournalRecord) {
        let kind = record.body.record_kind;
        let place = &mut record.place;
        place.writer_id.clone_from(&self.writer_id);
        place.writer_epoch = self.epoch;
        (place.writer_seq, place.prev_hash) =
            if kind.unclaimed() { (WriterSeq::ZERO, None) } else { (self.next_writer_seq, self.prev_hash) };
        place.journal_seq = if kind.numbered() { self.next_journal_seq } else { JournalSeq::ZERO };
        place.timestamp_millis = (self.config.clock)();
        if let Some(epoch) = &mut record.body.facts.epoch {
            // A decision of this writer's, sent again under another epoch.
            *epoch = self.epoch;
        }
        if let Payload::Batch(batch) = &mut record.payload {
            numbering::number_batch(batch, place, self.next_journal_seq);
        }
    }

    /// Numbers records consecutively, to send them together. The handle's next numbers change only with the
    /// acknowledgement.
    pub(super) fn number_all<'a>(&mut self, records: impl Iterator<Item = &'a mut JournalRecord>) {
        let next = (self.next_writer_seq, self.next_journal_seq, self.prev_hash);
        for record in records {
            self.number(record);
            self.advance_past(record);
        }
        (self.next_writer_seq, self.next_journal_seq, self.prev_hash) = next;
    }

    /// Moves the next numbers past this record.
    fn advance_past(&mut self, record: &JournalRecord) {
        if !record.body.record_kind.unclaimed() {
            let advance = numbering::advance(record);
            self.next_writer_seq = self.next_writer_seq.saturating_add(advance.writer_seq);
            self.next_journal_seq = self.next_journal_seq.saturating_add(advance.journal_seq);
            self.prev_hash = Some(advance.hash.into());
        }
    }

    /// Sends a record under the next numbers, in any state: reopening a stopped handle does this.
    pub(crate) async fn send(&mut self, record: JournalRecord) -> Result<AckedRecord, Error> {
        self.send_until(record, AppendUntil::Judged).await
    }

    async fn send_until(&mut self, mut record: JournalRecord, until: AppendUntil) -> Result<AckedRecord, Error> {
        let _permit = self.transport.permit(&record).await?;
        self.number(&mut record);
        let record = &*self.unacknowledged.insert(record);
        (self.config.failpoints)(failpoint::RECORD_NUMBERED);
        let (trace, sent_at) = ((self.config.traceparent)(), SentAt::now(&self.config));
        let sent = ToAppend::new(record, trace.as_deref());
        // An answer at the acknowledgement cannot contain outcomes.
        let also = if until == AppendUntil::Acknowledged { Vec::new() } else { self.unjudged.positions() };
        match self.transport.append_one(sent, AppendAsk { until, also: &also }).await {
            Ok(appended) => {
                self.unjudged.apply_outcomes(&also, &appended.also);
                let Some(record) = self.unacknowledged.take() else { return Err(self.not_sent()) };
                self.acknowledged(record, appended, (sent_at, self.seen))
            }
            Err(failed) if failed.untouched => {
                self.config.count(metric::APPEND_FAILED);
                // A handle that is not ready keeps the record: reopening it sends the record again.
                if self.state.is_ready() {
                    self.unacknowledged = None;
                }
                Err(failed.error)
            }
            Err(failed) => {
                self.config.count(metric::APPEND_FAILED);
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
        self.config.count(metric::APPENDED);
        self.config.observe(metric::APPEND_SECONDS, sent_at.instant);
        let Appended { position, outcome, writer, .. } = appended;
        let read_back = writer.zip(outcome.clone()).map(|(writer, outcome)| {
            let Writer { writer_id, epoch } = writer;
            ReadBack { outcome, epoch, writer_id, also: Vec::new() }
        });
        // A repeat of an earlier record takes no number of the run. A second delivery of this record does not matter:
        // the first took the number.
        let repeats_earlier = outcome.as_ref().is_some_and(|outcome| repeats_earlier(outcome, sent_after));
        let journal_seq = self.next_journal_seq;
        self.advance_past(&record);
        if repeats_earlier {
            self.next_journal_seq = journal_seq;
        }
        if let Some(outcome) = outcome.as_ref().filter(|outcome| !took_effect(outcome)) {
            return Err(self.stop_for_refusal(record, outcome));
        }
        self.seen = self.seen.max(position.offset);
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
        let error = not_writer(self.run_id.borrow(), self.epoch, seen);
        if error.kind() == ErrorKind::ClaimLost { self.lose(error) } else { error }
    }

    /// Checks that this handle writes the run.
    pub(crate) async fn check_writer(&mut self) -> Result<(), Error> {
        let head = self.transport.run(self.run_id.borrow()).await?;
        if self.is_writer_in(head.as_ref()) { Ok(()) } else { Err(self.not_writer_in(epoch_of(head.as_ref()))) }
    }

    /// Reads the next numbers from the journal. If another process writes the run, the handle is lost.
    async fn sync_numbers(&mut self) -> Result<(), Error> {
        let head = self.transport.run(self.run_id.borrow()).await?;
        let seen = epoch_of(head.as_ref());
        if let Some(head) = head.filter(|head| self.is_writer_in(Some(head))) {
            (self.next_writer_seq, self.next_journal_seq, _) = Head::next(&head);
            return Ok(());
        }
        let error = not_writer(self.run_id.borrow(), self.epoch, seen);
        if error.kind() != ErrorKind::ClaimLost {
            return Err(error);
        }
        self.lose(error);
        Ok(())
    }

    /// Returns the positions of the records `ids` of an acknowledged batch, in order. A repeat has the first record's
    /// position.
    pub(crate) async fn positions(&self, acked: &AckedRecord, ids: &[RecordId]) -> Result<Vec<Position>, Error> {
        let mut positions = Vec::with_capacity(ids.len());
        for (nth, id) in (0..).zip(ids) {
            let first_record = if acked.holds_repeats {
                let landed = self.transport.landed(self.run_id.borrow(), id.borrow(), Some(&acked.position)).await;
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
        let message = format!("run {}: a record was acknowledged that was not sent", self.run_id);
        Error::new(ErrorKind::Internal, Action::Operator, message)
    }

    /// Stops the handle for a refusal that the backend reported with the acknowledgement.
    fn stop_for_refusal(&mut self, record: JournalRecord, outcome: &Outcome) -> Error {
        let error = refused(self.run_id.borrow(), Some(record.body.record_id.borrow()), outcome);
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
        match read_back(&self.transport, &self.config, self.run_id.borrow(), acked, &self.unjudged).await {
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
        (self.config.failpoints)(failpoint::RECORD_NUMBERED);
        let (trace, sent_at) = ((self.config.traceparent)(), SentAt::now(&self.config));
        let evidence = ToAppend::new(&record, trace.as_deref());
        let appended = self.transport.append_one(evidence, AppendAsk::JUDGED).await;
        let appended = appended.map_err(|failed| failed.error)?;
        if self.state.is_lost() {
            return Ok(true);
        }
        let outcome = match appended.outcome {
            Some(outcome) => outcome,
            None => {
                let (record_id, journal_seq) = (record.body.record_id, record.place.journal_seq);
                let acked = AckedRecord::new(record_id, journal_seq, appended.position, sent_at);
                let (config, run_id) = (&self.config, self.run_id.borrow());
                outcome_of(&self.transport, config, run_id, &acked, &self.unjudged).await?.outcome
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
            self.config.count(metric::LOST);
        }
        self.state = WriterState::Lost(error.clone());
        error
    }

    pub(crate) fn stop_or_lose(&mut self, error: Error) -> Error {
        if error.kind() == ErrorKind::Fenced { self.lose(error) } else { self.stop(error) }
    }
}

/// Whether a record is the intent of a call, or another attempt.
fn is_intent(record: &JournalRecord) -> bool {
    let kind = record.body.facts.payload_type.known();
    matches!(kind, Some(PayloadType::ToolCallRequested | PayloadType::ToolCallAttempt))
}
