//! Tracks how much a principal does at a time and over time, so that one principal cannot starve the others.
//!
//! A [`Usage`] belongs to one principal and exists as long as the file has an entry for that principal, so the entries
//! limit their number. Without tokens, only the server's own limits apply: clients of a proxy share its address, and
//! local users may do everything anyway.

use super::limits::{Bucket, Limit};
use crate::{memory_limits::PASTS_MAX, response_memory::ResponseMemory};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Semaphore;

/// Memory for long bodies of one principal, bytes, of the server's 192 MiB: enough for one of the longest.
const BODIES_BYTES: usize = 80 << 20;

/// The use of one principal, with all its tokens together.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) requests: Arc<AtomicU64>,
    pub(super) streams: Arc<AtomicU64>,
    pub(super) streams_of_all_runs: Arc<AtomicU64>,
    pub(super) connections: Arc<AtomicU64>,
    /// For long bodies, in KiB.
    pub(super) bodies: Arc<Semaphore>,
    /// For past states of runs: half of the server's limit.
    pub(super) pasts: Arc<Semaphore>,
    /// Its share of the quotas of large answers.
    pub(super) response_memory: ResponseMemory,
    pub(super) rates: Mutex<Rates>,
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
pub(super) struct Rates {
    requests: Bucket,
    body_bytes: Bucket,
    content_bytes: Bucket,
}

impl Rates {
    pub(super) fn bucket(&mut self, limit: Limit) -> Option<&mut Bucket> {
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
pub(crate) struct InProgress(pub(super) Arc<AtomicU64>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a connection of a principal until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection(pub(super) InProgress);
