//! `effects`: side effects; pending and ended effects have separate rows. All pending effects of the partition are one
//! seek, and a step per effect, independent of the number of runs. All ended effects take a seek for each run, even for
//! a run without any. Contradicted effects have a list of their own: each takes a get of its ended row.

use super::{
    error::Error,
    index::{Index, KeyPart, RUN, RUN_ID, RowFamily},
    key::Key,
};
pub use runlog_schemas::judge::lifecycle::EffectKind;
use runlog_schemas::{
    datum,
    datum::Sha256,
    id::{ContentHash, Epoch, Fingerprint, JournalSeq, Offset, RecordId, RunId},
    judge::{
        self, Class, PendingEffect, Reason,
        lifecycle::{EffectStatus, LifecycleStatus, State},
    },
    or_other::OrOther,
    record::Facts,
};

/// The index.
pub const INDEX: Index = Index::new(
    5,
    "effects",
    &[
        RowFamily::new::<EffectRow>(0, "pending", &[RUN_ID, KIND, ID]),
        RowFamily::new::<EffectRow>(1, "ended", &[RUN, KIND, ID]),
        RowFamily::empty(2, "contradicted", &[RUN_ID, KIND, ID]),
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

/// The pending effect that a decision on `id` is about: by its basis, or without that the first kind's. A get per kind.
pub fn pending_one(
    run_id: RunId<&str>,
    id: RecordId<&str>,
    basis: Option<ContentHash>,
    get: impl Fn(&Key) -> Result<Option<EffectRow>, Error>,
) -> Result<Option<EffectRow>, Error> {
    let mut first = None;
    for kind in EffectKind::ALL {
        let Some(row) = get(&pending(run_id, *kind, id))? else { continue };
        if basis.is_none_or(|basis| basis == row.newest) {
            return Ok(Some(row));
        }
        first = first.or(Some(row));
    }
    Ok(first)
}

/// An effect that has ended.
pub fn ended(run_id: RunId<&str>, kind: EffectKind, id: RecordId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id).u8(kind as u8).text(id)
}

/// The beginning of pending (`false`) or ended (`true`) effects.
pub fn prefix(ended: bool) -> Key {
    Key::new(INDEX, u8::from(ended))
}

/// Marks an ended effect that a later result contradicts; the row is empty.
pub fn contradicted(run_id: RunId<&str>, kind: EffectKind, id: RecordId<&str>) -> Key {
    all_contradicted().text(run_id).u8(kind as u8).text(id)
}

/// The beginning of the marks of contradicted effects.
pub fn all_contradicted() -> Key {
    Key::new(INDEX, 2)
}

/// Maximum evidence stored per effect: this number of first results of a record id, the same number of other results, and
/// one result for each start. Also the maximum number of stored results that contradict its end, beside one for each start.
pub const EVIDENCE_MAX: usize = 16;

/// Maximum number of starts whose results stay: in total, and of one epoch, so that one process cannot use up the total.
const STARTS_MAX: usize = 16;
const STARTS_OF_EPOCH_MAX: usize = 4;

/// Whether a result states that the effect happened.
pub fn happened(status: &OrOther<LifecycleStatus>) -> bool {
    status.as_str().parse().is_ok_and(EffectStatus::happened)
}

/// The start of a tool call that must be decided before it runs again. The call holds up intents of every other epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// The epoch of the last start.
    Of(Epoch),
    /// The last start is void.
    OfNoEpoch,
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EffectRow {
    /// The kind of effect.
    pub kind: EffectKind,
    /// The tool; the kind of a contract's effect; empty for a delivery.
    pub tool_name: String,
    /// The call's fingerprint; `None` for an effect that is not a tool call of Runlog.
    pub fingerprint: Option<Fingerprint>,
    /// The number of the request among the requests with the fingerprint, from 1; 0 without a fingerprint.
    pub occurrence: u32,
    /// Its status: `pending`, or the state of its lifecycle.
    pub status: OrOther<LifecycleStatus>,
    /// The payload hash of the record that set the status; `None` for calls, whose own rows have it.
    pub set_by: Option<Sha256>,
    /// The idempotency key of its request.
    pub idempotency_key: Option<String>,
    /// The dedupe key of its request.
    pub dedupe_key: Option<String>,
    /// Whether its request declares it safe to repeat.
    pub repeatable: bool,
    /// Whether a record stated, since the effect was last started, that it did not happen.
    pub cleared: bool,
    /// How many times it was started.
    pub attempts: u32,
    /// The epoch of the first start since the last clearance, or since the request. Only a handle that made all starts since then can
    /// know that the effect did not happen.
    pub first_started_in: Epoch,
    /// The epoch of the last start.
    pub last_started_in: Epoch,
    /// Whether the claim of that epoch has a commitment, and the effect is a tool call that is not observed.
    pub has_committed_start: bool,
    /// Whether a skip voids or displaces the record that started it last: then it is no handle's and no epoch's own.
    pub is_start_void: bool,
    /// The epochs of its starts, the first ones: results of others never replace theirs.
    pub starts: Vec<Epoch>,
    /// The offset of the record that started it last.
    pub start_offset: Offset,
    /// Its index.
    pub start_index: u32,
    /// The request's `journal_seq`; of a request that was not applied, the run's next number at its place.
    pub journal_seq: JournalSeq,
    /// The request's offset.
    pub offset: Offset,
    /// The request's index.
    pub index: u32,
    /// Refused results, oldest first.
    pub evidence: Vec<EvidenceRow>,
    /// Number of results that were evidence and were replaced.
    pub evidence_dropped: u64,
    /// Number of records applied to it or stored as its evidence. Includes its request, its decisions and evicted evidence,
    /// but not evidence under the id of other kept evidence. Records about it that a skip voids or displaces count. A decision based on a smaller revision is refused.
    pub revision: u64,
    /// Its basis: the content hash of its first record, and after each further record that was applied to it or stored as its evidence
    /// what [`ContentHash::after`] derives from it. For a record that a skip voids or displaces it uses [`ContentHash::skipped`].
    pub newest: ContentHash,
    /// Whether `revision` counts the newest record.
    pub is_newest_counted: bool,
    /// Whether a skip voids or displaces the newest record.
    pub is_newest_void: bool,
    /// The offset of the last skip that voids or displaces a record about it.
    pub void_until: Option<Offset>,
    /// Whether a `give_up` ended it: its outcome is unknown.
    pub given_up: bool,
    /// Results that contradict its end, oldest first: that arrived after it, and evidence if a result ended it.
    pub contradicting: Vec<EvidenceRow>,
    /// Number of results stored as contradicting, including evicted results.
    pub contradictions: u64,
}
datum!(EffectRow {
    kind,
    tool_name,
    fingerprint,
    occurrence,
    status,
    set_by,
    idempotency_key,
    dedupe_key,
    repeatable,
    cleared,
    attempts,
    first_started_in,
    last_started_in,
    has_committed_start,
    is_start_void,
    starts,
    start_offset,
    start_index,
    journal_seq,
    offset,
    index,
    evidence,
    evidence_dropped,
    revision,
    newest,
    is_newest_counted,
    is_newest_void,
    void_until,
    given_up,
    contradicting,
    contradictions,
});

impl EvidenceRow {
    /// Whether this is the same result as another: the same record id and content. A copy that a process sends which did not start the
    /// effect is not the same as the result of the process that did.
    fn covers(&self, other: &Self) -> bool {
        let is_same = self.record_id == other.record_id && self.content_hash == other.content_hash;
        is_same && (self.start.is_some() || other.start.is_none())
    }
}

impl EffectRow {
    /// The effect after one more record that is applied to it.
    #[must_use]
    pub fn counting(self, content_hash: ContentHash) -> Self {
        let newest = content_hash.after(self.newest);
        Self { revision: self.revision + 1, newest, is_newest_counted: true, is_newest_void: false, ..self }
    }

    /// The effect after the trace of a voided result that decisions without a basis never counted. They are judged as if it was absent.
    #[must_use]
    pub fn tracing_uncounted(self, content_hash: ContentHash) -> Self {
        Self { newest: content_hash.skipped().after(self.newest), is_newest_counted: false, cleared: false, ..self }
    }

    /// Records a start in `epoch`, by the record at an offset and index.
    pub fn start(&mut self, epoch: Epoch, at: (Offset, u32)) {
        if self.cleared {
            self.first_started_in = epoch;
        }
        (self.last_started_in, self.is_start_void) = (epoch, false);
        (self.start_offset, self.start_index) = at;
        // A `not_done` decision asserted that the effect is not running. It has started again.
        self.cleared = false;
    }

    /// Records the epoch of a start, unless there are too many.
    pub fn add_start(&mut self, epoch: Epoch) {
        let of_epoch = self.starts.iter().filter(|start| **start == epoch).count();
        if self.starts.len() < STARTS_MAX && of_epoch < STARTS_OF_EPOCH_MAX {
            self.starts.push(epoch);
        }
    }

    /// Whether it may run again without a decision, and why.
    pub fn class(&self) -> (Class, &'static str) {
        let usable = |key: &Option<String>| key.as_ref().is_some_and(|key| !key.is_empty());
        let is_call = self.kind == EffectKind::ToolCall;
        let has_key = usable(&self.idempotency_key) || (!is_call && usable(&self.dedupe_key));
        judge::class(has_key, self.cleared, self.repeatable)
    }

    /// Which processes wait for a decision on it; `None` for an effect that is not a tool call or may run again without one.
    pub fn undecided(&self) -> Option<Undecided> {
        let is_undecided = self.kind == EffectKind::ToolCall && self.class().0 == Class::ReconcileRequired;
        let of_epoch = if self.is_start_void { Undecided::OfNoEpoch } else { Undecided::Of(self.last_started_in) };
        is_undecided.then_some(of_epoch)
    }

    /// Stores a refused result and returns the evicted rows. Returns `None` if a stored one covers it.
    ///
    /// Decisions without a basis are judged by the first result of each record id, so these are stored and counted separately. They do
    /// not count a row whose `is_first_of_id` is false.
    pub fn add_evidence(&mut self, mut row: EvidenceRow) -> Option<Vec<EvidenceRow>> {
        let same_id = |other: &EvidenceRow| other.record_id == row.record_id;
        let same = self.evidence.iter().position(|other| other.covers(&row));
        row.is_first_of_id &= !self.evidence.iter().any(|other| other.is_first_of_id && same_id(other));
        if same.is_some() && !row.is_first_of_id {
            return None;
        }
        // A result that was evicted, or was not counted, can arrive again. The basis before it must not return.
        let newest = row.content_hash.after(self.newest);
        // The same result is already stored, but was not counted, or the first of its id was evicted. It becomes the first.
        let mut gone: Vec<_> = same.map(|at| self.evidence.remove(at)).into_iter().collect();
        self.revision += u64::from(row.is_first_of_id);
        (self.newest, self.is_newest_counted) = (newest, row.is_first_of_id);
        self.is_newest_void &= !row.reason.may_be_counted();
        // A `not_done` decision asserted that the old process was dead. Its result shows that it was alive.
        self.cleared = false;
        self.evidence.push(row);
        let evict = |first| evict(&mut self.evidence, &self.starts, first);
        let evicted: Vec<_> = [true, false].into_iter().filter_map(evict).collect();
        self.evidence_dropped += evicted.len() as u64;
        gone.extend(evicted);
        Some(gone)
    }

    /// Stores a result that arrived after the effect had ended, and was not applied. Returns false if it does not contradict
    /// the end, or if a stored one covers it.
    ///
    /// Evidence does not contradict the end here: a decision knew it, and a result that ends the effect is compared with it then. A `give_up` decision leaves the
    /// outcome unknown, so only a result that states that the effect happened contradicts it.
    pub fn add_contradicting(&mut self, row: EvidenceRow) -> bool {
        let is_known = self.evidence.iter().chain(&self.contradicting).any(|other| other.covers(&row));
        if is_known || (self.given_up && !happened(&row.status)) {
            return false;
        }
        self.contradict(row);
        true
    }

    /// Stores a result that contradicts the end.
    pub fn contradict(&mut self, row: EvidenceRow) {
        self.contradictions += 1;
        self.contradicting.push(EvidenceRow { is_first_of_id: false, ..row });
        evict(&mut self.contradicting, &self.starts, false);
    }

    /// The evidence that an `adopt` decision with these facts adopts. A decision without a basis reads only the first
    /// evidence of each record id.
    pub fn adopted_by(&self, facts: &Facts) -> Option<&EvidenceRow> {
        self.adoptable(facts.basis.is_none())
    }

    /// The evidence that a decision would adopt: of all evidence, or (`by_id`) of the first of each record id. If refused
    /// results contradict one another, a result that states that the effect happened wins over any failure, and of all evidence one of a
    /// process that started the effect wins over another; among equals the last wins.
    pub fn adoptable(&self, by_id: bool) -> Option<&EvidenceRow> {
        let read = self.evidence.iter().filter(|evidence| !by_id || evidence.is_first_of_id);
        // `max_by_key` returns the last of equals.
        read.max_by_key(|evidence| (happened(&evidence.status), !by_id && evidence.start.is_some()))
    }

    /// The judge's input for an attempt or a decision on it at an offset, while it is pending.
    pub fn pending_at(&self, offset: Offset) -> PendingEffect {
        let named = |by_id| {
            let evidence = self.adoptable(by_id)?;
            Some((evidence.record_id.clone(), happened(&evidence.status)))
        };
        PendingEffect {
            revision: self.revision,
            newest: self.newest,
            is_newest_void: self.is_newest_void,
            is_before_skip: self.void_until.is_some_and(|until| offset < until),
            class: self.class().0,
            attempts: self.attempts,
            last_started_in: self.last_started_in,
            has_committed_start: self.has_committed_start,
            is_start_void: self.is_start_void,
            adoptable: named(false),
            adoptable_by_id: named(true),
        }
    }

    /// The judge's input.
    pub fn state(self, ended: bool) -> State {
        let has_counted_evidence = self.adoptable(true).is_some();
        State { status: self.status, ended, set_by: self.set_by.unwrap_or_default(), has_counted_evidence }
    }
}

/// Which results stay although others arrive: for each start one of its process: the oldest that states that the effect
/// happened, or the oldest of all.
fn of_starts(results: &[EvidenceRow], starts: &[Epoch]) -> Vec<bool> {
    let mut starts = starts.to_vec();
    let mut stay = vec![false; results.len()];
    for is_happened in [true, false] {
        for (result, stays) in results.iter().zip(&mut stay) {
            let start = starts.iter().position(|start| Some(*start) == result.start);
            if let Some(start) = start.filter(|_| happened(&result.status) == is_happened) {
                starts.swap_remove(start);
                *stays = true;
            }
        }
    }
    stay
}

/// Evicts evidence beyond [`EVIDENCE_MAX`] among the first results of each id, or among the others. Evicts the oldest that
/// does not state that the effect happened, or the oldest if all do. [`EffectRow::adopted_by`] thus returns the same as
/// with all evidence. The result of a start stays; among the first of each id it then no longer counts.
fn evict(evidence: &mut Vec<EvidenceRow>, starts: &[Epoch], first: bool) -> Option<EvidenceRow> {
    let in_group = |piece: &EvidenceRow| piece.is_first_of_id == first;
    if evidence.iter().filter(|piece| in_group(piece)).count() <= EVIDENCE_MAX {
        return None;
    }
    let stay = of_starts(evidence, starts);
    let group =
        evidence.iter().zip(&stay).enumerate().filter(|(_, (piece, stays))| in_group(piece) && (first || !**stays));
    let group: Vec<_> = group.map(|(at, (piece, _))| (at, happened(&piece.status))).collect();
    if group.len() <= EVIDENCE_MAX {
        return None;
    }
    let least = group.iter().find(|(_, happened)| !happened).or_else(|| group.first());
    let at = least.map(|(at, _)| *at)?;
    if stay[at] {
        evidence[at].is_first_of_id = false;
        return None;
    }
    Some(evidence.remove(at))
}

/// A refused result. Its content is stored here, since no other index has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EvidenceRow {
    /// The refused record.
    pub record_id: RecordId,
    /// Its content hash.
    pub content_hash: ContentHash,
    /// Whether no other stored evidence had this record id: decisions without a basis read and count only these.
    pub is_first_of_id: bool,
    /// The epoch of the start that its process made: its own epoch, or the last start under another epoch that the same principal
    /// claimed. `None` if its process is not known to have started the effect.
    pub start: Option<Epoch>,
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
datum!(EvidenceRow {
    record_id,
    content_hash,
    is_first_of_id,
    start,
    status,
    reason,
    offset,
    index,
    logged_at_millis,
    framed,
});
