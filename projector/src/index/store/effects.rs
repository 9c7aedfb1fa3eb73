//! `effects`: side effects, pending and ended ones apart. All pending effects of the partition are one seek and a step
//! each, whatever the number of runs; all ended ones take a seek for each run, also for those that have none.

use super::{
    Error, Index, Key, KeyPart, RowFamily,
    index::{RUN, RUN_ID},
};
pub use runlog_schemas::judge::lifecycle::EffectKind;
use runlog_schemas::{
    datum,
    datum::Sha256,
    id::{Epoch, Fingerprint, JournalSeq, Offset, RecordId, RunId},
    judge::{
        PendingEffect, Reason,
        lifecycle::{EffectStatus, LifecycleStatus, State},
    },
    or_other::OrOther,
};

/// The index.
pub const INDEX: Index = Index::new(
    5,
    "effects",
    &[
        RowFamily::of::<EffectRow>(0, "pending", &[RUN_ID, KIND, ID]),
        RowFamily::of::<EffectRow>(1, "ended", &[RUN, KIND, ID]),
    ],
);

const KIND: KeyPart = KeyPart::Word("kind", kind);
const ID: KeyPart = KeyPart::Text("id");

fn kind(byte: u8) -> Option<&'static str> {
    EffectKind::ALL.get(usize::from(byte)).map(|kind| kind.as_str())
}

/// An effect that has not ended. Its id is unique within its kind: a request's record id, or the contract's effect id,
/// tool call id or delivery id.
pub fn pending(run_id: RunId<&str>, kind: EffectKind, id: RecordId<&str>) -> Key {
    pending_of(run_id).u8(kind as u8).text(id)
}

/// A run's effects that have not ended.
pub fn pending_of(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// The pending effect that a decision on `id` is about, looked up in the order of the kinds. A get per kind.
pub fn pending_one(
    run_id: RunId<&str>,
    id: RecordId<&str>,
    get: impl Fn(&Key) -> Result<Option<EffectRow>, Error>,
) -> Result<Option<EffectRow>, Error> {
    for kind in EffectKind::ALL {
        if let Some(row) = get(&pending(run_id, *kind, id))? {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// An effect that has ended.
pub fn ended(run_id: RunId<&str>, kind: EffectKind, id: RecordId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id).u8(kind as u8).text(id)
}

/// The beginning of pending (`false`) or ended (`true`) effects.
pub fn prefix(ended: bool) -> Key {
    Key::new(INDEX, u8::from(ended))
}

/// The most evidence stored per effect.
pub const EVIDENCE_MAX: usize = 16;

/// Whether a result says that the effect happened.
fn happened(status: &OrOther<LifecycleStatus>) -> bool {
    status.as_str().parse().is_ok_and(EffectStatus::happened)
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EffectRow {
    /// What it is.
    pub kind: EffectKind,
    /// The tool; the kind of a contract's effect; empty for a delivery.
    pub tool_name: String,
    /// The call's fingerprint; none for an effect that is not a Runlog tool call.
    pub fingerprint: Option<Fingerprint>,
    /// Which request of the fingerprint, from 1; 0 without a fingerprint.
    pub occurrence: u32,
    /// Its status: `pending`, or the state of its lifecycle.
    pub status: OrOther<LifecycleStatus>,
    /// The payload hash of the record that set the status; none for calls, whose own rows have it.
    pub set_by: Option<Sha256>,
    /// The idempotency or dedupe key of its request.
    pub idempotency_key: Option<String>,
    /// Whether it has an idempotency or dedupe key.
    pub has_key: bool,
    /// Whether a record said, since the effect was last started, that it did not happen.
    pub cleared: bool,
    /// How many times it was started.
    pub attempts: u32,
    /// The epoch of all starts since the last clearance, or since the request; none if there were several epochs. Only that
    /// epoch's writer can know that the effect did not happen.
    pub started_in: Option<Epoch>,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The request's offset.
    pub offset: Offset,
    /// The request's index.
    pub index: u32,
    /// Refused results, oldest first.
    pub evidence: Vec<EvidenceRow>,
    /// Number of records applied to it (its request and decisions included) or stored as its evidence (evicted evidence
    /// included). A decision made at a smaller revision is refused.
    pub revision: u64,
}
datum!(EffectRow {
    kind,
    tool_name,
    fingerprint,
    occurrence,
    status,
    set_by,
    idempotency_key,
    has_key,
    cleared,
    attempts,
    started_in,
    journal_seq,
    offset,
    index,
    evidence,
    revision,
});

impl EffectRow {
    /// It was started in `epoch`.
    pub fn start(&mut self, epoch: Epoch) {
        self.started_in = if self.cleared { Some(epoch) } else { self.started_in.filter(|other| *other == epoch) };
        // A `not_done` decision asserted that the effect is not running. It has started again.
        self.cleared = false;
    }

    /// Evicts evidence beyond [`EVIDENCE_MAX`]: the oldest that does not say that the effect happened, or the oldest of
    /// all if every one says so. [`Self::adopted`] so returns the same as over all evidence.
    pub fn make_room(&mut self) -> Option<EvidenceRow> {
        if self.evidence.len() <= EVIDENCE_MAX {
            return None;
        }
        let least = self.evidence.iter().position(|evidence| !happened(&evidence.status));
        Some(self.evidence.remove(least.unwrap_or(0)))
    }

    /// The evidence that a decision to adopt it adopts. Where refused results contradict one another, one that says
    /// that the effect happened wins over any later failure; among equals the last wins.
    pub fn adopted(&self) -> Option<&EvidenceRow> {
        let happened = self.evidence.iter().rev().find(|evidence| happened(&evidence.status));
        happened.or_else(|| self.evidence.last())
    }

    /// What the judge needs for a decision on it, while it is pending.
    pub fn pending(&self) -> PendingEffect {
        let adoptable = self.adopted().map(|evidence| (evidence.record_id.clone(), happened(&evidence.status)));
        PendingEffect { revision: self.revision, adoptable }
    }

    /// What the judge needs of it.
    pub fn state(self, ended: bool) -> State {
        let has_evidence = !self.evidence.is_empty();
        State { status: self.status, ended, set_by: self.set_by.unwrap_or_default(), has_evidence }
    }
}

/// A refused result. Its content is stored here, since no other index has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EvidenceRow {
    /// The refused record.
    pub record_id: RecordId,
    /// Its statement about the effect.
    pub status: OrOther<LifecycleStatus>,
    /// Why it was refused.
    pub reason: Reason,
    /// Its offset.
    pub offset: Offset,
    /// Its index.
    pub index: u32,
    /// The log's timestamp of the record, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The record's bytes, framed.
    #[serde(skip)]
    pub framed: super::records::Bytes,
}
datum!(EvidenceRow { record_id, status, reason, offset, index, logged_at_millis, framed });
