//! Circumstances that need several events at once, which the single draws rarely combine. Each is drawn by itself, so
//! that the rest of a plan is the same without it.

use super::{AGAIN, Ends, Event, FAULTS_END, Fate, Kind, LETTER, Life, REOPEN, RUNS, Step, Via, What};
use crate::dice::Dice;

/// The purpose that they are drawn for.
const PURPOSE: u64 = 3;

/// Adds some to the events of a seed.
pub(super) fn draw(seed: u64, events: &mut Vec<Event>) {
    let mut dice = Dice::new(seed, PURPOSE);
    for run in 0..RUNS {
        if dice.percent(50) {
            spoil(&mut dice, run, events);
        }
        if dice.percent(50) {
            interrupt_end(&mut dice, run, events);
        }
        if dice.percent(8) {
            interrupt_effect(&mut dice, run, events);
        }
        if dice.percent(10) {
            interrupt_reopening(&mut dice, run, events);
        }
    }
    if dice.percent(15) {
        for _ in 0..dice.between(1, 2) {
            let (server, at, ms) = (coin(&mut dice), dice.between(0, FAULTS_END), dice.between(500, 12_000));
            events.push(Event::Behind { server, at, ms, records: dice.between(1, 4) });
        }
    }
    if dice.percent(10) {
        // For longer than any query may take.
        let (at, ms) = (dice.between(0, FAULTS_END / 2), dice.between(20_000, FAULTS_END / 2));
        events.push(Event::Overloaded { server: coin(&mut dice), at, ms });
    }
    for run in 0..RUNS {
        if dice.percent(30) {
            autosave(&mut dice, run, events);
        }
    }
    for run in (0..RUNS).chain([LETTER]) {
        if dice.percent(10) {
            events.push(skip_applied(&mut dice, run));
        }
    }
    for run in 0..RUNS {
        if dice.percent(40) {
            pause_before_effect(&mut dice, run, events);
        }
    }
    if dice.percent(12) {
        mirrored(&mut dice, events);
    }
}

/// The log is mirrored, and for a while requests go to the server of the mirror, also before it has a record.
fn mirrored(dice: &mut Dice, events: &mut Vec<Event>) {
    let (from, lag) = (dice.between(0, 8_000), dice.between(50, 3_000));
    events.push(Event::Mirror { from, lag });
    for _ in 0..dice.between(2, 4) {
        let (at, ms) = (dice.between(0, FAULTS_END), dice.between(1_000, 12_000));
        events.push(Event::AsksMirror { at, ms, percent: dice.between(20, 100) });
    }
    if dice.percent(50) {
        events.push(Event::CopierPauses { at: dice.between(0, FAULTS_END), ms: dice.between(1_000, 20_000) });
    }
    if dice.percent(50) {
        events.push(Event::HomeLost { at: dice.between(FAULTS_END / 4, FAULTS_END * 2) });
    }
}

fn coin(dice: &mut Dice) -> u32 {
    u32::from(dice.percent(50))
}

fn number(dice: &mut Dice, from: u64, to: u64) -> u32 {
    u32::try_from(dice.between(from, to)).unwrap_or_default()
}

fn pick<T: Copy>(dice: &mut Dice, of: &[T]) -> Option<T> {
    let last = u64::try_from(of.len()).ok()?.checked_sub(1)?;
    of.get(usize::try_from(dice.between(0, last)).ok()?).copied()
}

fn steps(events: &[Event], run: u32) -> Vec<Step> {
    let of_run = |event: &Event| if let Event::Step(step) = event { Some(*step) } else { None };
    events.iter().filter_map(of_run).filter(|step| step.run == run).collect()
}

fn lives(events: &[Event], run: u32) -> Vec<Life> {
    let of_run = |event: &Event| if let Event::Life(life) = event { Some(*life) } else { None };
    events.iter().filter_map(of_run).filter(|life| life.run == run).collect()
}

fn replace(events: &mut [Event], with: Step) {
    let same = |event: &&mut Event| matches!(event, Event::Step(step) if (step.run, step.id) == (with.run, with.id));
    events.iter_mut().filter(same).for_each(|event| *event = Event::Step(with));
}

/// A write becomes a batch that cannot be applied.
fn spoil(dice: &mut Dice, run: u32, events: &mut [Event]) {
    let steps = steps(events, run);
    let Some(of) = steps.iter().find_map(|step| if let What::Record { of } = step.what { Some(of) } else { None })
    else {
        return;
    };
    let written = |step: &&Step| matches!(step.what, What::Turn | What::Flush | What::Batch { .. }) && step.id > of;
    let later: Vec<Step> = steps.iter().filter(written).copied().collect();
    if let Some(step) = pick(dice, &later) {
        replace(events, Step { what: What::Spoiled { of }, ..step });
    }
}

/// The end of a run is dropped, or its append is lost, while a call may be in flight.
fn interrupt_end(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let Some(end) = steps(events, run).into_iter().find(|step| step.what == What::End) else { return };
    let straight = lives(events, run).into_iter().filter(|life| life.via == Via::Log);
    if dice.percent(50) {
        let after = dice.between(10, 1_500);
        let fate = if dice.percent(70) { Fate::Lost { after } } else { Fate::Unknown { after } };
        events.push(Event::AppendOfEnd { run, fate });
    } else {
        straight.for_each(|life| {
            events.push(Event::Cut { life: life.id, step: end.id, polls: number(dice, 1, 8) });
        });
    }
}

/// A call is dropped before its effect begins, and again in the middle of the effect; a server reads from a deposed leader
/// meanwhile, and the requests go to any server.
fn interrupt_effect(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let calls = steps(events, run).into_iter().filter_map(|step| match step.what {
        What::Call { key: false, ends: Ends::Done, like, .. } if !step.with_next => Some((step, like)),
        _ => None,
    });
    let early: Vec<(Step, u32)> = calls.take(10).collect();
    let Some((step, like)) = pick(dice, &early) else { return };
    let what = What::Call { key: false, ms: dice.between(100, 3_000), ends: Ends::Done, like };
    replace(events, Step { what, ..step });
    for Life { id: life, .. } in lives(events, run) {
        events.push(Event::Cut { life, step: step.id, polls: number(dice, 2, 9) });
        for again in 1..=3 {
            let (step, polls) = (again * AGAIN + step.id, number(dice, 1, 2));
            events.push(Event::CutInEffect { life, step, polls });
        }
        let step = number(dice, 1, 2) * AGAIN + step.id;
        events.push(Event::DeposedAt { server: coin(dice), life, step, ms: dice.between(1_000, 8_000) });
    }
    events.push(Event::Mixed { percent: dice.between(40, 100) });
}

/// A call is answered beside a longer one, and meanwhile its process saves the state from before both.
fn autosave(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let steps = steps(events, run);
    let pairs = steps.windows(2).filter(|pair| pair[0].with_next && matches!(pair[1].what, What::Call { .. }));
    let longer: Vec<Step> = pairs.map(|pair| pair[1]).collect();
    let Some(step) = pick(dice, &longer) else { return };
    if let What::Call { key, ends, like, .. } = step.what {
        let ms = dice.between(1_000, 8_000);
        replace(events, Step { what: What::Call { key, ms, ends, like }, ..step });
    }
    for Life { id: life, .. } in lives(events, run) {
        events.push(Event::Autosave { life, step: step.id, after: dice.between(50, 4_000) });
    }
}

/// A process pauses between its intent and its effect, so long that an operator may decide, or while a client claims the run.
fn pause_before_effect(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let calls = steps(events, run).into_iter().filter(|step| matches!(step.what, What::Call { key: false, .. }));
    let early: Vec<Step> = calls.take(12).collect();
    let lives: Vec<Life> = lives(events, run).into_iter().filter(|life| life.via != Via::Protocol).collect();
    let (Some(step), Some(life)) = (pick(dice, &early), pick(dice, &lives)) else { return };
    let (life, step, polls) = (life.id, step.id, number(dice, 1, 8));
    match dice.between(0, 4) {
        // Its operation would end after 40 s, and a process that was silent for 30 s is not active.
        0..=1 => events.push(Event::Pause { life, step, polls, ms: dice.between(28_000, 39_000) }),
        2..=3 => {
            let ms = dice.between(5_000, 15_000);
            events.push(Event::ClaimedInPause { life, step, polls, ms, after: dice.between(0, 500) });
        }
        // Another process takes the run over while this one makes its handle ready again.
        _ => {
            let (step, ms) = (REOPEN + number(dice, 0, 2), dice.between(10_000, 40_000));
            events.push(Event::Pause { life, step, polls: number(dice, 2, 12), ms });
        }
    }
}

/// A record that was applied is skipped. The skip displaces the later records of the run's writers.
fn skip_applied(dice: &mut Dice, run: u32) -> Event {
    let kind = match dice.between(0, 19) {
        0..=8 => Kind::Attempt,
        9..=10 => Kind::Decision,
        11..=13 => Kind::Intent,
        14..=15 => Kind::Claim,
        16..=17 => Kind::Result,
        _ => Kind::Checkpoint,
    };
    let last = match kind {
        Kind::Attempt | Kind::Decision | Kind::Claim => 3,
        Kind::Checkpoint => 4,
        Kind::Intent | Kind::Result | Kind::Turn | Kind::Batch => 20,
    };
    let nth = usize::try_from(dice.between(1, last)).unwrap_or(1);
    let back = if dice.percent(50) { 0 } else { usize::try_from(dice.between(1, 4)).unwrap_or(1) };
    let after = if dice.percent(50) { dice.between(0, 1_000) } else { dice.between(0, 15_000) };
    Event::SkipApplied { run, kind, nth, back, after }
}

/// A call pauses between its intent and its effect, while another call and the following reopening are dropped.
fn interrupt_reopening(dice: &mut Dice, run: u32, events: &mut Vec<Event>) {
    let steps = steps(events, run);
    let calls = |pair: &[Step]| match pair {
        [first, second] if first.with_next => {
            let both = [first, second].into_iter().all(|step| matches!(step.what, What::Call { .. }));
            both.then_some((first.id, second.id))
        }
        _ => None,
    };
    let pairs: Vec<(u32, u32)> = steps.windows(2).filter_map(calls).take(8).collect();
    let Some((first, second)) = pick(dice, &pairs) else { return };
    for Life { id: life, .. } in lives(events, run) {
        events.push(Event::Pause { life, step: first, polls: number(dice, 2, 10), ms: dice.between(100, 3_000) });
        events.push(Event::Cut { life, step: second, polls: number(dice, 2, 10) });
        for nth in 0..2 {
            events.push(Event::Cut { life, step: REOPEN + nth, polls: number(dice, 3, 12) });
        }
    }
}
