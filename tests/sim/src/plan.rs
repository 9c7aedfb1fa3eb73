//! What happens in a seed, as a list: drawn from the seed before anything runs, so that parts of it can be taken out.

use crate::dice::Dice;
use std::fmt;

/// Runs of a seed.
pub const RUNS: u32 = 2;
/// Servers over the log.
pub const SERVERS: u32 = 2;
/// Steps of a run that are calls, at the least.
const CALLS_MIN: u64 = 25;
/// No fault begins later, milliseconds.
pub const FAULTS_END: u64 = 60_000;
/// What is added to a step's number to address its second try.
pub const AGAIN: u32 = 1_000;
/// The step under which the first `open` of a life is addressed; the next ones follow.
pub const OPEN: u32 = 10_000;
/// The step under which the first `reopen` of a life is addressed; the next ones follow.
pub const REOPEN: u32 = 20_000;

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
    /// The process of a life stands still before this poll of a step.
    Pause { life: u32, step: u32, polls: u32, ms: u64 },
    /// What becomes of the nth append to the log.
    Append { nth: u64, fate: Fate },
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
    /// A server's reader fails for good.
    ReaderFails { server: u32, at: u64 },
    /// A server panics while it commits a record.
    Panics { server: u32, at: u64 },
    /// A server's queue to the log is full: it refuses every append.
    Full { server: u32, at: u64, ms: u64 },
    /// Two clients without a handle claim a run at the same time.
    Claims { run: u32, at: u64 },
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
    /// A record with an id of the agent's; every process writes the same one.
    Record,
    /// Two records that are applied together: one of its own, and the last record again, if there is one.
    Batch { again: Option<u32> },
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
    /// Records of its that may be under way at the same time.
    pub buffer: usize,
    /// Whether it runs new effects while an older one is unresolved.
    pub allow_unresolved: bool,
    /// Whether it goes through all steps, and not only through those behind the last checkpoint.
    pub from_start: bool,
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
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let mut events = Vec::new();
        for run in 0..RUNS {
            steps(&mut dice, run, &mut events);
        }
        let mut lives = 0;
        for run in 0..RUNS {
            for nth in 0..dice.between(2, 4) {
                let at = if nth == 0 { dice.between(0, 500) } else { dice.between(1_000, FAULTS_END) };
                let dies = dice.percent(30).then(|| at + dice.between(500, 40_000));
                let buffer = if dice.percent(40) { 1 } else { 4096 };
                let (allow_unresolved, from_start) = (dice.percent(10), dice.percent(25));
                events.push(Event::Life(Life { id: lives, run, at, dies, buffer, allow_unresolved, from_start }));
                cuts(&mut dice, lives, &mut events);
                lives += 1;
            }
        }
        for _ in 0..dice.between(0, 14) {
            events.push(Event::Append { nth: dice.between(8, 250), fate: fate(&mut dice) });
        }
        for _ in 0..dice.between(0, 14) {
            events.push(Event::Request { nth: dice.between(8, 700), fault: request_fault(&mut dice) });
        }
        if dice.percent(50) {
            events.push(Event::Mixed { percent: dice.between(5, 60) });
        }
        for _ in 0..dice.between(0, 3) {
            events.push(Event::Switch { at: dice.between(0, FAULTS_END) });
        }
        if dice.percent(30) {
            let (server, at, ms) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END), dice.between(10, 10_000));
            events.push(Event::Restart { server, at, ms });
            if dice.percent(30) {
                // What it looks up when it starts does not come at once.
                events.push(Event::Held { server, at: at + ms - 5, ms: dice.between(100, 5_000) });
            }
        }
        if dice.percent(20) {
            events.push(Event::ReaderFails { server: u32::from(dice.percent(50)), at: dice.between(0, FAULTS_END) });
        }
        if dice.percent(20) {
            events.push(Event::Panics { server: u32::from(dice.percent(50)), at: dice.between(0, FAULTS_END) });
        }
        if dice.percent(15) {
            let (run, at) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END));
            events.push(Event::Claims { run, at });
        }
        for _ in 0..dice.between(0, 4) {
            let (server, at) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END));
            let ms = dice.between(200, 15_000);
            events.push(match dice.between(0, 2) {
                0 => Event::Held { server, at, ms },
                1 => Event::Deposed { server, at, ms },
                _ => Event::Full { server, at, ms },
            });
        }
        Self { seed, events }
    }

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

fn steps(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let (calls, mut made, mut id) = (dice.between(CALLS_MIN, CALLS_MIN + 5), 0, 0);
    let mut again = None;
    // The last call with a key, and the last one without that nothing was under way with.
    let (mut keyed, mut alone) = (None, None);
    let mut step = |id: &mut u32, what, with_next, think| {
        *id += 1;
        events.push(Event::Step(Step { run, id: *id, what, with_next, think }));
    };
    while made < calls {
        let think = if dice.percent(30) { dice.between(0, 3_000) } else { dice.between(0, 100) };
        match dice.between(0, 19) {
            0 => step(&mut id, What::Turn, false, think),
            1 => step(&mut id, What::Checkpoint, false, think),
            2 => {
                step(&mut id, What::Record, false, think);
                again = Some(id);
            }
            3 if dice.percent(40) => match keyed {
                Some(of) => step(&mut id, What::Misuse { of }, false, think),
                None => step(&mut id, What::Flush, false, think),
            },
            3 if dice.percent(60) => step(&mut id, What::Batch { again }, false, think),
            3 => step(&mut id, What::Flush, false, think),
            _ => {
                let ends = match dice.between(0, 29) {
                    0 => Ends::Unknown,
                    1..=3 => Ends::Failed,
                    _ => Ends::Done,
                };
                let ms = if dice.percent(20) { dice.between(100, 8_000) } else { dice.between(0, 100) };
                let (key, with_next) = (dice.percent(25), dice.percent(20));
                let like = alone.filter(|_| !key && dice.percent(35)).unwrap_or(id + 1);
                step(&mut id, What::Call { key, ms, ends, like }, with_next, think);
                if key {
                    keyed = Some(id);
                } else {
                    alone = (!with_next).then_some(like);
                }
                made += 1;
            }
        }
    }
    if dice.percent(70) {
        // What is under way while the run ends becomes evidence.
        for _ in 0..dice.between(0, 2) {
            let (key, ms, like) = (dice.percent(25), dice.between(0, 6_000), id + 1);
            step(&mut id, What::Call { key, ms, ends: Ends::Done, like }, true, 0);
        }
        step(&mut id, What::End, false, 0);
    }
}

fn cuts(dice: &mut Dice, life: u32, events: &mut Vec<Event>) {
    let step = |dice: &mut Dice| match dice.between(0, 9) {
        0 => OPEN,
        1..=2 => REOPEN + u32::try_from(dice.between(0, 3)).unwrap_or_default(),
        _ => u32::try_from(dice.between(1, 35)).unwrap_or_default(),
    };
    for _ in 0..dice.between(0, 5) {
        let (step, polls) = (step(dice), u32::try_from(dice.between(1, 14)).unwrap_or_default());
        if !(OPEN..REOPEN).contains(&step) {
            events.push(Event::Cut { life, step, polls });
            if step < OPEN && dice.percent(40) {
                // While it settles what it dropped, others may go on.
                let (step, polls) = (AGAIN + step, u32::try_from(dice.between(1, 10)).unwrap_or_default());
                events.push(Event::Pause { life, step, polls, ms: dice.between(4_000, 40_000) });
            }
        }
    }
    for _ in 0..dice.between(0, 3) {
        let (step, polls) = (step(dice), u32::try_from(dice.between(1, 14)).unwrap_or_default());
        let ms = if dice.percent(50) { dice.between(50, 4_000) } else { dice.between(4_000, 50_000) };
        events.push(Event::Pause { life, step, polls, ms });
    }
}

fn fate(dice: &mut Dice) -> Fate {
    let after = dice.between(10, 6_000);
    match dice.between(0, 5) {
        0 => Fate::Refused,
        1..=2 => Fate::Unknown { after },
        3 => Fate::Lost { after },
        4 => {
            // Later appends of the same writer must not be faster.
            let after = dice.between(10, 100);
            Fate::Late { after, lands: after + dice.between(1, 3_000) }
        }
        _ => Fate::Silent,
    }
}

fn request_fault(dice: &mut Dice) -> RequestFault {
    let after = dice.between(1, 6_000);
    match dice.between(0, 5) {
        0 => RequestFault::Refused,
        1 => RequestFault::Lost { after },
        2..=3 => RequestFault::AnswerLost,
        4 => RequestFault::Dropped { after: dice.between(1, 200) },
        _ => RequestFault::Silent,
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
