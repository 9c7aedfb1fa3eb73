//! What happens in a seed, as a list: drawn from the seed before anything runs, so that parts of it can be taken out.

use runlog_schemas::schema::{BASIS_SINCE, WRITTEN_BY_DEFAULT};
use std::fmt;

mod draw;
mod stories;

/// Runs of a seed.
pub const RUNS: u32 = 2;
/// Runs that writers write beside them, one for each.
pub const SIDES: u32 = RUNS;
/// Servers over the log.
pub const SERVERS: u32 = 2;
/// No fault begins later, milliseconds.
pub const FAULTS_END: u64 = 60_000;
/// What is added to a step's number to address its second try, and again for each further one.
pub const AGAIN: u32 = 1_000;
/// Tries after the first one that can be addressed.
pub const TRIES_ADDRESSED: u32 = 4;
/// The step under which the first `open` of a life is addressed; the next ones follow.
pub const OPEN: u32 = 10_000;
/// The step under which the first `reopen` of a life is addressed; the next ones follow.
pub const REOPEN: u32 = 20_000;

/// What is added to a life's number to address its own connection to the log.
pub const LINK_OF_LIFE: u32 = 100;

/// All that is chosen for a seed. Delays follow from the seed and from what they delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What happens, in no order.
    pub events: Vec<Event>,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of a run's agent: every process that has the run goes through all of them, in the order of their ids.
    Step(Step),
    /// A process that opens a run.
    Life(Life),
    /// The future of a life's step is dropped when it waits after so many polls. The life goes on with the same handle.
    Cut { life: u32, step: u32, polls: u32 },
    /// The same, when its effect has begun and the future waits after so many polls since then.
    CutInEffect { life: u32, step: u32, polls: u32 },
    /// So many milliseconds after a life has begun several steps at a time, one of them this one, it saves its state as of before
    /// the calls that are in flight then.
    Autosave { life: u32, step: u32, after: u64 },
    /// The process of a life stands still before this poll of a step.
    Pause { life: u32, step: u32, polls: u32, ms: u64 },
    /// What becomes of the nth append to the log.
    Append { nth: u64, fate: Fate },
    /// What becomes of the first append of a run's end by a process that appends straight to the log.
    AppendOfEnd { run: u32, fate: Fate },
    /// What becomes of the nth request to a server.
    Request { nth: u64, fault: RequestFault },
    /// Another server gets the requests from then on.
    Switch { at: u64 },
    /// So many requests in a hundred go to any server.
    Mixed { percent: u64 },
    /// A server is killed, and started again on its folder.
    Restart { server: u32, at: u64, ms: u64 },
    /// A server reads nothing from the log.
    Held { server: u32, at: u64, ms: u64 },
    /// A server reads from a leader that is deposed: it sees nothing that is newer, and is told that this is the end.
    Deposed { server: u32, at: u64, ms: u64 },
    /// The same, from when a life begins a step.
    DeposedAt { server: u32, life: u32, step: u32, ms: u64 },
    /// A server reads from a leader that lacks the last records that the server has read: it is told an end before them.
    Behind { server: u32, at: u64, ms: u64, records: u64 },
    /// A server's reader fails for good.
    ReaderFails { server: u32, at: u64 },
    /// A server panics while it commits a record, or once it has voided the record that stopped a partition.
    Panics { server: u32, at: u64, voided: bool },
    /// The queue to the log of a server, or of a life with a connection of its own, is full: it refuses every append.
    Full { server: u32, at: u64, ms: u64 },
    /// Two clients without a handle claim a run at the same time.
    Claims { run: u32, at: u64 },
    /// A record of a schema that nobody knows lands: its partition stops until an operator skips it.
    Poison { partition: u32, at: u64 },
    /// Bytes land that are no record.
    Garbage { partition: u32, at: u64 },
    /// The log deletes the start of a partition that all servers have applied.
    Truncated { partition: u32, at: u64 },
    /// A server refuses every request for now.
    Overloaded { server: u32, at: u64, ms: u64 },
    /// A server admits so many appends at the same time.
    Admits { server: u32, appends: usize },
}

/// A step of a run's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The run.
    pub run: u32,
    /// Its number within the run; it stays when others are taken out.
    pub id: u32,
    /// What it is.
    pub what: What,
    /// It is under way at the same time as the next one.
    pub with_next: bool,
    /// How long the agent thinks before it, milliseconds.
    pub think: u64,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call with an effect of so many milliseconds, and with the arguments of the call at step `like`: its own step, or an
    /// earlier one that ended before it begins.
    Call { key: bool, ms: u64, ends: Ends, like: u32 },
    /// A call under the key of the call at step `of`, with other arguments.
    Misuse { of: u32 },
    /// A message of the conversation.
    Turn,
    /// A record with an id of the agent's, its own or that of the step `of`; every process writes the same one.
    Record { of: u32 },
    /// Two records that are applied together: one of its own, and the last record again, if there is one.
    Batch { again: Option<u32> },
    /// Two records that are to be applied together, the second of them under the id of the record at step `of`, with other
    /// content.
    Spoiled { of: u32 },
    /// Checkpoints that cover less than what the process opened with are hidden.
    Prune,
    /// The agent saves which steps are done, so that whoever resumes does not go through them again.
    Checkpoint,
    /// The handle confirms what it has written.
    Flush,
    /// The run ends.
    End,
}

/// How an effect ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// It happens, with a result.
    Done,
    /// It fails, finally.
    Failed,
    /// It happens, and the process does not learn of it.
    Unknown,
}

/// A process that opens a run and goes through its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its number.
    pub id: u32,
    /// The run.
    pub run: u32,
    /// When it begins.
    pub at: u64,
    /// When it is killed.
    pub dies: Option<u64>,
    /// How its records reach the log.
    pub via: Via,
    /// Records of its that may be under way at the same time.
    pub buffer: usize,
    /// Calls of its that may be in flight at the same time.
    pub calls: usize,
    /// Bytes of results that it may hold.
    pub held_bytes: usize,
    /// Whether it writes records of another run beside, over the same connection.
    pub writes: bool,
    /// Whether it runs new effects while an older one is unresolved.
    pub allow_unresolved: bool,
    /// Where its agent begins.
    pub start: Start,
}

/// Where an agent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the steps that the run's last checkpoint says are done.
    Checkpoint,
    /// At the first step, by opening the run from its start.
    Run,
    /// At the first step: it does not read what the run was recovered to.
    Unread,
}

/// How a life's records reach the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Through a server.
    Server,
    /// Over its own connection to the log, as `kafka:` does. Servers answer its questions.
    Log,
}

/// What becomes of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing lands, and the writer is told so.
    Refused,
    /// It lands, and the writer is told after so many milliseconds that this is unknown.
    Unknown { after: u64 },
    /// It does not land, and the writer is told after so many milliseconds that this is unknown.
    Lost { after: u64 },
    /// The writer is told that it is unknown; later it lands, unless another append of the same writer was faster.
    Late { after: u64, lands: u64 },
    /// It lands, and the writer is told so late that nobody waits.
    Silent,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// There is no connection.
    Refused,
    /// It never reaches the server; the client learns after so many milliseconds that the connection is gone.
    Lost { after: u64 },
    /// The server answers, and the connection is gone before the answer arrives.
    AnswerLost,
    /// The connection is gone after so many milliseconds; the server drops the request where it is.
    Dropped { after: u64 },
    /// The client hears nothing; the server goes on.
    Silent,
}

impl Plan {
    /// The same without any fault: one process for each run.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.events.retain(|event| match event {
            Event::Step(step) => !matches!(step.what, What::Call { ends: Ends::Unknown, .. }),
            Event::Life(life) => life.id == 0 && life.dies.is_none(),
            _ => false,
        });
        self
    }

    /// The schema version up to which servers write: every second seed has one in which the judge checks attempts.
    pub fn write_schema(&self) -> u16 {
        if self.seed.is_multiple_of(2) { WRITTEN_BY_DEFAULT } else { BASIS_SINCE }
    }

    /// How many appends a server admits at the same time.
    pub fn appends_max(&self, server: u32) -> Option<usize> {
        self.events.iter().find_map(|event| match event {
            Event::Admits { server: of, appends } if *of == server => Some(*appends),
            _ => None,
        })
    }

    /// A run's steps, in order.
    pub fn steps(&self, run: u32) -> Vec<Step> {
        let of_run = |event: &Event| match event {
            Event::Step(step) if step.run == run => Some(*step),
            _ => None,
        };
        let mut steps: Vec<Step> = self.events.iter().filter_map(of_run).collect();
        steps.sort_by_key(|step| step.id);
        steps
    }

    /// The processes.
    pub fn lives(&self) -> Vec<Life> {
        let life = |event: &Event| if let Event::Life(life) = event { Some(*life) } else { None };
        self.events.iter().filter_map(life).collect()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
