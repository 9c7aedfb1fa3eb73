//! Draws a plan from its seed.

use super::{
    AGAIN, Ends, Event, FAULTS_END, Fate, LINK_OF_LIFE, Life, OPEN, Plan, REOPEN, RUNS, RequestFault, SERVERS, Start,
    Step, Via, What, batches, letter, stories, tokens,
};
use crate::dice::Dice;

/// The minimum of calls among a run's steps.
const CALLS_MIN: u64 = 25;
/// The minimum for a short run, which ends while faults begin.
const CALLS_SHORT_MIN: u64 = 4;

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let mut events = Vec::new();
        let lasts: Vec<u32> = (0..RUNS).map(|run| steps(&mut dice, run, &mut events)).collect();
        let mut lives = 0;
        for (run, last) in (0..RUNS).zip(lasts) {
            for nth in 0..dice.between(2, 4) {
                let at = if nth == 0 { dice.between(0, 500) } else { dice.between(1_000, FAULTS_END) };
                let dies = dice.percent(30).then(|| at + dice.between(500, 40_000));
                let life = life(&mut dice, lives, run, (at, dies));
                events.push(Event::Life(life));
                cuts(&mut dice, lives, last, &mut events);
                if life.via == Via::Log && dice.percent(30) {
                    let (at, ms) = (at + dice.between(0, 20_000), dice.between(200, 8_000));
                    events.push(Event::Full { server: LINK_OF_LIFE + lives, at, ms });
                }
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
                // Its first reads at the start are delayed.
                events.push(Event::Held { server, at: at + ms - 5, ms: dice.between(100, 5_000) });
            }
        }
        if dice.percent(20) {
            events.push(Event::ReaderFails { server: u32::from(dice.percent(50)), at: dice.between(0, FAULTS_END) });
        }
        if dice.percent(20) {
            let (server, at) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END));
            events.push(Event::Panics { server, at, voided: false });
        }
        if dice.percent(15) {
            let (run, at) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END));
            events.push(Event::Claims { run, at });
        }
        troubles(&mut dice, &mut events);
        for _ in 0..dice.between(0, 4) {
            let (server, at) = (u32::from(dice.percent(50)), dice.between(0, FAULTS_END));
            let ms = dice.between(200, 15_000);
            events.push(match dice.between(0, 2) {
                0 => Event::Held { server, at, ms },
                1 => Event::Deposed { server, at, ms },
                _ => Event::Full { server, at, ms },
            });
        }
        stories::draw(seed, &mut events);
        letter::draw(seed, &mut events);
        tokens::draw(seed, &mut events);
        batches::draw(seed, &mut events);
        Self { seed, events }
    }
}

/// Draws the steps of a run. Returns the number of the last one.
fn steps(dice: &mut Dice, run: u32, events: &mut Vec<Event>) -> u32 {
    let calls_min = if dice.percent(30) { CALLS_SHORT_MIN } else { CALLS_MIN };
    let (calls, mut made, mut id) = (dice.between(calls_min, calls_min + 5), 0, 0);
    let mut again = None;
    // The last call with a key, and the last one without a key that ran alone.
    let (mut keyed, mut alone) = (None, None);
    let mut step = |id: &mut u32, what, with_next, think| {
        *id += 1;
        events.push(Event::Step(Step { run, id: *id, what, with_next, think }));
    };
    while made < calls {
        let think = if dice.percent(30) { dice.between(0, 3_000) } else { dice.between(0, 100) };
        match dice.between(0, 19) {
            0 => step(&mut id, What::Turn, false, think),
            1 if dice.percent(20) => step(&mut id, What::Prune, false, think),
            1 => step(&mut id, What::Checkpoint, false, think),
            2 => {
                let of = again.filter(|_| dice.percent(40)).unwrap_or(id + 1);
                step(&mut id, What::Record { of }, false, think);
                again = Some(of);
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
        // A call in flight at the run's end becomes evidence.
        for _ in 0..dice.between(0, 2) {
            let (key, ms, like) = (dice.percent(25), dice.between(0, 6_000), id + 1);
            step(&mut id, What::Call { key, ms, ends: Ends::Done, like }, true, 0);
        }
        step(&mut id, What::End, false, 0);
    }
    id
}

fn life(dice: &mut Dice, id: u32, run: u32, (at, dies): (u64, Option<u64>)) -> Life {
    let via = if dice.percent(35) { Via::Log } else { Via::Server };
    let buffer = if dice.percent(40) { 1 } else { 4096 };
    let calls = if dice.percent(20) { usize::try_from(dice.between(1, 2)).unwrap_or(1) } else { 256 };
    let held_bytes = if dice.percent(15) { 1 } else { 64 << 20 };
    let (writes, allow_unresolved) = (dice.percent(50), dice.percent(10));
    let start = match dice.between(0, 7) {
        0 => Start::Run,
        1 => Start::Unread,
        _ => Start::Checkpoint,
    };
    Life { id, run, at, dies, via, buffer, calls, held_bytes, writes, allow_unresolved, start }
}

/// Draws faults of partitions, and servers that admit little.
fn troubles(dice: &mut Dice, events: &mut Vec<Event>) {
    let partition = |dice: &mut Dice| u32::from(dice.percent(50));
    if dice.percent(25) {
        events.push(Event::Poison { partition: partition(dice), at: dice.between(2_000, FAULTS_END) });
        if dice.percent(40) {
            events.push(Event::Panics { server: u32::from(dice.percent(50)), at: 0, voided: true });
        }
    }
    if dice.percent(15) {
        events.push(Event::Garbage { partition: partition(dice), at: dice.between(2_000, FAULTS_END) });
    }
    if dice.percent(15) {
        events.push(Event::Truncated { partition: partition(dice), at: dice.between(2_000, FAULTS_END) });
    }
    for server in 0..SERVERS {
        if dice.percent(15) {
            let appends = usize::try_from(dice.between(1, 2)).unwrap_or(1);
            events.push(Event::Admits { server, appends });
        }
    }
}

/// Draws faults of the operations of a life whose run has `last` steps.
fn cuts(dice: &mut Dice, life: u32, last: u32, events: &mut Vec<Event>) {
    let step = |dice: &mut Dice| match dice.between(0, 9) {
        0 => OPEN,
        1..=2 => REOPEN + u32::try_from(dice.between(0, 3)).unwrap_or_default(),
        // Usually the end of the run.
        3 => last,
        _ => u32::try_from(dice.between(1, u64::from(last))).unwrap_or_default(),
    };
    for _ in 0..dice.between(0, 5) {
        let (step, polls) = (step(dice), u32::try_from(dice.between(1, 14)).unwrap_or_default());
        if !(OPEN..REOPEN).contains(&step) {
            events.push(Event::Cut { life, step, polls });
            if step < OPEN && dice.percent(40) {
                // While it settles the dropped operation, others may continue.
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
