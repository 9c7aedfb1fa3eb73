//! Fills in numbers and writers that a client left out of a batch's records, from the batch. In a batch, 0 means an
//! absent number: writers' numbers, and numbers of numbered records, start at 1.

use runlog_projector::index::error::Error;
use runlog_schemas::{
    id::{Epoch, JournalSeq, RecordId, WriterSeq},
    judge::Head,
    payload::Payload,
    record::JournalRecord,
};
use std::collections::HashSet;

/// Fills in the places of a batch's records. A `known` batch gets no number of the run. Neither does a record that
/// repeats an applied record or an earlier record of the batch.
pub(super) fn number(
    batch: &mut JournalRecord,
    head: &Head,
    known: bool,
    is_repeat: impl Fn(RecordId<&str>) -> Result<bool, Error>,
) -> Result<(), Error> {
    let (place, takes_numbers) = (batch.place.clone(), !known && !has_all_numbers(batch));
    let Payload::Batch(records) = &mut batch.payload else { return Ok(()) };
    let (mut journal_seq, mut before) = (head.next_journal_seq, HashSet::new());
    for (nth, record) in (0..).zip(&mut records.records) {
        let own = &mut record.place;
        if own.writer_id.is_none() {
            own.writer_id.clone_from(&place.writer_id);
        }
        if own.writer_epoch == Epoch::ZERO {
            own.writer_epoch = place.writer_epoch;
        }
        if own.writer_seq == WriterSeq::ZERO && !known {
            own.writer_seq = place.writer_seq.saturating_add(nth);
        }
        if own.timestamp_millis == 0 {
            own.timestamp_millis = place.timestamp_millis;
        }
        if record.body.record_kind.numbered() {
            if own.journal_seq == JournalSeq::ZERO && !known {
                own.journal_seq = journal_seq;
            }
            let id = record.body.record_id.borrow();
            if takes_numbers && before.insert(id) && !is_repeat(id)? {
                journal_seq = own.journal_seq.saturating_add(1);
            }
        }
    }
    Ok(())
}

/// Whether no record of a batch needs a number of the run from the server.
pub(super) fn has_all_numbers(batch: &JournalRecord) -> bool {
    match &batch.payload {
        Payload::Batch(records) => records
            .records
            .iter()
            .all(|record| record.place.journal_seq > JournalSeq::ZERO || !record.body.record_kind.numbered()),
        _ => true,
    }
}
