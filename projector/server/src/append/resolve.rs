//! Records an operator's decision on a pending effect.

use super::{appender::Appender, decisions::no_revision, origin::Origin};
use crate::auth::Caller;
use runlog_projector::index::{
    error::Error,
    projector::{Consistency, Projector},
    query,
    store::{self, Rows},
};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    depth,
    id::{ContentHash, PartitionId, RecordId, RunId},
    json,
    judge::{Reason, lifecycle::LifecycleStatus},
    payload::{EffectResolution, Payload},
    record::JournalRecord,
};
use std::{sync::Arc, time::Duration};

/// The state of the effect that a decision's author saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenState {
    /// The effect's revision. A pending effect needs it or its basis.
    pub(crate) revision: Option<u64>,
    /// The content hash of the effect's newest record, if the author names it. It distinguishes states that have the
    /// same revision.
    pub(crate) basis: Option<ContentHash>,
    /// Whether the author decides although the effect's process may still be running the effect.
    pub(crate) force: bool,
    /// The evidence that the decision adopts or overrides.
    pub(crate) evidence: Option<RecordId>,
}

/// Records a decision on a pending effect, which its author saw in the state `seen`.
///
/// Errors: `NotFound` if the run has no such effect; `Conflict` if it is not pending, changed since, or its process
/// may still be running it; `Invalid` if it is pending and `seen` has neither revision nor basis.
pub(crate) async fn resolve(
    appender: &Arc<Appender>,
    run_id: RunId<&str>,
    resolution: EffectResolution,
    seen: SeenState,
    caller: &Caller,
    deadline: Duration,
) -> Result<Outcome, Error> {
    let projector = &appender.projector;
    let partition = ready_to_resolve(projector, run_id, &resolution, deadline).await?;
    let id = resolution.request_record_id.clone();
    // A rebuild replaces the store.
    let status = || query::effects::status(&*projector.store(partition)?, run_id, id.borrow());
    let Some(before) = status()? else {
        return Err(no_effect(run_id, id.borrow()));
    };
    let not_pending = |status| {
        let message = format!(
            "effect {id} of run {run_id} is {status}; a decision needs a pending effect, `adopt` needs evidence, and \
             `not_done` must name evidence that the effect happened"
        );
        Error::new(ErrorKind::Conflict, message).about_record(id.borrow())
    };
    let revision = match (seen.revision, seen.basis) {
        (None, Some(basis)) => revision_at(projector, run_id, id.borrow(), basis)?,
        (revision, _) => revision,
    };
    if revision.is_none() {
        let is_blind = before == LifecycleStatus::Pending && seen.basis.is_none();
        let message = || no_revision(run_id, Some(id.borrow()));
        let blind = || Error::new(ErrorKind::Invalid, message()).about_record(id.borrow());
        return Err(if is_blind { blind() } else { not_pending(status()?.unwrap_or(before)) });
    }
    let result = resolution.result.as_ref().map(|result| json::check_value(result.as_str())).transpose();
    result.map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("the result is not JSON that clients can read: {error}"))
    })?;
    let record_id = RecordId::new((projector.config().ids)())?;
    let mut record = JournalRecord::new(run_id, record_id, "runlog", Payload::EffectResolution(resolution));
    depth::check(&record).map_err(|error| Error::new(ErrorKind::Invalid, format!("{error}; nothing was appended")))?;
    (record.body.facts.revision, record.body.facts.evidence) = (revision, seen.evidence);
    record.body.facts.basis = seen.basis.filter(|_| projector.config().writes_basis());
    let origin = Origin { basis: seen.basis, force: seen.force, ..Origin::from(caller) };
    let outcome = appender.append_made(run_id, record, origin, deadline).await?;
    if outcome.outcome == Disposition::Refused {
        if outcome.reason.as_ref().is_none_or(|reason| *reason != Reason::StaleDecision) {
            // The effect may have changed: the record that made the judge refuse the decision is now applied.
            return Err(not_pending(status()?.unwrap_or(before)));
        }
        return Err(changed(run_id, id.borrow()));
    }
    Ok(outcome)
}

/// Returns the revision of a pending effect that has this basis, for the record of a decision that names no revision: before
/// schema version 3 a record cannot contain a basis. `None` if the effect is not pending.
///
/// Errors: `Conflict` if the effect has another basis.
fn revision_at(
    projector: &Projector,
    run_id: RunId<&str>,
    id: RecordId<&str>,
    basis: ContentHash,
) -> Result<Option<u64>, Error> {
    let store = projector.store(projector.partition_of(run_id))?;
    let one = |basis| store::effects::pending_one(run_id, id, basis, |key| store.get(key));
    let row = one(Some(basis).filter(|_| projector.config().writes_basis()))?;
    if row.as_ref().is_none_or(|row| row.newest == basis) {
        return Ok(row.map(|row| row.revision));
    }
    if one(Some(basis))?.is_some_and(|row| row.newest == basis) {
        let message = format!(
            "run {run_id} has several effects with the id {id}, and a record of schema version 2 can decide only about the first one. \
             Start the servers with --write-schema 3, or append the effect's own result; nothing was appended"
        );
        return Err(Error::new(ErrorKind::Conflict, message).about_record(id));
    }
    Err(changed(run_id, id))
}

/// How [`resolve`] fails for a run without records.
pub(crate) async fn resolve_of_absent(
    projector: &Projector,
    run_id: RunId<&str>,
    resolution: &EffectResolution,
    deadline: Duration,
) -> Error {
    let ready = ready_to_resolve(projector, run_id, resolution, deadline).await;
    ready.err().unwrap_or_else(|| no_effect(run_id, resolution.request_record_id.borrow()))
}

/// Makes the checks that do not depend on the run, and waits until the run is at `latest`.
async fn ready_to_resolve(
    projector: &Projector,
    run_id: RunId<&str>,
    resolution: &EffectResolution,
    deadline: Duration,
) -> Result<PartitionId, Error> {
    if !matches!(resolution.decision.as_str(), "done" | "adopt" | "not_done" | "give_up") {
        let message = format!("{:?} is not one of done, adopt, not_done, give_up", resolution.decision);
        return Err(Error::new(ErrorKind::Usage, message));
    }
    let partition = projector.partition_of(run_id);
    projector.wait(partition, Consistency::Latest, deadline).await?;
    Ok(partition)
}
fn no_effect(run_id: RunId<&str>, id: RecordId<&str>) -> Error {
    Error::new(ErrorKind::NotFound, format!("run {run_id} has no effect {id}")).about_record(id)
}

fn changed(run_id: RunId<&str>, id: RecordId<&str>) -> Error {
    let message = format!("effect {id} of run {run_id} has changed since it was read; read it and decide again");
    Error::new(ErrorKind::Conflict, message).about_record(id)
}
