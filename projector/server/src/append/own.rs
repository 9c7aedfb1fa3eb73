//! Limits the records of a credential without `resolve` to effects that its own handle started.
//!
//! The server writes the fact `only_own`, and the judge checks it at the record's place in the log: a claim of another handle may come in
//! between. The judge keeps a refused result as evidence, for an operator.

use super::decisions::is_own_decision;
use runlog_schemas::{payload::Payload, record::JournalRecord};

/// Adds the fact to a result or a writer's own decision, and to each such record of a batch.
pub(super) fn limit(record: &mut JournalRecord) {
    if let Payload::Batch(batch) = &mut record.payload {
        batch.records.iter_mut().for_each(limit);
    }
    let is_result = record.body.facts.payload_type.known().is_some_and(|known| known.is_call_result());
    if is_result || is_own_decision(record) {
        record.body.facts.only_own = Some(true);
    }
}
