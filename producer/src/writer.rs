//! Writes complete records for clients with their own journal protocol. It has no gate, and adds no record except the claim.
//!
//! ```text
//!   write(record) ─▶ appended ─▶ acknowledged ─▶ read back as applied ─▶ its position
//!                       └─ unknown ─▶ the next write claims the run's next epoch. After that claim:
//!                                     in the log ─▶ written again, it is a repeat;  not in the log ─▶ it never will be
//! ```
//!
//! A record whose write got no answer can be written again, even after other writes, and is in the log once. Its replacement is
//! written only when the first record can no longer take effect.

use crate::{
    config::Config,
    error::{Action, Error, SideEffect},
    session::{
        appender::RunAppender,
        checkpoint::{CheckpointBase, LoopState},
        claim::Claims,
        client::RunClient,
        numbering::members,
        outcome::AckedRecord,
        writer_state::WriterState,
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

/// Writes the records of a run. Dropping it does not end the run. Another process may take the run over at any time; the next
/// write fails then.
///
/// The methods take `&self` and may be called concurrently; records are in the log in the order of the calls.
#[derive(Debug)]
pub struct Writer {
    client: RunClient,
    inner: Mutex<WriterInner>,
    /// The epoch of the last applied claim; readable while `inner` is locked.
    epoch: std::sync::Mutex<Epoch>,
}

#[derive(Debug)]
struct WriterInner {
    appender: RunAppender,
    /// The base of the next checkpoint. `None` until it is read from the journal.
    checkpoint_base: Option<CheckpointBase>,
}

/// A record that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// The record's position; for a repeat, the first record's.
    pub position: Position,
    /// The record's number within the run; for a repeat, the first record's. 0 for kinds without a number, and for a repeat if
    /// the server's version does not report it.
    pub journal_seq: JournalSeq,
    /// Whether a process wrote the record before, so that this write had no effect.
    pub repeat: bool,
}

impl Writer {
    /// Opens a writer; see [`Runlog::writer`](crate::Runlog::writer).
    pub(crate) async fn open(transport: Arc<Transport>, config: Arc<Config>, run_id: RunId) -> Result<Self, Error> {
        let client = RunClient::new(transport, config, run_id.borrow());
        let head = client.transport.run(client.id()).await?;
        let start = Error::new(ErrorKind::Unavailable, Action::Reopen, format!("run {run_id} is not claimed yet"));
        let start = WriterState::Stopped { error: start, checkpoint: false };
        let appender = RunAppender::new(client.clone(), head.as_ref(), Claims::default(), start);
        let inner = WriterInner { appender, checkpoint_base: None };
        let writer = Self { client, inner: Mutex::new(inner), epoch: std::sync::Mutex::default() };
        let mut inner = writer.lock().await?;
        writer.take_over(&mut inner).await?;
        drop(inner);
        Ok(writer)
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.client.run_id
    }

    /// The current epoch. It increases when a write claims the run again after a failed one; earlier records keep their epoch.
    /// It does not reflect a takeover by another process.
    pub fn epoch(&self) -> Epoch {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds a record of this run with Runlog's defaults around `payload`, to be changed and written. Without a `record_id` it
    /// has a new one.
    pub fn draft(&self, record_id: Option<RecordId>, payload: impl Into<Payload>) -> Result<JournalRecord, Error> {
        let record_id = record_id.map_or_else(|| self.client.config.record_id(), Ok)?;
        Ok(JournalRecord::new(self.client.id(), record_id, &self.client.config.agent_id, payload.into()))
    }

    /// The `journal_seq` of the next numbered record, and the `checkpoint_seq` of the next loop checkpoint. A concurrent write of
    /// this handle may use them first.
    ///
    /// Errors: as [`Writer::write`], from settling an earlier write.
    pub async fn next(&self) -> Result<(JournalSeq, u64), Error> {
        let ask = async {
            let mut inner = self.lock().await?;
            self.settle(&mut inner).await?;
            Ok((inner.appender.numbers.journal_seq, inner.appender.numbers.checkpoint_seq))
        };
        self.client.config.time_limited(self.client.id(), SideEffect::None, ask).await
    }

    /// Numbers and writes a record, and waits until it is applied. A `journal_seq` that the record already has must be the next
    /// one. If any process wrote the same id and content before, nothing happens, and the first record's position is returned.
    ///
    /// Errors: `Invalid` for a record of another run, or of a kind that this method does not write; `Conflict` for a
    /// `journal_seq` that is not the next one; `TooLarge`. In these cases no record was appended.
    ///
    /// `Conflict` if the journal refused the record: it has no effect, and the next write continues after its number
    /// ([`Writer::next`] returns it). `Fenced` or `ClaimLost` if another process writes the run: every later write fails. After
    /// an error with [`SideEffect::Unknown`], or a cancellation, write the same record again to find its outcome.
    ///
    /// A later claim does not fence records that need no claim (resolutions, retractions). If the answer to such an append was
    /// lost, the record may arrive at any time until it is written again.
    #[tracing::instrument(skip_all, fields(run = self.client.run_id.as_str()))]
    pub async fn write(&self, record: JournalRecord) -> Result<RecordMetadata, Error> {
        let record = self.writable(record)?;
        let written = async { Ok(metadata(self.put(&mut *self.lock().await?, record).await?)) };
        self.client.config.time_limited(self.client.id(), SideEffect::Unknown, written).await
    }

    /// Writes 1 to [`BATCH_RECORDS_MAX`] records as one record of the log with the id `record_id`, which is applied completely
    /// or not at all. Returns their positions, in order; repeated records are treated as by [`Run::batch`](crate::Run::batch).
    ///
    /// Errors and cancellation as with [`Writer::write`]; a `journal_seq` of the records is ignored.
    #[tracing::instrument(skip_all, fields(run = self.client.run_id.as_str()))]
    pub async fn batch(&self, record_id: RecordId, records: Vec<JournalRecord>) -> Result<Vec<Position>, Error> {
        let count = records.len();
        if !(1..=BATCH_RECORDS_MAX).contains(&count) {
            let message =
                format!("a batch of run {} has {count} records, not 1 to {BATCH_RECORDS_MAX}", self.client.run_id);
            return Err(Error::new(ErrorKind::Invalid, Action::FixTheInput, message));
        }
        let records: Result<Vec<_>, _> = records.into_iter().map(|record| self.writable(record)).collect();
        let records = records?;
        let ids: Vec<_> = records.iter().map(|record| record.body.record_id.clone()).collect();
        let batch = self.draft(Some(record_id), Batch { records })?;
        let written = async {
            let mut inner = self.lock().await?;
            let acked = self.put(&mut inner, batch).await?;
            inner.appender.positions(&acked, &ids).await
        };
        self.client.config.time_limited(self.client.id(), SideEffect::Unknown, written).await
    }

    /// Records the state of a loop, covering all earlier numbered records, and waits until the checkpoint is applied. Pass the
    /// complete message list, as with [`Run::checkpoint`](crate::Run::checkpoint): only messages that the run's last checkpoint
    /// does not contain are written. That checkpoint may be another process's. Unanswered requests are not listed in it.
    ///
    /// Errors and cancellation as with [`Writer::write`], but a failed checkpoint need not be written again: the next one
    /// contains everything. `TooLarge` also for a message list that exceeds the readers' limits.
    #[tracing::instrument(skip_all, fields(run = self.client.run_id.as_str()))]
    pub async fn checkpoint(&self, state: &LoopState) -> Result<RecordMetadata, Error> {
        self.client.config.time_limited(self.client.id(), SideEffect::Unknown, self.save(state)).await
    }

    async fn save(&self, state: &LoopState) -> Result<RecordMetadata, Error> {
        let mut inner = self.lock().await?;
        self.settle(&mut inner).await?;
        if inner.checkpoint_base.is_none() {
            inner.checkpoint_base = self.base().await;
        }
        let id = self.client.config.record_id()?;
        let numbers = (inner.appender.numbers.checkpoint_seq, inner.appender.numbers.journal_seq);
        let whole = CheckpointBase::default();
        let base = inner.checkpoint_base.as_ref().unwrap_or(&whole);
        let (checkpoint, next) =
            base.next_checkpoint(&self.client.config, self.client.id(), &id, numbers, Vec::new(), state)?;
        // The content is already redacted, and the hash covers the redacted content.
        let mut record = self.draft(Some(id), checkpoint)?;
        self.client.config.redaction.iter().for_each(|redaction| redaction.sign(&mut record));
        // The next checkpoint builds on the old base until this one is known to be applied.
        match self.put_settled(&mut inner, record).await {
            Ok(acked) => {
                inner.checkpoint_base = Some(next);
                Ok(metadata(acked))
            }
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    // The base may be wrong.
                    inner.checkpoint_base = Some(whole);
                }
                Err(error)
            }
        }
    }

    /// Reads the run's last checkpoint. If it is unreadable, the next checkpoint is written with all messages.
    async fn base(&self) -> Option<CheckpointBase> {
        match self.client.transport.checkpoint(self.client.id(), None).await {
            Ok(checkpoint) => Some(CheckpointBase::from_recovered(checkpoint.as_ref())),
            Err(error) => {
                tracing::debug!(run = self.client.run_id.as_str(), %error, "the last checkpoint cannot be read; the next one is written whole");
                None
            }
        }
    }

    async fn lock(&self) -> Result<MutexGuard<'_, WriterInner>, Error> {
        self.client.lock(&self.inner).await
    }

    async fn put(&self, inner: &mut WriterInner, record: JournalRecord) -> Result<AckedRecord, Error> {
        if let Err(error) = self.settle(inner).await {
            // This record was sent before, and its outcome is still unknown.
            let sent =
                inner.appender.unacknowledged.as_ref().is_some_and(|sent| sent.body.record_id == record.body.record_id);
            return Err(if sent { error.with_side_effect(SideEffect::Unknown) } else { error });
        }
        self.put_settled(inner, record).await
    }

    /// Writes a record after earlier writes are settled.
    async fn put_settled(&self, inner: &mut WriterInner, record: JournalRecord) -> Result<AckedRecord, Error> {
        self.check_journal_seq(inner, &record).await?;
        if members(&record).iter().any(|record| record.body.record_kind == RecordKind::CheckpointPrune) {
            // The prune may hide the base of the next checkpoint.
            inner.checkpoint_base = None;
        }
        let saves = |record: &&JournalRecord| record.body.record_kind == RecordKind::LoopCheckpoint;
        let checkpoint_seqs =
            members(&record).iter().filter(saves).filter_map(|record| record.body.facts.checkpoint_seq);
        let checkpoint_seq = checkpoint_seqs.max();
        // After a cancellation or a lost answer, the next write settles this record.
        let acked = inner.appender.append_record(record).await?;
        if let Some(seq) = checkpoint_seq {
            let next = &mut inner.appender.numbers.checkpoint_seq;
            *next = seq.saturating_add(1).max(*next);
        }
        Ok(acked)
    }

    /// Checks a `journal_seq` that the record already has. The journal decides about a record that was written before.
    async fn check_journal_seq(&self, inner: &WriterInner, record: &JournalRecord) -> Result<(), Error> {
        let (wanted, next) = (record.place.journal_seq, inner.appender.numbers.journal_seq);
        if wanted == JournalSeq::ZERO || wanted == next || !record.body.record_kind.numbered() {
            return Ok(());
        }
        let id = record.body.record_id.borrow();
        if wanted < next && self.client.transport.landed(self.client.id(), id, None).await?.is_some() {
            return Ok(());
        }
        let message =
            format!("record {id} of run {} has journal_seq {wanted}; the next one is {next}", self.client.run_id);
        Err(Error::new(ErrorKind::Conflict, Action::FixTheInput, message).about_record(id))
    }

    /// Makes the handle ready again after a failed, unknown, cancelled or refused append.
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

    /// Claims the epoch after this handle's own and continues from the run's head. After the claim, a record with an unknown
    /// append cannot arrive any more; writing it again shows whether it is in the log.
    async fn take_over(&self, inner: &mut WriterInner) -> Result<(), Error> {
        let head = self.client.transport.run(self.client.id()).await?;
        let head_after_claim = self.client.transport.run(self.client.id());
        inner.appender.take_over(head, head_after_claim).await?;
        (inner.appender.unacknowledged, inner.appender.state) = (None, WriterState::Ready);
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = inner.appender.numbers.epoch;
        Ok(())
    }

    /// Checks and redacts a record before it is written.
    fn writable(&self, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        let (run_id, id, kind) = (&self.client.run_id, &record.body.record_id, record.body.record_kind);
        let invalid = |what: String| {
            let message = format!("record {id} cannot be written to run {run_id}: it {what}");
            let error = Error::new(ErrorKind::Invalid, Action::FixTheInput, message);
            Err(error.about_run(run_id.borrow()).about_record(id.borrow()))
        };
        if record.body.run_id.borrow() != Some(run_id.borrow()) {
            return invalid(format!("belongs to run {}", record.body.run_id));
        }
        if matches!(kind, RecordKind::RunClaim | RecordKind::Batch) || kind.of_partition() {
            return invalid(format!("is a {}, which Writer::write does not accept", kind.as_str()));
        }
        if matches!(record.payload, Payload::StoredPayload(_)) {
            return invalid("is a stored_payload, which Runlog makes from a payload that is too large".into());
        }
        self.client.config.redact_record(&mut record)?;
        Ok(record)
    }
}

fn metadata(acked: AckedRecord) -> RecordMetadata {
    let repeat = acked.repeat.is_some();
    RecordMetadata { position: acked.position, journal_seq: acked.repeat.unwrap_or(acked.journal_seq), repeat }
}
