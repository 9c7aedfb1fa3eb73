//! The requirements for records of an intruder. It starts no call, so it may neither clear nor end one.

use super::Ledger;
use crate::intruder;
use runlog_schemas::{
    id::{Offset, PartitionId},
    payload::Payload,
    record::JournalRecord,
};

impl Ledger {
    /// A record was applied. A decision of an intruder may only repeat an earlier one. A result may not be applied in the schema
    /// version in which the judge knows the handle that started the call.
    pub(super) fn check_intrusion(&mut self, at: (PartitionId, Offset), record: &JournalRecord) {
        if !intruder::is_by(record.body.record_id.as_str()) {
            return;
        }
        let records = match &record.payload {
            Payload::Batch(batch) => batch.records.as_slice(),
            _ => std::slice::from_ref(record),
        };
        for record in records {
            let Some(request) = record.body.facts.answers.as_ref().map(|request| request.as_str()) else { continue };
            let is_foreign = match &record.payload {
                Payload::EffectResolution(_) => !self.is_cleared(request),
                Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) => self.checks_attempts,
                _ => false,
            };
            if is_foreign {
                let what = record.body.facts.payload_type.clone();
                self.fail(format!("the {what} at {}:{} of an intruder is applied to call {request}", at.0, at.1));
            }
        }
    }
}
