//! Numbers that the server filled in and that a record of another server took: the record is numbered again.
//!
//! ```text
//!   number ─▶ append ─▶ judged ─┬─▶ outcome
//!      ▲                        └─▶ its number was taken ─┐
//!      └──────── same record id, version 2 of the schema ◀┘
//! ```
//!
//! A request's only record is numbered early, by the index as it is, where this server numbered a record of the run before, no
//! number of that was taken, and what this server has appended to the run since is judged. All others are numbered at `latest`, and
//! so are, for a while, those of a run of which a number was taken.
//!
//! The lock of a run keeps this server's appends apart, and only the log those of several servers. In version 2 a record that
//! was refused for its numbers is judged anew, so it is applied once, however many copies land.

use super::{AnswerAt, Draft, Origin, Planned, basis::is_checked};
use crate::index::{Consistency, Error, OfLockedRun, Projector};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    id::RunId,
    judge::{FirstJudgement, Reason},
    payload::Payload,
    record::{JournalRecord, RecordKind},
    schema::RENUMBERED_SINCE,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often a record is appended in one request. Each time that fails leaves a refused record in the log.
pub(crate) const TRIES_MAX: usize = 32;

impl Projector {
    /// Appends drafts of a locked run that need numbers, again while another server takes these.
    pub(super) async fn append_numbered(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        locked: &mut OfLockedRun,
        drafts: &Arc<Vec<Draft>>,
        origin: &Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let (begun, partition) = (Instant::now(), self.partition_of(run_id));
        let left = || deadline.saturating_sub(begun.elapsed());
        let mut outcomes: Vec<Option<Outcome>> = vec![None; drafts.len()];
        let mut open: Vec<usize> = (0..drafts.len()).collect();
        let is_known = locked.numbered.take().is_some_and(|run| run.borrow() == run_id);
        let may_be_early = is_known && !locked.is_contended() && !left().is_zero();
        let mut early = if may_be_early { self.planned_early(run_id, drafts, origin).await } else { None };
        let mut refused: Vec<Option<Outcome>> = vec![None; drafts.len()];
        for nth in 0..TRIES_MAX {
            // That nothing was appended is not true of the tries before.
            let of_try = |error: Error| if nth > 0 { error.after_a_part() } else { error };
            let was_early = early.is_some();
            let planned = match early.take() {
                Some(planned) => planned,
                None => {
                    self.wait(partition, Consistency::Latest, left()).await.map_err(of_try)?;
                    self.planned(run_id, drafts, &open, origin).await.map_err(of_try)?
                }
            };
            let landed = self.append_planned(run_id, planned, origin, at, left()).await.map_err(of_try)?;
            let mut taken = Vec::new();
            for (index, (expected, outcome)) in open.into_iter().zip(landed) {
                if is_taken(&drafts[index], &expected, &outcome) {
                    taken.push(index);
                    refused[index] = Some(outcome);
                } else {
                    // Other numbers did not help: what is known now is the refusal of this request's own record.
                    let own = refused[index].take().filter(|own| own.position == outcome.position);
                    outcomes[index] = Some(own.unwrap_or(outcome));
                }
            }
            if taken.is_empty() {
                // What is not judged is not known to what is numbered early.
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

    /// A request's only record, numbered by the index as it is, without a question to the log for its end. None where the log
    /// might judge it otherwise than expected, and it would then not be numbered again. None for several records, too: they stay
    /// in order only if none of them has to be numbered again.
    async fn planned_early(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        drafts: &Arc<Vec<Draft>>,
        origin: &Origin,
    ) -> Option<Vec<Planned>> {
        let [draft] = &drafts[..] else { return None };
        let is_batch = draft.record.body.record_kind == RecordKind::Batch;
        if !is_numbered_here(draft) || draft.has_journal_seq || is_batch || is_checked(&draft.record) {
            return None;
        }
        // An error may be that of an index that lags; at `latest` it is the answer.
        let planned = self.planned(run_id, drafts, &[0], origin).await.ok()?;
        planned.iter().all(|planned| planned.outcome.outcome == Disposition::Applied).then_some(planned)
    }
}

/// Whether the server fills in a number that only its writer's next record may have.
fn is_numbered_here(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    !draft.has_writer_seq && !kind.unclaimed() && !matches!(draft.record.payload, Payload::RunClaim(_))
}

/// Whether a draft, whose id was judged before, is numbered again: the same record was refused for its numbers.
pub(super) fn is_due(draft: &Draft, first: &FirstJudgement) -> bool {
    is_numbered_here(draft) && first.is_for_numbers() && first.content_hash == draft.record.content_hash()
}

/// Whether the judge judges a record anew if it is of the same content as `first`.
pub(super) fn is_judged_anew(record: &JournalRecord, first: &FirstJudgement) -> bool {
    record.version().number >= RENUMBERED_SINCE && first.is_for_numbers()
}

/// Whether a refusal can be one for numbers. A conflict can also be of an id.
pub(super) fn is_for_numbers(reason: Reason) -> bool {
    matches!(reason, Reason::Conflict | Reason::Sequence | Reason::Gap)
}

/// Whether a record was refused because the numbers that the server filled in were taken.
fn is_taken(draft: &Draft, expected: &Outcome, outcome: &Outcome) -> bool {
    let for_numbers = |outcome: &Outcome| {
        outcome.reason.as_ref().and_then(|reason| reason.known()).is_some_and(|reason| is_for_numbers(*reason))
    };
    let own_seq = draft.has_journal_seq && draft.record.body.record_kind != RecordKind::Batch;
    let of_client = own_seq && outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Sequence);
    is_numbered_here(draft) && for_numbers(outcome) && !for_numbers(expected) && !of_client
}
