//! Draws the seeds with tokens, and the deeds of an intruder. By itself, so that the rest of a plan is the same without it.

use super::{Deed, Event, FAULTS_END, LETTER};
use crate::dice::Dice;

/// The purpose that they are drawn for.
const PURPOSE: u64 = 6;
/// The purpose that the deeds are drawn for whose records the server or the judge refuses.
const REFUSED: u64 = 8;

/// Adds them to the events of a seed.
pub(super) fn draw(seed: u64, events: &mut Vec<Event>) {
    let mut dice = Dice::new(seed, PURPOSE);
    if !dice.percent(25) {
        return;
    }
    events.push(Event::Tokens);
    refused(seed, events);
    if dice.percent(35) {
        return;
    }
    // Handles are known from that version on. A call of a client without a commitment may be ended by each writer.
    let knows_handles = super::checks_starts(seed);
    for _ in 0..dice.between(1, 4) {
        let at = dice.between(1_000, FAULTS_END - 5_000);
        let deed = match dice.between(0, 9) {
            0..=4 if knows_handles => Deed::End { fails: dice.percent(50), in_batch: dice.percent(30) },
            0..=7 => Deed::Clear,
            8 => Deed::Resolve,
            _ => Deed::Skip,
        };
        let of_handle = matches!(deed, Deed::End { .. }) || dice.percent(75);
        let run = if of_handle { u32::from(dice.percent(50)) } else { LETTER };
        events.push(Event::Intrusion { run, at, deed, shows: dice.percent(40) });
    }
}

/// Adds the deeds whose records are refused.
fn refused(seed: u64, events: &mut Vec<Event>) {
    let mut dice = Dice::new(seed, REFUSED);
    for _ in 0..dice.between(0, 2) {
        let at = dice.between(1_000, FAULTS_END - 5_000);
        let deed = if dice.percent(50) {
            Deed::Borrow { clears: dice.percent(50), in_batch: dice.percent(30) }
        } else {
            // Seventeen push another result out.
            let results = u32::try_from(dice.between(17, 20)).unwrap_or(17);
            Deed::Flood { results, after: dice.between(0, 8_000) }
        };
        let run = if dice.percent(75) { u32::from(dice.percent(50)) } else { LETTER };
        events.push(Event::Intrusion { run, at, deed, shows: dice.percent(40) });
    }
}
