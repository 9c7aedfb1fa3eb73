//! The judge: what one record means, given what came before it. Pure, run by the projector on every record. [`lifecycle`]
//! has the states of what records speak of, [`batch`] what is said of records that take effect together.
//!
//! ```text
//!   repeat? ─▶ fenced? ─▶ gap? ─▶ conflict? ─▶ content rules? ─▶ applied
//!   (claims: repeat, then epoch + 1 or fenced; unclaimed kinds: repeat, fenced if they name an epoch, known id, content)
//! ```
//!
//! A record refused for its place (fenced, gap) consumes no number and may come again. One refused for its content
//! (conflict, content rules) consumes each number that was the next, so that what follows it is not lost.

use crate::{
    codec::Envelope,
    datum,
    datum::Sha256,
    id::{ContentHash, Epoch, JournalSeq, Offset, OrEmpty, RecordId, RunHash, WriterId, WriterSeq},
    messages::{self, MESSAGE_BYTES_MAX},
    record::{Facts, RecordKind},
    symbols,
};

pub mod batch;
pub mod lifecycle;
mod status;

use lifecycle::{Family, State, StatusReport};
pub use status::{CallStatus, Reason, RunStatus};

/// A run's numbers: all that judging the next record needs besides what that record names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Head {
    /// Whether the contract's `started` was applied.
    pub started: bool,
    /// Where the run stands.
    pub status: RunStatus,
    /// Records applied.
    pub records: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The epoch of the last applied claim; 0 before any.
    pub epoch: Epoch,
    /// The writer of the last applied claim; none before any.
    pub writer_id: OrEmpty<WriterId>,
    /// The next `writer_seq` of that epoch.
    pub next_writer_seq: WriterSeq,
    /// The run hash.
    pub hash: RunHash,
    /// The greatest `checkpoint_seq` applied.
    pub checkpoint_seq: u64,
}
datum!(Head { started, status, records, next_journal_seq, epoch, writer_id, next_writer_seq, hash, checkpoint_seq });

impl Default for Head {
    fn default() -> Self {
        Self {
            started: false,
            status: RunStatus::Open,
            records: 0,
            next_journal_seq: JournalSeq::from(1),
            epoch: Epoch::ZERO,
            writer_id: OrEmpty::NONE,
            next_writer_seq: WriterSeq::from(1),
            hash: RunHash::default(),
            checkpoint_seq: 0,
        }
    }
}

/// What is remembered of a `record_id` that was judged: applied, or refused for its content.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FirstJudgement {
    /// The content hash it came with first.
    pub content_hash: ContentHash,
    /// Where it stands in the partition.
    pub offset: Offset,
    /// Its index within the offset.
    pub index: u32,
    /// Why it was refused; none when it was applied.
    pub refused: Option<Reason>,
}
datum!(FirstJudgement { content_hash, offset, index, refused });

/// What is remembered of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallState {
    /// Where it stands.
    pub status: CallStatus,
    /// The payload hash of the record that ended it.
    pub outcome_hash: Option<Sha256>,
    /// Whether a refused result is attached as evidence.
    pub has_evidence: bool,
}

/// What a decision on an effect is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEffect {
    /// How many records were applied to it, its request and decisions included, or kept as its evidence, evicted ones
    /// included.
    pub revision: u64,
    /// The evidence that a decision to adopt adopts, and whether it says that the effect happened.
    pub adoptable: Option<(RecordId, bool)>,
}

/// What is remembered of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// The length of its message list.
    pub messages: u64,
    /// Whether a prune hides it.
    pub pruned: bool,
}

/// What the judge asks about the run. Each answer is about the state before the record.
pub trait View {
    /// Why an answer could not be had.
    type Error;
    /// The run's head; the default for a run without records.
    fn head(&mut self) -> Result<Head, Self::Error>;
    /// What is remembered of a `record_id`: what came first under it.
    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<FirstJudgement>, Self::Error>;
    /// What is remembered of other content that came under a known `record_id` and was refused for that.
    fn seen_conflict(
        &mut self,
        record_id: RecordId<&str>,
        content: ContentHash,
    ) -> Result<Option<FirstJudgement>, Self::Error>;
    /// What is remembered of a request.
    fn call(&mut self, request: RecordId<&str>) -> Result<Option<CallState>, Self::Error>;
    /// Where something with a lifecycle stands; none where nothing was said of it, or no more than that it may come to be.
    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, Self::Error>;
    /// What is remembered of the pending effect that a decision on `id` is about: of the first kind that has one.
    fn pending_effect(&mut self, id: RecordId<&str>) -> Result<Option<PendingEffect>, Self::Error>;
    /// What is remembered of a checkpoint that was applied.
    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, Self::Error>;
    /// Bytes of the `count` messages from index `from` on in the list of a checkpoint that was applied. They are within
    /// it.
    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, Self::Error>;
}

/// The judge's word on one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The record takes effect; `head` is the run's head behind it, the run hash included.
    Applied {
        /// The head behind the record.
        head: Head,
        /// Whether it changes nothing else: the same completion again.
        no_op: bool,
    },
    /// The record was judged before, with the same content: no effect.
    Repeat {
        /// The first judgement.
        first: FirstJudgement,
        /// The head behind it; differs only in a consumed `writer_seq`.
        head: Head,
    },
    /// No effect but an anomaly.
    Refused {
        /// Why.
        reason: Reason,
        /// The head behind it; differs only in consumed numbers.
        head: Head,
    },
}

/// Judges `record`, whose partition is the right one for its run. Batches are [`batch::open`]ed instead: as a record among
/// others, one is refused.
pub fn judge<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Verdict, V::Error> {
    let mut head = view.head()?;
    let Known { id, same } = known(record, view)?;
    let is_next = !record.kind.unclaimed() && record.writer_seq == head.next_writer_seq && in_epoch(record, &head);
    // 1. repeat
    if let Some(first) = same {
        if is_next && record.kind != RecordKind::RunClaim {
            head.next_writer_seq = head.next_writer_seq.saturating_add(1);
        }
        return Ok(Verdict::Repeat { first, head });
    }
    if record.kind == RecordKind::RunClaim {
        return Ok(claim(record, head, id));
    }
    if !record.kind.unclaimed() {
        // 2. fenced
        if !in_epoch(record, &head) {
            return Ok(Verdict::Refused { reason: Reason::Fenced, head });
        }
        // 3. gap
        if record.writer_seq > head.next_writer_seq {
            return Ok(Verdict::Refused { reason: Reason::Gap, head });
        }
    } else if record.facts.epoch.is_some_and(|epoch| epoch != head.epoch || !in_epoch(record, &head)) {
        // A decision of the run's writer holds as long as it has the run.
        return Ok(Verdict::Refused { reason: Reason::Fenced, head });
    }
    // 4. conflict
    let conflict = id || (!record.kind.unclaimed() && record.writer_seq < head.next_writer_seq);
    let (reason, no_op) = if conflict {
        (Some(Reason::Conflict), false)
    } else {
        // 5. content rules
        match content(record, &head, view)? {
            Ok(no_op) => (None, no_op),
            Err(reason) => (Some(reason), false),
        }
    };
    // 6. applied; refused for its content, it still consumes each number that was the next.
    if is_next {
        head.next_writer_seq = head.next_writer_seq.saturating_add(1);
    }
    if record.kind.numbered() && record.journal_seq == head.next_journal_seq {
        head.next_journal_seq = head.next_journal_seq.saturating_add(1);
    }
    match reason {
        Some(reason) => Ok(Verdict::Refused { reason, head }),
        None => {
            apply(record, &mut head);
            Ok(Verdict::Applied { head, no_op })
        }
    }
}

/// What is remembered of a record before it is judged.
struct Known {
    /// Whether a record of this id was judged.
    id: bool,
    /// What came of the same content under this id.
    same: Option<FirstJudgement>,
}

fn known<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Known, V::Error> {
    let Some(first) = view.seen(record.record_id)? else { return Ok(Known { id: false, same: None }) };
    let content = record.content_hash();
    let same = if first.content_hash == content { Some(first) } else { view.seen_conflict(record.record_id, content)? };
    Ok(Known { id: true, same })
}

/// Whether the record is of the writer that has the run.
fn in_epoch(record: &Envelope<'_>, head: &Head) -> bool {
    record.writer_epoch == head.epoch && (head.epoch == Epoch::ZERO || record.writer_id == head.writer_id.borrow())
}

/// A claim is applied only at the next epoch; it skips the other rules. One that would win and reuses a `record_id` for
/// other content is refused, since two records under one id could not both be found again.
fn claim(record: &Envelope<'_>, mut head: Head, known: bool) -> Verdict {
    let next = Some(record.writer_epoch) == head.epoch.next();
    if !next || record.writer_seq != WriterSeq::ZERO || record.writer_id.is_none() {
        return Verdict::Refused { reason: Reason::Fenced, head };
    }
    if known {
        return Verdict::Refused { reason: Reason::Conflict, head };
    }
    head.epoch = record.writer_epoch;
    head.writer_id = record.writer_id.into();
    head.next_writer_seq = WriterSeq::from(1);
    apply(record, &mut head);
    Verdict::Applied { head, no_op: false }
}

/// The content rules: `Ok(no_op)`, or why not.
fn content<V: View>(record: &Envelope<'_>, head: &Head, view: &mut V) -> Result<Result<bool, Reason>, V::Error> {
    let facts = &record.facts;
    if record.kind == RecordKind::Batch {
        return Ok(Err(Reason::Batch));
    }
    let expected = if record.kind.numbered() { head.next_journal_seq } else { JournalSeq::ZERO };
    if record.journal_seq != expected {
        return Ok(Err(Reason::Sequence));
    }
    if head.status != RunStatus::Open && record.kind.numbered() && !after_the_end(facts) {
        return Ok(Err(Reason::Ended));
    }
    match facts.payload_type.as_str() {
        "run_lifecycle" => Ok(if facts.status.as_deref() == Some("started") && head.started {
            Err(Reason::Transition)
        } else {
            Ok(false)
        }),
        "tool_call_attempt" | "tool_call_completed" | "tool_call_failed" => answer(record, view),
        "effect_resolution" => Ok(match answer(record, view)? {
            Ok(no_op) => check_decision_basis(record, view)?.map(|()| no_op),
            Err(reason) => Err(reason),
        }),
        "checkpoint" => Ok(match facts.covers_journal_seq {
            Some(covers) if covers < head.next_journal_seq => Ok(false),
            _ => Err(Reason::Checkpoint),
        }),
        "loop_checkpoint" => {
            if facts.covers_journal_seq.is_none_or(|covers| covers >= head.next_journal_seq) {
                return Ok(Err(Reason::Checkpoint));
            }
            let fits = is_new_checkpoint(facts, view)? && messages_fit(facts, view)?;
            Ok(if fits { Ok(false) } else { Err(Reason::Checkpoint) })
        }
        "checkpoint_prune" => Ok(facts.covers_journal_seq.map(|_| false).ok_or(Reason::Checkpoint)),
        _ => {
            let Some(report) = StatusReport::of(record) else { return Ok(Ok(false)) };
            let before = view.state(report.family, &report.key)?;
            Ok(report.judge(record, before.as_ref()))
        }
    }
}

fn is_new_checkpoint<V: View>(facts: &Facts, view: &mut V) -> Result<bool, V::Error> {
    match facts.checkpoint_id.as_deref() {
        Some(id) => Ok(view.checkpoint(id)?.is_none()),
        None => Ok(false),
    }
}

/// Whether a checkpoint's message list can be made: its base was applied and is not pruned, each of its spans is within
/// what it is of, and the list is no larger than a reader must take.
fn messages_fit<V: View>(facts: &Facts, view: &mut V) -> Result<bool, V::Error> {
    let base = match facts.base.as_deref() {
        None => None,
        Some(id) => match view.checkpoint(id)? {
            Some(state) if !state.pruned => Some((id, state.messages)),
            _ => return Ok(false),
        },
    };
    let own = &facts.message_bytes;
    let length = base.map_or(0, |(_, messages)| messages);
    let Some(spans) = messages::resolve(length, own.len() as u64, &facts.spans) else { return Ok(false) };
    let mut bytes = 0u64;
    for span in &spans {
        bytes += match base {
            Some((id, _)) if span.from_base => view.message_bytes(id, span.from, span.count)?,
            _ => span.of(own).iter().copied().map(u64::from).sum(),
        };
        if bytes > MESSAGE_BYTES_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is still numbered on an ended run: checkpoints and recovery markers, and the end of a turn, which the contract's
/// own loop records behind its terminal marker.
fn after_the_end(facts: &Facts) -> bool {
    match facts.payload_type.as_str() {
        "checkpoint" | "recovery" => true,
        "turn_lifecycle" => matches!(facts.status.as_deref(), Some("completed" | "failed")),
        _ => false,
    }
}

/// A record that answers a request: the request must be there and, but for the same completion again, pending.
fn answer<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Result<bool, Reason>, V::Error> {
    let Some(request) = &record.facts.answers else { return Ok(Err(Reason::Transition)) };
    let Some(call) = view.call(request.borrow())? else {
        return if record.kind == RecordKind::EffectResolution {
            resolves(record, request.as_str(), view)
        } else {
            Ok(Err(Reason::Transition))
        };
    };
    let result = matches!(record.facts.payload_type.as_str(), "tool_call_completed" | "tool_call_failed");
    Ok(match call.status {
        CallStatus::Pending if record.facts.status.as_deref() == Some("adopt") && !call.has_evidence => {
            Err(Reason::Transition)
        }
        CallStatus::Pending => Ok(false),
        CallStatus::Completed | CallStatus::Failed if result && call.outcome_hash == Some(record.payload_hash()) => {
            Ok(true)
        }
        CallStatus::Completed | CallStatus::Failed => Err(Reason::Transition),
    })
}

/// Whether a decision still decides what its author saw. Nothing but the facts says what that was; a decision of version 1
/// says nothing, and is not asked.
fn check_decision_basis<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Result<(), Reason>, V::Error> {
    let facts = &record.facts;
    let Some(request) = facts.answers.as_ref().filter(|_| facts.has_decision_basis()) else { return Ok(Ok(())) };
    let Some(effect) = view.pending_effect(request.borrow())? else { return Ok(Err(Reason::Transition)) };
    // A smaller revision is no later state: a skip took a record away.
    if facts.revision.is_some_and(|revision| effect.revision > revision) {
        return Ok(Err(Reason::StaleDecision));
    }
    let (adoptable, happened) = effect.adoptable.map_or((None, false), |(id, happened)| (Some(id), happened));
    let names_evidence = match facts.status.as_deref() {
        Some("adopt") => true,
        Some("not_done") => happened,
        _ => false,
    };
    let named = !names_evidence || facts.evidence == adoptable;
    Ok(if named { Ok(()) } else { Err(Reason::Transition) })
}

/// A decision on an effect that is no call of Runlog's: the first family that knows the id has it.
fn resolves<V: View>(record: &Envelope<'_>, id: &str, view: &mut V) -> Result<Result<bool, Reason>, V::Error> {
    for family in Family::EFFECTS {
        if let Some(state) = view.state(family, id)? {
            let adopts = record.facts.status.as_deref() == Some("adopt");
            let legal = !state.ended && (!adopts || state.has_evidence);
            return Ok(if legal { Ok(false) } else { Err(Reason::Transition) });
        }
    }
    Ok(Err(Reason::Transition))
}

/// What every applied record does to the head.
fn apply(record: &Envelope<'_>, head: &mut Head) {
    head.records += 1;
    head.hash = head.hash.behind(&record.record_hash());
    if let Some(status) = record.facts.status.as_deref() {
        head.started |= record.facts.payload_type == "run_lifecycle" && status == "started";
        head.status = lifecycle::run_ends_as(&record.facts.payload_type, status).unwrap_or(head.status);
    }
    if let Some(seq) = record.facts.checkpoint_seq.filter(|_| record.kind == RecordKind::LoopCheckpoint) {
        head.checkpoint_seq = head.checkpoint_seq.max(seq);
    }
}

symbols! {
    /// The class of a pending effect. One that is retry safe may run again without a decision; one that is to be
    /// reconciled may have happened, and somebody has to find out first.
    Class { RetrySafe = "retry_safe", ReconcileRequired = "reconcile_required" }
}

/// The class of a pending effect and the reason for it.
pub fn class(has_key: bool, cleared: bool) -> (Class, &'static str) {
    if cleared {
        (Class::RetrySafe, "resolved as not done")
    } else if has_key {
        (Class::RetrySafe, "has an idempotency or dedupe key")
    } else {
        (Class::ReconcileRequired, "the effect may have happened and has no idempotency key")
    }
}

#[cfg(test)]
mod tests;
