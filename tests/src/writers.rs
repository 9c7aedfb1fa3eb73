//! Many agents write while the server or broker is killed and restarted. Each keeps its records, so that tests can compare
//! the journal.
//!
//! ```text
//!   Story (one run's script) ──batch──▶ send, again and again until it is acknowledged ──▶ Story
//!                                                                                            │
//!   compare: the journal's answers, record by record and call by call ◀──────────────────────┘
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::future::BoxFuture;
use runlog_schemas::{id::RecordId, record::JournalRecord};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{agent::Agent, random::Random};

pub mod compare;
pub mod http;
pub mod kafka;

/// Runs, each with its own writer.
pub const RUNS: usize = 120;
/// The offered rate, records per second. The test prints the accepted rate next to the claimed 2,000 and does not check
/// it, because it depends on the load of the machine.
const RATE: f64 = 4000.0;
/// Records of a batch at least.
const BATCH: usize = 10;

/// A call that a story made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The tool.
    pub tool: &'static str,
    /// Its arguments.
    pub arguments: Value,
    /// Result or failure; `None` while it is pending.
    pub outcome: Option<Result<Value, String>>,
    request_id: RecordId,
}

/// A run, with all that its writer has written.
#[derive(Clone, Debug)]
pub struct Story {
    agent: Agent,
    random: Random,
    /// Whether its writer sometimes claims the run again.
    claims: bool,
    /// Acknowledged records, in order.
    pub records: Vec<JournalRecord>,
    /// Its calls, in the order of their requests.
    pub calls: Vec<Made>,
    batches: u64,
}

impl Story {
    /// A run without records.
    pub fn new(number: usize, seed: u64, claims: bool) -> Self {
        let (agent, random) = (Agent::new(&format!("run-{number:03}")), Random::new(seed ^ (number as u64) << 32));
        Self { agent, random, claims, records: Vec::new(), calls: Vec::new(), batches: 0 }
    }

    /// The run.
    pub fn run_id(&self) -> &str {
        &self.agent.run_id
    }

    /// The next batch: results of earlier calls, new calls, and sometimes a checkpoint.
    pub fn next_batch(&mut self) -> Vec<JournalRecord> {
        self.batches += 1;
        let mut batch = Vec::new();
        if self.claims && self.batches % 8 == 1 {
            batch.push(self.agent.claim());
        }
        if self.batches == 1 {
            batch.push(self.agent.lifecycle("started"));
        }
        for at in 0..self.calls.len() {
            // Some calls stay pending for a few batches.
            if self.calls[at].outcome.is_none() && self.random.between(0, 3) > 0 {
                batch.push(self.answer(at));
            }
        }
        batch.push(self.request("book", json!({"flight": self.batches, "run": self.run_id()})));
        batch.push(self.request("poll", json!({"queue": "bookings"})));
        if self.random.between(0, 2) == 0 {
            batch.push(self.answer(self.calls.len() - 1));
        }
        while batch.len() < BATCH - 1 {
            batch.push(self.agent.turn(&format!("{} of {}, {:x}", batch.len(), self.batches, self.random.number())));
        }
        if self.batches.is_multiple_of(3) {
            batch.push(self.agent.checkpoint(&[json!({"role": "user", "content": self.batches})]));
        }
        batch
    }

    fn request(&mut self, tool: &'static str, arguments: Value) -> JournalRecord {
        let record = self.agent.request(tool, &arguments);
        let request_id = record.body.record_id.clone();
        self.calls.push(Made { tool, arguments, outcome: None, request_id });
        record
    }

    /// The result of a call. All results differ, so that a wrong result is detected.
    fn answer(&mut self, at: usize) -> JournalRecord {
        let (call, said) = (&mut self.calls[at], format!("{at} {:x}", self.random.number()));
        if self.random.between(0, 5) == 0 {
            call.outcome = Some(Err(said.clone()));
            return self.agent.fail(&call.request_id, &said);
        }
        let result = json!({ "said": said });
        call.outcome = Some(Ok(result.clone()));
        self.agent.complete(&call.request_id, &result)
    }
}

/// The target of batches.
pub trait Sink: Send + Sync + 'static {
    /// Appends a run's batch. `Ok(true)`: acknowledged; `Ok(false)`: outcome unknown, send it again; an error ends the test.
    fn send<'a>(&'a self, run_id: &'a str, batch: &'a [JournalRecord]) -> BoxFuture<'a, anyhow::Result<bool>>;

    /// Waits until the target may accept batches again.
    fn recovered(&self) -> BoxFuture<'_, ()>;
}

/// The running writers.
#[derive(Debug)]
pub struct Writers {
    tasks: JoinSet<anyhow::Result<Story>>,
    ending: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    repeated: Arc<AtomicU64>,
    begun: Instant,
}

impl Writers {
    /// Starts all stories. Must be called inside a runtime.
    pub fn start(stories: Vec<Story>, sink: &Arc<impl Sink>) -> Self {
        Self::start_at(RATE, stories, sink)
    }

    /// Starts all stories with this rate, records per second.
    pub fn start_at(rate: f64, stories: Vec<Story>, sink: &Arc<impl Sink>) -> Self {
        let mut writers = Self {
            tasks: JoinSet::new(),
            ending: Arc::default(),
            acknowledged: Arc::default(),
            repeated: Arc::default(),
            begun: Instant::now(),
        };
        let pace = Duration::from_secs_f64(stories.len() as f64 * BATCH as f64 / rate);
        for story in stories {
            let (sink, ending) = (sink.clone(), writers.ending.clone());
            let counts = (writers.acknowledged.clone(), writers.repeated.clone());
            writers.tasks.spawn(write(story, sink, ending, counts, pace));
        }
        writers
    }

    /// Records acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Batches that were sent more than once.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Whether a writer has failed.
    pub fn failed(&self) -> bool {
        self.tasks.len() < RUNS
    }

    /// Waits until each writer has finished its batch; returns the stories, in order.
    pub async fn finish(mut self) -> anyhow::Result<Vec<Story>> {
        self.ending.store(true, Ordering::Relaxed);
        let mut stories = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            stories.push(ended.context("a writer panicked")??);
        }
        stories.sort_by(|a, b| a.run_id().cmp(b.run_id()));
        Ok(stories)
    }
}

async fn write(
    mut story: Story,
    sink: Arc<impl Sink>,
    ending: Arc<AtomicBool>,
    (acknowledged, repeated): (Arc<AtomicU64>, Arc<AtomicU64>),
    pace: Duration,
) -> anyhow::Result<Story> {
    let mut ticks = tokio::time::interval(pace);
    while !ending.load(Ordering::Relaxed) {
        ticks.tick().await;
        let batch = story.next_batch();
        // Sends some batches twice, like a writer that never got the acknowledgement.
        let twice = story.random.between(0, 20) == 0;
        for sending in 0..if twice { 2 } else { 1 } {
            repeated.fetch_add(sending, Ordering::Relaxed);
            while !sink.send(story.run_id(), &batch).await.with_context(|| story.run_id().to_owned())? {
                repeated.fetch_add(1, Ordering::Relaxed);
                sink.recovered().await;
            }
        }
        acknowledged.fetch_add(batch.len() as u64, Ordering::Relaxed);
        story.records.extend(batch);
    }
    Ok(story)
}
