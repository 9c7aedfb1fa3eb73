//! A limit on unacknowledged records, shared by all handles of a connection.

use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_schemas::{answer::ErrorKind, codec, record::JournalRecord};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units of this size, so that the limit fits a semaphore's permits.
const UNIT: usize = 1024;

/// Limits the number and the bytes of unacknowledged records.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    records: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: u32,
    wait: Duration,
}

/// One record's share of the limit, released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    _record: OwnedSemaphorePermit,
    units: OwnedSemaphorePermit,
}

impl Permit {
    /// The record's bytes, or the whole limit.
    pub(crate) fn bytes(&self) -> usize {
        self.units.num_permits() * UNIT
    }
}

/// A permit that either the sender of the record or the task that waits for it may release.
#[derive(Clone, Debug)]
pub(crate) struct SharedPermit {
    bytes: usize,
    permit: Arc<Mutex<Option<Permit>>>,
}

impl SharedPermit {
    pub(crate) fn new(permit: Permit) -> Self {
        Self { bytes: permit.bytes(), permit: Arc::new(Mutex::new(Some(permit))) }
    }

    /// As [`Permit::bytes`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn give_back(&self) {
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl InFlightLimit {
    pub(crate) fn new(config: &Config) -> Self {
        let units_max = u32::try_from(config.buffer_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let records = config.buffer_records.clamp(1, Semaphore::MAX_PERMITS);
        let (records, units) = (Arc::new(Semaphore::new(records)), Arc::new(Semaphore::new(units_max as usize)));
        Self { records, units, units_max, wait: config.deadline }
    }

    /// Waits for a permit, in FIFO order. A record larger than the limit takes the whole limit.
    ///
    /// Errors: `Unavailable` after the deadline. Dropping the future is safe: no record is sent.
    pub(crate) async fn acquire(&self, record: &JournalRecord) -> Result<Permit, Error> {
        let units = self.units_of(record);
        let both = async {
            let _record = self.records.clone().acquire_owned().await.ok()?;
            Some(Permit { _record, units: self.units.clone().acquire_many_owned(units).await.ok()? })
        };
        tokio::time::timeout(self.wait, both).await.ok().flatten().ok_or_else(|| {
            let waited = humantime::format_duration(self.wait);
            let message = format!("send buffer full after {waited}: record {} not sent", record.body.record_id);
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        })
    }

    /// Returns a permit if one is free.
    pub(crate) fn try_acquire(&self, record: &JournalRecord) -> Option<Permit> {
        let _record = self.records.clone().try_acquire_owned().ok()?;
        let units = self.units.clone().try_acquire_many_owned(self.units_of(record)).ok()?;
        Some(Permit { _record, units })
    }

    fn units_of(&self, record: &JournalRecord) -> u32 {
        u32::try_from(codec::encode(record).len().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units_max)
    }
}
