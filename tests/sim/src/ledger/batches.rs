//! Batches: a batch is applied or refused as a whole, and a record of an applied batch may repeat an earlier record.

use super::Ledger;
use runlog_schemas::{
    id::{Offset, PartitionId},
    payload::Payload,
    record::JournalRecord,
};

/// The records of a batch, or the record itself.
pub(super) fn members(record: &JournalRecord) -> &[JournalRecord] {
    match &record.payload {
        Payload::Batch(batch) => &batch.records,
        _ => std::slice::from_ref(record),
    }
}

impl Ledger {
    /// The records of a batch or the record itself, each with whether it is applied, and no repeat.
    pub(super) fn judged_members(
        &self,
        (partition, offset): (PartitionId, Offset),
        record: &JournalRecord,
        applied: bool,
    ) -> Vec<(JournalRecord, bool)> {
        let in_batch = matches!(record.payload, Payload::Batch(_));
        let is_applied = |index: u32, record: &JournalRecord| {
            let id = record.body.record_id.as_str();
            let outcome = self.model.as_ref().map(|model| model.outcome(partition.get(), offset.get(), index, id));
            outcome.is_some_and(|outcome| outcome["outcome"] == "applied")
        };
        let judged = |(index, record): (u32, &JournalRecord)| {
            (record.clone(), applied && (!in_batch || is_applied(index, record)))
        };
        (0..).zip(members(record)).map(judged).collect()
    }
}
