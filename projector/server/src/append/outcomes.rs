//! The outcomes of appended records, from the index.

use super::blocking::blocking;
use runlog_projector::index::{
    error::Error,
    projector::{Consistency, Projector},
    query,
    store::{self, Rows, runs::RunRow},
};
use runlog_schemas::{
    answer::{Appended, Disposition, Outcome, Position, Writer},
    id::{Offset, OrEmpty, PartitionId, RecordId, RunId},
};
use std::{sync::Arc, time::Duration};

/// Most outcomes that a network thread reads itself. The rows of such a small number were just written and are in memory.
pub(crate) const READ_HERE_MAX: usize = 16;

/// When an append answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerAt {
    /// When the log has acknowledged the records. The records are not judged yet, so they must have all their numbers.
    Acknowledged,
    /// When the records are judged and the index has this consistency, measured after the acknowledgement.
    Judged(Consistency),
}

/// Returns the outcomes of records that the log has acknowledged at these offsets.
///
/// Errors: of the wait; `Unavailable` if the records that were applied meanwhile made the log a mirror.
pub(super) async fn landed_at(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    landed: Vec<(Offset, OrEmpty<RecordId>)>,
    at: AnswerAt,
    deadline: Duration,
) -> Result<Vec<Outcome>, Error> {
    let partition = projector.partition_of(run_id);
    let AnswerAt::Judged(consistency) = at else {
        return Ok(landed.into_iter().map(|(offset, id)| unjudged(projector, partition, offset, id)).collect());
    };
    let (count, last) = (landed.len(), landed.last().map(|(offset, _)| *offset).unwrap_or_default());
    projector.wait_past(partition, last, consistency, deadline).await?;
    projector.check_still_home()?;
    let read = move |projector: &Projector, run_id: RunId<&str>| {
        let outcome = |(offset, id): &(Offset, OrEmpty<RecordId>)| {
            projector.outcome(run_id, partition, (*offset, 0), id.borrow())
        };
        landed.iter().map(outcome).collect()
    };
    if count <= READ_HERE_MAX { read(projector, run_id) } else { blocking(projector, run_id, read).await }
}

/// Makes the outcome of a record that is not judged.
pub(super) fn unjudged(
    projector: &Projector,
    partition: PartitionId,
    offset: Offset,
    record_id: OrEmpty<RecordId>,
) -> Outcome {
    let position = projector.position(partition, offset, 0);
    let (outcome, reason) = (Disposition::Appended.into(), None);
    Outcome { position, outcome, reason, record_id, journal_seq: None, record_writer: None }
}

/// Waits until positions of the run's partition are applied, and returns the outcomes there. A position without a
/// record of the run has no outcome.
pub(crate) async fn outcomes(
    projector: &Projector,
    run_id: RunId<&str>,
    positions: &[Position],
    deadline: Duration,
) -> Result<Vec<Option<Outcome>>, Error> {
    let Some(last) = positions.iter().map(|position| position.offset).max() else { return Ok(Vec::new()) };
    let partition = projector.partition_of(run_id);
    projector.wait(partition, Consistency::AtLeast(partition, last), deadline).await?;
    let store = projector.store(partition)?;
    let at = projector.place(partition);
    let places: Vec<_> = positions.iter().map(|position| (position.offset, position.index)).collect();
    query::outcome::each(&store.view(), at, run_id, &places)
}

/// Adds to each outcome the number of its applied record and the run's current writer, and for a read-back whether the record's call
/// has changed.
pub(crate) fn answers(
    projector: &Projector,
    run_id: RunId<&str>,
    outcomes: Vec<Outcome>,
    planned: bool,
    is_read_back: bool,
) -> Result<Vec<Appended>, Error> {
    // The records may be in the log already.
    let store = projector.store(projector.partition_of(run_id)).map_err(Error::from).map_err(Error::after_a_part)?;
    let view = store.view();
    let row: RunRow = view.get(&store::runs::key(run_id))?.unwrap_or_default();
    let writer = Writer { writer_id: row.head.writer_id, epoch: row.head.epoch };
    let answer = |mut outcome: Outcome| {
        // A planned record has no position yet.
        if outcome.journal_seq.is_none() && outcome.reason.is_none() && !planned {
            let at = (outcome.position.offset, outcome.position.index);
            outcome.journal_seq = query::outcome::number(&view, run_id, at)?;
        }
        let at = (outcome.position.offset, outcome.position.index);
        let is_applied = outcome.reason.is_none() && !planned;
        let changed = is_read_back && is_applied && query::outcome::has_changed(&view, run_id, at)?;
        Ok(Appended { changed, ..Appended::new(outcome, Some(writer.clone())) })
    };
    outcomes.into_iter().map(answer).collect()
}
