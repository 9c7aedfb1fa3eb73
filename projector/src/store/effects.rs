//! `effects`: what may have happened outside, pending apart from ended. All pending effects of the partition are one seek
//! and a step each, however many runs there are.

use super::{Index, Key};
use runlog_schemas::{
    datum,
    id::{Fingerprint, JournalSeq, RecordId, RunId},
    judge::{CallStatus, Reason},
};

/// An effect that has not ended.
pub fn pending(run_id: RunId<&str>, id: RecordId<&str>) -> Key {
    pending_of(run_id).text(id)
}

/// A run's effects that have not ended.
pub fn pending_of(run_id: RunId<&str>) -> Key {
    Key::new(Index::Effects, 0).text(run_id)
}

/// An effect that has ended.
pub fn ended(run_id: RunId<&str>, id: RecordId<&str>) -> Key {
    Key::new(Index::Effects, 1).text(run_id).text(id)
}

/// The beginning of pending (`false`) or ended (`true`) effects.
pub fn prefix(ended: bool) -> Key {
    Key::new(Index::Effects, u8::from(ended))
}

/// Evidence kept per effect; more of it says nothing new.
pub const EVIDENCE_MAX: usize = 16;

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRow {
    /// The tool.
    pub tool_name: String,
    /// The call's fingerprint.
    pub fingerprint: Fingerprint,
    /// Which request of the fingerprint, from 1.
    pub occurrence: u32,
    /// Where it stands.
    pub status: CallStatus,
    /// The key that it was made with.
    pub idempotency_key: Option<String>,
    /// Whether it has an idempotency or dedupe key.
    pub has_key: bool,
    /// Whether somebody said that it did not happen, since it was last started.
    pub cleared: bool,
    /// How often it was started.
    pub attempts: u32,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The request's offset.
    pub offset: u64,
    /// The request's index.
    pub index: u32,
    /// Refused results, oldest first.
    pub evidence: Vec<EvidenceRow>,
}
datum!(EffectRow {
    tool_name,
    fingerprint,
    occurrence,
    status,
    idempotency_key,
    has_key,
    cleared,
    attempts,
    journal_seq,
    offset,
    index,
    evidence,
});

impl EffectRow {
    /// What a decision to adopt the evidence adopts: where refused results contradict one another, that the effect
    /// happened, whatever came of a later try; among equals the last.
    pub fn adopted(&self) -> Option<&EvidenceRow> {
        let completed = self.evidence.iter().rev().find(|evidence| evidence.status == CallStatus::Completed);
        completed.or_else(|| self.evidence.last())
    }
}

/// A refused result. Its content is kept here, since no other index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceRow {
    /// The refused record.
    pub record_id: RecordId,
    /// What it says of the effect.
    pub status: CallStatus,
    /// Why it was refused.
    pub reason: Reason,
    /// Its offset.
    pub offset: u64,
    /// Its index.
    pub index: u32,
    /// Its bytes, framed.
    pub framed: super::records::Bytes,
}
datum!(EvidenceRow { record_id, status, reason, offset, index, framed });
