//! The judge decides whether a record takes effect, given the earlier records of its run. It is pure, and the projector calls it
//! for every record. [`lifecycle`] contains the state machines of effects, approvals and the like; [`batch`] judges batches.
//!
//! ```text
//!   repeat? ─▶ fenced? ─▶ gap? ─▶ conflict? ─▶ content rules? ─▶ applied
//!   (claims: repeat, then epoch + 1 or fenced; unclaimed kinds: repeat, fenced if they name an epoch, known id, content)
//! ```
//!
//! A record refused as fenced or gap consumes no number and may be sent again. A record refused as conflict or by a content rule
//! consumes each of its numbers that was the next one, so that later records are not refused as gap. If another record consumed
//! its numbers, it can be numbered again, in version 2 of the schema.

use crate::{
    codec::Envelope,
    id::{JournalSeq, WriterSeq},
    messages::{self, MESSAGE_BYTES_MAX},
    payload::PayloadType,
    record::{Facts, RecordKind, Unresolved},
    schema::RENUMBERED_SINCE,
};

pub mod batch;
mod class;
mod effects;
pub mod lifecycle;
mod status;
mod view;

pub use class::{Class, class};
use effects::{answer, check_decision_basis, check_handle, check_permission};
use lifecycle::StatusReport;
pub use status::{CallStatus, Reason, RunStatus};
pub use view::{CallState, CheckpointState, FirstJudgement, Head, PendingEffect, View};

/// The judge's decision on one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The record takes effect.
    Applied {
        /// The run's head after the record.
        head: Head,
        /// Whether only the head changes: an equal completion of a completed call.
        no_op: bool,
    },
    /// The record was judged before, with the same content: no effect.
    Repeat {
        /// The first judgement.
        first: FirstJudgement,
        /// The head after it; differs only in a consumed `writer_seq`.
        head: Head,
    },
    /// The record has no effect; it is listed as an anomaly.
    Refused {
        /// The reason.
        reason: Reason,
        /// The head after it; differs only in consumed numbers.
        head: Head,
    },
}

/// Judges `record`, which must be in its run's partition. Pass a batch to [`batch::open`] instead; a batch within a batch is
/// refused.
pub fn judge<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Verdict, V::Error> {
    let mut head = view.head()?;
    let EarlierJudgements { id, same } = find_known(record, view)?;
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
        // A decision of the run's writer is valid only in that writer's epoch.
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
    // 6. applied. A record refused for its content also consumes each number that was the next one.
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

/// The relevant earlier judgements of the record's id.
struct EarlierJudgements {
    /// Whether a record of this id was judged.
    id: bool,
    /// The judgement of the same content under this id.
    same: Option<FirstJudgement>,
}

fn find_known<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<EarlierJudgements, V::Error> {
    let Some(first) = view.seen(record.record_id)? else { return Ok(EarlierJudgements { id: false, same: None }) };
    let content = record.content_hash();
    let renumbered = record.version().number >= RENUMBERED_SINCE && first.is_for_numbers();
    if renumbered && first.content_hash == content {
        // The record is judged again, as if the id were new.
        return Ok(EarlierJudgements { id: false, same: None });
    }
    let same = if first.content_hash == content { Some(first) } else { view.seen_conflict(record.record_id, content)? };
    Ok(EarlierJudgements { id: true, same })
}

/// Returns whether the record is from the writer of the run's current epoch.
fn in_epoch(record: &Envelope<'_>, head: &Head) -> bool {
    head.is_writer(record.writer_epoch, record.writer_id)
}

/// Judges a claim. It is applied only at the next epoch; the other rules do not apply to it. A claim at the next epoch that reuses
/// a `record_id` with other content is refused, because an id must find only one record.
fn claim(record: &Envelope<'_>, mut head: Head, known: bool) -> Verdict {
    let next = Some(record.writer_epoch) == head.epoch.next();
    if !next || head.is_unclaimed || record.writer_seq != WriterSeq::ZERO || record.writer_id.is_none() {
        return Verdict::Refused { reason: Reason::Fenced, head };
    }
    if known {
        return Verdict::Refused { reason: Reason::Conflict, head };
    }
    if head.writer_id.borrow() != record.writer_id {
        head.writer_since = record.writer_epoch;
    }
    let shown = record.facts.shown.map(|secret| secret.commitment());
    if shown.is_none() || shown != head.commitment {
        head.handle_since = record.writer_epoch;
    }
    head.commitment = record.facts.commitment;
    head.epoch = record.writer_epoch;
    head.writer_id = record.writer_id.into();
    head.next_writer_seq = WriterSeq::from(1);
    head.undecided_calls_of_epoch = 0;
    apply(record, &mut head);
    Verdict::Applied { head, no_op: false }
}

/// Checks the content rules. Returns `Ok(no_op)` or the reason of the refusal.
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
    let Some(payload_type) = facts.payload_type.known() else { return Ok(Ok(false)) };
    match payload_type {
        PayloadType::RunLifecycle => Ok(if facts.status.as_deref() == Some("started") && head.started {
            Err(Reason::Transition)
        } else {
            Ok(false)
        }),
        PayloadType::ToolCallRequested => {
            // After a skip a call may exist whose request is not known. Another request must not replace it: its effect may have run.
            if head.displaced_until.is_some() && view.call(record.record_id)?.is_some() {
                return Ok(Err(Reason::Transition));
            }
            let earlier = head.undecided_calls > head.undecided_calls_of_epoch;
            let refuses = earlier && facts.unresolved == Some(Unresolved::Refuse);
            Ok(if refuses { Err(Reason::Unresolved) } else { Ok(false) })
        }
        PayloadType::ToolCallCompleted | PayloadType::ToolCallFailed => Ok(match answer(record, view)? {
            Ok(no_op) => check_handle(record, head, view)?.map(|()| no_op),
            Err(reason) => Err(reason),
        }),
        PayloadType::ToolCallAttempt => Ok(match answer(record, view)? {
            Ok(no_op) => check_permission(record, view)?.map(|()| no_op),
            Err(reason) => Err(reason),
        }),
        PayloadType::EffectResolution => Ok(match answer(record, view)? {
            Ok(no_op) => match check_handle(record, head, view)? {
                Ok(()) => check_decision_basis(record, head, view)?.map(|()| no_op),
                Err(reason) => Err(reason),
            },
            Err(reason) => Err(reason),
        }),
        PayloadType::Checkpoint => Ok(match facts.covers_journal_seq {
            Some(covers) if covers < head.next_journal_seq => Ok(false),
            _ => Err(Reason::Checkpoint),
        }),
        PayloadType::LoopCheckpoint => {
            if facts.covers_journal_seq.is_none_or(|covers| covers >= head.next_journal_seq) {
                return Ok(Err(Reason::Checkpoint));
            }
            let fits = is_new_checkpoint(facts, view)? && messages_fit(facts, view)?;
            Ok(if fits { Ok(false) } else { Err(Reason::Checkpoint) })
        }
        PayloadType::CheckpointPrune => Ok(facts.covers_journal_seq.map(|_| false).ok_or(Reason::Checkpoint)),
        _ => {
            let Some(report) = StatusReport::from_record(record) else { return Ok(Ok(false)) };
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

/// Returns whether a checkpoint's message list can be built: its base is applied and not pruned, each span is within its source
/// list, and the list has at most [`MESSAGE_BYTES_MAX`] bytes.
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
            _ => span.slice(own).iter().copied().map(u64::from).sum(),
        };
        if bytes > MESSAGE_BYTES_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether an ended run still accepts a numbered record: a checkpoint, a recovery marker, or the end of a turn, which the
/// contract's loop records after its terminal marker.
fn after_the_end(facts: &Facts) -> bool {
    match facts.payload_type.known() {
        Some(PayloadType::Checkpoint | PayloadType::Recovery) => true,
        Some(PayloadType::TurnLifecycle) => matches!(facts.status.as_deref(), Some("completed" | "failed")),
        _ => false,
    }
}

/// Applies the changes of the head that every applied record makes.
fn apply(record: &Envelope<'_>, head: &mut Head) {
    head.records += 1;
    head.hash = head.hash.chain(&record.record_hash());
    if let Some(status) = record.facts.status.as_deref() {
        head.started |= record.facts.payload_type == PayloadType::RunLifecycle && status == "started";
        head.status = lifecycle::run_ends_as(&record.facts.payload_type, status).unwrap_or(head.status);
    }
    if let Some(seq) = record.facts.checkpoint_seq.filter(|_| record.kind == RecordKind::LoopCheckpoint) {
        head.checkpoint_seq = head.checkpoint_seq.max(seq);
    }
}

#[cfg(test)]
mod tests;
