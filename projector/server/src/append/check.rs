//! Dry-runs a request to append.

use super::{blocking::blocking, origin::Origin, plan};
use runlog_projector::index::{
    error::Error,
    projector::{Author, Consistency, Projector},
};
use runlog_schemas::{
    answer::Outcome,
    draft::Draft,
    id::{RecordId, RunId},
};
use std::{sync::Arc, time::Duration};

/// Dry-runs an append. The position of a new record is the position of the run's last record.
///
/// Errors: `ReconcileRequired` for a run in doubt, as the append.
pub(crate) async fn check(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    mut drafts: Vec<Draft>,
    origin: Origin,
    deadline: Duration,
) -> Result<Vec<Outcome>, Error> {
    if let Some(store) = projector.content() {
        for draft in &mut drafts {
            draft.record.detach(store.inline_bytes_max());
        }
    }
    projector.wait(projector.partition_of(run_id), Consistency::Latest, deadline).await?;
    projector.check_author(run_id, Author::of(drafts.iter().map(|draft| &draft.record))).await?;
    for draft in drafts.iter_mut().filter(|draft| !draft.has_record_id) {
        draft.name(RecordId::new((projector.config().ids)())?);
    }
    let plan = move |projector: &Projector, run_id: RunId<&str>| {
        let store = projector.store(projector.partition_of(run_id))?;
        plan::plan(projector, run_id, &store.view(), &drafts.iter().enumerate().collect::<Vec<_>>(), &origin, true)
    };
    let planned = blocking(projector, run_id, plan).await?;
    Ok(planned.into_iter().map(|planned| planned.outcome).collect())
}
