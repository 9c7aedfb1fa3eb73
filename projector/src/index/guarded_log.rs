//! The log of a server, which appends only at the journal's home. On a mirror every append fails: the mirror's records come from
//! the home alone.
//!
//! Reads are the log's own. The journal's genesis and its homes are appended beside this guard.

use super::home::{HomeState, Role};
use runlog_log::{
    Ack, BoundsAnswer, Clients, EndAnswer, Entry, Error, Kind, Log, LogId, LogSettings, Offset, PartitionId, Reader,
};
use std::{future, sync::Arc, time::Duration};

/// A log, and the home of its journal.
#[derive(Debug)]
pub(crate) struct GuardedLog {
    log: Arc<dyn Log>,
    home: Arc<HomeState>,
}

impl GuardedLog {
    /// Guards `log`.
    pub(crate) fn new(log: Arc<dyn Log>, home: Arc<HomeState>) -> Self {
        Self { log, home }
    }
}

impl Log for GuardedLog {
    fn topic(&self) -> &str {
        self.log.topic()
    }

    fn id(&self) -> Option<&LogId> {
        self.log.id()
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn value_bytes_max(&self) -> usize {
        self.log.value_bytes_max()
    }

    fn clock_millis(&self) -> Option<i64> {
        self.log.clock_millis()
    }

    fn reads_committed(&self) -> bool {
        self.log.reads_committed()
    }

    fn committed(&self) -> Option<Result<Arc<dyn Log>, Error>> {
        let guard = |log| -> Arc<dyn Log> { Arc::new(Self::new(log, self.home.clone())) };
        Some(self.log.committed()?.map(guard))
    }

    fn settings(&self) -> Result<LogSettings, Error> {
        self.log.settings()
    }

    fn clients(&self) -> Clients {
        self.log.clients()
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        match self.home.role() {
            Role::Unknown | Role::Home => self.log.append(partition, batch),
            Role::Mirror | Role::Contested => {
                let why = match self.home.check_home("an append") {
                    Err(refused) => refused.to_string(),
                    Ok(()) => "the journal's home changed during the append, which had no effect; try again".to_owned(),
                };
                let error = Error::new(Kind::NotHome, self.topic(), why).in_partition(partition);
                Box::pin(future::ready(Err(error)))
            }
        }
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        self.log.bounds(partition, deadline)
    }

    fn end(&self, partition: PartitionId, deadline: Duration) -> EndAnswer<'_> {
        self.log.end(partition, deadline)
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        self.log.reader(from)
    }
}
