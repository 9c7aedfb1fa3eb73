//! Draws the seeds in which clients of the protocol send batches with results and intents, and skips of batches, of evidence, and of
//! records of writers and publishers. By itself, so that the rest of a plan is the same without them.

use super::{
    Ends, Event, Kind, LETTER, PUBLISHED, RUNS, Step, What,
    letter::{FIRST_LIFE, first_call},
};
use crate::dice::Dice;

/// The purpose that they are drawn for.
const PURPOSE: u64 = 7;

/// Adds them to the events of a seed.
pub(super) fn draw(seed: u64, events: &mut Vec<Event>) {
    let mut dice = Dice::new(seed, PURPOSE);
    if dice.percent(10) {
        let run = if dice.percent(30) { PUBLISHED } else { RUNS + u32::from(dice.percent(50)) };
        let kind = match dice.between(0, 9) {
            _ if run == PUBLISHED => Kind::Turn,
            0..=2 => Kind::Turn,
            3..=6 => Kind::Batch,
            7 => Kind::Claim,
            _ => Kind::Checkpoint,
        };
        events.push(skip(&mut dice, run, kind, 4));
    }
    if !dice.percent(30) {
        return;
    }
    events.push(Event::Batches);
    if dice.percent(50) {
        contradict(&mut dice, events);
        return;
    }
    if dice.percent(50) {
        events.push(skip(&mut dice, LETTER, Kind::Batch, 3));
    }
    let nth = usize::from(dice.percent(30)) + 1;
    events.push(Event::SkipEvidence { run: LETTER, nth, after: dice.between(0, 30_000) });
}

fn skip(dice: &mut Dice, run: u32, kind: Kind, last: u64) -> Event {
    let nth = usize::try_from(dice.between(1, last)).unwrap_or(1);
    let back = usize::from(dice.percent(20));
    Event::SkipApplied { run, kind, nth, back, after: dice.between(0, 8_000) }
}

/// The second process takes the run over while the first one is at work on the first call, whose result becomes evidence that the
/// effect failed. An operator gives the call up during the second attempt, whose result contradicts that. The second process continues,
/// and an operator skips the evidence.
fn contradict(dice: &mut Dice, events: &mut Vec<Event>) {
    let call = first_call(events);
    for event in events.iter_mut() {
        match event {
            Event::Life(life) if life.id == FIRST_LIFE => life.dies = None,
            Event::Life(life) if life.id == FIRST_LIFE + 1 => (life.at, life.dies) = (dice.between(1_500, 3_000), None),
            // A third process would fence the second one.
            Event::Life(life) if life.run == LETTER => life.at = life.at.max(55_000),
            Event::Step(Step { run: LETTER, id, what: What::Call { key, ms, ends, .. }, .. }) if Some(*id) == call => {
                (*key, *ms, *ends) = (false, dice.between(4_000, 9_000), Ends::Failed);
            }
            _ => {}
        }
    }
    let (after, skips_after) = (dice.between(0, 6_000), dice.between(5_000, 20_000));
    events.push(Event::GiveUp { run: LETTER, nth: 1, after, skips_after });
}
