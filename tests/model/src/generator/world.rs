//! The log that all actors write to, and the answers of a server meanwhile.

use super::{AppendFault, History, Reader, Step, record};
use crate::{
    delivery::{Delivery, Journal, What},
    fold::Model,
    hashes,
    random::Random,
    run::Run,
};
use serde_json::{Value, json};

/// The start of time: 2026-11-22T00:00:00Z.
pub(super) const START_MILLIS: i64 = 1_795_305_600_000;

/// One history in so many has a superseded writer with more results than are kept; by chance only one in 600,000 has.
const CROWD_EVERY: u64 = 25;

/// A writer of a run, as it sees itself.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) run: usize,
    pub(super) writer_id: String,
    pub(super) epoch: u64,
    /// Its next numbers.
    pub(super) writer_seq: u64,
    pub(super) journal_seq: u64,
    /// What it appended, oldest first.
    pub(super) sent: Vec<Value>,
}

/// Everything that a history is made from.
#[derive(Debug)]
pub(super) struct World {
    pub(super) random: Random,
    pub(super) model: Model,
    pub(super) runs: Vec<String>,
    pub(super) agents: Vec<Agent>,
    pub(super) now: i64,
    pub(super) ends: Vec<u64>,
    pub(super) reader: Reader,
    seed: u64,
    steps: Vec<Step>,
    pub(super) ids: u64,
    /// Where the last horizon was, and of what.
    pub(super) horizon: Option<(u32, &'static str)>,
}

/// What happens next.
#[derive(Clone, Copy)]
enum Turn {
    Agent,
    Claim,
    Resend,
    Operator,
    Trouble,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let partitions = u32::try_from(random.between(2, 3)).unwrap_or(2);
        let journal = Journal {
            topic: "runlog.journal".to_owned(),
            journal_id: format!("00000000-0000-4000-8000-{:012x}", seed & 0xffff_ffff_ffff),
            partitions,
        };
        let names = ["trip", "order", "repair", "audit"];
        let count = usize::try_from(random.between(2, 4)).unwrap_or(2);
        let runs = names[..count].iter().map(|name| format!("{name}-{}", random.below(100))).collect();
        Self {
            random,
            model: Model::new(journal),
            runs,
            agents: Vec::new(),
            now: START_MILLIS,
            ends: vec![0; partitions as usize],
            reader: Reader::new(partitions),
            seed,
            steps: Vec::new(),
            ids: 0,
            horizon: None,
        }
    }

    /// Runs the history to its end.
    pub(super) fn live(mut self) -> History {
        self.begin();
        for run in 0..self.runs.len() {
            self.arrive(run);
        }
        let turns = self.random.between(40, 110);
        let crowded = self.seed % CROWD_EVERY == CROWD_EVERY / 2;
        for turn in 0..turns {
            if crowded && turn == turns / 2 {
                self.crowd();
            }
            let turns =
                [(66, Turn::Agent), (7, Turn::Claim), (9, Turn::Resend), (11, Turn::Operator), (8, Turn::Trouble)];
            match self.random.weigh(Turn::Agent, &turns) {
                Turn::Agent => self.agent_writes(),
                Turn::Claim => self.somebody_claims(),
                Turn::Resend => self.somebody_resends(),
                Turn::Operator => self.operator_acts(),
                Turn::Trouble => self.trouble(),
            }
        }
        for partition in 0..self.model.journal.partitions {
            if self.reader.holds(partition) {
                self.step(Step::Release { partition });
            }
        }
        History { seed: self.seed, journal: self.model.journal.clone(), runs: self.runs, steps: self.steps }
    }

    /// A genesis in every partition; sometimes one of another journal. The genesis of partition 0 identifies the
    /// journal.
    fn begin(&mut self) {
        let others = u64::from(self.model.journal.partitions) - 1;
        let strange = self.random.percent(3).then(|| 1 + self.random.below(others));
        for partition in 0..self.model.journal.partitions {
            let mut genesis = self.genesis();
            if strange == Some(u64::from(partition)) {
                genesis["payload"]["journal_id"] = "ffffffff-ffff-4fff-8fff-ffffffffffff".into();
            }
            self.append(partition, record(genesis), AppendFault::None);
        }
    }

    pub(super) fn genesis(&self) -> Value {
        let journal = &self.model.journal;
        json!({
            "record_id": format!("genesis:{}", journal.journal_id),
            "timestamp_millis": START_MILLIS,
            "payload": {"type": "genesis", "journal_id": journal.journal_id, "partitions": journal.partitions},
        })
    }

    /// A new id.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        self.ids += 1;
        format!("{prefix}-{}", self.ids)
    }

    /// Performs one step. Readers see it at once, or after a hold.
    pub(super) fn step(&mut self, step: Step) {
        for event in self.reader.see(&step) {
            event.to(&mut self.model);
        }
        self.steps.push(step);
    }

    /// Appends to a partition, at its end.
    pub(super) fn append(&mut self, partition: u32, what: What, fault: AppendFault) {
        let end = &mut self.ends[partition as usize];
        let offset = *end;
        if fault != AppendFault::Lost {
            *end += 1;
        }
        self.now += i64::try_from(self.random.below(4)).unwrap_or(0);
        self.step(Step::Append { delivery: Delivery { partition, offset, log_millis: self.now, what }, fault });
    }

    /// Appends a run's record where it belongs.
    pub(super) fn append_record(&mut self, value: &Value, fault: AppendFault) {
        let partition = self.partition_of(crate::record::text(value, "/run_id"));
        self.append(partition, record(value.clone()), fault);
    }

    pub(super) fn partition_of(&self, run_id: &str) -> u32 {
        hashes::partition_of(run_id, self.model.journal.partitions)
    }

    /// A run as a server that is as far as its reader sees it.
    pub(super) fn run(&self, run: usize) -> Option<&Run> {
        let run_id = self.runs.get(run)?;
        self.model.partitions.get(self.partition_of(run_id) as usize)?.runs.get(run_id)
    }

    /// Epoch and next numbers of a run, as a server would say.
    pub(super) fn head(&self, run: usize) -> (u64, u64, u64) {
        let rules = &self.model.rules;
        let head = |run: &Run| (run.writer().epoch, run.next_writer_seq(rules), run.next_journal_seq(rules));
        self.run(run).map_or((0, 1, 1), head)
    }

    /// Adds a writer to an unclaimed run.
    fn arrive(&mut self, run: usize) {
        let writer_id = self.id("writer");
        self.agents.push(Agent { run, writer_id, epoch: 0, writer_seq: 1, journal_seq: 1, sent: Vec::new() });
    }

    /// Moves the clock.
    pub(super) fn tick(&mut self) -> i64 {
        self.now += i64::try_from(self.random.below(3)).unwrap_or(0);
        self.now
    }
}
