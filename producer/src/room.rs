//! What may be on its way at a time, of all handles of a connection together.

use crate::{Action, Config, Error};
use runlog_schemas::{answer::ErrorKind, codec, record::JournalRecord};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units of this many, so that any bound can be counted in permits.
const UNIT: usize = 1024;

/// Room for records that are not acknowledged.
#[derive(Debug)]
pub(crate) struct Room {
    records: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: u32,
    wait: Duration,
}

/// A record's share of it, given back when this is dropped.
pub(crate) type Taken = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Room {
    pub(crate) fn new(config: &Config) -> Self {
        let units_max = u32::try_from(config.buffer_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let units_max = units_max.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let records = config.buffer_records.clamp(1, Semaphore::MAX_PERMITS);
        let (records, units) = (Arc::new(Semaphore::new(records)), Arc::new(Semaphore::new(units_max as usize)));
        Self { records, units, units_max, wait: config.deadline }
    }

    /// Waits for room, in the order of the calls. A record that is larger than all of it goes alone.
    ///
    /// Errors: `Unavailable` past the deadline; nothing happened. Cancelled, nothing happened either.
    pub(crate) async fn take(&self, record: &JournalRecord) -> Result<Taken, Error> {
        let units = u32::try_from(codec::encode(record).len().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units_max);
        let both = async {
            let record = self.records.clone().acquire_owned().await.ok()?;
            Some((record, self.units.clone().acquire_many_owned(units).await.ok()?))
        };
        tokio::time::timeout(self.wait, both).await.ok().flatten().ok_or_else(|| {
            let message = format!(
                "record {} found no room for {:?}: as many others are on their way as are allowed to",
                record.body.record_id, self.wait
            );
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        })
    }
}
