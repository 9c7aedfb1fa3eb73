//! Appends planned records to the log, and waits for their outcomes.

use super::{
    origin::Origin,
    outcomes::{AnswerAt, landed_at},
    plan::Planned,
};
use runlog_log::Entry;
use runlog_projector::index::{
    error::Error,
    projector::{Author, NotAppended, Projector},
};
use runlog_schemas::{
    answer::{ErrorKind, Outcome},
    headers,
    id::{Offset, PartitionId, RunId},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::RwLockReadGuard, time::Instant};

/// Appends the planned records that the log needs, and waits until `at`. Drops `locked` when the log has answered. Returns the
/// expected and the actual outcome of each planned record.
pub(super) async fn append_planned(
    projector: &Arc<Projector>,
    run_id: RunId<&str>,
    planned: Vec<Planned>,
    origin: &Origin,
    locked: Option<RwLockReadGuard<'_, ()>>,
    at: AnswerAt,
    deadline: Duration,
) -> Result<Vec<(Outcome, Outcome)>, Error> {
    let (started, partition) = (Instant::now(), projector.partition_of(run_id));
    let (mut outcomes, mut entries, mut ids) = (Vec::with_capacity(planned.len()), Vec::new(), Vec::new());
    let mut author = Author::Operator;
    for Planned { mut entry, outcome, wanted, repeats, author: of_record } in planned {
        if wanted {
            author = if of_record == Author::Writer { of_record } else { author };
            entry.headers.extend(headers::trace(origin.traceparent.as_deref()));
            entries.push(entry);
            ids.push(outcome.record_id.clone());
        }
        outcomes.push((outcome, wanted, repeats));
    }
    let left = || deadline.saturating_sub(started.elapsed());
    let landed = if entries.is_empty() {
        drop(locked);
        if let AnswerAt::Judged(consistency) = at {
            projector.wait(partition, consistency, left()).await?;
        }
        // The log may have become a mirror during the wait.
        projector.home().check_home("an append")?;
        Vec::new()
    } else {
        // The partition may have stopped since the request arrived.
        projector.running(partition)?;
        let applied = projector.progress(partition)?.applied;
        let appended = projector.append(run_id, author, entries).await;
        drop(locked);
        let offsets = check_offsets(projector, (partition, applied), appended)?;
        let landed = landed_at(projector, run_id, offsets.into_iter().zip(ids).collect(), at, left()).await;
        landed.map_err(Error::after_a_part)?
    };
    let mut landed = landed.into_iter();
    let mut settled: Vec<(Outcome, Outcome)> = Vec::with_capacity(outcomes.len());
    for (expected, wanted, repeats) in outcomes {
        let mut outcome = if wanted {
            landed.next().ok_or_else(|| Error::new(ErrorKind::Internal, "an appended record without an outcome"))?
        } else {
            expected.clone()
        };
        if let Some((first, index)) = repeats.and_then(|(nth, index)| Some((&settled.get(nth)?.1, index)))
            && !wanted
        {
            // The plan could not know the position of the first record.
            (outcome.position, outcome.reason) = (first.position.clone(), first.reason.clone());
            outcome.position.index = index.max(outcome.position.index);
        }
        settled.push((expected, outcome));
    }
    Ok(settled)
}

/// Appends records of a partition.
///
/// Errors: `Unavailable` with the reason `mirror` if the log is not the journal's home; as [`check_offsets`].
pub(super) async fn append_of_partition(
    projector: &Projector,
    partition: PartitionId,
    entries: Vec<Entry>,
) -> Result<Vec<Offset>, Error> {
    let applied = projector.progress(partition)?.applied;
    check_offsets(projector, (partition, applied), projector.append_to_partition(partition, entries).await)
}

/// Checks the offsets of an append, before which the partition was applied up to an offset.
///
/// Errors: the append's; `Unavailable` if the new offsets are below the applied offset: the end of the partition was truncated.
fn check_offsets(
    projector: &Projector,
    (partition, applied): (PartitionId, Offset),
    appended: Result<Vec<Offset>, NotAppended>,
) -> Result<Vec<Offset>, Error> {
    let offsets = appended.map_err(|failed| failed.error)?;
    let Some(first) = offsets.first().filter(|first| **first < applied) else { return Ok(offsets) };
    let message = format!(
        "the records were appended at offset {first} of partition {partition}, but the index has already applied all records \
         below offset {applied}: the end of the partition was truncated, as by an unclean leader election, or the topic was \
         deleted and created again; restart the server if this error repeats"
    );
    Err(Error::new(ErrorKind::Unavailable, message).at(&projector.position(partition, *first, 0)))
}
