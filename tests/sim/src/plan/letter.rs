//! Draws the processes that know the protocol alone, and the steps of their run. By itself, so that the rest of a plan is
//! the same without it.

use super::{Ends, Event, FAULTS_END, LETTER, Life, Start, Step, Via, What};
use crate::dice::Dice;

/// The purpose that it is drawn for.
const PURPOSE: u64 = 4;
/// The purpose that [`revoke_permission`] is drawn for.
const REVOKED: u64 = 5;
/// The purpose that [`Event::ReusesClaim`] is drawn for.
const REUSED: u64 = 9;
/// The number of the first of these lives.
pub(super) const FIRST_LIFE: u32 = 50;

/// Adds the run to the events of a seed.
pub(super) fn draw(seed: u64, events: &mut Vec<Event>) {
    let mut dice = Dice::new(seed, PURPOSE);
    let last = steps(&mut dice, events);
    // Some runs are taken over again and again while a call runs.
    let hurried = dice.percent(30);
    for nth in 0..u32::try_from(dice.between(2, 5)).unwrap_or(2) {
        let at = match nth {
            0 => dice.between(0, 500),
            _ if hurried => u64::from(nth) * dice.between(3_000, 12_000),
            _ => dice.between(1_000, FAULTS_END),
        };
        let dies = dice.percent(40).then(|| at + dice.between(500, 30_000));
        let (id, run, start) = (FIRST_LIFE + nth, LETTER, Start::Checkpoint);
        let (buffer, calls, held_bytes) = (0, 1, usize::MAX);
        let (writes, allow_unresolved) = (false, false);
        let via = Via::Protocol;
        events.push(Event::Life(Life {
            id,
            run,
            at,
            dies,
            via,
            buffer,
            calls,
            held_bytes,
            writes,
            allow_unresolved,
            start,
        }));
        for _ in 0..dice.between(0, 3) {
            let step = u32::try_from(dice.between(1, u64::from(last))).unwrap_or_default();
            let polls = u32::try_from(dice.between(1, 20)).unwrap_or_default();
            let ms = if dice.percent(50) { dice.between(50, 4_000) } else { dice.between(4_000, 50_000) };
            events.push(Event::Pause { life: id, step, polls, ms });
        }
    }
    let mut dice = Dice::new(seed, REVOKED);
    if dice.percent(10) {
        revoke_permission(&mut dice, events);
    }
    let mut dice = Dice::new(seed, REUSED);
    if dice.percent(30) {
        let life = FIRST_LIFE + u32::try_from(dice.between(1, 2)).unwrap_or(1);
        events.push(Event::ReusesClaim { life });
    }
}

/// The first process is at work on the first call when the second one takes the run over. The second one opens it once an operator
/// has decided that the call did not happen, and pauses before its attempt. Meanwhile the result of the first process arrives.
fn revoke_permission(dice: &mut Dice, events: &mut Vec<Event>) {
    let (first, second) = (FIRST_LIFE, FIRST_LIFE + 1);
    let mut call = None;
    for event in events.iter_mut() {
        match event {
            Event::Life(life) if life.id == first => life.dies = None,
            Event::Life(life) if life.id == second => (life.at, life.dies) = (dice.between(4_000, 9_000), None),
            Event::Step(Step { run: LETTER, id, what: What::Call { key, ms, ends, .. }, .. }) if call.is_none() => {
                (*key, *ms, *ends) = (false, dice.between(20_000, 35_000), Ends::Failed);
                call = Some(*id);
            }
            _ => {}
        }
    }
    events.extend(call.map(|step| Event::Pause { life: second, step, polls: 0, ms: dice.between(10_000, 30_000) }));
}

/// The number of the first step that is a call.
pub(super) fn first_call(events: &[Event]) -> Option<u32> {
    events.iter().find_map(|event| match event {
        Event::Step(Step { run: LETTER, id, what: What::Call { .. }, .. }) => Some(*id),
        _ => None,
    })
}

/// Draws the steps. Returns the number of the last one.
fn steps(dice: &mut Dice, events: &mut Vec<Event>) -> u32 {
    let mut steps = Vec::new();
    for _ in 0..dice.between(4, 8) {
        if dice.percent(15) {
            steps.push(None);
        }
        let ends = match dice.between(0, 29) {
            0..=1 => Ends::Unknown,
            2..=8 => Ends::Failed,
            _ => Ends::Done,
        };
        let ms = if dice.percent(50) { dice.between(500, 12_000) } else { dice.between(0, 100) };
        steps.push(Some((dice.percent(25), ms, ends)));
    }
    let mut id = 0;
    for step in steps {
        id += 1;
        let what = step.map_or(What::Checkpoint, |(key, ms, ends)| What::Call { key, ms, ends, like: id });
        let think = if dice.percent(30) { dice.between(0, 4_000) } else { dice.between(0, 100) };
        events.push(Event::Step(Step { run: LETTER, id, what, with_next: false, think }));
    }
    if dice.percent(60) {
        id += 1;
        events.push(Event::Step(Step { run: LETTER, id, what: What::End, with_next: false, think: 0 }));
    }
    id
}
