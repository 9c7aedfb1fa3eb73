//! One server's connection to the log: with delays, and with faults of network and broker in appends, bounds and
//! reads.

use crate::{
    dice::Dice,
    mirror,
    plan::{Fate, LINK_OF_LIFE},
    stage::Stage,
};
use runlog_log::{
    Ack, Bounds, BoundsAnswer, Delivery, Entry, Error, Kind, Log, LogId, Offset, PartitionId, Reader, memory::MemoryLog,
};
use std::{
    collections::BTreeMap,
    fmt, future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, sleep_until},
};

/// After this an append gets an answer, at worst an unknown one.
const DELIVERY_MAX: Duration = Duration::from_secs(45);

/// One server's connection to the log.
pub(crate) struct Link {
    pub(crate) server: u32,
    stage: Weak<Stage>,
    log: MemoryLog,
    state: Mutex<State>,
    /// Notified when new records may be readable.
    pub(crate) news: Notify,
}

#[derive(Default)]
struct State {
    bounds_asked: u64,
    /// By partition: when the last append lands, the number of appends sent, and which of them landed last.
    lanes: BTreeMap<PartitionId, Lane>,
    /// Ends that a deposed leader reports.
    deposed: Option<BTreeMap<PartitionId, Offset>>,
    /// Ends below the server's applied position that the log reports.
    lagging: Option<BTreeMap<PartitionId, Offset>>,
    held: bool,
    fails: bool,
    full: bool,
    positions: BTreeMap<PartitionId, Offset>,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    lands: Option<Instant>,
    sent: u64,
    landed: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link of server {}", self.server)
    }
}

impl Link {
    /// Connects a server to the log, or the mirror's server to the mirror.
    pub(crate) fn new(server: u32, stage: &Arc<Stage>) -> Self {
        let mirror = stage.mirror.as_ref().filter(|_| server == mirror::SERVER);
        let log = mirror.map_or(&stage.log, |mirror| &mirror.log).clone();
        let stage = Arc::downgrade(stage);
        Self { server, stage, log, state: Mutex::default(), news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or stops being deposed: reads no newer records, and reports the current ends.
    pub(crate) fn depose(&self, deposed: bool) {
        let ends =
            || PartitionId::all(self.log.partitions()).map(|partition| (partition, self.end(partition))).collect();
        self.lock().deposed = deposed.then(ends);
        self.news.notify_one();
    }

    /// Starts or stops reporting these ends and withholding reads.
    pub(crate) fn report_older_ends(&self, ends: Option<BTreeMap<PartitionId, Offset>>) {
        self.lock().lagging = ends;
        self.news.notify_one();
    }

    /// Starts or stops withholding reads.
    pub(crate) fn hold(&self, held: bool) {
        self.lock().held = held;
        self.news.notify_one();
    }

    /// The next read fails, and so do all later operations of its reader.
    pub(crate) fn fail_reader(&self) {
        self.lock().fails = true;
        self.news.notify_one();
    }

    /// Starts or stops refusing every append.
    pub(crate) fn fill(&self, full: bool) {
        self.lock().full = full;
    }

    fn end(&self, partition: PartitionId) -> Offset {
        let bounds = future::IntoFuture::into_future(self.log.bounds(partition, Duration::ZERO));
        let bounds = futures_util::FutureExt::now_or_never(bounds).and_then(Result::ok);
        bounds.map(|bounds: Bounds| bounds.end).unwrap_or_default()
    }

    /// The offset at which reading ends for now.
    fn visible(&self, partition: PartitionId, position: Offset) -> Offset {
        let end = self.end(partition);
        let state = self.lock();
        if state.held || state.lagging.is_some() {
            return position;
        }
        state.deposed.as_ref().and_then(|ends| ends.get(&partition)).map_or(end, |frozen| end.min(*frozen))
    }

    /// Whether a record is readable.
    pub(crate) fn has_news(&self) -> bool {
        let positions = {
            let state = self.lock();
            if state.fails {
                return true;
            }
            state.positions.clone()
        };
        positions.into_iter().any(|(partition, position)| self.visible(partition, position) > position)
    }

    fn failure(&self, kind: Kind, what: &str, partition: PartitionId) -> Error {
        Error::new(kind, self.log.topic(), what).in_partition(partition)
    }
}

impl Log for Link {
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

    fn append(&self, partition: PartitionId, batch: Vec<Entry>) -> Ack {
        let Some(stage) = self.stage.upgrade() else {
            return Box::pin(future::ready(Err(self.failure(Kind::Fatal, "the seed is over", partition))));
        };
        if let Some(mirror) = stage.mirror.as_ref().filter(|_| self.server == mirror::SERVER) {
            mirror.appended(batch.len());
            stage.tell(|| format!("server {} appends {} records to the mirror", self.server, batch.len()));
            self.news.notify_one();
            return self.log.append(partition, batch);
        }
        let (nth, fate) = stage.next_append();
        let straight = self.server >= LINK_OF_LIFE;
        let fate = fate.or_else(|| if straight { stage.fate_of_end(&batch) } else { None });
        let mut state = self.lock();
        if state.full && !stage.is_healed() {
            stage.count("append refused: queue full");
            return Box::pin(future::ready(Err(self.failure(Kind::Retry, "the queue is full", partition))));
        }
        if fate == Some(Fate::Refused) {
            stage.count("append refused");
            stage.tell(|| format!("append {nth} (server {}) is refused", self.server));
            return Box::pin(future::ready(Err(self.failure(Kind::Retry, "the broker refused it", partition))));
        }
        let mut dice = Dice::new(stage.seed(), 1_000_000 + nth);
        let (there, back) = (Duration::from_millis(dice.delay()), Duration::from_millis(dice.delay()));
        let lane = state.lanes.entry(partition).or_default();
        lane.sent += 1;
        let number = lane.sent;
        let now = Instant::now();
        let lands = match fate {
            Some(Fate::Late { lands, .. }) => now + Duration::from_millis(lands),
            // In the order of the calls.
            _ => {
                let next = lane.lands.map_or(now, |last| last + Duration::from_millis(1));
                let lands = next.max(now + there);
                lane.lands = Some(lands);
                lands
            }
        };
        drop(state);
        let unknown = self.failure(Kind::Unknown, "no acknowledgement", partition);
        let (send, acknowledged) = oneshot::channel();
        let delay = |after: u64| Duration::from_millis(after);
        match fate {
            None | Some(Fate::Refused) => {
                tokio::spawn(async move {
                    sleep_until(lands).await;
                    let offsets = stage.land(partition, batch);
                    sleep(back).await;
                    drop(send.send(Ok(offsets)));
                });
            }
            Some(Fate::Unknown { after }) => {
                stage.count("acknowledgement lost");
                stage.tell(|| format!("append {nth} (server {}) lands, its acknowledgement is lost", self.server));
                tokio::spawn(async move {
                    tokio::join!(
                        async {
                            sleep_until(lands).await;
                            stage.land(partition, batch);
                        },
                        async {
                            sleep(delay(after)).await;
                            drop(send.send(Err(unknown)));
                        }
                    );
                });
            }
            Some(Fate::Lost { after }) => {
                stage.count("append lost");
                stage.tell(|| format!("append {nth} (server {}) is lost", self.server));
                tokio::spawn(async move {
                    sleep(delay(after)).await;
                    drop(send.send(Err(unknown)));
                });
            }
            Some(Fate::Late { after, .. }) => {
                let weak = self.stage.clone();
                let (server, links) = (self.server, stage.clone());
                tokio::spawn(async move {
                    sleep(delay(after)).await;
                    drop(send.send(Err(unknown)));
                    sleep_until(lands).await;
                    let overtaken = links
                        .link(server)
                        .is_none_or(|link| link.lock().lanes.get(&partition).is_some_and(|lane| lane.landed > number));
                    if let Some(stage) = weak.upgrade().filter(|_| !overtaken) {
                        stage.count("append landed late");
                        stage.tell(|| format!("append {nth} (server {server}) lands late"));
                        stage.land(partition, batch);
                    }
                });
            }
            Some(Fate::Silent) => {
                stage.count("acknowledgement never came");
                stage.tell(|| format!("append {nth} (server {}) lands without an acknowledgement", self.server));
                tokio::spawn(async move {
                    sleep_until(lands).await;
                    stage.land(partition, batch);
                    // The log's own client gives up.
                    sleep(DELIVERY_MAX).await;
                    drop(send.send(Err(unknown)));
                });
            }
        }
        if !matches!(fate, Some(Fate::Lost { .. } | Fate::Late { .. })) {
            let mut state = self.lock();
            let lane = state.lanes.entry(partition).or_default();
            lane.landed = lane.landed.max(number);
        }
        let topic = self.log.topic().to_owned();
        Box::pin(async move {
            let gone = || Error::new(Kind::Unknown, &topic, "the connection is gone").in_partition(partition);
            acknowledged.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn bounds(&self, partition: PartitionId, deadline: Duration) -> BoundsAnswer<'_> {
        let nth = {
            let mut state = self.lock();
            state.bounds_asked += 1;
            state.bounds_asked
        };
        Box::pin(async move {
            let Some(stage) = self.stage.upgrade() else {
                return Err(self.failure(Kind::Fatal, "the seed is over", partition));
            };
            let mut dice = Dice::new(stage.seed(), 2_000_000 + 1_000_000 * u64::from(self.server) + nth);
            let (there, back) = (Duration::from_millis(dice.delay()), Duration::from_millis(dice.delay()));
            if there + back > deadline {
                sleep(deadline).await;
                return Err(self.failure(Kind::Retry, "the broker did not answer in time", partition));
            }
            sleep(there).await;
            let mut bounds = self.log.bounds(partition, deadline).await?;
            {
                let state = self.lock();
                let reported =
                    [&state.deposed, &state.lagging].into_iter().flatten().filter_map(|ends| ends.get(&partition));
                bounds.end = reported.copied().fold(bounds.end, Offset::min);
            }
            sleep(back).await;
            Ok(bounds)
        })
    }

    fn reader(&self, from: &[(PartitionId, Offset)]) -> Result<Box<dyn Reader>, Error> {
        let stage = self.stage.upgrade();
        let link = stage.and_then(|stage| stage.link(self.server));
        let mut reader = LinkReader { link, log: self.log.clone(), readers: BTreeMap::new(), turn: 0 };
        for (partition, next) in from {
            reader.seek(*partition, *next)?;
        }
        // The loop's reader is the last reader that a projector creates.
        reader.remember();
        Ok(Box::new(reader))
    }
}

/// Reads each partition by itself, as far as its link allows.
struct LinkReader {
    link: Option<Arc<Link>>,
    log: MemoryLog,
    readers: BTreeMap<PartitionId, Box<dyn Reader>>,
    turn: usize,
}

impl LinkReader {
    fn remember(&self) {
        let Some(link) = &self.link else { return };
        let place = |partition: &PartitionId| Some((*partition, self.position(*partition)?));
        link.lock().positions = self.readers.keys().filter_map(place).collect();
    }
}

impl Reader for LinkReader {
    fn poll(&mut self, max: usize, _timeout: Duration) -> Result<Vec<Delivery>, Error> {
        if let Some(link) = self.link.as_ref().filter(|_| max > 1)
            && std::mem::take(&mut link.lock().fails)
        {
            // A new reader replaces it.
            self.readers.clear();
            self.remember();
            return Err(Error::new(Kind::Fatal, self.log.topic(), "the consumer is fenced"));
        }
        let mut partitions: Vec<PartitionId> = self.readers.keys().copied().collect();
        let first = self.turn % partitions.len().max(1);
        partitions.rotate_left(first);
        self.turn += 1;
        let mut records = Vec::new();
        for partition in partitions {
            let Some(reader) = self.readers.get_mut(&partition) else { continue };
            let position = reader.position(partition).unwrap_or_default();
            let end = self.link.as_ref().map_or(position, |link| link.visible(partition, position));
            // Offsets of this log are dense.
            let there = usize::try_from(end.get().saturating_sub(position.get())).unwrap_or(usize::MAX);
            let wanted = there.min(max.saturating_sub(records.len()));
            if wanted > 0 {
                records.extend(reader.poll(wanted, Duration::ZERO)?);
            }
        }
        // Only short-lived readers read one record at a time.
        if max > 1 {
            self.remember();
        }
        Ok(records)
    }

    fn position(&self, partition: PartitionId) -> Option<Offset> {
        self.readers.get(&partition)?.position(partition)
    }

    fn seek(&mut self, partition: PartitionId, next: Offset) -> Result<(), Error> {
        let reader = self.log.reader(&[(partition, next)])?;
        self.readers.insert(partition, reader);
        self.remember();
        Ok(())
    }

    fn release(&mut self, partition: PartitionId) -> Result<(), Error> {
        self.readers.remove(&partition);
        Ok(())
    }
}
