//! The writer of a run, and the sequence numbers and hashes of its records, alone or in a batch. Pure.

use super::claim::{Head, epoch_of, not_writer};
use crate::{error::Error, transport::old_answer};
use runlog_schemas::{
    id::{ContentHash, Epoch, JournalSeq, Offset, OrEmpty, PrevHash, RunId, WriterId, WriterSeq},
    payload::{Payload, wrapped::Batch},
    record::{JournalRecord, Sequencing},
};

/// The writer of a run, as its handle knows it, and the numbers of the next record.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) writer_id: OrEmpty<WriterId>,
    pub(crate) epoch: Epoch,
    pub(crate) writer_seq: WriterSeq,
    pub(crate) journal_seq: JournalSeq,
    pub(crate) checkpoint_seq: u64,
    prev_hash: Option<PrevHash>,
    /// The offset of the run's last known record.
    pub(crate) seen: Offset,
}

impl Numbers {
    /// The numbers of a run without records.
    pub(crate) fn first() -> Self {
        Self {
            writer_id: OrEmpty::NONE,
            epoch: Epoch::ZERO,
            writer_seq: WriterSeq::from(1),
            journal_seq: JournalSeq::from(1),
            checkpoint_seq: 1,
            prev_hash: None,
            seen: Offset::ZERO,
        }
    }

    /// Takes writer, epoch, sequence numbers and hash from the run's head.
    pub(crate) fn sync_to_head(&mut self, head: &impl Head) {
        let (writer_id, epoch) = head.writer();
        (self.writer_id, self.epoch) = (writer_id.into(), epoch);
        (self.writer_seq, self.journal_seq, self.checkpoint_seq) = head.next();
        self.prev_hash = Some(head.hash().into());
        self.seen = self.seen.max(head.position().offset);
    }

    /// Whether the head's writer is this one. `None` is a run without records.
    pub(crate) fn is_writer_in(&self, head: Option<&impl Head>) -> bool {
        head.map_or((None, Epoch::ZERO), Head::writer) == (self.writer_id.borrow(), self.epoch)
    }

    /// Checks that the head's writer is this one.
    pub(crate) fn check_writer_in(&self, head: Option<&impl Head>, run_id: RunId<&str>) -> Result<(), Error> {
        if self.is_writer_in(head) { Ok(()) } else { Err(not_writer(run_id, self.epoch, epoch_of(head))) }
    }

    /// Checks that an answer is not older than the writer's claim and its acknowledged records. A server that reads
    /// from a deposed leader gives such an answer: it may lack pending effects.
    ///
    /// An answer with a later record is current, even if its next number is lower: a skip takes a refused record's number away.
    pub(crate) fn check_current(&self, head: &impl Head, run_id: RunId<&str>) -> Result<(), Error> {
        let ((_, epoch), (_, next, _)) = (head.writer(), head.next());
        let is_later = epoch == self.epoch && head.position().offset >= self.seen;
        if is_later || (epoch, next) >= (self.epoch, self.journal_seq) {
            return Ok(());
        }
        Err(old_answer(run_id, (self.epoch, self.journal_seq), (epoch, next)))
    }

    /// Numbers a record.
    pub(crate) fn number(&self, record: &mut JournalRecord, now_millis: u64) {
        let kind = record.body.record_kind;
        let place = &mut record.place;
        place.writer_id.clone_from(&self.writer_id);
        place.writer_epoch = self.epoch;
        (place.writer_seq, place.prev_hash) =
            if kind.unclaimed() { (WriterSeq::ZERO, None) } else { (self.writer_seq, self.prev_hash) };
        place.journal_seq = if kind.numbered() { self.journal_seq } else { JournalSeq::ZERO };
        place.timestamp_millis = now_millis;
        if let Some(epoch) = &mut record.body.facts.epoch {
            // A decision of this writer's, sent again under another epoch.
            *epoch = self.epoch;
        }
        if let Payload::Batch(batch) = &mut record.payload {
            number_batch(batch, place, self.journal_seq);
        }
    }

    /// Numbers records consecutively, to send them together. The next numbers change only with the acknowledgement.
    pub(crate) fn number_all<'a>(&mut self, records: impl Iterator<Item = &'a mut JournalRecord>, clock: fn() -> u64) {
        let next = (self.writer_seq, self.journal_seq, self.prev_hash);
        for record in records {
            self.number(record, clock());
            self.advance_past(record);
        }
        (self.writer_seq, self.journal_seq, self.prev_hash) = next;
    }

    /// Moves the next numbers past this record.
    pub(crate) fn advance_past(&mut self, record: &JournalRecord) {
        if !record.body.record_kind.unclaimed() {
            let records = members(record);
            let numbered = records.iter().filter(|record| record.body.record_kind.numbered()).count();
            let hash: ContentHash = records.last().unwrap_or(record).content_hash();
            self.writer_seq = self.writer_seq.saturating_add(records.len() as u64);
            self.journal_seq = self.journal_seq.saturating_add(numbered as u64);
            self.prev_hash = Some(hash.into());
        }
    }
}

/// Numbers the records of a batch: `writer_seq` and `journal_seq` count on from the batch's own, and each `prev_hash` is the
/// content hash of the record before. `journal_seq` is the run's next number.
fn number_batch(batch: &mut Batch, place: &Sequencing, mut journal_seq: JournalSeq) {
    let mut prev_hash = place.prev_hash;
    for (nth, record) in (0..).zip(&mut batch.records) {
        record.place = Sequencing {
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

/// The records of a batch; for any other record, the record itself.
pub(crate) fn members(record: &JournalRecord) -> &[JournalRecord] {
    match &record.payload {
        Payload::Batch(batch) => batch.records.as_slice(),
        _ => std::slice::from_ref(record),
    }
}
