//! A limit on unacknowledged records, shared by all handles of a connection.

use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_schemas::{answer::ErrorKind, codec, record::JournalRecord};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units of this size, so that the limit fits a semaphore's permits.
const UNIT: usize = 1024;

/// Limits the number and the bytes of records that are sent and not yet acknowledged.
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
    _units: OwnedSemaphorePermit,
}

impl InFlightLimit {
    pub(crate) fn new(config: &Config) -> Self {
        let units_max = u32::try_from(config.buffer_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let records = config.buffer_records.clamp(1, Semaphore::MAX_PERMITS);
        let (records, units) = (Arc::new(Semaphore::new(records)), Arc::new(Semaphore::new(units_max as usize)));
        Self { records, units, units_max, wait: config.deadline }
    }

    /// Waits for a permit, first come, first served. A record larger than the whole limit takes all of it.
    ///
    /// Errors: `Unavailable` after the deadline. Nothing was sent then, nor when the future is dropped.
    pub(crate) async fn acquire(&self, record: &JournalRecord) -> Result<Permit, Error> {
        let units = u32::try_from(codec::encode(record).len().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units_max);
        let both = async {
            let _record = self.records.clone().acquire_owned().await.ok()?;
            Some(Permit { _record, _units: self.units.clone().acquire_many_owned(units).await.ok()? })
        };
        tokio::time::timeout(self.wait, both).await.ok().flatten().ok_or_else(|| {
            let waited = humantime::format_duration(self.wait);
            let message = format!("send buffer full after {waited}: record {} not sent", record.body.record_id);
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        })
    }
}
