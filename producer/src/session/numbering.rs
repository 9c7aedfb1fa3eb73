//! Sequence numbers and hashes of records, alone or in a batch. Pure.

use runlog_schemas::{
    id::{ContentHash, JournalSeq},
    payload::{Payload, wrapped::Batch},
    record::{JournalRecord, Sequencing},
};

/// Numbers the records of a batch: `writer_seq` and `journal_seq` count on from the batch's own, and each `prev_hash` is the
/// content hash of the record before. `journal_seq` is the run's next number.
pub(crate) fn number_batch(batch: &mut Batch, place: &Sequencing, mut journal_seq: JournalSeq) {
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

/// How far an acknowledged record moves its writer's numbers.
pub(crate) struct Advance {
    /// Added to the next `writer_seq`.
    pub(crate) writer_seq: u64,
    /// Added to the run's next `journal_seq`.
    pub(crate) journal_seq: u64,
    /// The `prev_hash` of the next record.
    pub(crate) hash: ContentHash,
}

pub(crate) fn advance(record: &JournalRecord) -> Advance {
    let records = members(record);
    let numbered = records.iter().filter(|record| record.body.record_kind.numbered()).count();
    Advance {
        writer_seq: records.len() as u64,
        journal_seq: numbered as u64,
        hash: records.last().unwrap_or(record).content_hash(),
    }
}
