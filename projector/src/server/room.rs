//! Memory and thread limits that all handlers share.

use super::{body, large};
use crate::index::executor::{Executor, Few};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent requests; further ones are refused as `overloaded`. A stream counts until it begins.
pub(super) const REQUESTS_MAX: usize = 1024;
/// Past states of runs in memory at the same time; each takes at most [`BYTES_MAX`](crate::index::as_of::BYTES_MAX).
pub(super) const PASTS_MAX: usize = 2;
/// Threads that read for streams.
const STREAM_THREADS: usize = 4;
/// Concurrent copies of runs; each has a part of a run in memory.
pub(super) const COPIES_MAX: usize = 4;

/// The limits.
#[derive(Debug)]
pub(super) struct Room {
    /// For requests.
    pub(super) requests: Semaphore,
    /// For long bodies, in KiB.
    pub(super) bodies: Arc<Semaphore>,
    /// For past states of runs.
    pub(super) pasts: Arc<Semaphore>,
    /// For answers that may be large.
    pub(super) large: large::Large,
    /// The threads that build them.
    pub(super) large_threads: Few,
    /// The threads that read for streams. They are few, since the allocator keeps memory that a thread freed for that
    /// thread.
    pub(super) stream_threads: Few,
    /// For copies of runs.
    pub(super) copies: Semaphore,
    /// For reads of the log's configuration.
    pub(super) weaknesses: Arc<Semaphore>,
    /// For a verification, which rebuilds every index.
    pub(super) verification: Semaphore,
}

impl Room {
    pub(super) fn new(executor: &Executor) -> Self {
        let room = |size| Arc::new(Semaphore::new(size));
        let requests = Semaphore::new(REQUESTS_MAX);
        let (bodies, pasts) = (room(body::ROOM_BYTES >> 10), room(PASTS_MAX));
        Self {
            requests,
            bodies,
            pasts,
            large: large::Large::new(),
            large_threads: Few::new(executor, "runlog-page", large::MADE_MAX),
            stream_threads: Few::new(executor, "runlog-stream", STREAM_THREADS),
            copies: Semaphore::new(COPIES_MAX),
            weaknesses: room(1),
            verification: Semaphore::new(1),
        }
    }
}
