//! Numbers that the server filled in and that a record of another server took: the record is numbered again.
//!
//! ```text
//!   number ─▶ append ─▶ judged ─┬─▶ outcome
//!      ▲                        └─▶ its number was taken ─┐
//!      └──────── same record id, version 2 of the schema ◀┘
//! ```
//!
//! The lock of a run keeps this server's appends apart, and only the log those of several servers. In version 2 a record that
//! was refused for its numbers is judged anew, so it is applied once, however many copies land.

use super::{AnswerAt, Draft, Origin};
use crate::index::{Consistency, Error, Projector};
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    id::RunId,
    judge::{FirstJudgement, Reason},
    payload::Payload,
    record::RecordKind,
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
        drafts: &Arc<Vec<Draft>>,
        origin: &Origin,
        at: AnswerAt,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        let (begun, partition) = (Instant::now(), self.partition_of(run_id));
        let left = || deadline.saturating_sub(begun.elapsed());
        let mut outcomes: Vec<Option<Outcome>> = vec![None; drafts.len()];
        let mut open: Vec<usize> = (0..drafts.len()).collect();
        for _ in 0..TRIES_MAX {
            self.wait(partition, Consistency::Latest, left()).await?;
            let landed = self.append_once(run_id, drafts, &open, origin, at, left()).await?;
            let mut lost = Vec::new();
            for (index, (expected, outcome)) in open.into_iter().zip(landed) {
                if is_lost(&drafts[index], &expected, &outcome) {
                    lost.push(index);
                } else {
                    outcomes[index] = Some(outcome);
                }
            }
            if lost.is_empty() {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            open = lost;
        }
        let message = format!(
            "other servers append to run {run_id} at the same time, and took the numbers of {} records {TRIES_MAX} times; send \
             the records again with the same record ids",
            open.len()
        );
        Err(Error::new(ErrorKind::Unavailable, message))
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

/// Whether a refusal can be one for numbers. A conflict can also be of an id.
pub(super) fn is_for_numbers(reason: Reason) -> bool {
    matches!(reason, Reason::Conflict | Reason::Sequence | Reason::Gap)
}

/// Whether a record was refused for numbers that were right when the server filled them in.
fn is_lost(draft: &Draft, expected: &Outcome, outcome: &Outcome) -> bool {
    let for_numbers = |outcome: &Outcome| {
        outcome.reason.as_ref().and_then(|reason| reason.known()).is_some_and(|reason| is_for_numbers(*reason))
    };
    let own_seq = draft.has_journal_seq && draft.record.body.record_kind != RecordKind::Batch;
    let of_client = own_seq && outcome.reason.as_ref().is_some_and(|reason| *reason == Reason::Sequence);
    is_numbered_here(draft) && for_numbers(outcome) && !for_numbers(expected) && !of_client
}
