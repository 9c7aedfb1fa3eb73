//! Numbers a record again if another server's record took the numbers that this server filled in.
//!
//! ```text
//!   number ─▶ append ─▶ judged ─┬─▶ outcome
//!      ▲                        └─▶ its number was taken ─┐
//!      └──────── same record id, version 2 of the schema ◀┘
//! ```
//!
//! A request's only record is numbered early, from the index without a wait for `latest`, under three conditions:
//! * This server numbered the run's last record, and no other record took that number.
//! * All records that this server has appended to the run since then are judged.
//! * No number of the run was taken recently.
//!
//! The run's lock serialises this server's appends; only the log serialises the appends of several servers. In version
//! 2 the judge judges a record again that was refused for its numbers. The record is applied once, however many copies
//! land.

use super::{
    basis::is_checked,
    land::append_planned,
    numbers::{is_numbered_here, is_taken},
    origin::Origin,
    outcomes::AnswerAt,
    plan::{Planned, plan_drafts},
    run_locks::LockState,
};
use runlog_projector::index::{
    error::Error,
    projector::{Consistency, Projector},
};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    draft::Draft,
    id::RunId,
    record::RecordKind,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Appends of one record in one request. Each failed try leaves a refused record in the log.
pub(crate) const TRIES_MAX: usize = 32;

/// Numbers and appends drafts of a locked run, and repeats this while other servers take the numbers.
pub(super) async fn append_numbered(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    locked: &mut LockState,
    drafts: &Arc<Vec<Draft>>,
    origin: &Origin,
    at: AnswerAt,
    deadline: Duration,
) -> Result<Vec<Outcome>, Error> {
    let (started, partition) = (Instant::now(), projector.partition_of(run_id));
    let left = || deadline.saturating_sub(started.elapsed());
    let mut outcomes: Vec<Option<Outcome>> = vec![None; drafts.len()];
    let mut open: Vec<usize> = (0..drafts.len()).collect();
    let is_known = locked.numbered.take().is_some_and(|run| run.borrow() == run_id);
    let may_be_early = is_known && !locked.is_contended() && !left().is_zero();
    let mut early = if may_be_early { planned_early(projector, run_id, drafts, origin).await } else { None };
    let mut refused: Vec<Option<Outcome>> = vec![None; drafts.len()];
    for nth in 0..TRIES_MAX {
        // Earlier tries appended records, so the error must not claim that nothing was appended.
        let of_try = |error: Error| if nth > 0 { error.after_a_part() } else { error };
        let was_early = early.is_some();
        let planned = match early.take() {
            Some(planned) => planned,
            None => {
                projector.wait(partition, Consistency::Latest, left()).await.map_err(of_try)?;
                plan_drafts(projector, run_id, drafts, &open, origin).await.map_err(of_try)?
            }
        };
        let landed = append_planned(projector, run_id, planned, origin, None, at, left()).await.map_err(of_try)?;
        let mut taken = Vec::new();
        for (index, (expected, outcome)) in open.into_iter().zip(landed) {
            if is_taken(&drafts[index], &expected, &outcome) {
                taken.push(index);
                refused[index] = Some(outcome);
            } else {
                // Other numbers did not help: the index now reports the refusal of this request's own earlier try. If a skip took
                // away the record that had its numbers, that try is applied.
                let is_refused = outcome.reason.is_some();
                let own = refused[index].take().filter(|own| is_refused && own.position == outcome.position);
                outcomes[index] = Some(own.unwrap_or(outcome));
            }
        }
        if taken.is_empty() {
            // Early numbering reads the index, which does not have records that are not judged.
            locked.numbered = (at != AnswerAt::Acknowledged).then(|| run_id.to_owned());
            return Ok(outcomes.into_iter().flatten().collect());
        }
        locked.number_taken(was_early);
        open = taken;
    }
    let message = format!(
        "other servers append to run {run_id} at the same time, and took the numbers of {} records {TRIES_MAX} times; send \
         the records again with the same record ids",
        open.len()
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Numbers a request's only record from the index, without asking the log for its end. Returns no plan if the log
/// might judge the record otherwise and the record could then not be numbered again. Returns `None` for several
/// records either: they keep their order only if none must be numbered again.
async fn planned_early(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    drafts: &Arc<Vec<Draft>>,
    origin: &Origin,
) -> Option<Vec<Planned>> {
    let [draft] = &drafts[..] else { return None };
    let is_batch = draft.record.body.record_kind == RecordKind::Batch;
    if !is_numbered_here(draft) || draft.has_journal_seq || is_batch || is_checked(&draft.record) {
        return None;
    }
    // A lagging index may cause an error that `latest` does not confirm.
    let planned = plan_drafts(projector, run_id, drafts, &[0], origin).await.ok()?;
    planned.iter().all(|planned| planned.outcome.outcome == Disposition::Applied).then_some(planned)
}
