//! One writer per partition that appends small records without a pause longer than `INTERVAL`. It keeps every
//! acknowledged record with its time; the gaps show how long a partition accepted no appends.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use runlog_log::{Kind, Log, PartitionId};
use runlog_schemas::record::JournalRecord;

use crate::{
    agent::{Agent, entry, run_in},
    agreement::witness::TopicRecord,
    writers::compare,
};

/// The pause between two records of a partition.
const INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a record is sent again.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// An acknowledged record.
#[derive(Debug)]
struct Acked {
    at: Instant,
    offset: u64,
    record: JournalRecord,
}

/// The probe of a partition.
#[derive(Debug)]
pub struct Probe {
    partition: PartitionId,
    run: String,
    acked: Mutex<Vec<Acked>>,
    /// Records that were sent more than once, because their outcome was unknown.
    repeated: AtomicU64,
}

impl Probe {
    /// A probe of a partition, without records.
    pub fn new(partition: PartitionId, partitions: u32) -> Self {
        let run = run_in(partition, partitions, "probe");
        Self { partition, run, acked: Mutex::default(), repeated: AtomicU64::new(0) }
    }

    fn acked(&self) -> std::sync::MutexGuard<'_, Vec<Acked>> {
        self.acked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records were acknowledged.
    pub fn count(&self) -> usize {
        self.acked().len()
    }

    /// How many records were sent more than once.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Whether a record that was sent after `moment`, or shortly before, is acknowledged.
    pub fn acked_since(&self, moment: Instant) -> bool {
        self.acked().last().is_some_and(|last| last.at > moment)
    }

    /// The longest time without an acknowledgement that overlaps with the time from `begun` to `ended`.
    pub fn longest_gap(&self, begun: Instant, ended: Instant) -> Duration {
        let acked = self.acked();
        let last_before = acked.partition_point(|acked| acked.at < begun).saturating_sub(1);
        let moments = acked[last_before..].iter().map(|acked| acked.at);
        let moments: Vec<Instant> = moments.take_while(|moment| *moment <= ended).chain([ended]).collect();
        let gaps = moments.windows(2).filter_map(|pair| pair[1].checked_duration_since(pair[0]));
        gaps.max().unwrap_or_default()
    }

    /// Appends until `ending`.
    pub async fn run(self: Arc<Self>, log: Arc<dyn Log>, ending: Arc<AtomicBool>) -> anyhow::Result<()> {
        let mut agent = Agent::new(&self.run);
        while !ending.load(Ordering::Relaxed) {
            let record = match self.count() {
                0 => agent.lifecycle("started"),
                count => agent.turn(&format!("probe {count}")),
            };
            let mut sent = 0_u64;
            let offset = loop {
                sent += 1;
                match log.append(self.partition, vec![entry(&record)]).await {
                    Ok(offsets) => break offsets.first().context("an offset")?.get(),
                    Err(error) if matches!(error.kind(), Kind::Unknown | Kind::Retry) => {}
                    Err(error) => return Err(error).context("a probe's append"),
                }
                tokio::time::sleep(AGAIN_PAUSE).await;
            };
            self.repeated.fetch_add(u64::from(sent > 1), Ordering::Relaxed);
            self.acked().push(Acked { at: Instant::now(), offset, record });
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }

    /// Each acknowledged record is in the topic at its offset, and applied once, in order. A record that was sent again may be
    /// in the topic twice.
    pub fn check(&self, url: &str, topic: &[TopicRecord]) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let lines = runtime.block_on(compare::lines(&crate::server::client()?, &format!("{url}/v1/runs/{}", self.run)));
        let (lines, acked) = (lines?, self.acked());
        ensure!(lines.len() == acked.len(), "{}: {} applied of {} acknowledged", self.run, lines.len(), acked.len());
        for (line, acked) in lines.iter().zip(acked.iter()) {
            let id = &acked.record.body.record_id;
            ensure!(line["record_id"] == id.as_str(), "{}: {} where {id} was written", self.run, line["record_id"]);
        }
        let here: std::collections::HashMap<u64, &[u8]> = topic
            .iter()
            .filter(|stood| stood.partition == self.partition.get())
            .map(|stood| (stood.offset, &stood.value[..]))
            .collect();
        for Acked { offset, record, .. } in acked.iter() {
            let is_there = here.get(offset).is_some_and(|value| *value == entry(record).value);
            ensure!(is_there, "{}:{offset} does not hold {}", self.partition, record.body.record_id);
        }
        Ok(())
    }
}
