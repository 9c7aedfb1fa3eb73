//! Memory and thread limits that all handlers share.

use super::response_memory::{self, ResponseMemory};
use runlog_projector::index::executor::{Executor, Few};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent requests; further requests are refused as `overloaded`. A stream counts until it begins.
pub(super) const REQUESTS_MAX: usize = 1024;
/// Past states of runs in memory at the same time; each takes at most [`BYTES_MAX`](runlog_projector::index::as_of::BYTES_MAX).
pub(super) const PASTS_MAX: usize = 2;
/// Memory for bodies over 64 KiB of all requests, bytes.
pub(super) const BODY_BYTES: usize = 192 << 20;
/// Threads that read for streams.
const STREAM_THREADS: usize = 4;
/// Concurrent copies of runs; each has a part of a run in memory.
pub(super) const COPIES_MAX: usize = 4;

/// The limits.
#[derive(Debug)]
pub(super) struct MemoryLimits {
    /// For requests.
    pub(super) requests: Semaphore,
    /// For long bodies, in KiB.
    pub(super) bodies: Arc<Semaphore>,
    /// For past states of runs.
    pub(super) pasts: Arc<Semaphore>,
    /// For answers that may be large.
    pub(super) response_memory: ResponseMemory,
    /// The threads that build them.
    pub(super) response_threads: Few,
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

impl MemoryLimits {
    pub(super) fn new(executor: &Executor) -> Self {
        let semaphore = |size| Arc::new(Semaphore::new(size));
        let requests = Semaphore::new(REQUESTS_MAX);
        let (bodies, pasts) = (semaphore(BODY_BYTES >> 10), semaphore(PASTS_MAX));
        Self {
            requests,
            bodies,
            pasts,
            response_memory: ResponseMemory::new(),
            response_threads: Few::new(executor, "runlog-page", response_memory::BUILDS_MAX),
            stream_threads: Few::new(executor, "runlog-stream", STREAM_THREADS),
            copies: Semaphore::new(COPIES_MAX),
            weaknesses: semaphore(1),
            verification: Semaphore::new(1),
        }
    }
}
