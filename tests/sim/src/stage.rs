//! State shared by all actors of a seed: the log, the observer, the servers' links, the story and the counts.

use crate::{
    ambient,
    ledger::{Ledger, run_id},
    link::Link,
    mirror::{self, Mirror},
    plan::{Event, FAULTS_END, Fate, Plan, RequestFault},
};
use runlog_log::{Clock, Entry, Log, Offset, PartitionId, memory::MemoryLog};
use runlog_schemas::{codec, payload::Payload};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Partitions of the log.
pub(crate) const PARTITIONS: u32 = 2;

/// How often something happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// State shared by all actors.
pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) log: MemoryLog,
    /// A mirror of the log, if the seed has one.
    pub(crate) mirror: Option<Mirror>,
    ledger: Mutex<Ledger>,
    links: Mutex<Vec<Arc<Link>>>,
    appends: AtomicU64,
    fates: BTreeMap<u64, Fate>,
    /// The fate of the first append of each run's end.
    fates_of_ends: Mutex<BTreeMap<String, Fate>>,
    requests: AtomicU64,
    request_faults: BTreeMap<u64, RequestFault>,
    healed: AtomicBool,
    counts: Mutex<Counts>,
    story: Mutex<Vec<String>>,
    hash: Mutex<Sha256>,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stage of seed {}", self.plan.seed)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(crate) fn new(plan: Plan) -> Arc<Self> {
        let clock = Clock::new(|| i64::try_from(ambient::millis()).unwrap_or(i64::MAX));
        let (log, mirror) = (mirror::home(&plan, clock.clone()), Mirror::new(&plan, clock));
        let fate = |event: &Event| if let Event::Append { nth, fate } = event { Some((*nth, *fate)) } else { None };
        let fates = plan.events.iter().filter_map(fate).collect();
        let end = |event: &Event| match event {
            Event::AppendOfEnd { run, fate } => Some((run_id(*run), *fate)),
            _ => None,
        };
        let fates_of_ends = Mutex::new(plan.events.iter().filter_map(end).collect());
        let fault = |event: &Event| if let Event::Request { nth, fault } = event { Some((*nth, *fault)) } else { None };
        let request_faults = plan.events.iter().filter_map(fault).collect();
        Arc::new(Self {
            ledger: Mutex::new(Ledger::new(&plan, log.topic())),
            log,
            mirror,
            links: Mutex::default(),
            appends: AtomicU64::new(0),
            fates,
            fates_of_ends,
            requests: AtomicU64::new(0),
            request_faults,
            healed: AtomicBool::new(false),
            counts: Mutex::default(),
            story: Mutex::default(),
            hash: Mutex::new(Sha256::new()),
            plan,
        })
    }

    pub(crate) fn seed(&self) -> u64 {
        self.plan.seed
    }

    /// The observer.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }

    pub(crate) fn add_link(&self, link: Arc<Link>) {
        locked(&self.links).push(link);
    }

    pub(crate) fn link(&self, server: u32) -> Option<Arc<Link>> {
        locked(&self.links).iter().find(|link| link.server == server).cloned()
    }

    /// No fault begins any more.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
        for link in locked(&self.links).iter() {
            link.hold(false);
            link.depose(false);
            link.report_older_ends(None);
            self.ledger().deposed(link.server, false);
            link.fill(false);
        }
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    /// Whether no further fault may begin.
    pub(crate) fn is_over(&self) -> bool {
        self.is_healed() || ambient::elapsed_millis() >= FAULTS_END
    }

    /// The number of an append, and its fate.
    pub(crate) fn next_append(&self) -> (u64, Option<Fate>) {
        let nth = self.appends.fetch_add(1, Ordering::Relaxed);
        (nth, self.fates.get(&nth).copied().filter(|_| !self.is_healed()))
    }

    /// The fate of an append of a run's end, if the plan has one; returned once.
    pub(crate) fn fate_of_end(&self, batch: &[Entry]) -> Option<Fate> {
        let mut fates = locked(&self.fates_of_ends);
        if fates.is_empty() || self.is_healed() {
            return None;
        }
        let records = batch.iter().filter_map(|entry| codec::decode(codec::unframe(&entry.value).ok()?).ok());
        let mut ended = records.filter(
            |record| matches!(&record.payload, Payload::RunLifecycle(lifecycle) if lifecycle.status != "started"),
        );
        let fate = fates.remove(ended.next()?.body.run_id.as_str())?;
        self.count("append of an end lost");
        Some(fate)
    }

    /// The number of a request, and its fault.
    pub(crate) fn next_request(&self) -> (u64, Option<RequestFault>) {
        let nth = self.requests.fetch_add(1, Ordering::Relaxed);
        (nth, self.request_faults.get(&nth).copied().filter(|_| !self.is_healed()))
    }

    /// Appends to the log, now.
    pub(crate) fn land(&self, partition: PartitionId, batch: Vec<Entry>) -> Vec<Offset> {
        let entries = batch.clone();
        let landed = futures_util::FutureExt::now_or_never(self.log.append(partition, batch));
        let offsets = landed.and_then(Result::ok).unwrap_or_default();
        for (offset, entry) in offsets.iter().zip(&entries) {
            locked(&self.hash).update(&entry.value);
            let millis = i64::try_from(ambient::millis()).unwrap_or(i64::MAX);
            let line = self.ledger().landed(partition, *offset, millis, entry);
            self.tell(|| format!("    log {partition}:{offset} {line}"));
        }
        for link in locked(&self.links).iter() {
            link.news.notify_one();
        }
        offsets
    }

    pub(crate) fn count(&self, what: &'static str) {
        *locked(&self.counts).entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> Counts {
        locked(&self.counts).clone()
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        let now = ambient::elapsed_millis();
        let line = format!("{:>5}.{:03}  {}", now / 1000, now % 1000, line());
        locked(&self.hash).update(line.as_bytes());
        locked(&self.story).push(line);
    }

    pub(crate) fn story(&self) -> Vec<String> {
        locked(&self.story).clone()
    }

    /// The hash of the log's bytes and of the story.
    pub(crate) fn hash(&self) -> String {
        let hash = locked(&self.hash).clone().finalize();
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}
