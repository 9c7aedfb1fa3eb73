//! Bounds the memory of large answers. A limited number is built concurrently, and built answers that are not sent yet
//! share a quota. So clients that do not read their answers cannot fill the memory.

use runlog_projector::index::error::Error;
use runlog_schemas::answer::ErrorKind;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers that are built concurrently, at most half of them for one principal. Each reads some 16 MiB and takes a
/// multiple of that while it is built.
pub(super) const BUILDS_MAX: usize = 4;
/// Answers over 64 KiB that are not sent yet, bytes, at most half of them for one principal.
const UNSENT_BYTES_MAX: usize = 128 << 20;

/// The quotas of large answers.
#[derive(Debug)]
pub(crate) struct ResponseMemory {
    builds: Arc<Semaphore>,
    /// In KiB.
    unsent: Arc<Semaphore>,
}

impl ResponseMemory {
    pub(super) fn new() -> Self {
        Self::with_shares(1)
    }

    /// Makes the share of one principal.
    pub(super) fn new_share() -> Self {
        Self::with_shares(2)
    }

    fn with_shares(shares: usize) -> Self {
        let semaphore = |size| Arc::new(Semaphore::new(size / shares));
        Self { builds: semaphore(BUILDS_MAX), unsent: semaphore(UNSENT_BYTES_MAX >> 10) }
    }

    /// Waits for a permit to build an answer.
    pub(super) async fn acquire_build(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.builds.clone().acquire_owned().await.ok()
    }

    /// Reserves quota for a built answer. An answer beyond half the quota reserves half.
    pub(super) fn reserve_unsent(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let kilobytes = bytes.min(UNSENT_BYTES_MAX / 2).div_ceil(1 << 10);
        let permit = self.unsent.clone().try_acquire_many_owned(u32::try_from(kilobytes).unwrap_or(u32::MAX));
        permit.map_err(|_| Error::new(ErrorKind::Overloaded, FULL))
    }
}

const FULL: &str = "clients do not read their answers, so the server has no memory for this answer; retry later, or \
                    request fewer items";
