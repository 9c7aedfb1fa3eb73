//! The content rules of records that answer an effect: results, attempts and decisions.

use super::{
    class::Class,
    lifecycle::Family,
    status::{CallStatus, Reason},
    view::{Head, PendingEffect, View},
};
use crate::{codec::Envelope, id::RecordId, record::RecordKind};

/// Judges a record that answers a request. The request must exist and be pending. A repeated equal completion is a no-op.
pub(super) fn answer<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Result<bool, Reason>, V::Error> {
    let Some(request) = &record.facts.answers else { return Ok(Err(Reason::Transition)) };
    if let Some(effect) = effect_of_basis(record, request.borrow(), view)? {
        let adopts_nothing = record.facts.status.as_deref() == Some("adopt") && effect.adoptable.is_none();
        return Ok(if adopts_nothing { Err(Reason::Transition) } else { Ok(false) });
    }
    let Some(call) = view.call(request.borrow())? else {
        return if record.kind == RecordKind::EffectResolution {
            resolves(record, request.borrow(), view)
        } else {
            Ok(Err(Reason::Transition))
        };
    };
    let result = record.facts.payload_type.known().is_some_and(|known| known.is_call_result());
    let is_pending = call.status == CallStatus::Pending;
    if is_pending && adopts_nothing(record, request.borrow(), call.has_counted_evidence, view)? {
        return Ok(Err(Reason::Transition));
    }
    Ok(match call.status {
        CallStatus::Pending => Ok(false),
        CallStatus::Completed | CallStatus::Failed if result && call.outcome_hash == Some(record.payload_hash()) => {
            Ok(true)
        }
        CallStatus::Completed | CallStatus::Failed => Err(Reason::Transition),
    })
}

/// The pending effect, of any kind, whose basis a decision names. Effects of several kinds may have one id, but not one basis.
fn effect_of_basis<V: View>(
    record: &Envelope<'_>,
    id: RecordId<&str>,
    view: &mut V,
) -> Result<Option<PendingEffect>, V::Error> {
    let Some(basis) = record.facts.decided_basis() else { return Ok(None) };
    Ok(view.pending_effect(id, Some(basis))?.filter(|effect| effect.newest == basis))
}

/// Whether a record is a decision that adopts evidence which the pending effect does not have. A decision without a basis reads only
/// counted evidence.
fn adopts_nothing<V: View>(
    record: &Envelope<'_>,
    id: RecordId<&str>,
    has_counted_evidence: bool,
    view: &mut V,
) -> Result<bool, V::Error> {
    if record.facts.status.as_deref() != Some("adopt") {
        return Ok(false);
    }
    if record.facts.basis.is_none() {
        return Ok(!has_counted_evidence);
    }
    Ok(view.pending_effect(id, None)?.is_none_or(|effect| effect.adoptable.is_none()))
}

/// Refuses an attempt that is not permitted. The call must be safe to run again, as the attempt's author saw it, and
/// the number must be the next one. Attempts without a basis are not checked.
pub(super) fn check_permission<V: View>(record: &Envelope<'_>, view: &mut V) -> Result<Result<(), Reason>, V::Error> {
    let facts = &record.facts;
    let (Some(request), Some(basis)) = (&facts.answers, facts.basis) else { return Ok(Ok(())) };
    let Some(call) = view.pending_effect(request.borrow(), None)? else { return Ok(Err(Reason::Transition)) };
    let is_next = facts.attempt.is_some() && facts.attempt == call.attempts.checked_add(1);
    let permitted = call.class == Class::RetrySafe && call.newest == basis && is_next && !call.is_before_skip;
    Ok(if permitted { Ok(()) } else { Err(Reason::Transition) })
}

/// Refuses a result, or a writer's own decision, that is valid only for an effect of the writer's handle, if another handle started the
/// effect last. An effect that was started without a commitment, or that the journal only observes, may have any writer.
pub(super) fn check_handle<V: View>(
    record: &Envelope<'_>,
    head: &Head,
    view: &mut V,
) -> Result<Result<(), Reason>, V::Error> {
    let facts = &record.facts;
    let Some(request) = facts.answers.as_ref().filter(|_| facts.only_own == Some(true)) else { return Ok(Ok(())) };
    let Some(effect) = view.pending_effect(request.borrow(), facts.decided_basis())? else { return Ok(Ok(())) };
    let is_own = !effect.is_start_void && effect.last_started_in >= head.handle_since;
    let is_foreign = effect.has_committed_start && !is_own;
    Ok(if is_foreign { Err(Reason::NotStartedHere) } else { Ok(()) })
}

/// Refuses a decision on a state that its author did not see: the facts name the effect's basis, its revision or both,
/// and the evidence. Decisions of schema version 1 name neither and are not checked, unless a skip voids or displaces the newest
/// record.
pub(super) fn check_decision_basis<V: View>(
    record: &Envelope<'_>,
    head: &Head,
    view: &mut V,
) -> Result<Result<(), Reason>, V::Error> {
    let facts = &record.facts;
    let (has_basis, after_skip) = (facts.has_decision_basis(), head.displaced_until.is_some());
    let Some(request) = facts.answers.as_ref().filter(|_| has_basis || after_skip) else { return Ok(Ok(())) };
    let Some(effect) = view.pending_effect(request.borrow(), facts.decided_basis())? else {
        return Ok(Err(Reason::Transition));
    };
    // The author of such a decision, a writer or a program of version 1, need not know of the record.
    let is_blind = effect.is_newest_void && facts.basis.is_none() && facts.revision.is_none();
    if is_blind || effect.is_before_skip {
        return Ok(Err(Reason::StaleDecision));
    }
    if !has_basis {
        return Ok(Ok(()));
    }
    // A server has refused a greater revision than the effect's.
    let is_late = facts.revision.is_some_and(|revision| effect.revision > revision);
    if is_late || facts.basis.is_some_and(|basis| basis != effect.newest) {
        return Ok(Err(Reason::StaleDecision));
    }
    let adoptable = if facts.basis.is_some() { effect.adoptable } else { effect.adoptable_by_id };
    let (adoptable, happened) = adoptable.map_or((None, false), |(id, happened)| (Some(id), happened));
    let names_evidence = match facts.status.as_deref() {
        Some("adopt") => true,
        Some("not_done") => happened,
        _ => false,
    };
    let named = !names_evidence || facts.evidence == adoptable;
    Ok(if named { Ok(()) } else { Err(Reason::Transition) })
}

/// Judges a decision on an effect other than a Runlog tool call: on the effect of the first family that has the id.
fn resolves<V: View>(
    record: &Envelope<'_>,
    id: RecordId<&str>,
    view: &mut V,
) -> Result<Result<bool, Reason>, V::Error> {
    for family in Family::EFFECTS {
        if let Some(state) = view.state(family, id.as_str())? {
            let legal = !state.ended && !adopts_nothing(record, id, state.has_counted_evidence, view)?;
            return Ok(if legal { Ok(false) } else { Err(Reason::Transition) });
        }
    }
    Ok(Err(Reason::Transition))
}
