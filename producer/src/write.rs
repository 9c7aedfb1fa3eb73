//! Records of any kind, as the agent has them: alone, or several that take effect together.
//!
//! What [`Run`] has a method of its own for is not written here: tool calls belong to the gate, checkpoints to whoever knows
//! the one before, and claims and the run's end to the handle.

use crate::{Action, Error, Run, config::Config, run::Shared};
use runlog_schemas::{
    answer::{ErrorKind, Position},
    id::JournalSeq,
    payload::{
        Payload,
        wrapped::{BATCH_RECORDS_MAX, Batch},
    },
    record::{JournalRecord, Place, RecordKind},
};

impl Run {
    /// A record of this run with a fresh id and Runlog's defaults around `payload`. Its `body` may be changed before it is
    /// written: subject, correlation, tags, what it tells event streams.
    pub fn draft(&self, payload: impl Into<Payload>) -> Result<JournalRecord, Error> {
        let config = &self.shared.config;
        Ok(JournalRecord::new(self.shared.run_id.borrow(), config.record_id()?, &config.agent_id, payload.into()))
    }

    /// Appends a record as it is, under the next numbers of this handle, and waits for its acknowledgement. What it comes to
    /// is told by [`Run::applied`]; one that is refused stops the handle where the journal says so along with the acknowledgement.
    ///
    /// Errors: `Invalid` for a record of another run or of a kind that is not written here, `TooLarge`; both before anything
    /// is numbered, and the handle goes on. Otherwise, and where it is cancelled, as any append: see [`Run::reopen`], which sends the same
    /// record again.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn record(&self, record: JournalRecord) -> Result<Position, Error> {
        let record = self.shared.writable(record)?;
        self.shared.within(self.shared.append_whole(record)).await
    }

    /// Appends records that take effect together or not at all, and waits for their acknowledgement: one record of the log,
    /// 1 to [`BATCH_RECORDS_MAX`] records in it, none of them to be held in the content store. Their positions, in order.
    ///
    /// One that is refused refuses all of them. Errors and cancellation as with [`Run::record`]: after an unknown append a
    /// [`Run::reopen`] finds all of them, or sends all of them again.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn batch(&self, records: Vec<JournalRecord>) -> Result<Vec<Position>, Error> {
        let count = records.len();
        if !(1..=BATCH_RECORDS_MAX).contains(&count) {
            return Err(invalid(format!(
                "a batch of run {} has {count} records, not 1 to {BATCH_RECORDS_MAX}",
                self.id()
            )));
        }
        let records: Result<Vec<_>, _> = records.into_iter().map(|record| self.shared.writable(record)).collect();
        let batch = self.draft(Batch { records: records? })?;
        let first = self.shared.within(self.shared.append_whole(batch)).await?;
        Ok((0..).take(count).map(|nth| Position { index: first.index + nth, ..first.clone() }).collect())
    }
}

impl Shared {
    async fn append_whole(&self, record: JournalRecord) -> Result<Position, Error> {
        let mut guard = self.lock().await?;
        self.ready(&mut guard).await?;
        Ok(guard.pen.append_whole(record).await?.position)
    }

    /// The record as it may be written, or why it may not.
    fn writable(&self, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        let (run_id, id) = (&self.run_id, &record.body.record_id);
        if record.body.run_id.borrow() != Some(run_id.borrow()) {
            return Err(invalid(format!("record {id} is of run {:?}, not of {run_id}", record.body.run_id.as_str())));
        }
        if let Some(how) = not_here(&record) {
            let payload_type = record.payload.payload_type();
            return Err(invalid(format!("record {id} of run {run_id} is a {payload_type}, which is {how}")));
        }
        redact(&self.config, &mut record)?;
        Ok(record)
    }
}

/// Who writes a record of this sort instead; none for what is written here.
fn not_here(record: &JournalRecord) -> Option<&'static str> {
    Some(match (record.body.record_kind, record.payload.payload_type()) {
        (_, "tool_call_requested" | "tool_call_attempt" | "tool_call_completed" | "tool_call_failed") => {
            "written by Run::tool"
        }
        (RecordKind::LoopCheckpoint, _) => "written by Run::checkpoint",
        (RecordKind::CheckpointPrune, _) => "written by Run::prune_checkpoints",
        (RecordKind::Run, "run_lifecycle") => "written by opening a run and by Run::end",
        (RecordKind::Batch, _) => "written by Run::batch, and never in another one",
        (RecordKind::RunClaim, _) => "written by opening a run",
        (kind, _) if kind.of_partition() => "no run's",
        (kind, _) if kind.unclaimed() => "an operator's: runlog publish takes it",
        (_, "stored_payload") => "made of what is too large",
        _ => return None,
    })
}

/// Takes out what must not reach the journal.
pub(crate) fn redact(config: &Config, record: &mut JournalRecord) -> Result<(), Error> {
    config.redaction.as_ref().map_or(Ok(()), |redaction| redaction.record(record))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, Action::FixTheInput, message)
}

/// Gives the records of a batch their places: its own numbers and those behind it, each one's hash that of the one before.
/// `journal_seq` is the next number of the run.
pub(crate) fn place(batch: &mut Batch, place: &Place, mut journal_seq: JournalSeq) {
    let mut prev_hash = place.prev_hash;
    for (nth, record) in (0..).zip(&mut batch.records) {
        record.place = Place {
            writer_seq: place.writer_seq.saturating_add(nth),
            prev_hash,
            journal_seq: JournalSeq::ZERO,
            ..place.clone()
        };
        if record.body.record_kind.numbered() {
            record.place.journal_seq = journal_seq;
            journal_seq = journal_seq.saturating_add(1);
        }
        prev_hash = Some(record.content_hash().into());
    }
}

/// The records that a record of the log stands for: those of a batch, otherwise itself.
pub(crate) fn each(record: &JournalRecord) -> &[JournalRecord] {
    match &record.payload {
        Payload::Batch(batch) => batch.records.as_slice(),
        _ => std::slice::from_ref(record),
    }
}

/// How far a record moves its writer's numbers, and the run's, and the hash that the next one names.
pub(crate) fn behind(record: &JournalRecord) -> (u64, u64, runlog_schemas::id::ContentHash) {
    let records = each(record);
    let numbered = records.iter().filter(|record| record.body.record_kind.numbered()).count();
    (records.len() as u64, numbered as u64, records.last().unwrap_or(record).content_hash())
}
