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

    fn reads_uncommitted(&self) -> bool {
        self.log.reads_uncommitted()
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
            Role::Unknown if self.home.can_be_mirror(partition) => {
                let why = format!("{}; no record was appended", self.home.why_unknown());
                let error = Error::new(Kind::Retry, self.topic(), why).in_partition(partition);
                Box::pin(future::ready(Err(error)))
            }
            Role::Unknown | Role::Home => self.log.append(partition, batch),
            Role::Mirror | Role::Contested | Role::Uncommitted => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_log::memory::MemoryLog;

    #[tokio::test]
    async fn a_server_without_a_home_appends_to_a_partition_whose_records_it_has_read() {
        let (home, partitions) = (HomeState::new(LogId::memory("own"), None), [0, 1, 2].map(PartitionId::from));
        let log = GuardedLog::new(Arc::new(MemoryLog::new(3)), home.clone());
        let append = async |partition| {
            let entry = Entry { value: b"a record".to_vec(), ..Entry::default() };
            log.append(partition, vec![entry]).await.map(drop).map_err(|error| error.kind())
        };
        let [read, unread, stopped] = partitions;
        home.expect(unread, Offset::from(5));
        home.expect(stopped, Offset::from(5));
        home.report(unread, Offset::from(4), false);
        assert_eq!((append(read).await, append(unread).await), (Ok(()), Err(Kind::Retry)));
        home.report(unread, Offset::from(5), false);
        home.report(stopped, Offset::from(1), true);
        assert_eq!((append(unread).await, append(stopped).await), (Ok(()), Ok(())));
    }
}
