//! The decisions that a writer may make without the scope `resolve`, and the members that each decision needs.

use crate::auth::permissions::Scope;
use runlog_projector::index::{
    error::Error,
    project::Changes,
    projector::{Consistency, Projector},
    store::{
        self, Rows,
        effects::EffectRow,
        runs::RunRow,
        tool_calls::{self, CallRow},
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{Epoch, OrEmpty, RecordId, RunId},
    judge::Head,
    payload::Payload,
    record::{Body, Facts, JournalRecord, RecordKind},
};
use std::{cmp::Ordering, sync::Arc, time::Duration};

/// Refuses a writer's own `not_done` if the effect may have happened without the writer's knowledge. The writer knows the
/// effect if its epoch is the run's current epoch, it made every start since the last `not_done`, and no evidence exists. The
/// judge covers the time between this check and the judgement: a claim fences the decision, and evidence that the effect
/// happened refuses it.
///
/// Errors: `Forbidden`, in the same words for every state of the effect: the caller may lack the scopes to read it.
pub(crate) async fn check_own_decisions(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    decisions: &[&JournalRecord],
    deadline: Duration,
) -> Result<(), Error> {
    if decisions.is_empty() {
        return Ok(());
    }
    let partition = projector.partition_of(run_id);
    projector.wait(partition, Consistency::Latest, deadline).await?;
    let store = projector.store(partition)?;
    let rows = Changes::new(&*store);
    decisions.iter().try_for_each(|decision| check_own_decision(run_id, &decision.body, &rows))
}

/// [`check_own_decisions`] for one decision, by the current index.
pub(super) fn check_own_decision<R: Rows>(
    run_id: RunId<&str>,
    body: &Body,
    rows: &Changes<'_, R>,
) -> Result<(), Error> {
    if is_own_effect(run_id, body, rows)? {
        return Ok(());
    }
    let effect = OrEmpty::from(body.facts.answers.as_ref().map(RecordId::borrow));
    let message = format!(
        "the decision on effect {effect} needs the scope {}: a writer may decide without it only if its handle made all starts of \
         the effect and no result has arrived; nothing was appended",
        Scope::Resolve.as_str()
    );
    Err(Error::new(ErrorKind::Forbidden, message))
}

/// Whether a writer's own decision is about an effect that the writer knows, or changes nothing.
pub(super) fn is_own_effect<R: Rows>(
    run_id: RunId<&str>,
    Body { record_id, facts, .. }: &Body,
    rows: &Changes<'_, R>,
) -> Result<bool, Error> {
    let (Some(effect), Some(epoch)) = (facts.answers.as_ref().map(RecordId::borrow), facts.epoch) else {
        return Ok(true);
    };
    let first = store::seen(run_id, record_id.borrow(), |key| rows.get(key))?;
    if first.is_some_and(|first| !first.is_for_numbers()) {
        // A repeat or a conflict changes nothing.
        return Ok(true);
    }
    let RunRow { head: Head { epoch: current, handle_since, .. }, .. } =
        rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    Ok(match epoch.cmp(&current) {
        // The judge refuses the decision as fenced.
        Ordering::Less => true,
        // An effect that is not pending yet can start only in this epoch, and a cleared effect stays cleared. The handle knows the
        // starts of all its epochs.
        Ordering::Equal => {
            let row = store::effects::pending_one(run_id, effect, facts.basis, |key| rows.get(key))?;
            // A skipped or displaced record may be a start.
            let knows_all = |row: &EffectRow| row.evidence.is_empty() && !row.is_newest_void;
            row.is_none_or(|row| row.cleared || (knows_all(&row) && row.first_started_in >= handle_since))
        }
        // The index does not have the claim yet, so another epoch can still start the effect.
        Ordering::Greater => false,
    })
}

/// Refuses a `not_done` about a call whose request a skip voids or displaces, if the run has an equal call. A process whose agent makes
/// the call would run the first of the two again, and the other one may be the same step of the agent.
///
/// Errors: `Conflict`.
pub(super) fn check_equal_calls<R: Rows>(
    row: &EffectRow,
    run_id: RunId<&str>,
    effect: RecordId<&str>,
    rows: &Changes<'_, R>,
) -> Result<(), Error> {
    let Some(fingerprint) = &row.fingerprint else { return Ok(()) };
    let call: Option<CallRow> = rows.get(&tool_calls::key(run_id, effect))?;
    if call.is_none_or(|call| !call.is_request_void) {
        return Ok(());
    }
    // The first equal call is the first or the second of all.
    for occurrence in [1, 2] {
        let key = tool_calls::by_fingerprint(run_id, fingerprint.borrow(), occurrence);
        let equal: Option<RecordId> = rows.get(&key)?;
        if let Some(equal) = equal.filter(|equal| equal.borrow() != effect) {
            let message = format!(
                "a skip voids or displaces the request of call {effect} of run {run_id}, and call {equal} is equal to it: if the agent \
                 made one call and {equal} is it, decide `done` with the result of {equal}, so that no process makes the call again. \
                 Otherwise decide `not_done` with `force`. Nothing was appended"
            );
            return Err(Error::new(ErrorKind::Conflict, message).about_record(effect));
        }
    }
    Ok(())
}

/// Whether a record is a writer's own `not_done`, valid only in its epoch.
fn is_own(facts: &Facts) -> bool {
    facts.epoch.is_some() && facts.status.as_deref() == Some("not_done")
}

/// Whether a record is a writer's own `not_done`. If it names evidence or its payload is not readable, it needs
/// `resolve` like any other decision.
pub(crate) fn is_own_decision(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    let is_claimed = facts.epoch.is_some_and(|epoch| epoch > Epoch::ZERO);
    is_own(facts) && is_claimed && facts.evidence.is_none() && matches!(record.payload, Payload::EffectResolution(_))
}

/// Whether a decision names the state on which it is based, so that the journal refuses it after a change. The state is
/// a revision, a basis, or the epoch of a writer's own `not_done`. Other records need no state.
pub(super) fn names_its_basis(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    record.body.record_kind != RecordKind::EffectResolution
        || facts.basis.is_some()
        || facts.revision.is_some()
        || is_own(facts)
}

/// Returns the message for a decision that names no state of its effect.
pub(super) fn no_revision(run_id: RunId<&str>, effect: Option<RecordId<&str>>) -> String {
    format!(
        "a decision needs the revision or the basis of its effect: read effect {} of run {run_id} (GET \
         /v1/runs/{{run}}/recovery), and send the `revision` or the `basis` that it has there",
        OrEmpty::from(effect)
    )
}
