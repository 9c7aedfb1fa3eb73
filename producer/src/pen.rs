//! Numbering and appending: one record at a time, acknowledged in order, none after an earlier one failed.
//!
//! ```text
//!   usable ──append──▶ sent ──acknowledged──▶ usable
//!                       ├── unknown, cancelled, refused ──▶ stopped ──reopen──▶ usable
//!                       └── fenced ───────────────────────▶ lost: what follows can only be left as evidence
//! ```

use crate::{
    Action, Config, Error, Happened,
    claim::{Claim, Head},
    failpoint, metric,
    transport::Transport,
    write,
};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position, ReadBack},
    depth,
    id::{Epoch, JournalSeq, OrEmpty, PrevHash, RecordId, RunId, WriterId, WriterSeq},
    payload::Payload,
    record::{JournalRecord, RecordKind},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The writer of a run.
#[derive(Debug)]
pub(crate) struct Pen {
    pub(crate) transport: Arc<Transport>,
    pub(crate) config: Arc<Config>,
    pub(crate) run_id: RunId,
    pub(crate) writer_id: OrEmpty<WriterId>,
    pub(crate) epoch: Epoch,
    pub(crate) next_writer_seq: WriterSeq,
    pub(crate) next_journal_seq: JournalSeq,
    pub(crate) prev_hash: Option<PrevHash>,
    pub(crate) next_checkpoint_seq: u64,
    /// The claim that makes the handle usable again, until it is settled.
    pub(crate) claiming: Option<Claim>,
    /// Why nothing can be appended.
    pub(crate) halt: Option<Halt>,
    /// The record that was sent last, until it is acknowledged. There at the next one, nobody knows whether it landed:
    /// its append failed, or was cancelled. Never more than one.
    pub(crate) sent: Option<JournalRecord>,
    /// The last acknowledged record, and whether it is known to be applied.
    pub(crate) last: Option<Written>,
}

/// Why a handle appends nothing.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// Until it is reopened.
    Stopped {
        error: Error,
        /// What failed was a checkpoint, which is to fail nobody's loop: what comes next reopens first.
        checkpoint: bool,
    },
    /// Another process writes the run.
    Lost(Error),
    /// The run ended.
    Ended(Error),
}

impl Halt {
    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Stopped { error, .. } | Self::Lost(error) | Self::Ended(error) => error,
        }
    }
}

/// An acknowledged record.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) record_id: RecordId,
    pub(crate) journal_seq: JournalSeq,
    pub(crate) position: Position,
    /// Whether the way told along with the acknowledgement that it was applied.
    pub(crate) applied: bool,
    /// Where it told that the record had been there before: the number of that one, 0 where it did not tell it.
    pub(crate) repeat: Option<JournalSeq>,
}

impl Pen {
    /// The writer that the run has; none is a run without records.
    pub(crate) fn new(
        transport: Arc<Transport>,
        config: Arc<Config>,
        run_id: RunId<&str>,
        head: Option<&impl Head>,
        halt: Option<Halt>,
    ) -> Self {
        let mut pen = Self {
            transport,
            config,
            run_id: run_id.to_owned(),
            writer_id: OrEmpty::NONE,
            epoch: Epoch::ZERO,
            next_writer_seq: WriterSeq::from(1),
            next_journal_seq: JournalSeq::from(1),
            prev_hash: None,
            next_checkpoint_seq: 1,
            claiming: None,
            halt,
            sent: None,
            last: None,
        };
        if let Some(head) = head {
            pen.stand(head);
        }
        pen
    }

    /// Whether the handle can append.
    pub(crate) fn usable(&mut self) -> Result<(), Error> {
        if let Some(sent) = self.sent.as_ref().filter(|_| self.halt.is_none()) {
            let message = format!(
                "the append of record {} to run {} was cancelled before it was acknowledged: it may have landed; \
                 reopen the run",
                sent.body.record_id, self.run_id
            );
            self.stop(Error::new(ErrorKind::Unavailable, Action::Reopen, message));
        }
        self.halt.as_ref().map_or(Ok(()), |halt| Err(halt.error().told_again()))
    }

    /// Numbers and appends a record, and waits for its acknowledgement.
    ///
    /// A record that is refused before it is sent takes no number, and the handle goes on. A payload that is too large for
    /// a record goes to the content store first: where that fails, or is cancelled, nothing was numbered. After any other
    /// failure, and where the way told that the record was refused, the handle stands still. That it was applied, told
    /// along with the acknowledgement, says nothing about now: see [`permit`].
    pub(crate) async fn append(
        &mut self,
        record_id: RecordId,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<Written, Error> {
        self.usable()?;
        let record = self.stowed(record_id, payload, key).await?;
        self.send(record).await
    }

    /// A record without its place, its payload where it belongs.
    pub(crate) async fn stowed(
        &self,
        record_id: RecordId,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<JournalRecord, Error> {
        let mut record = JournalRecord::new(self.run_id.borrow(), record_id, &self.config.agent_id, payload);
        record.body.idempotency_key = key.map(str::to_owned);
        if let Some(redaction) = &self.config.redaction {
            redaction.policy_id().clone_into(&mut record.body.redaction_policy_id);
        }
        self.stow(record).await
    }

    /// As [`Pen::append`], for a record that is made.
    pub(crate) async fn append_whole(&mut self, record: JournalRecord) -> Result<Written, Error> {
        self.usable()?;
        let record = self.stow(record).await?;
        self.send(record).await
    }

    async fn stow(&self, record: JournalRecord) -> Result<JournalRecord, Error> {
        let id = &record.body.record_id;
        let deep = |why: &str| format!("record {id} of run {} could not be read whole: {why}", self.run_id);
        depth::check(&record).map_err(|too_deep| Error::from(too_deep).of(deep))?;
        let record = self.transport.stow(record).await?;
        if matches!(record.payload, Payload::StoredPayload(_)) {
            (self.config.failpoints)(failpoint::CONTENT_STORED);
        }
        Ok(record)
    }

    fn place(&self, record: &mut JournalRecord) {
        let kind = record.body.record_kind;
        let place = &mut record.place;
        place.writer_id.clone_from(&self.writer_id);
        place.writer_epoch = self.epoch;
        (place.writer_seq, place.prev_hash) =
            if kind.unclaimed() { (WriterSeq::ZERO, None) } else { (self.next_writer_seq, self.prev_hash) };
        place.journal_seq = if kind.numbered() { self.next_journal_seq } else { JournalSeq::ZERO };
        place.timestamp_millis = (self.config.clock)();
        if let Payload::Batch(batch) = &mut record.payload {
            write::place(batch, place, self.next_journal_seq);
        }
    }

    /// Sends a record under the next numbers, whether or not the handle stands still: what reopens it does this.
    pub(crate) async fn send(&mut self, mut record: JournalRecord) -> Result<Written, Error> {
        let _room = self.transport.room(&record).await?;
        self.place(&mut record);
        let record = &*self.sent.insert(record);
        (self.config.failpoints)(failpoint::RECORD_NUMBERED);
        let (trace, begun) = ((self.config.traceparent)(), Instant::now());
        match self.transport.append(record, trace.as_deref()).await {
            Ok(appended) => {
                self.config.count(metric::APPENDED);
                self.config.observe(metric::APPEND_SECONDS, begun);
                let (applied, outcome) = (appended.outcome.is_some(), appended.outcome);
                let repeat = outcome.as_ref().and_then(repeated);
                let Some(record) = self.sent.take() else { return Err(self.no_record()) };
                if !record.body.record_kind.unclaimed() {
                    let (records, numbered, hash) = write::behind(&record);
                    self.next_writer_seq = self.next_writer_seq.saturating_add(records);
                    self.next_journal_seq =
                        self.next_journal_seq.saturating_add(if repeat.is_some() { 0 } else { numbered });
                    self.prev_hash = Some(hash.into());
                }
                if let Some(outcome) = outcome.filter(|outcome| !taken(outcome)) {
                    return Err(self.refused(record, &outcome));
                }
                let (record_id, journal_seq) = (record.body.record_id, record.place.journal_seq);
                let written = Written { record_id, journal_seq, position: appended.position, applied, repeat };
                self.last = Some(written.clone());
                Ok(written)
            }
            Err(failed) if failed.untouched => {
                self.config.count(metric::APPEND_FAILED);
                // What stands still keeps it, to be sent by whoever reopens.
                if self.halt.is_none() {
                    self.sent = None;
                }
                Err(failed.error)
            }
            Err(failed) => {
                self.config.count(metric::APPEND_FAILED);
                Err(self.stop(failed.error).left(Happened::Unknown))
            }
        }
    }

    fn no_record(&self) -> Error {
        let message = format!("a record of run {} was acknowledged that was not sent", self.run_id);
        Error::new(ErrorKind::Internal, Action::Operator, message)
    }

    /// The way told along with the acknowledgement that the record was refused.
    fn refused(&mut self, record: JournalRecord, outcome: &Outcome) -> Error {
        let error = refused(self.run_id.borrow(), Some(record.body.record_id.borrow()), outcome);
        if error.kind() == ErrorKind::Fenced {
            return self.lose(error);
        }
        let checkpoint = record.body.record_kind == RecordKind::LoopCheckpoint;
        if outcome.reason.as_deref() == Some("gap") {
            // Refused for its place: it consumed no number and can come again.
            self.sent = Some(record);
        }
        self.halt_for(error, checkpoint)
    }

    /// Reads back what became of an acknowledged record; anything but applied stops the handle.
    pub(crate) async fn read_back(&mut self, written: &Written, deadline: Duration) -> Result<ReadBack, Error> {
        match read_back(&self.transport, &self.config, self.run_id.borrow(), written, deadline).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.stop_or_lose(error)),
        }
    }

    /// Leaves a result in the log in the name of a writer that has lost the run, or whose run ended. It is refused there,
    /// and kept as evidence for whoever decides about its effect.
    pub(crate) async fn leave(&mut self, mut record: JournalRecord) -> Result<(), Error> {
        self.place(&mut record);
        (self.config.failpoints)(failpoint::RECORD_NUMBERED);
        let trace = (self.config.traceparent)();
        self.transport.append(&record, trace.as_deref()).await.map(drop).map_err(|failed| failed.error)
    }

    pub(crate) fn stop(&mut self, error: Error) -> Error {
        let of_checkpoint = |sent: &JournalRecord| sent.body.record_kind == RecordKind::LoopCheckpoint;
        let checkpoint = self.sent.as_ref().is_some_and(of_checkpoint);
        self.halt_for(error, checkpoint)
    }

    pub(crate) fn stop_for_checkpoint(&mut self, error: Error) {
        self.halt_for(error, true);
    }

    fn halt_for(&mut self, error: Error, checkpoint: bool) -> Error {
        let error = error.stopping();
        self.halt.get_or_insert(Halt::Stopped { error: error.clone(), checkpoint });
        error
    }

    /// The run is another process's, whatever the handle thought before.
    pub(crate) fn lose(&mut self, error: Error) -> Error {
        if !matches!(self.halt, Some(Halt::Lost(_))) {
            self.config.count(metric::LOST);
        }
        self.halt = Some(Halt::Lost(error.clone()));
        error
    }

    pub(crate) fn stop_or_lose(&mut self, error: Error) -> Error {
        if error.kind() == ErrorKind::Fenced { self.lose(error) } else { self.stop(error) }
    }
}

/// Reads back what became of an acknowledged record. An answer that came too late is none: how long this process was
/// paused shows here.
pub(crate) async fn read_back(
    transport: &Transport,
    config: &Config,
    run_id: RunId<&str>,
    written: &Written,
    deadline: Duration,
) -> Result<ReadBack, Error> {
    let begun = Instant::now();
    let ask = transport.read_back(run_id, &written.position, Some(written.record_id.borrow()), deadline);
    let answer = tokio::time::timeout(deadline, ask).await;
    (config.failpoints)(failpoint::READ_BACK_ANSWERED);
    config.observe(metric::READ_BACK_SECONDS, begun);
    let answer = match answer {
        Ok(Ok(answer)) if begun.elapsed() <= deadline => answer,
        Ok(Err(error)) => return Err(error),
        _ => {
            let message = format!(
                "record {} of run {run_id} was not read back as applied within {deadline:?}",
                written.record_id
            );
            return Err(Error::new(ErrorKind::Stale, Action::Reopen, message));
        }
    };
    if taken(&answer.outcome) {
        Ok(answer)
    } else {
        Err(refused(run_id, Some(written.record_id.borrow()), &answer.outcome))
    }
}

/// Whether the effect behind an acknowledged intent may run: the intent was applied, **and** the handle still writes the
/// run. Both are read from one view that is at `latest` after the acknowledgement, since a claim behind the intent leaves
/// the intent applied and gives its effect to somebody else.
pub(crate) async fn permit(
    transport: &Transport,
    config: &Config,
    run_id: RunId<&str>,
    written: &Written,
    writer: (&OrEmpty<WriterId>, Epoch),
) -> Result<(), Error> {
    let answer = read_back(transport, config, run_id, written, config.read_back).await?;
    if (&answer.writer_id, answer.epoch) == writer {
        return Ok(());
    }
    let message = format!(
        "run {run_id} was taken over by writer {} in epoch {} behind record {}: its effect was not run here",
        answer.writer_id, answer.epoch, written.record_id
    );
    Err(Error::new(ErrorKind::Fenced, Action::Stop, message))
}

/// Whether a record took effect, now or when it came first.
pub(crate) fn taken(outcome: &Outcome) -> bool {
    matches!(outcome.outcome.as_str(), "applied" | "repeat") && outcome.reason.is_none()
}

/// Of a record that had been there before: the number of that one, 0 where its kind has none and where nobody told it.
pub(crate) fn repeated(outcome: &Outcome) -> Option<JournalSeq> {
    (outcome.outcome == "repeat").then(|| outcome.journal_seq.unwrap_or_default())
}

/// What a refusal means for whoever wrote the record.
pub(crate) fn refused(run_id: RunId<&str>, record_id: Option<RecordId<&str>>, outcome: &Outcome) -> Error {
    let reason = outcome.reason.as_deref().unwrap_or("unknown");
    let fenced = reason == "fenced";
    let what = if fenced { "; another process took the run over" } else { "" };
    let message = format!("record {} of run {run_id} was refused as {reason}{what}", OrEmpty::from(record_id));
    let (kind, action) = if fenced { (ErrorKind::Fenced, Action::Stop) } else { (ErrorKind::Conflict, Action::Reopen) };
    Error::new(kind, action, message)
}
