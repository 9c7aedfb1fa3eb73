//! Follows the log behind the projector: every record in its partition's order, none before it is applied.
//!
//! ```text
//!   log ─▶ reader ─▶ ahead of the projector? ─▶ held until it is applied ─▶ Follower::next
//! ```
//!
//! What is asked of an index is in the order of its keys, and no index has the order of a whole partition: the log has.
//! So a stream over all runs is this, and the indices say what became of each record. It costs the loop nothing.

use crate::index::{
    Error,
    projector::Projector,
    shared::{FOLLOWERS_MAX, Progress, Shared},
};
use runlog_log::{Delivery, Kind, Reader};
use runlog_schemas::{
    answer::ErrorKind,
    id::{Offset, PartitionId},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::sync::OwnedSemaphorePermit;

mod cursor;

pub use cursor::Cursor;

/// Records read at once.
const RECORDS_MAX: usize = 256;
/// How long a poll waits for records.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// How long the others wait for a partition whose records are read and not applied. Then it is left until they are.
const AHEAD_WAIT: Duration = Duration::from_secs(1);
/// How long finding the log's bounds takes at the most.
const BOUNDS_WAIT: Duration = Duration::from_secs(10);

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// With the first record that the log has.
    Beginning,
    /// Behind what is applied now.
    End,
    /// With these offsets, inclusive, one for each partition in order.
    Offsets(Vec<Offset>),
}

/// A position in all partitions that only goes forward. Dropping it gives its place to another one.
pub struct Follower {
    shared: Arc<Shared>,
    /// None only while it is polled.
    reader: Option<Box<dyn Reader>>,
    /// Where each partition goes on: one past what was read of it, or what it was left at.
    next: Vec<Offset>,
    /// What was read and was not applied then, in offset order.
    ahead: BTreeMap<PartitionId, VecDeque<Delivery>>,
    /// Where to end, exclusive.
    until: Option<Vec<Offset>>,
    _place: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("ahead", &self.ahead.len()).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Follower {
    /// Begins at `from`; with `until_end` it ends where the projector is now.
    ///
    /// Errors: `Unavailable` where [`FOLLOWERS_MAX`] are there already, or the log does not answer; `NotFound` where the
    /// log has not all of what comes behind `from` any more; `Usage` for offsets that are not this journal's.
    pub async fn new(projector: &Projector, from: From, until_end: bool) -> Result<Self, Error> {
        let shared = projector.shared.clone();
        let place = shared.followers.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{FOLLOWERS_MAX} streams over all runs are open already; retry when one has ended");
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let partitions: Vec<_> = PartitionId::all(shared.journal.partitions).collect();
        let applied: Vec<Offset> = partitions.iter().map(|at| shared.progress(*at).applied).collect();
        let from = match from {
            From::End => applied.clone(),
            From::Offsets(offsets) if offsets.len() == partitions.len() => offsets,
            From::Offsets(_) => return Err(crate::index::query::foreign_cursor()),
            From::Beginning => {
                let mut starts = Vec::with_capacity(partitions.len());
                for partition in &partitions {
                    starts.push(projector.bounds(*partition, BOUNDS_WAIT).await?.start);
                }
                starts
            }
        };
        let next = from.clone();
        let (log, places) = (shared.log.clone(), partitions.into_iter().zip(from).collect::<Vec<_>>());
        let reader = blocking(&shared, move || log.reader(&places).map_err(|error| gone(&error))).await??;
        let (ahead, until) = (BTreeMap::new(), until_end.then_some(applied));
        Ok(Self { shared, reader: Some(reader), next, ahead, until, _place: place })
    }

    /// Where it is in each partition, in order.
    pub fn next_offsets(&self) -> &[Offset] {
        &self.next
    }

    /// The next records, each applied by now: of each partition in offset order, none twice and none left out. None at the
    /// end, where there is one. Cancelled, it cannot be asked again.
    ///
    /// Errors: as [`Follower::new`]; then what was returned so far is all that was read.
    pub async fn next(&mut self) -> Result<Option<Vec<Delivery>>, Error> {
        loop {
            let ready = self.applied();
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if self.is_at_end() {
                return Ok(None);
            }
            match self.ahead.first_key_value().map(|(at, records)| (*at, records.front().map(|first| first.offset))) {
                Some((partition, Some(offset))) => self.wait(partition, offset).await?,
                Some((partition, None)) => drop(self.ahead.remove(&partition)),
                None => self.read().await?,
            }
        }
    }

    /// Takes what is applied by now out of what was read.
    fn applied(&mut self) -> Vec<Delivery> {
        let mut ready = Vec::new();
        for (partition, records) in &mut self.ahead {
            let applied = self.shared.progress(*partition).applied;
            let count = records.partition_point(|record| record.offset < applied);
            ready.extend(records.drain(..count));
        }
        self.ahead.retain(|_, records| !records.is_empty());
        ready
    }

    fn is_at_end(&self) -> bool {
        let Some(until) = &self.until else { return false };
        let Some(reader) = &self.reader else { return false };
        PartitionId::all(self.shared.journal.partitions).zip(until).all(|(partition, until)| {
            let ahead = self.ahead.get(&partition).and_then(|records| Some(records.front()?.offset));
            // Only the reader knows what is never delivered, and it has none of a partition that was left.
            let read = || reader.position(partition).unwrap_or(self.next[partition.index()]);
            ahead.unwrap_or_else(read) >= *until
        })
    }

    /// Waits until the projector has come to a record, and leaves the partition where it does not.
    async fn wait(&mut self, partition: PartitionId, offset: Offset) -> Result<(), Error> {
        let moved = |progress: &Progress| progress.applied > offset || progress.stopped.is_some();
        match tokio::time::timeout(AHEAD_WAIT, self.shared.wait_until(partition, moved)).await {
            Ok(progress) if progress.applied > offset => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        self.ahead.remove(&partition);
        self.next[partition.index()] = offset;
        self.reader_mut()?.release(partition).map_err(|error| gone(&error))
    }

    /// Reads on, in the partitions too that were left and that the projector has got on with.
    async fn read(&mut self) -> Result<(), Error> {
        if self.shared.is_ending() {
            return Err(ending());
        }
        let mut reader = self.reader.take().ok_or_else(ending)?;
        // The reader has none of a partition that was left. Where seeking it fails it is sought again with the next read.
        let back: Vec<_> = PartitionId::all(self.shared.journal.partitions)
            .zip(self.next.iter().copied())
            .filter(|(partition, _)| reader.position(*partition).is_none())
            .filter(|(partition, next)| self.shared.progress(*partition).applied > *next)
            .collect();
        let wait = self.shared.config.executor.blocking_wait(POLL_WAIT);
        let (reader, read) = blocking(&self.shared, move || {
            let sought = back.into_iter().try_for_each(|(partition, next)| reader.seek(partition, next));
            let read = sought.and_then(|()| reader.poll(RECORDS_MAX, wait));
            (reader, read)
        })
        .await?;
        self.reader = Some(reader);
        match read {
            Ok(records) => {
                if records.is_empty() && wait.is_zero() {
                    tokio::time::sleep(POLL_WAIT).await;
                }
                for record in records {
                    // A log may deliver a record again.
                    let next = &mut self.next[record.partition.index()];
                    if record.offset < *next {
                        continue;
                    }
                    *next = record.offset.saturating_add(1);
                    self.ahead.entry(record.partition).or_default().push_back(record);
                }
                Ok(())
            }
            // What was not returned is delivered by a later call.
            Err(error) if error.kind() == Kind::Retry => {
                tracing::warn!("following the log failed, trying again: {error}");
                tokio::time::sleep(POLL_WAIT).await;
                Ok(())
            }
            Err(error) => Err(gone(&error)),
        }
    }

    fn reader_mut(&mut self) -> Result<&mut Box<dyn Reader>, Error> {
        self.reader.as_mut().ok_or_else(ending)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // A consumer takes its time to close.
        let reader = self.reader.take();
        self.shared.config.executor.detach(move || drop(reader));
    }
}

async fn blocking<T: Send + 'static>(shared: &Shared, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    shared.config.executor.run(work).await.map_err(|error| match error.is_cancelled() {
        true => ending(),
        false => Error::new(ErrorKind::Internal, "reading the log panicked").because(error),
    })
}

fn ending() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is ending; resume at the last cursor")
}

/// Why the log gives no more.
fn gone(error: &runlog_log::Error) -> Error {
    match error.kind() {
        Kind::OutOfRange => {
            let message = format!("what comes next is not in the log any more: {error}; begin at its beginning");
            Error::new(ErrorKind::NotFound, message)
        }
        _ => Error::new(
            ErrorKind::Unavailable,
            format!("the log cannot be followed: {error}; resume at the last cursor"),
        ),
    }
}
