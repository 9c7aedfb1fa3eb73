//! Tracks how much a principal does at a time and over time, so that one principal cannot starve the others.
//!
//! A [`Usage`] belongs to one principal and exists as long as the file has an entry for that principal, so there are at most
//! as many as entries. Without tokens, only the server's own limits apply: peers behind a proxy share an address,
//! and local users may do everything anyway.

use super::{
    caller::Caller,
    limits::{Bucket, Limit},
};
use crate::{
    Error,
    server::{memory_limits::PASTS_MAX, response_memory::ResponseMemory},
};
use runlog_schemas::answer::ErrorKind;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Memory for long bodies of one principal, bytes, of the server's 192 MiB: enough for one of the longest.
const BODIES_BYTES: usize = 80 << 20;

/// The use of one principal, with all its tokens together.
#[derive(Debug)]
pub(super) struct Usage {
    requests: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
    streams_of_all_runs: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    /// For long bodies, in KiB.
    bodies: Arc<Semaphore>,
    /// For past states of runs: half of the server's limit.
    pasts: Arc<Semaphore>,
    /// Its share of the quotas of large answers.
    response_memory: ResponseMemory,
    rates: Mutex<Rates>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            requests: Arc::default(),
            streams: Arc::default(),
            streams_of_all_runs: Arc::default(),
            connections: Arc::default(),
            bodies: Arc::new(Semaphore::new(BODIES_BYTES >> 10)),
            pasts: Arc::new(Semaphore::new(PASTS_MAX / 2)),
            response_memory: ResponseMemory::new_share(),
            rates: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Rates {
    requests: Bucket,
    body_bytes: Bucket,
    content_bytes: Bucket,
}

impl Rates {
    fn bucket(&mut self, limit: Limit) -> Option<&mut Bucket> {
        match limit {
            Limit::RequestsPerSecond => Some(&mut self.requests),
            Limit::BodyBytesPerSecond => Some(&mut self.body_bytes),
            Limit::ContentBytesPerDay => Some(&mut self.content_bytes),
            Limit::RequestsInProgress | Limit::Streams | Limit::StreamsOfAllRuns | Limit::Connections => None,
        }
    }
}

/// Counts something in progress until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct InProgress(Arc<AtomicU64>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a connection of a principal until this is dropped.
#[derive(Debug)]
pub(in crate::server) struct CountedConnection(InProgress);

impl CountedConnection {
    /// Whether the connection counts for the caller's principal.
    pub(in crate::server) fn is_of(&self, caller: &Caller) -> bool {
        caller.usage().is_some_and(|(usage, _)| Arc::ptr_eq(&usage.connections, &self.0.0))
    }
}

impl Caller {
    /// Counts a connection until it ends. Without tokens it is not counted.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(in crate::server) fn connection(&self) -> Result<Option<CountedConnection>, Error> {
        Ok(self.count_in_progress(Limit::Connections, |usage| &usage.connections)?.map(CountedConnection))
    }

    /// Counts a request until it is answered. Without tokens it is not counted.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(super) fn request(&self) -> Result<Option<InProgress>, Error> {
        self.take(Limit::RequestsPerSecond, 1)?;
        self.count_in_progress(Limit::RequestsInProgress, |usage| &usage.requests)
    }

    /// Counts a stream of a run until it ends.
    ///
    /// Errors: `Overloaded`; nothing happened.
    pub(in crate::server) fn stream(&self) -> Result<Option<InProgress>, Error> {
        self.count_in_progress(Limit::Streams, |usage| &usage.streams)
    }

    /// Counts a stream of all runs until it ends; a server allows few.
    pub(in crate::server) fn stream_of_all_runs(&self) -> Result<Option<InProgress>, Error> {
        self.count_in_progress(Limit::StreamsOfAllRuns, |usage| &usage.streams_of_all_runs)
    }

    /// Waits for memory for a long body, in KiB.
    pub(in crate::server) async fn body(&self, kilobytes: u32) -> Option<OwnedSemaphorePermit> {
        let (usage, _) = self.usage()?;
        // It is never closed.
        usage.bodies.clone().acquire_many_owned(kilobytes).await.ok()
    }

    /// Waits for a permit to fold a past state of a run.
    pub(in crate::server) async fn past(&self) -> Option<OwnedSemaphorePermit> {
        let (usage, _) = self.usage()?;
        // It is never closed.
        usage.pasts.clone().acquire_owned().await.ok()
    }

    /// The principal's share of the quotas of large answers; absent without tokens.
    pub(in crate::server) fn response_memory(&self) -> Option<&ResponseMemory> {
        self.usage().map(|(usage, _)| &usage.response_memory)
    }

    fn count_in_progress(
        &self,
        limit: Limit,
        counter: impl Fn(&Usage) -> &Arc<AtomicU64>,
    ) -> Result<Option<InProgress>, Error> {
        let Some((usage, allowance)) = self.usage() else { return Ok(None) };
        let max = allowance.get(limit);
        // Counts before it compares: a race can refuse a request too many, but never admits one too many.
        let in_progress = InProgress(Arc::clone(counter(usage)));
        if in_progress.0.fetch_add(1, Ordering::Relaxed) < max {
            return Ok(Some(in_progress));
        }
        Err(self.over(limit, max, None))
    }

    /// Takes an amount of a limit per time if any of the limit is left. The amount may exceed the remainder.
    ///
    /// Errors: `Overloaded` if the limit is used up. Nothing happened, and the error has the time of the retry.
    pub(in crate::server) fn take(&self, limit: Limit, amount: u64) -> Result<(), Error> {
        let result = self.bucket(limit, |bucket, max, now| match bucket.wait(limit, max, now) {
            None => {
                bucket.take(limit, max, amount, now);
                Ok(())
            }
            Some(wait) => Err((max, wait)),
        });
        result.unwrap_or(Ok(())).map_err(|(max, wait)| self.over(limit, max, Some(wait)))
    }

    /// Takes an amount that was used already, even beyond the limit.
    pub(in crate::server) fn owe(&self, limit: Limit, amount: u64) {
        self.bucket(limit, |bucket, max, now| bucket.take(limit, max, amount, now));
    }

    /// Changes the use of a limit per time. Returns none without such a limit.
    fn bucket<T>(&self, limit: Limit, change: impl FnOnce(&mut Bucket, u64, Instant) -> T) -> Option<T> {
        let (usage, allowance) = self.usage()?;
        let mut rates = usage.rates.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(rates.bucket(limit)?, allowance.get(limit), Instant::now()))
    }

    fn over(&self, limit: Limit, max: u64, wait: Option<Duration>) -> Error {
        if let Self::Known(known) = self {
            known.authentication.refusals.count(limit);
        }
        let what = limit.in_words();
        let message =
            format!("this principal is at its limit of {max} {what}; nothing happened, send this one again later");
        let error = Error::new(ErrorKind::Overloaded, message);
        if let Some(wait) = wait { error.retry_after(wait) } else { error }
    }
}
