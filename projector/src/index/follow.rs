//! Streams records of all partitions from the log: each partition in offset order, no record before it is applied.
//!
//! ```text
//!   log ─▶ reader ─▶ buffered until the projector has applied it ─▶ Follower::next
//! ```
//!
//! No index has the order of a whole partition, so a stream over all runs reads the log, and the indices for each record's
//! outcome. It does not slow down the projection loop.

use super::{
    error::Error,
    held::NotHere,
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

/// The maximum number of records of one poll.
const RECORDS_MAX: usize = 256;
/// How long a poll waits for records.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// How long a partition with unapplied records delays the others. After that it is paused until they are applied.
const UNAPPLIED_WAIT: Duration = Duration::from_secs(1);
/// The time limit for reading the log's bounds.
const BOUNDS_WAIT: Duration = Duration::from_secs(10);

/// Where a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// At the log's first record.
    Beginning,
    /// After the records that are applied at the start of the stream.
    End,
    /// At these offsets (inclusive), one per partition in order.
    Offsets(Vec<Offset>),
}

/// A stream over all partitions. Dropping it frees its slot of [`FOLLOWERS_MAX`].
pub struct Follower {
    shared: Arc<Shared>,
    /// None only while it is polled.
    reader: Option<Box<dyn Reader>>,
    /// The next offset of each partition: to read, or of a paused partition to return.
    next: Vec<Offset>,
    /// Records read and not yet applied, in offset order.
    unapplied: BTreeMap<PartitionId, VecDeque<Delivery>>,
    /// The end of each partition, exclusive.
    until: Option<Vec<Offset>>,
    _permit: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("unapplied", &self.unapplied.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Follower {
    /// Begins at `from`. With `until_end` it ends after the records that are applied at its start.
    ///
    /// Errors:
    ///
    /// * `Unavailable` if [`FOLLOWERS_MAX`] streams are open, or if the log does not answer;
    /// * `NotFound` if the log no longer has records from `from` on;
    /// * `Usage` if the number of offsets is not the journal's number of partitions.
    pub async fn new(projector: &Projector, from: From, until_end: bool) -> Result<Self, Error> {
        let shared = projector.shared.clone();
        let permit = shared.followers.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{FOLLOWERS_MAX} streams over all runs are open already; retry when one has ended");
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let partitions: Vec<_> = PartitionId::all(shared.journal.partitions).collect();
        let applied =
            partitions.iter().map(|at| Ok(shared.progress(*at)?.applied)).collect::<Result<Vec<_>, NotHere>>()?;
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
        let reader = blocking(&shared, move || log.reader(&places).map_err(|error| log_error(&error))).await??;
        let (unapplied, until) = (BTreeMap::new(), until_end.then_some(applied));
        Ok(Self { shared, reader: Some(reader), next, unapplied, until, _permit: permit })
    }

    /// The next offset of each partition, in order.
    pub fn next_offsets(&self) -> &[Offset] {
        &self.next
    }

    /// The next records, all applied: each partition in offset order, without gap or repeat. `None` at the end, if
    /// there is one. After a cancelled call, every further call fails.
    ///
    /// Errors: as [`Follower::new`].
    pub async fn next(&mut self) -> Result<Option<Vec<Delivery>>, Error> {
        loop {
            let ready = self.take_applied()?;
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if self.is_at_end() {
                return Ok(None);
            }
            match self.unapplied.first_key_value().map(|(at, records)| (*at, records.front().map(|first| first.offset)))
            {
                Some((partition, Some(offset))) => self.wait(partition, offset).await?,
                Some((partition, None)) => drop(self.unapplied.remove(&partition)),
                None => self.read().await?,
            }
        }
    }

    /// Removes and returns the buffered records that are already applied.
    fn take_applied(&mut self) -> Result<Vec<Delivery>, NotHere> {
        let mut ready = Vec::new();
        for (partition, records) in &mut self.unapplied {
            let applied = self.shared.progress(*partition)?.applied;
            let count = records.partition_point(|record| record.offset < applied);
            ready.extend(records.drain(..count));
        }
        self.unapplied.retain(|_, records| !records.is_empty());
        Ok(ready)
    }

    fn is_at_end(&self) -> bool {
        let Some(until) = &self.until else { return false };
        let Some(reader) = &self.reader else { return false };
        PartitionId::all(self.shared.journal.partitions).zip(until).all(|(partition, until)| {
            let unapplied = self.unapplied.get(&partition).and_then(|records| Some(records.front()?.offset));
            // The reader's position passes offsets that are never delivered. It has none for a paused partition.
            let read = || reader.position(partition).unwrap_or(self.next[partition.index()]);
            unapplied.unwrap_or_else(read) >= *until
        })
    }

    /// Waits until a record is applied. If it is not in time, pauses its partition.
    async fn wait(&mut self, partition: PartitionId, offset: Offset) -> Result<(), Error> {
        let moved = |progress: &Progress| progress.applied > offset || progress.stopped.is_some();
        match tokio::time::timeout(UNAPPLIED_WAIT, self.shared.wait_until(partition, moved)).await {
            Ok(Err(not_here)) => return Err(not_here.into()),
            Ok(Ok(progress)) if progress.applied > offset => return Ok(()),
            Ok(Ok(_)) | Err(_) => {}
        }
        self.unapplied.remove(&partition);
        self.next[partition.index()] = offset;
        self.reader_mut()?.release(partition).map_err(|error| log_error(&error))
    }

    /// Reads the next records, and resumes paused partitions whose next record is applied.
    async fn read(&mut self) -> Result<(), Error> {
        if self.shared.is_ending() {
            return Err(shutting_down());
        }
        let mut reader = self.reader.take().ok_or_else(shutting_down)?;
        // The reader has no position for a paused partition. A seek that fails is repeated with the next read.
        let back: Vec<_> = PartitionId::all(self.shared.journal.partitions)
            .zip(self.next.iter().copied())
            .filter(|(partition, _)| reader.position(*partition).is_none())
            .filter(|(partition, next)| self.shared.progress(*partition).is_ok_and(|progress| progress.applied > *next))
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
                    self.unapplied.entry(record.partition).or_default().push_back(record);
                }
                Ok(())
            }
            // A later call delivers the records that this one did not.
            Err(error) if error.kind() == Kind::Retry => {
                tracing::warn!("following the log failed, trying again: {error}");
                tokio::time::sleep(POLL_WAIT).await;
                Ok(())
            }
            Err(error) => Err(log_error(&error)),
        }
    }

    fn reader_mut(&mut self) -> Result<&mut Box<dyn Reader>, Error> {
        self.reader.as_mut().ok_or_else(shutting_down)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Closing a consumer blocks.
        let reader = self.reader.take();
        self.shared.config.executor.detach(move || drop(reader));
    }
}

async fn blocking<T: Send + 'static>(shared: &Shared, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    shared.config.executor.run(work).await.map_err(|error| match error.is_cancelled() {
        true => shutting_down(),
        false => Error::new(ErrorKind::Internal, "reading the log panicked").because(error),
    })
}

fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is shutting down; resume at the last cursor")
}

/// Maps a log error to the stream's error.
fn log_error(error: &runlog_log::Error) -> Error {
    let mapped = match error.kind() {
        Kind::OutOfRange => {
            let message = format!("the log no longer has the next records: {error}; start from the beginning");
            Error::new(ErrorKind::NotFound, message)
        }
        _ => Error::new(ErrorKind::Unavailable, format!("reading the log failed: {error}; resume at the last cursor")),
    };
    mapped.about(error.subject().clone())
}
