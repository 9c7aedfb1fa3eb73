//! The events of a seed, as a list: drawn from the seed before it runs, so that parts of it can be removed.

use runlog_schemas::schema::{BASIS_SINCE, WRITTEN_BY_DEFAULT};
use std::fmt;

mod batches;
mod draw;
mod letter;
mod stories;
mod tokens;

/// Runs of a seed.
pub const RUNS: u32 = 2;
/// Runs that writers write beside them, one for each.
pub const SIDES: u32 = RUNS;
/// The run of the processes that know the protocol alone. Its number follows those of the others.
pub const LETTER: u32 = RUNS + SIDES;
/// The run of the clients that let the server number their records.
pub const PUBLISHED: u32 = LETTER + 1;
/// Servers over the log.
pub const SERVERS: u32 = 2;
/// No fault begins later, milliseconds.
pub const FAULTS_END: u64 = 60_000;
/// Added to a step's number to address its second try, and again for each further one.
pub const AGAIN: u32 = 1_000;
/// Addressable tries after the first one.
pub const TRIES_ADDRESSED: u32 = 4;
/// The step under which the first `open` of a life is addressed; the next ones follow.
pub const OPEN: u32 = 10_000;
/// The step under which the first `reopen` of a life is addressed; the next ones follow.
pub const REOPEN: u32 = 20_000;

/// Added to a life's number to address its own connection to the log.
pub const LINK_OF_LIFE: u32 = 100;

/// All choices for a seed. Delays follow from the seed and from the delayed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The events, in no order.
    pub events: Vec<Event>,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of a run's agent: every process that has the run goes through all of them, in the order of their ids.
    Step(Step),
    /// A process that opens a run.
    Life(Life),
    /// Drops the future of a life's step when it waits after so many polls. The life continues with the same handle.
    Cut { life: u32, step: u32, polls: u32 },
    /// The same, when its effect has begun and the future waits after so many polls since then.
    CutInEffect { life: u32, step: u32, polls: u32 },
    /// So many milliseconds after a life has begun several steps at a time, one of them this one, it saves its state as of before
    /// the calls that are in flight then.
    Autosave { life: u32, step: u32, after: u64 },
    /// The process of a life pauses before this poll of a step.
    Pause { life: u32, step: u32, polls: u32, ms: u64 },
    /// The same, and so many milliseconds after the pause begins a client without a handle claims the run.
    ClaimedInPause { life: u32, step: u32, polls: u32, ms: u64, after: u64 },
    /// The fate of the nth append to the log.
    Append { nth: u64, fate: Fate },
    /// The fate of the first append of a run's end by a process that appends straight to the log.
    AppendOfEnd { run: u32, fate: Fate },
    /// The fate of the nth request to a server.
    Request { nth: u64, fault: RequestFault },
    /// Routes the requests to another server from then on.
    Switch { at: u64 },
    /// So many requests in a hundred go to any server.
    Mixed { percent: u64 },
    /// A server is killed, and started again on its folder.
    Restart { server: u32, at: u64, ms: u64 },
    /// A server reads nothing from the log.
    Held { server: u32, at: u64, ms: u64 },
    /// A server reads from a deposed leader: it sees no newer records and takes the current end for the log's end.
    Deposed { server: u32, at: u64, ms: u64 },
    /// The same, from when a life begins a step.
    DeposedAt { server: u32, life: u32, step: u32, ms: u64 },
    /// A server reads from a leader that lacks the last records that the server has read, and sees an end before
    /// them.
    Behind { server: u32, at: u64, ms: u64, records: u64 },
    /// A server's reader fails for good.
    ReaderFails { server: u32, at: u64 },
    /// A server panics while it commits a record, or once it has voided the record that stopped a partition.
    Panics { server: u32, at: u64, voided: bool },
    /// The queue to the log of a server, or of a life with a connection of its own, is full: it refuses every append.
    Full { server: u32, at: u64, ms: u64 },
    /// Two clients without a handle claim a run at the same time.
    Claims { run: u32, at: u64 },
    /// A record with an unknown schema lands: its partition stops until an operator skips it.
    Poison { partition: u32, at: u64 },
    /// Bytes land that are no record.
    Garbage { partition: u32, at: u64 },
    /// The log deletes the records at a partition's start that all servers have applied.
    Truncated { partition: u32, at: u64 },
    /// A server refuses every request for now.
    Overloaded { server: u32, at: u64, ms: u64 },
    /// Another log is a mirror of the log, with a server of its own. Its copier begins at `from`, and pauses for at most `lag`
    /// milliseconds.
    Mirror { from: u64, lag: u64 },
    /// The copier of the mirror ends before the log does: the home is lost, and the mirror takes over.
    HomeLost { at: u64 },
    /// So many requests in a hundred go to the mirror's server.
    AsksMirror { at: u64, ms: u64, percent: u64 },
    /// The copier of the mirror copies nothing.
    CopierPauses { at: u64, ms: u64 },
    /// A server admits so many appends at the same time.
    Admits { server: u32, appends: usize },
    /// So many milliseconds after the nth record of a kind was applied in a run, an operator skips the applied record `back` places
    /// before it in the run: 0 is the record itself.
    SkipApplied { run: u32, kind: Kind, nth: usize, back: usize, after: u64 },
    /// Clients of the protocol send some results in a batch with a message, and some intents in a batch with a checkpoint.
    Batches,
    /// So many milliseconds after the nth result of a call of this run was refused as evidence, an operator skips it.
    SkipEvidence { run: u32, nth: usize, after: u64 },
    /// So many milliseconds after a process is at work on the call of this evidence, an operator gives the call up by force. Later they
    /// skip the evidence.
    GiveUp { run: u32, nth: usize, after: u64, skips_after: u64 },
    /// Servers accept tokens: agents may append, and operators may decide and skip.
    Tokens,
    /// A client of the protocol first sends the run's last claim again, if a process has written under it, as a restarted process does
    /// that makes its claim's id of its host and its number.
    ReusesClaim { life: u32 },
    /// A process with the token of an agent acts on a call that another process started, once the run has a pending one. If it claims the
    /// run, it may show a secret that it has guessed.
    Intrusion { run: u32, at: u64, deed: Deed, shows: bool },
}

/// The deed of an intruder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Claims the run and decides by its own knowledge that the call was not started.
    Clear,
    /// Claims the run and records a result of the call.
    End { fails: bool, in_batch: bool },
    /// Decides as an operator does.
    Resolve,
    /// Skips the record that stopped a partition, or the newest record.
    Skip,
    /// Appends a record about the call under the epoch of the process that has the run: a result, or a decision that the call did not
    /// happen; alone, or in a batch.
    Borrow { clears: bool, in_batch: bool },
    /// Claims the run, waits so many milliseconds, and sends so many results of the call that are refused.
    Flood { results: u32, after: u64 },
}

/// The kind of a record that an operator skips although it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An attempt of a pending call.
    Attempt,
    /// A decision about a pending call.
    Decision,
    /// A request of a call.
    Intent,
    /// A claim of the run.
    Claim,
    /// A result of a call.
    Result,
    /// A checkpoint.
    Checkpoint,
    /// A message.
    Turn,
    /// A batch.
    Batch,
}

/// A step of a run's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The run.
    pub run: u32,
    /// Its number within the run; it stays when others are removed.
    pub id: u32,
    /// Its action.
    pub what: What,
    /// It runs concurrently with the next one.
    pub with_next: bool,
    /// How long the agent thinks before it, milliseconds.
    pub think: u64,
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call with an effect of so many milliseconds. It has the arguments of the call at step `like`: its own step,
    /// or an earlier step that ended before it begins.
    Call { key: bool, ms: u64, ends: Ends, like: u32 },
    /// A call under the key of the call at step `of`, with other arguments.
    Misuse { of: u32 },
    /// A message of the conversation.
    Turn,
    /// A record with an id from the agent, its own or the id of step `of`; every process writes the same record.
    Record { of: u32 },
    /// Two records that are applied together: one of its own, and the last record again, if there is one.
    Batch { again: Option<u32> },
    /// Two records that are written together, the second under the id of the record at step `of` with other content.
    Spoiled { of: u32 },
    /// Hides checkpoints that cover less than the opening's checkpoint.
    Prune,
    /// The agent saves which steps are done, so that a later process skips them.
    Checkpoint,
    /// The handle confirms its written records.
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
    /// Its records that may be in flight at the same time.
    pub buffer: usize,
    /// Its calls that may be in flight at the same time.
    pub calls: usize,
    /// Bytes of results that it may hold.
    pub held_bytes: usize,
    /// Whether it also writes records of another run, over the same connection.
    pub writes: bool,
    /// Whether it runs new effects while an older one is unresolved.
    pub allow_unresolved: bool,
    /// Where its agent begins.
    pub start: Start,
}

/// Where an agent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the steps done at the run's last checkpoint.
    Checkpoint,
    /// At the first step, by opening the run from its start.
    Run,
    /// At the first step, without reading the recovery.
    Unread,
}

/// How a life's records reach the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Through a server.
    Server,
    /// Over its own connection to the log, as `kafka:` does. Servers answer its questions.
    Log,
    /// Through a server, by docs/protocol.md and without a handle.
    Protocol,
}

/// The fate of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not land, and the writer gets a refusal.
    Refused,
    /// It lands, and the writer gets an unknown outcome after so many milliseconds.
    Unknown { after: u64 },
    /// It does not land, and the writer gets an unknown outcome after so many milliseconds.
    Lost { after: u64 },
    /// The writer gets an unknown outcome; later it lands, unless another append of the same writer was faster.
    Late { after: u64, lands: u64 },
    /// It lands, and the writer's answer arrives after all callers have left.
    Silent,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// There is no connection.
    Refused,
    /// It never reaches the server; the client learns after so many milliseconds that the connection is gone.
    Lost { after: u64 },
    /// The server answers, and the connection is gone before the answer arrives.
    AnswerLost,
    /// The connection closes after so many milliseconds; the server drops the request at its current await.
    Dropped { after: u64 },
    /// The client gets no answer; the server continues.
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
        if checks_starts(self.seed) { BASIS_SINCE } else { WRITTEN_BY_DEFAULT }
    }

    /// Whether the judge checks attempts, and knows the handle that started a call.
    pub fn checks_starts(&self) -> bool {
        checks_starts(self.seed)
    }

    /// Whether clients of the protocol send batches.
    pub fn has_batches(&self) -> bool {
        self.events.contains(&Event::Batches)
    }

    /// Whether servers accept tokens only.
    pub fn has_tokens(&self) -> bool {
        self.events.contains(&Event::Tokens)
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

fn checks_starts(seed: u64) -> bool {
    !seed.is_multiple_of(2)
}
