//! What handlers share: room for what takes memory.

use super::{body, large};
use crate::index::executor::{Executor, Few};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Requests in progress at the same time; further ones are refused as `overloaded`. A stream counts until it begins.
pub(super) const REQUESTS_MAX: usize = 1024;
/// Runs that are in memory as they were, at the same time: each takes [`BYTES_MAX`](crate::index::as_of::BYTES_MAX) at the most.
pub(super) const PASTS_MAX: usize = 2;
/// Threads that read for streams.
const STREAM_THREADS: usize = 4;
/// Copies of runs in progress at the same time: each has a part of a run in memory.
pub(super) const COPIES_MAX: usize = 4;

/// Room for what takes memory.
#[derive(Debug)]
pub(super) struct Room {
    /// For requests.
    pub(super) requests: Semaphore,
    /// For long bodies, in KiB.
    pub(super) bodies: Arc<Semaphore>,
    /// For runs as they were.
    pub(super) pasts: Arc<Semaphore>,
    /// For answers that may be large.
    pub(super) large: large::Large,
    /// The threads that make them.
    pub(super) large_threads: Few,
    /// The threads that read for streams: the allocator keeps for each what it once freed.
    pub(super) stream_threads: Few,
    /// For copies of runs.
    pub(super) copies: Semaphore,
    /// For looking at the log's configuration.
    pub(super) weaknesses: Arc<Semaphore>,
    /// For a verification, which builds every index once more.
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
