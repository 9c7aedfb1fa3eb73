//! A log over another log. [`Hooks`] change its appends, its bounds and its deliveries. A test implements some of them.

use std::{fmt::Debug, sync::Arc, time::Duration};

use runlog_log::{
    Ack, Bounds, BoundsAnswer, Clients, Delivery, EndAnswer, Entry, Error, Log, LogId, LogSettings, Offset,
    PartitionId, Reader,
};

/// Changes to a log. Each default leaves the log as it is.
#[allow(missing_docs, reason = "the methods of `Log` and `Reader`, with the value or the reader that they change")]
pub trait Hooks: Debug + Send + Sync + 'static {
    fn append(self: &Arc<Self>, log: &Arc<dyn Log>, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        log.append(partition, batch)
    }

    fn reads_committed(&self) -> bool {
        false
    }

    fn reads_uncommitted(&self) -> bool {
        false
    }

    /// The hooks of a log that is read committed, for a log without transactions.
    fn committed(self: &Arc<Self>) -> Option<Arc<Self>> {
        None
    }

    fn start(&self, start: Offset) -> Offset {
        start
    }

    fn end(&self, end: Offset) -> Offset {
        end
    }

    fn poll(&self, reader: &mut dyn Reader, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        reader.poll(max, timeout)
    }

    fn position(&self, reader: &dyn Reader, partition: PartitionId) -> Option<Offset> {
        reader.position(partition)
    }
}

/// Puts `hooks` on a log.
pub fn hook(log: impl Log + 'static, hooks: &Arc<impl Hooks>) -> Arc<dyn Log> {
    Arc::new(HookedLog { log: Arc::new(log), hooks: hooks.clone() })
}

#[derive(Debug)]
struct HookedLog<H> {
    log: Arc<dyn Log>,
    hooks: Arc<H>,
}

impl<H: Hooks> Log for HookedLog<H> {
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
        self.log.reads_committed() || self.hooks.reads_committed()
    }

    fn reads_uncommitted(&self) -> bool {
        self.log.reads_uncommitted() || self.hooks.reads_uncommitted()
    }

    fn committed(&self) -> Option<Result<Arc<dyn Log>, Error>> {
        let (log, hooks) = match self.log.committed() {
            Some(log) => (log, self.hooks.clone()),
            None => (Ok(self.log.clone()), self.hooks.committed()?),
        };
        Some(log.map(|log| Arc::new(Self { log, hooks }) as Arc<dyn Log>))
    }

    fn settings(&self) -> Result<LogSettings, Error> {
        self.log.settings()
    }

    fn clients(&self) -> Clients {
        self.log.clients()
    }

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        self.hooks.append(&self.log, partition, batch)
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        Box::pin(async move {
            let Bounds { start, end } = self.log.bounds(partition, deadline).await?;
            Ok(Bounds { start: self.hooks.start(start), end: self.hooks.end(end) })
        })
    }

    fn end(&self, partition: PartitionId, deadline: Duration) -> EndAnswer<'_> {
        Box::pin(async move { Ok(self.hooks.end(self.log.end(partition, deadline).await?)) })
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(HookedReader { reader: self.log.reader(from)?, hooks: self.hooks.clone() }))
    }
}

struct HookedReader<H> {
    reader: Box<dyn Reader>,
    hooks: Arc<H>,
}

impl<H: Hooks> Reader for HookedReader<H> {
    fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Delivery>, Error> {
        self.hooks.poll(&mut *self.reader, max, timeout)
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.hooks.position(&*self.reader, partition)
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        self.reader.seek(partition, next)
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.reader.release(partition)
    }
}
