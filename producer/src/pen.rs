//! Numbering and appending: one record at a time, acknowledged in order, none after an earlier one failed.

use crate::{Action, Config, Error, failpoint, transport::Transport};
use runlog_schemas::{
    answer::{ErrorKind, Outcome, Position, ReadBack},
    id::{Epoch, JournalSeq, OrEmpty, PrevHash, RecordId, RunId, WriterId, WriterSeq},
    payload::Payload,
    record::JournalRecord,
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
    /// Why nothing can be appended any more.
    pub(crate) over: Option<Error>,
    /// Set while an append is under way: still set at the next one, it was cancelled, and nobody knows what landed.
    pub(crate) under_way: bool,
}

/// An acknowledged record.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) record_id: RecordId,
    pub(crate) journal_seq: JournalSeq,
    pub(crate) position: Position,
}

impl Pen {
    /// Whether the handle can be used.
    pub(crate) fn usable(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.under_way) && self.over.is_none() {
            let message = format!(
                "an append to run {} was cancelled before it was acknowledged: it may have landed; open the run again",
                self.run_id
            );
            self.over = Some(Error::new(ErrorKind::Unavailable, Action::Reopen, message));
        }
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Numbers and appends a record, and waits for its acknowledgement. A record that is refused before it is sent takes
    /// no number; after any other failure the handle is over, and so it is where the way told that the record was
    /// refused. A payload that is too large for a record goes to the content store first: where that fails, or is cancelled,
    /// nothing was numbered and the handle stays usable. That it was applied, told along with the acknowledgement, says nothing about now: see [`Pen::permit`].
    pub(crate) async fn append(
        &mut self,
        record_id: RecordId,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<Written, Error> {
        self.usable()?;
        let mut record = JournalRecord::new(self.run_id.borrow(), record_id, &self.config.agent_id, payload);
        record.body.idempotency_key = key.map(str::to_owned);
        let numbered = record.body.record_kind.numbered();
        let place = &mut record.place;
        place.writer_id.clone_from(&self.writer_id);
        place.writer_epoch = self.epoch;
        place.writer_seq = self.next_writer_seq;
        place.prev_hash = self.prev_hash;
        place.journal_seq = if numbered { self.next_journal_seq } else { JournalSeq::ZERO };
        place.timestamp_millis = (self.config.clock)();
        let record = self.transport.stow(record).await?;
        if matches!(record.payload, Payload::StoredPayload(_)) {
            (self.config.failpoints)(failpoint::CONTENT_STORED);
        }
        self.under_way = true;
        (self.config.failpoints)(failpoint::RECORD_NUMBERED);
        let appended = self.transport.append(&record).await;
        self.under_way = false;
        match appended {
            Ok(appended) => {
                self.next_writer_seq = self.next_writer_seq.saturating_add(1);
                self.next_journal_seq = self.next_journal_seq.saturating_add(numbered.into());
                self.prev_hash = Some(record.content_hash().into());
                let journal_seq = record.place.journal_seq;
                let record_id = record.body.record_id;
                if let Some(outcome) = appended.outcome.filter(|outcome| !taken(outcome)) {
                    return Err(self.end_with(refused(self.run_id.borrow(), Some(record_id.borrow()), &outcome)));
                }
                Ok(Written { record_id, journal_seq, position: appended.position })
            }
            Err(failed) if failed.untouched => Err(failed.error),
            Err(failed) => Err(self.end_with(failed.error)),
        }
    }

    /// Reads back what became of an acknowledged record; anything but applied ends the handle, and so does an answer that
    /// came too late: how long this process was paused shows here.
    pub(crate) async fn read_back(&mut self, written: &Written, deadline: Duration) -> Result<ReadBack, Error> {
        let begun = Instant::now();
        let ask = self.transport.read_back(
            self.run_id.borrow(),
            &written.position,
            Some(written.record_id.borrow()),
            deadline,
        );
        let answer = tokio::time::timeout(deadline, ask).await;
        (self.config.failpoints)(failpoint::READ_BACK_ANSWERED);
        let answer = match answer {
            Ok(Ok(answer)) if begun.elapsed() <= deadline => answer,
            Ok(Err(error)) => return Err(self.end_with(error)),
            _ => {
                let message = format!(
                    "record {} of run {} was not read back as applied within {deadline:?}",
                    written.record_id, self.run_id
                );
                return Err(self.end_with(Error::new(ErrorKind::Stale, Action::Reopen, message)));
            }
        };
        if taken(&answer.outcome) {
            return Ok(answer);
        }
        let refused = refused(self.run_id.borrow(), Some(written.record_id.borrow()), &answer.outcome);
        Err(self.end_with(refused))
    }

    /// Whether the effect behind an acknowledged intent may run: the intent was applied, **and** this handle still
    /// writes the run. Both are read from one view that is at `latest` after the acknowledgement, since a claim behind
    /// the intent leaves the intent applied and gives its effect to somebody else.
    pub(crate) async fn permit(&mut self, written: &Written, deadline: Duration) -> Result<(), Error> {
        (self.config.failpoints)(failpoint::INTENT_ACKNOWLEDGED);
        let answer = self.read_back(written, deadline).await?;
        if answer.epoch == self.epoch && answer.writer_id == self.writer_id {
            return Ok(());
        }
        let message = format!(
            "run {} was taken over by writer {} in epoch {} behind record {}: its effect was not run here",
            self.run_id, answer.writer_id, answer.epoch, written.record_id
        );
        Err(self.end_with(Error::new(ErrorKind::Fenced, Action::Reopen, message)))
    }

    /// The handle is over for this reason.
    pub(crate) fn end_with(&mut self, error: Error) -> Error {
        let error = error.over();
        self.over.get_or_insert(error).clone()
    }
}

/// Whether a record took effect, now or when it came first.
fn taken(outcome: &Outcome) -> bool {
    matches!(outcome.outcome.as_str(), "applied" | "repeat") && outcome.reason.is_none()
}

/// What a refusal means for whoever wrote the record.
pub(crate) fn refused(run_id: RunId<&str>, record_id: Option<RecordId<&str>>, outcome: &Outcome) -> Error {
    let reason = outcome.reason.as_deref().unwrap_or("unknown");
    let kind = if reason == "fenced" { ErrorKind::Fenced } else { ErrorKind::Conflict };
    let what = if reason == "fenced" { "; another process took the run over" } else { "" };
    let message = format!("record {} of run {run_id} was refused as {reason}{what}", OrEmpty::from(record_id));
    Error::new(kind, Action::Reopen, message)
}
