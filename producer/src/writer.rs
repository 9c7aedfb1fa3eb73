//! Writing records as they are given, for whoever has a journal protocol of their own: no gate, no record that the caller did
//! not ask for but the claim.
//!
//! ```text
//!   write(record) ─▶ appended ─▶ acknowledged ─▶ read back as applied ─▶ its place
//!                       └─ unknown ─▶ the next write claims the run's next epoch, and behind the claim it is known:
//!                                     it landed ─▶ written again, it is found;  it did not ─▶ it never will
//! ```
//!
//! So a record that was written without an answer can be written again, whatever was written between, and is in the log
//! once; and what is written instead of it is written only once it is certain that the former never takes effect.

use crate::{
    config::Config,
    error::{Action, Error, SideEffect},
    session::{
        self,
        appender::{RunAppender, WriterState},
        checkpoint::{CheckpointBase, LoopState},
        numbering,
        read_back::{read_back, repeat_of},
    },
    transport::Transport,
};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::{Epoch, JournalSeq, RecordId, RunId},
    payload::{
        Payload,
        wrapped::{BATCH_RECORDS_MAX, Batch},
    },
    record::{JournalRecord, RecordKind},
};
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, MutexGuard};

/// The writer of a run's records. Dropping it ends nothing; another process may take the run over at any time, and this one
/// is told so by the next write.
///
/// Its methods take `&self` and may be called concurrently: records are in the log in the order in which they got their turn.
#[derive(Debug)]
pub struct Writer {
    transport: Arc<Transport>,
    config: Arc<Config>,
    run_id: RunId,
    inner: Mutex<WriterInner>,
    /// Of the last claim that was applied; readable while `inner` is locked.
    epoch: std::sync::Mutex<Epoch>,
}

#[derive(Debug)]
struct WriterInner {
    appender: RunAppender,
    next_checkpoint_seq: u64,
    /// What the next checkpoint builds on. `None` until it was read from the journal.
    checkpoint_base: Option<CheckpointBase>,
}

/// A record that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Where it stands; where it had been written before, where the first one stands.
    pub position: Position,
    /// Its number within the run; where it had been written before, that of the first one. 0 for kinds that have none, and of a
    /// repeat where the server is of a version that does not tell it.
    pub journal_seq: JournalSeq,
    /// Whether it had been written before, by whichever process: nothing happened now.
    pub repeat: bool,
}

impl Writer {
    /// Opens a writer; see [`Runlog::writer`](crate::Runlog::writer).
    pub(crate) async fn open(transport: Arc<Transport>, config: Arc<Config>, run_id: RunId) -> Result<Self, Error> {
        let head = transport.run(run_id.borrow()).await?;
        let start = Error::new(ErrorKind::Unavailable, Action::Reopen, format!("run {run_id} is not claimed yet"));
        let start = WriterState::Stopped { error: start, checkpoint: false };
        let appender = RunAppender::new(transport.clone(), config.clone(), run_id.borrow(), head.as_ref(), start);
        let inner = WriterInner { appender, next_checkpoint_seq: 1, checkpoint_base: None };
        let writer = Self { transport, config, run_id, inner: Mutex::new(inner), epoch: std::sync::Mutex::default() };
        let mut inner = writer.lock().await?;
        writer.take_over(&mut inner).await?;
        drop(inner);
        Ok(writer)
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.run_id
    }

    /// The epoch that it writes in. It grows where a write claims the run again behind one that failed; what is applied was
    /// written in the epoch of then. That another process took the run over is not seen here.
    pub fn epoch(&self) -> Epoch {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record of this run with Runlog's defaults around `payload`, to be changed and acked. Its id as given, or a random one.
    pub fn draft(&self, record_id: Option<RecordId>, payload: impl Into<Payload>) -> Result<JournalRecord, Error> {
        let record_id = record_id.map_or_else(|| self.config.record_id(), Ok)?;
        Ok(JournalRecord::new(self.run_id.borrow(), record_id, &self.config.agent_id, payload.into()))
    }

    /// The number that the next numbered record gets, and the `checkpoint_seq` that the next loop checkpoint may have. Another
    /// write of this handle may be faster.
    ///
    /// Errors: as [`Writer::write`], of settling what came before.
    pub async fn next(&self) -> Result<(JournalSeq, u64), Error> {
        let ask = async {
            let mut inner = self.lock().await?;
            self.settle(&mut inner).await?;
            Ok((inner.appender.next_journal_seq, inner.next_checkpoint_seq))
        };
        self.config.time_limited(self.run_id.borrow(), SideEffect::None, ask).await
    }

    /// Writes a record as it is and waits until it is applied. Its place is given here; a `journal_seq` that it brings is the
    /// one that it must get. Written before, by whichever process, with the same id and content: nothing happens, and it says
    /// where that one stands.
    ///
    /// Errors: `Invalid` for a record of another run or of a kind that is not written so, `Conflict` for a `journal_seq` that
    /// is not the next one, `TooLarge`: nothing was appended. `Conflict` where the journal refused the record: it has no effect,
    /// and the next write goes on, behind the number that the refused one was given ([`Writer::next`] says which). `Fenced` or `ClaimLost` where another process has the run: nothing that follows is taken.
    /// Everything with [`SideEffect::Unknown`], and cancellation: write the same record again to find out.
    ///
    /// What needs no claim (resolutions, retractions) is not held back by a later one either: an append of that kind whose answer
    /// was lost may land at any time, until it is written again.
    #[tracing::instrument(skip_all, fields(run = self.run_id.as_str()))]
    pub async fn write(&self, record: JournalRecord) -> Result<RecordMetadata, Error> {
        let record = self.writable(record)?;
        self.config.time_limited(self.run_id.borrow(), SideEffect::Unknown, self.put(record)).await
    }

    /// Writes 1 to [`BATCH_RECORDS_MAX`] records that are applied together or not at all: one record of the log, `record_id` its
    /// id. Where they stand, in order. Errors and cancellation as with [`Writer::write`]; numbers are not asked for here.
    #[tracing::instrument(skip_all, fields(run = self.run_id.as_str()))]
    pub async fn batch(&self, record_id: RecordId, records: Vec<JournalRecord>) -> Result<Vec<Position>, Error> {
        let count = records.len();
        if !(1..=BATCH_RECORDS_MAX).contains(&count) {
            let message = format!("a batch of run {} has {count} records, not 1 to {BATCH_RECORDS_MAX}", self.run_id);
            return Err(Error::new(ErrorKind::Invalid, Action::FixTheInput, message));
        }
        let records: Result<Vec<_>, _> = records.into_iter().map(|record| self.writable(record)).collect();
        let batch = self.draft(Some(record_id), Batch { records: records? })?;
        let first =
            self.config.time_limited(self.run_id.borrow(), SideEffect::Unknown, self.put(batch)).await?.position;
        Ok((0..).take(count).map(|nth| Position { index: first.index + nth, ..first.clone() }).collect())
    }

    /// Records where a loop stands, covering all that is numbered so far, and waits until that is applied. As with
    /// [`Run::checkpoint`](crate::Run::checkpoint) the message list is given whole, and only what the last checkpoint of the
    /// run did not have is written; it may have been another process's. Requests that are unanswered are not listed in it.
    ///
    /// Errors and cancellation as with [`Writer::write`], but for that it need not be written again: the next one has
    /// everything. `TooLarge` also for a list that no reader takes.
    #[tracing::instrument(skip_all, fields(run = self.run_id.as_str()))]
    pub async fn checkpoint(&self, state: &LoopState) -> Result<RecordMetadata, Error> {
        self.config.time_limited(self.run_id.borrow(), SideEffect::Unknown, self.save(state)).await
    }

    async fn save(&self, state: &LoopState) -> Result<RecordMetadata, Error> {
        let mut inner = self.lock().await?;
        self.settle(&mut inner).await?;
        if inner.checkpoint_base.is_none() {
            inner.checkpoint_base = self.base().await;
        }
        let id = self.config.record_id()?;
        let numbers = (inner.next_checkpoint_seq, inner.appender.next_journal_seq);
        let whole = CheckpointBase::default();
        let base = inner.checkpoint_base.as_ref().unwrap_or(&whole);
        let (checkpoint, next) =
            base.next_checkpoint(&self.config, self.run_id.borrow(), &id, numbers, Vec::new(), state)?;
        // Its content is redacted already: what it brings, and what its hash is of.
        let mut record = self.draft(Some(id), checkpoint)?;
        self.config.redaction.iter().for_each(|redaction| redaction.sign(&mut record));
        // What it builds on stays what the next one builds on until it is known to be applied.
        match self.put_behind(&mut inner, record).await {
            Ok(wrote) => {
                inner.checkpoint_base = Some(next);
                Ok(wrote)
            }
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    // What it builds on may be at fault.
                    inner.checkpoint_base = Some(whole);
                }
                Err(error)
            }
        }
    }

    /// The run's last checkpoint. Where it cannot be had, the next one is written whole, and the one after it asks no more.
    async fn base(&self) -> Option<CheckpointBase> {
        match self.transport.checkpoint(self.run_id.borrow(), None).await {
            Ok(checkpoint) => Some(CheckpointBase::from_recovered(checkpoint.as_ref())),
            Err(error) => {
                tracing::debug!(run = self.run_id.as_str(), %error, "the last checkpoint is not built on");
                None
            }
        }
    }

    async fn lock(&self) -> Result<MutexGuard<'_, WriterInner>, Error> {
        session::lock(&self.inner, &self.config, &self.run_id).await
    }

    async fn put(&self, record: JournalRecord) -> Result<RecordMetadata, Error> {
        let mut inner = self.lock().await?;
        if let Err(error) = self.settle(&mut inner).await {
            // Sent before, and what became of it is not known yet.
            let sent =
                inner.appender.unacknowledged.as_ref().is_some_and(|sent| sent.body.record_id == record.body.record_id);
            return Err(if sent { error.with_side_effect(SideEffect::Unknown) } else { error });
        }
        self.put_behind(&mut inner, record).await
    }

    /// Writes a record behind what came before, which is settled.
    async fn put_behind(&self, inner: &mut WriterInner, record: JournalRecord) -> Result<RecordMetadata, Error> {
        self.expected(inner, &record).await?;
        if numbering::members(&record).iter().any(|record| record.body.record_kind == RecordKind::CheckpointPrune) {
            // It may take away what the next one would build on.
            inner.checkpoint_base = None;
        }
        let saves = |record: &&JournalRecord| record.body.record_kind == RecordKind::LoopCheckpoint;
        let checkpoint_seqs =
            numbering::members(&record).iter().filter(saves).filter_map(|record| record.body.facts.checkpoint_seq);
        let checkpoint_seq = checkpoint_seqs.max();
        let sent = record.clone();
        let acked = inner.appender.append_record(record).await?;
        let (position, repeat) = (acked.position.clone(), acked.repeat.is_some());
        let mut wrote = RecordMetadata { position, journal_seq: acked.repeat.unwrap_or(acked.journal_seq), repeat };
        if !acked.applied {
            // Until somebody says what it came to. Cancelled here, or not told, it is for the next write to settle.
            inner.appender.unacknowledged = Some(sent);
            let deadline = self.config.read_back;
            let answer = read_back(&self.transport, &self.config, self.run_id.borrow(), &acked, deadline).await;
            let answer = match answer {
                Ok(answer) => answer,
                // A word on the record itself.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced) => {
                    inner.appender.unacknowledged = None;
                    return Err(inner.appender.stop_or_lose(error));
                }
                Err(error) => return Err(inner.appender.stop(error).with_side_effect(SideEffect::Unknown)),
            };
            inner.appender.unacknowledged = None;
            if let Some(journal_seq) = repeat_of(&answer.outcome) {
                // It took no number of the run, which is known only now. How many a batch has is asked for again.
                if acked.journal_seq == JournalSeq::ZERO {
                    inner.appender.stop(again(&self.run_id));
                } else {
                    inner.appender.next_journal_seq = acked.journal_seq;
                }
                wrote = RecordMetadata { position: answer.outcome.position, journal_seq, repeat: true };
            }
        }
        if let Some(seq) = checkpoint_seq {
            inner.next_checkpoint_seq = inner.next_checkpoint_seq.max(seq.saturating_add(1));
        }
        Ok(wrote)
    }

    /// Whether the record may get the number that comes next; one that was written before is judged by the journal.
    async fn expected(&self, inner: &WriterInner, record: &JournalRecord) -> Result<(), Error> {
        let (wanted, next) = (record.place.journal_seq, inner.appender.next_journal_seq);
        if wanted == JournalSeq::ZERO || wanted == next || !record.body.record_kind.numbered() {
            return Ok(());
        }
        let id = record.body.record_id.borrow();
        if wanted < next && self.transport.landed(self.run_id.borrow(), id).await?.is_some() {
            return Ok(());
        }
        let message =
            format!("record {id} of run {} has journal_seq {wanted}, and the next one is {next}", self.run_id);
        Err(Error::new(ErrorKind::Conflict, Action::FixTheInput, message))
    }

    /// Makes the handle usable again behind a failed, unknown, cancelled or refused append.
    async fn settle(&self, inner: &mut WriterInner) -> Result<(), Error> {
        if inner.appender.check_ready().is_ok() {
            return Ok(());
        }
        if let WriterState::Lost(error) | WriterState::Ended(error) = &inner.appender.state {
            return Err(error.without_side_effect());
        }
        match Box::pin(self.take_over(inner)).await {
            Err(error) if matches!(error.kind(), ErrorKind::ClaimLost | ErrorKind::Fenced) => {
                Err(inner.appender.lose(error))
            }
            done => done,
        }
    }

    /// Claims the run behind the epoch that this handle knows, and takes its numbers from there. Behind the claim the record
    /// whose append was unknown cannot land any more; whether it did is judged when it is written again.
    async fn take_over(&self, inner: &mut WriterInner) -> Result<(), Error> {
        let head = self.transport.run(self.run_id.borrow()).await?;
        let behind = self.transport.run(self.run_id.borrow());
        inner.next_checkpoint_seq = inner.appender.take_over(head, behind).await?.next_checkpoint_seq;
        (inner.appender.unacknowledged, inner.appender.state) = (None, WriterState::Ready);
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = inner.appender.epoch;
        Ok(())
    }

    /// The record as it may be written, or why it may not.
    fn writable(&self, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        let (run_id, id, kind) = (&self.run_id, &record.body.record_id, record.body.record_kind);
        let invalid = |what: String| {
            let message = format!("record {id} {what}");
            Err(Error::new(ErrorKind::Invalid, Action::FixTheInput, message))
        };
        if record.body.run_id.borrow() != Some(run_id.borrow()) {
            return invalid(format!("is of run {:?}, not of {run_id}", record.body.run_id.as_str()));
        }
        if matches!(kind, RecordKind::RunClaim | RecordKind::Batch) || kind.of_partition() {
            return invalid(format!("of run {run_id} is a {}, which is not written so", kind.as_str()));
        }
        if matches!(record.payload, Payload::StoredPayload(_)) {
            return invalid(format!("of run {run_id} is a claim check, which is made of what is too large"));
        }
        self.config.redact_record(&mut record)?;
        Ok(record)
    }
}

fn again(run_id: &RunId) -> Error {
    let message =
        format!("a record of run {run_id} had been written before: the numbers behind it are asked for again");
    Error::new(ErrorKind::Conflict, Action::Reopen, message)
}
