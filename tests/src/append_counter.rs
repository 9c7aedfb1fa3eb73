//! Hooks of a log that count its appends in flight, and can hold their acknowledgements back.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context;
use runlog_log::{Ack, Entry, Log, PartitionId};
use tokio::sync::watch;

use crate::hooked_log::Hooks;

/// Counts of appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appends {
    /// Appends that were sent.
    pub sent: u64,
    /// Sent appends that were acknowledged, have failed, or whose future was dropped.
    pub ended: u64,
}

impl Appends {
    /// Appends that were sent and have not ended.
    pub fn in_flight(self) -> u64 {
        self.sent - self.ended
    }

    /// The counts in the file of a process, which may be dead; zero if it made no append.
    pub fn left_in(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = [0; 16];
        let read = File::open(path)?.read_at(&mut bytes, 0)?;
        if read == 0 {
            return Ok(Self::default());
        }
        let (sent, ended) = bytes.split_first_chunk().filter(|_| read == bytes.len()).context("two numbers")?;
        let ended = ended.try_into().context("a number")?;
        Ok(Self { sent: u64::from_le_bytes(*sent), ended: u64::from_le_bytes(ended) })
    }
}

/// Counts appends, optionally also in a file. The file keeps the counts of a killed process.
#[derive(Debug, Default)]
pub struct Counter {
    appends: Mutex<Appends>,
    file: Option<File>,
    /// How many appends, the first ones, may be acknowledged; `None` for all.
    released: watch::Sender<Option<u64>>,
}

impl Counter {
    /// A counter that also writes a new file.
    pub fn in_file(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { file: Some(File::create(path)?), ..Self::default() })
    }

    /// Holds the acknowledgements of appends back that are sent from now on. Earlier appends are acknowledged.
    pub fn hold_later(&self) {
        self.released.send_replace(Some(self.appends().sent));
    }

    /// Holds no acknowledgement back any more.
    pub fn release_all(&self) {
        self.released.send_replace(None);
    }

    /// The counts now.
    pub fn appends(&self) -> Appends {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, Appends> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file under the lock, so that the counts are written in order. Returns the new counts.
    fn count(&self, change: impl FnOnce(&mut Appends)) -> Appends {
        let mut appends = self.locked();
        change(&mut appends);
        let bytes: Vec<u8> = [appends.sent, appends.ended].into_iter().flat_map(u64::to_le_bytes).collect();
        let (counts, written) = (*appends, self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(&bytes, 0)));
        drop(appends);
        written.unwrap_or_else(|error| panic!("the counts of appends are not written: {error}"));
        counts
    }
}

struct InFlight(Arc<Counter>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count(|appends| appends.ended += 1);
    }
}

impl Hooks for Counter {
    /// An append whose future is dropped counts as ended.
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let nth = self.count(|appends| appends.sent += 1).sent;
        let counted = InFlight(self.clone());
        let ack = log.append(partition, batch);
        Box::pin(async move {
            // The counter is its sender.
            drop(counted.0.released.subscribe().wait_for(|first| first.is_none_or(|first| nth <= first)).await);
            ack.await
        })
    }
}
