//! Histories: the actions of agents and operators and the faults of the log, drawn from a seed.
//!
//! `agents` write, mostly legally and sometimes not; `operators` resolve, skip, retract, erase; `troubles` are faults
//! of log and projector. `world` is the log that they write to, and the answers of a server meanwhile. The same seed
//! gives the same history on every platform and in every build of this version.

mod agents;
mod checkpoint;
mod lifecycle;
mod operators;
mod payloads;
mod skips;
mod troubles;
mod world;

use crate::{
    delivery::{Delivery, Journal, What},
    record::{inner, payload_type},
};
use std::{collections::VecDeque, sync::Arc};
use world::World;

/// The reply to an appender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// It landed, and is acknowledged.
    None,
    /// It landed, but no reply reached the appender.
    Unknown,
    /// It did not land, and no reply reached the appender. Its offset is never used for it.
    Lost,
}

/// One thing that happens to the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// An append. For a lost append the offset is meaningless.
    Append {
        /// The delivery: content, partition and offset.
        delivery: Delivery,
        /// How the append ended.
        fault: AppendFault,
    },
    /// The partition's next offsets stay unused.
    Gap {
        /// The partition.
        partition: u32,
        /// How many.
        count: u64,
    },
    /// The reader gets the last records of a partition again.
    Redeliver {
        /// The partition.
        partition: u32,
        /// How many.
        back: u64,
    },
    /// From here on readers see nothing new of a partition, though appends are acknowledged.
    Hold {
        /// The partition.
        partition: u32,
    },
    /// Readers see all of it again.
    Release {
        /// The partition.
        partition: u32,
    },
    /// The log's start moves; what is below can never be read again.
    MoveStart {
        /// The partition.
        partition: u32,
        /// The new first offset.
        start: u64,
    },
    /// The projector is killed and started again. Which of its named steps kills it: `point` modulo how many there are.
    Crash {
        /// Any number.
        point: u64,
    },
}

/// What a reader that follows the log gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A record, perhaps again.
    Deliver(Delivery),
    /// The log's start moved.
    StartMoved {
        /// The partition.
        partition: u32,
        /// The new first offset.
        start: u64,
    },
}

/// A seed's history.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What it was made of.
    pub seed: u64,
    /// The journal.
    pub journal: Journal,
    /// The runs that are written, by name; a run may have no applied record.
    pub runs: Vec<String>,
    /// What happens, in order. All that was held is released by the end.
    pub steps: Vec<Step>,
}

impl History {
    /// The events of a reader that reads from the start.
    pub fn events(&self) -> Vec<Event> {
        let mut reader = Reader::new(self.journal.partitions);
        self.steps.iter().flat_map(|step| reader.see(step)).collect()
    }

    /// The steps, each with its events for a reader that reads from the start.
    pub fn steps_with_events(&self) -> Vec<(Step, Vec<Event>)> {
        let mut reader = Reader::new(self.journal.partitions);
        self.steps.iter().map(|step| (step.clone(), reader.see(step))).collect()
    }

    /// Indices of the events after which answers are compared: some, and the last one.
    pub fn samples(&self, count: u64) -> Vec<usize> {
        let mut random = crate::random::Random::new(self.seed ^ 0x5a5a);
        let events = self.events().len();
        let mut samples: Vec<usize> =
            (0..count).filter_map(|_| usize::try_from(random.below(events as u64)).ok()).collect();
        samples.push(events.saturating_sub(1));
        samples.sort_unstable();
        samples.dedup();
        samples
    }
}

/// The history of a seed.
pub fn history(seed: u64) -> History {
    World::new(seed).live()
}

/// Turns steps into a reader's events.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    partitions: Vec<Feed>,
}

#[derive(Clone, Debug, Default)]
struct Feed {
    held: bool,
    waiting: VecDeque<Delivery>,
    delivered: Vec<Delivery>,
    start: u64,
}

impl Reader {
    pub(crate) fn new(partitions: u32) -> Self {
        Self { partitions: (0..partitions).map(|_| Feed::default()).collect() }
    }

    pub(crate) fn holds(&self, partition: u32) -> bool {
        self.partitions.get(partition as usize).is_some_and(|feed| feed.held)
    }

    pub(crate) fn see(&mut self, step: &Step) -> Vec<Event> {
        let (Step::Append { delivery: Delivery { partition, .. }, .. }
        | Step::Gap { partition, .. }
        | Step::Redeliver { partition, .. }
        | Step::Hold { partition }
        | Step::Release { partition }
        | Step::MoveStart { partition, .. }) = step
        else {
            return Vec::new();
        };
        let Some(feed) = self.partitions.get_mut(*partition as usize) else { return Vec::new() };
        match step {
            Step::Append { delivery, fault } if *fault != AppendFault::Lost => {
                feed.waiting.push_back(delivery.clone());
                feed.drain()
            }
            Step::Redeliver { back, .. } => {
                let from = feed.delivered.len().saturating_sub(usize::try_from(*back).unwrap_or(usize::MAX));
                // What is below the log's start is not delivered any more.
                let again = feed.delivered[from..].iter().filter(|delivery| delivery.offset >= feed.start);
                again.cloned().map(Event::Deliver).collect()
            }
            Step::Hold { .. } => {
                feed.held = true;
                Vec::new()
            }
            Step::Release { .. } => {
                feed.held = false;
                feed.drain()
            }
            Step::MoveStart { partition, start } => {
                feed.start = *start;
                feed.waiting.retain(|delivery| delivery.offset >= *start);
                vec![Event::StartMoved { partition: *partition, start: *start }]
            }
            _ => Vec::new(),
        }
    }
}

impl Feed {
    fn drain(&mut self) -> Vec<Event> {
        if self.held {
            return Vec::new();
        }
        self.delivered.extend(self.waiting.iter().cloned());
        self.waiting.drain(..).map(Event::Deliver).collect()
    }
}

impl Event {
    /// Gives it to a model.
    pub fn to(&self, model: &mut crate::Model) {
        match self {
            Self::Deliver(delivery) => model.deliver(delivery),
            Self::StartMoved { partition, start } => model.start_moved(*partition, *start),
        }
    }
}

/// A record that is numbered again, as something to append.
pub(crate) fn renumbered(record: serde_json::Value) -> What {
    What::Record {
        version: lowest_version(&record).max(2),
        claimant: claimant(&record),
        record: Arc::new(record),
        datums: Vec::new(),
        contents: Vec::new(),
    }
}

/// A record as something to append, in the lowest version that expresses it.
pub(crate) fn record(record: serde_json::Value) -> What {
    What::Record {
        version: lowest_version(&record),
        claimant: claimant(&record),
        record: Arc::new(record),
        datums: Vec::new(),
        contents: Vec::new(),
    }
}

/// The principal that a server writes beside a claim: one of two, or none, as of a server without authentication.
fn claimant(record: &serde_json::Value) -> Option<String> {
    let writer = record["writer_id"].as_str().filter(|_| payload_type(record) == "run_claim")?;
    let principals = [Some("ann"), Some("bob"), None];
    principals[writer.bytes().map(usize::from).sum::<usize>() % 3].map(str::to_owned)
}

/// The lowest version that expresses a record: for a batch, its records.
fn lowest_version(record: &serde_json::Value) -> u16 {
    let says = |facts: &[&str]| facts.iter().any(|fact| !record["facts"][fact].is_null());
    let own = if says(&["basis", "unresolved", "repeatable", "observed", "commitment", "shown", "only_own"]) {
        3
    } else if says(&["revision", "evidence", "epoch", "principal"]) {
        2
    } else {
        1
    };
    inner(record).iter().map(lowest_version).max().unwrap_or(1).max(own)
}
