//! Decisions on pending effects.

use super::Origin;
use crate::{
    index::{
        Consistency, Error, Projector,
        project::Changes,
        query,
        store::{self, Rows, runs::RunRow},
    },
    server::auth::{Caller, token_file::Scope},
};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    depth,
    id::{ContentHash, Epoch, OrEmpty, PartitionId, RecordId, RunId},
    json,
    judge::{Head, Reason, lifecycle::LifecycleStatus},
    payload::{EffectResolution, Payload},
    record::{Body, Facts, JournalRecord, RecordKind},
};
use std::{cmp::Ordering, sync::Arc, time::Duration};

/// The state of the effect that a decision's author saw.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Seen {
    /// The effect's revision; required for a pending effect.
    pub(in crate::server) revision: Option<u64>,
    /// The content hash of the effect's newest record, if the author names it. It distinguishes states that have the
    /// same revision.
    pub(in crate::server) basis: Option<ContentHash>,
    /// Whether the author decides although the effect's process may still be running the effect.
    pub(in crate::server) force: bool,
    /// The evidence that the decision adopts or overrides.
    pub(in crate::server) evidence: Option<RecordId>,
}

impl Projector {
    /// Records a decision on a pending effect, which its author saw in the state `seen`.
    ///
    /// Errors: `NotFound` if the run has no such effect; `Conflict` if it is not pending, changed since, or its process
    /// may still be running it; `Invalid` if it is pending and `seen` has no revision.
    pub(in crate::server) async fn resolve(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        resolution: EffectResolution,
        seen: Seen,
        caller: &Caller,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let partition = self.ready_to_resolve(run_id, &resolution, deadline).await?;
        let id = resolution.request_record_id.clone();
        let status = || query::effects::status(&*self.store(partition), run_id, id.borrow());
        let Some(before) = status()? else {
            return Err(no_effect(run_id, id.borrow()));
        };
        let not_pending = |status| {
            let message = format!(
                "effect {id} of run {run_id} is {status}; only a pending one is resolved, only one with evidence adopted, \
                 and evidence that it happened is named"
            );
            Error::new(ErrorKind::Conflict, message).about_record(id.borrow())
        };
        if seen.revision.is_none() {
            let pending = before == LifecycleStatus::Pending;
            let message = || no_revision(run_id, Some(id.borrow()));
            let blind = || Error::new(ErrorKind::Invalid, message()).about_record(id.borrow());
            return Err(if pending { blind() } else { not_pending(before) });
        }
        let result = resolution.result.as_ref().map(|result| json::check_value(result.as_str())).transpose();
        result.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the result is not JSON that clients can read: {error}"))
        })?;
        let record_id = RecordId::new((self.shared.config.ids)())?;
        let mut record = JournalRecord::new(run_id, record_id, "runlog", Payload::EffectResolution(resolution));
        depth::check(&record)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("{error}; nothing was appended")))?;
        let revision = seen.revision;
        (record.body.facts.revision, record.body.facts.evidence) = (revision, seen.evidence);
        record.body.facts.basis = seen.basis.filter(|_| self.shared.config.writes_basis());
        let origin = Origin { basis: seen.basis, force: seen.force, ..Origin::from(caller) };
        let outcome = self.append_made(run_id, record, origin, deadline).await?;
        if outcome.outcome == Disposition::Refused {
            if outcome.reason.as_ref().is_none_or(|reason| *reason != Reason::StaleDecision) {
                // The effect may have changed: the record that made the judge refuse the decision is now applied.
                return Err(not_pending(status()?.unwrap_or(before)));
            }
            let revision = revision.unwrap_or_default();
            let message =
                format!("effect {id} of run {run_id} changed after revision {revision}; read it again and decide anew");
            return Err(Error::new(ErrorKind::Conflict, message).about_record(id.borrow()));
        }
        Ok(outcome)
    }

    /// Refuses writers' own `not_done` on effects that may have happened without the writer's knowledge. The writer knows if its
    /// epoch is the run's, made every start of the effect since the last clearance, and no evidence came. The judge covers the
    /// time between this check and the judgement: a claim fences the decision, and evidence that the effect happened refuses it.
    ///
    /// Errors: `Forbidden`, in the same words for every state of the effect: the caller may lack the scopes to read it.
    pub(in crate::server) async fn can_vouch(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        decisions: &[&JournalRecord],
        deadline: Duration,
    ) -> Result<(), Error> {
        if decisions.is_empty() {
            return Ok(());
        }
        let partition = self.partition_of(run_id);
        self.wait(partition, Consistency::Latest, deadline).await?;
        let store = self.store(partition);
        let rows = Changes::new(&*store);
        decisions.iter().try_for_each(|decision| vouches(run_id, &decision.body, &rows))
    }

    /// How [`Self::resolve`] fails for a run without records.
    pub(in crate::server) async fn resolve_of_absent(
        &self,
        run_id: RunId<&str>,
        resolution: &EffectResolution,
        deadline: Duration,
    ) -> Error {
        let ready = self.ready_to_resolve(run_id, resolution, deadline).await;
        ready.err().unwrap_or_else(|| no_effect(run_id, resolution.request_record_id.borrow()))
    }

    /// Checks what does not depend on the run, and waits until the run is at `latest`.
    async fn ready_to_resolve(
        &self,
        run_id: RunId<&str>,
        resolution: &EffectResolution,
        deadline: Duration,
    ) -> Result<PartitionId, Error> {
        if !matches!(resolution.decision.as_str(), "done" | "adopt" | "not_done" | "give_up") {
            let message = format!("{:?} is not one of done, adopt, not_done, give_up", resolution.decision);
            return Err(Error::new(ErrorKind::Usage, message));
        }
        let partition = self.partition_of(run_id);
        self.wait(partition, Consistency::Latest, deadline).await?;
        Ok(partition)
    }
}

/// [`Projector::can_vouch`] for one decision, by the index as it is now.
pub(super) fn vouches<R: Rows>(
    run_id: RunId<&str>,
    Body { record_id, facts, .. }: &Body,
    rows: &Changes<'_, R>,
) -> Result<(), Error> {
    let (Some(effect), Some(epoch)) = (facts.answers.as_ref().map(RecordId::borrow), facts.epoch) else {
        return Ok(());
    };
    let first = store::seen(run_id, record_id.borrow(), |key| rows.get(key))?;
    if first.is_some_and(|first| !first.is_for_numbers()) {
        // A repeat or a conflict changes nothing.
        return Ok(());
    }
    let RunRow { head: Head { epoch: current, handle_since, .. }, .. } =
        rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    let can = match epoch.cmp(&current) {
        // The judge refuses the decision as fenced.
        Ordering::Less => true,
        // An effect that is not pending yet can start only in this epoch, and a cleared effect stays cleared. The handle knows the
        // starts of all its epochs.
        Ordering::Equal => {
            let row = store::effects::pending_one(run_id, effect, |key| rows.get(key))?;
            row.is_none_or(|row| row.cleared || (row.evidence.is_empty() && row.first_started_in >= handle_since))
        }
        // The index does not have the claim yet, so another epoch can still start the effect.
        Ordering::Greater => false,
    };
    if can {
        return Ok(());
    }
    let message = format!(
        "the decision on effect {effect} needs the scope {}: a writer may decide without it only if its handle made all starts of \
         the effect and no result has arrived; nothing was appended",
        Scope::Resolve.as_str()
    );
    Err(Error::new(ErrorKind::Forbidden, message))
}

/// Whether a record is a writer's own `not_done`, valid only in its epoch.
fn is_own(facts: &Facts) -> bool {
    facts.epoch.is_some() && facts.status.as_deref() == Some("not_done")
}

/// Whether a record is a writer's own `not_done`. If it names evidence or its payload is not readable, it needs
/// `resolve` like any other decision.
pub(in crate::server) fn is_own_decision(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    let is_claimed = facts.epoch.is_some_and(|epoch| epoch > Epoch::ZERO);
    is_own(facts) && is_claimed && facts.evidence.is_none() && matches!(record.payload, Payload::EffectResolution(_))
}

/// Whether a decision names the state that it was made at, so that the journal refuses it after a change. The state is
/// a revision, a basis, or the epoch of a writer's own `not_done`. Other records need no state.
pub(super) fn says_what_was_seen(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    record.body.record_kind != RecordKind::EffectResolution
        || facts.basis.is_some()
        || facts.revision.is_some()
        || is_own(facts)
}

fn no_effect(run_id: RunId<&str>, id: RecordId<&str>) -> Error {
    Error::new(ErrorKind::NotFound, format!("run {run_id} has no effect {id}")).about_record(id)
}

pub(super) fn no_revision(run_id: RunId<&str>, effect: Option<RecordId<&str>>) -> String {
    format!(
        "a decision needs the revision of its effect: read effect {} of run {run_id} (GET /v1/runs/{{run}}/recovery), and send \
         the `revision` that it has there",
        OrEmpty::from(effect)
    )
}
