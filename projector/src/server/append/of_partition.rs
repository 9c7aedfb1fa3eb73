//! Appends records of a partition: skips and retention horizons.

use crate::index::{Error, Projector, query};
use runlog_schemas::{
    answer::{Disposition, ErrorKind, Outcome},
    id::{Offset, PartitionId, RecordId},
    payload::{Payload, Skip, lifetime::RetentionHorizon},
    record::JournalRecord,
};
use std::time::Duration;
use tokio::time::Instant;

impl Projector {
    /// Refuses an offset that the partition does not have, and the offset of its genesis record.
    pub(in crate::server) async fn can_skip(
        &self,
        partition: PartitionId,
        voided: Offset,
        deadline: Duration,
    ) -> Result<(), Error> {
        if partition.get() >= self.journal().partitions {
            let message = format!("the journal has no partition {partition}");
            return Err(Error::new(ErrorKind::Usage, message).in_partition(partition));
        }
        let bounds = self.bounds(partition, deadline).await?;
        if voided == Offset::ZERO || voided < bounds.start || voided >= bounds.end {
            let message = format!(
                "cannot skip offset {voided}: partition {partition} holds offsets {} to below {}, and offset 0 is the \
                     genesis, which cannot be skipped",
                bounds.start, bounds.end
            );
            return Err(Error::new(ErrorKind::Invalid, message).at(&self.position(partition, voided, 0)));
        }
        Ok(())
    }

    /// Voids the record at `skip.offset` of `partition`, and waits until the partition is past it.
    pub async fn skip(&self, partition: PartitionId, skip: Skip, deadline: Duration) -> Result<Outcome, Error> {
        let started = Instant::now();
        self.can_skip(partition, skip.offset, deadline).await?;
        let appended = self.append_of_partition(partition, Payload::Skip(skip)).await?;
        self.past(appended, deadline.saturating_sub(started.elapsed())).await
    }

    /// Sets a retention horizon for a partition or for all partitions, which removes older content, and waits until
    /// each has applied it. Repeating the request is harmless.
    ///
    /// Errors: `Usage` for an unknown partition; `Invalid` for a family that has no content. `PartitionStopped` if one
    /// of the partitions is stopped: nothing is appended then. After any other error, some partitions may have the
    /// horizon.
    pub async fn retain(
        &self,
        partition: Option<PartitionId>,
        horizon: RetentionHorizon,
        deadline: Duration,
    ) -> Result<Vec<Outcome>, Error> {
        query::horizons::check(&horizon.family)?;
        let wanted = self.wanted(partition)?;
        wanted.iter().try_for_each(|partition| self.running(*partition))?;
        let started = Instant::now();
        let mut appended = Vec::with_capacity(wanted.len());
        for partition in wanted {
            let one = self.append_of_partition(partition, Payload::RetentionHorizon(horizon.clone())).await;
            appended.push(one.map_err(|error| if appended.is_empty() { error } else { error.after_a_part() })?);
        }
        let mut outcomes = Vec::with_capacity(appended.len());
        for one in appended {
            outcomes.push(self.past(one, deadline.saturating_sub(started.elapsed())).await?);
        }
        Ok(outcomes)
    }

    /// Returns the named partition, or all partitions if none is named.
    ///
    /// Errors: `Usage` for an unknown partition.
    pub(in crate::server) fn wanted(&self, partition: Option<PartitionId>) -> Result<Vec<PartitionId>, Error> {
        let all = PartitionId::all(self.journal().partitions);
        let wanted: Vec<_> = all.filter(|one| partition.is_none_or(|wanted| wanted == *one)).collect();
        match partition.filter(|_| wanted.is_empty()) {
            Some(partition) => {
                let message = format!("the journal has no partition {partition}");
                Err(Error::new(ErrorKind::Usage, message).in_partition(partition))
            }
            None => Ok(wanted),
        }
    }

    /// Appends a record of a partition. Returns its partition, offset and id.
    async fn append_of_partition(
        &self,
        partition: PartitionId,
        payload: Payload,
    ) -> Result<(PartitionId, Offset, RecordId), Error> {
        let record_id = RecordId::new((self.shared.config.ids)())?;
        let mut record = JournalRecord::of_partition(record_id, "runlog", payload);
        record.place.timestamp_millis = (self.shared.config.clock)();
        let offsets = self.append_entries(partition, vec![self.entry(&record)?]).await?;
        Ok((partition, offsets.first().copied().unwrap_or_default(), record.body.record_id))
    }

    /// Waits until a partition has applied a record of its own.
    async fn past(
        &self,
        (partition, at, record_id): (PartitionId, Offset, RecordId),
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let past = self.wait_until(partition, |progress| progress.applied > at);
        if tokio::time::timeout(deadline, past).await.is_err() {
            let target = self.position(partition, at.saturating_add(1), 0);
            return Err(Error::stale(self.progress(partition).applied, &target).about_record(record_id.borrow()));
        }
        Ok(Outcome {
            position: self.position(partition, at, 0),
            outcome: Disposition::Applied.into(),
            reason: None,
            record_id: record_id.into(),
            journal_seq: None,
            record_writer: None,
        })
    }
}
