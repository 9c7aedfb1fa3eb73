//! Locks of runs, under which this process numbers their records: appends of one run follow one another.

use super::error::Error;
use runlog_schemas::{answer::ErrorKind, id::RunId, partition::murmur2};
use std::time::Duration;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

/// Runs that can be locked at the same time.
const RUN_LOCKS: usize = 1024;

/// By a hash of the run id: a run may share its lock with others.
#[derive(Debug)]
pub(crate) struct RunLocks(Vec<Mutex<OfLockedRun>>);

/// What is guarded by the lock of a run.
#[derive(Debug, Default)]
pub(crate) struct OfLockedRun {
    /// The run of which the last record that this server numbered is judged: the index has its next numbers, unless another
    /// server has appended to it since.
    pub(crate) numbered: Option<RunId>,
    /// When the log last refused a record for numbers that this server gave out.
    pub(crate) number_lost: Option<Instant>,
}

impl Default for RunLocks {
    fn default() -> Self {
        Self((0..RUN_LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl RunLocks {
    /// Waits until nobody else holds the lock of this run.
    ///
    /// Errors: `Overloaded` after `wait`.
    pub(crate) async fn lock(&self, run_id: RunId<&str>, wait: Duration) -> Result<MutexGuard<'_, OfLockedRun>, Error> {
        let lock = self.0[murmur2(run_id.as_bytes()) as usize % self.0.len()].lock();
        tokio::time::timeout(wait, lock).await.map_err(|_| {
            let message = format!(
                "timed out after {} waiting for an earlier append to run {run_id}; nothing was appended",
                humantime::format_duration(wait)
            );
            Error::new(ErrorKind::Overloaded, message)
        })
    }
}
