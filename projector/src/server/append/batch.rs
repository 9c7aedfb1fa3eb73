//! What a client left out of a batch's records: it follows from the batch. In a batch no number of a writer is 0, nor that
//! of a numbered record, so 0 stands for what is not there.

use runlog_schemas::{
    id::{Epoch, JournalSeq, WriterSeq},
    judge::Head,
    payload::Payload,
    record::JournalRecord,
};

/// Fills in the places of a batch's records. A `known` batch takes no number of the run.
pub(super) fn number(batch: &mut JournalRecord, head: &Head, known: bool) {
    let place = batch.place.clone();
    let Payload::Batch(records) = &mut batch.payload else { return };
    let mut journal_seq = head.next_journal_seq;
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
            journal_seq = own.journal_seq.saturating_add(1);
        }
    }
}

/// Whether no record of a batch needs a number of the run from the server.
pub(super) fn given(batch: &JournalRecord) -> bool {
    match &batch.payload {
        Payload::Batch(records) => records
            .records
            .iter()
            .all(|record| record.place.journal_seq > JournalSeq::ZERO || !record.body.record_kind.numbered()),
        _ => true,
    }
}
