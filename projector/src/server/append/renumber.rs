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

/// Appends of one record in one request. Each failed try leaves a refused record in the log.
pub(crate) const TRIES_MAX: usize = 32;

impl Projector {
    /// Numbers and appends drafts of a locked run, and repeats this while other servers take the numbers.
    pub(super) async fn append_numbered(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        locked: &mut OfLockedRun,
        drafts: &Arc<Vec<Draft>>,
        origin: &Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let (started, partition) = (Instant::now(), self.partition_of(run_id));
        let left = || deadline.saturating_sub(started.elapsed());
        let mut outcomes: Vec<Option<Outcome>> = vec![None; drafts.len()];
        let mut open: Vec<usize> = (0..drafts.len()).collect();
        let is_known = locked.numbered.take().is_some_and(|run| run.borrow() == run_id);
        let may_be_early = is_known && !locked.is_contended() && !left().is_zero();
        let mut early = if may_be_early { self.planned_early(run_id, drafts, origin).await } else { None };
        let mut refused: Vec<Option<Outcome>> = vec![None; drafts.len()];
        for nth in 0..TRIES_MAX {
            // Earlier tries appended records, so the error must not claim that nothing was appended.
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
                    // Other numbers did not help: the index now reports the refusal of this request's own earlier try.
                    let own = refused[index].take().filter(|own| own.position == outcome.position);
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
    /// might judge the record otherwise and the record could then not be numbered again. Returns none for several
    /// records either: they keep their order only if none must be numbered again.
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
        // A lagging index may cause an error that `latest` does not confirm.
        let planned = self.planned(run_id, drafts, &[0], origin).await.ok()?;
        planned.iter().all(|planned| planned.outcome.outcome == Disposition::Applied).then_some(planned)
    }
}

/// Whether the server fills in the record's number in its writer's sequence.
fn is_numbered_here(draft: &Draft) -> bool {
    let kind = draft.record.body.record_kind;
    !draft.has_writer_seq && !kind.unclaimed() && !matches!(draft.record.payload, Payload::RunClaim(_))
}

/// Whether to number a draft again: `first` has the same content and was refused for its numbers.
pub(super) fn is_due(draft: &Draft, first: &FirstJudgement) -> bool {
    is_numbered_here(draft) && first.is_for_numbers() && first.content_hash == draft.record.content_hash()
}

/// Whether the judge judges a record again that has the content of `first`.
pub(super) fn is_judged_anew(record: &JournalRecord, first: &FirstJudgement) -> bool {
    record.version().number >= RENUMBERED_SINCE && first.is_for_numbers()
}

/// Whether a record's numbers can be the reason of its refusal. A conflict can also concern its id.
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
