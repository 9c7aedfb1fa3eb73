//! Appends records of a partition: skips and retention horizons.

use super::land;
use crate::auth::Caller;
use runlog_projector::index::{error::Error, projector::Projector, query};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    id::{Offset, PartitionId, RecordId},
    payload::{Payload, Skip, lifetime::RetentionHorizon},
    record::JournalRecord,
};
use std::time::Duration;
use tokio::time::Instant;

/// Refuses an offset that the partition does not have, and the offset of its genesis record.
pub(crate) async fn can_skip(
    projector: &Projector,
    partition: PartitionId,
    voided: Offset,
    deadline: Duration,
) -> Result<(), Error> {
    if partition.get() >= projector.journal().partitions {
        let message = format!("the journal has no partition {partition}");
        return Err(Error::new(ErrorKind::Usage, message).in_partition(partition));
    }
    projector.check_held(partition)?;
    let bounds = projector.bounds(partition, deadline).await?;
    if voided == Offset::ZERO || voided < bounds.start || voided >= bounds.end {
        let message = format!(
            "cannot skip offset {voided}: partition {partition} holds offsets {} to below {}, and offset 0 is the \
                 genesis, which cannot be skipped",
            bounds.start, bounds.end
        );
        return Err(Error::new(ErrorKind::Invalid, message).at(&projector.position(partition, voided, 0)));
    }
    Ok(())
}

/// Voids the record at `skip.offset` of `partition`, and waits until the partition is past it.
pub async fn skip(
    projector: &Projector,
    partition: PartitionId,
    skip: Skip,
    deadline: Duration,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    can_skip(projector, partition, skip.offset, deadline).await?;
    let left = deadline.saturating_sub(started.elapsed());
    skip_for(projector, &Caller::default(), partition, skip, left).await
}

/// [`skip`] for a caller, whose principal is recorded, after [`can_skip`].
pub(crate) async fn skip_for(
    projector: &Projector,
    caller: &Caller,
    partition: PartitionId,
    skip: Skip,
    deadline: Duration,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let appended = append_of_partition(projector, caller, partition, Payload::Skip(skip)).await?;
    let outcome = applied_outcome(projector, appended, deadline.saturating_sub(started.elapsed())).await;
    outcome.map_err(Error::after_a_part)
}

/// Sets a retention horizon for a partition or for all partitions, which removes older content, and waits until
/// each has applied it. Repeating the request is harmless.
///
/// Errors: `Usage` for an unknown partition; `Invalid` for a family that has no content. `PartitionStopped` if one of
/// the partitions is stopped; then no horizon is appended. After any other error, some partitions may have the horizon.
pub(crate) async fn retain(
    projector: &Projector,
    caller: &Caller,
    partition: Option<PartitionId>,
    horizon: RetentionHorizon,
    deadline: Duration,
) -> Result<Vec<Outcome>, Error> {
    query::horizons::check(&horizon.family)?;
    let partitions = selected_partitions(projector, partition)?;
    partitions.iter().try_for_each(|partition| projector.running(*partition))?;
    let started = Instant::now();
    let mut appended = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let one = append_of_partition(projector, caller, partition, Payload::RetentionHorizon(horizon.clone())).await;
        appended.push(one.map_err(|error| if appended.is_empty() { error } else { error.after_a_part() })?);
    }
    let mut outcomes = Vec::with_capacity(appended.len());
    for one in appended {
        let outcome = applied_outcome(projector, one, deadline.saturating_sub(started.elapsed())).await;
        outcomes.push(outcome.map_err(Error::after_a_part)?);
    }
    Ok(outcomes)
}

/// Returns the named partition, or all partitions without a name.
///
/// Errors: `Usage` for an unknown partition; `Unavailable` with the reason `not_here` if this server does not hold one of them.
pub(crate) fn selected_partitions(
    projector: &Projector,
    partition: Option<PartitionId>,
) -> Result<Vec<PartitionId>, Error> {
    let all = PartitionId::all(projector.journal().partitions);
    let selected: Vec<_> = all.filter(|candidate| partition.is_none_or(|wanted| wanted == *candidate)).collect();
    match partition.filter(|_| selected.is_empty()) {
        Some(partition) => {
            let message = format!("the journal has no partition {partition}");
            Err(Error::new(ErrorKind::Usage, message).in_partition(partition))
        }
        None => {
            selected.iter().try_for_each(|partition| projector.check_held(*partition))?;
            Ok(selected)
        }
    }
}

/// Appends a record of a partition. Returns its partition, offset and id.
async fn append_of_partition(
    projector: &Projector,
    caller: &Caller,
    partition: PartitionId,
    payload: Payload,
) -> Result<(PartitionId, Offset, RecordId), Error> {
    let record_id = RecordId::new((projector.config().ids)())?;
    let mut record = JournalRecord::of_partition(record_id, "runlog", payload);
    record.place.timestamp_millis = (projector.config().clock)();
    sign(projector, caller, &mut record);
    let offsets = land::append_of_partition(projector, partition, vec![projector.entry(&record)?]).await?;
    Ok((partition, offsets.first().copied().unwrap_or_default(), record.body.record_id))
}

/// Writes the caller's principal into a record of a partition, with a proof.
pub(crate) fn sign(projector: &Projector, caller: &Caller, record: &mut JournalRecord) {
    if let Some(principal) = caller.principal() {
        record.body.facts.principal = Some(principal.to_owned());
        let proofs = caller.proofs(&projector.journal().journal_id);
        record.body.facts.principal_proof = proofs.map(|proofs| proofs.prove(record));
    }
}

/// Waits until a partition has applied a record of its own.
async fn applied_outcome(
    projector: &Projector,
    (partition, at, record_id): (PartitionId, Offset, RecordId),
    deadline: Duration,
) -> Result<Outcome, Error> {
    let past = projector.wait_until(partition, |progress| progress.applied > at);
    let Ok(past) = tokio::time::timeout(deadline, past).await else {
        let target = projector.position(partition, at.saturating_add(1), 0);
        return Err(Error::stale(projector.progress(partition)?.applied, &target).about_record(record_id.borrow()));
    };
    past?;
    projector.check_still_home()?;
    Ok(Outcome {
        position: projector.position(partition, at, 0),
        outcome: Disposition::Applied.into(),
        reason: None,
        record_id: record_id.into(),
        journal_seq: None,
        record_writer: None,
    })
}
