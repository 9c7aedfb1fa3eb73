//! Removes the unneeded parts of a failing plan.

use crate::{
    plan::Plan,
    world::{Came, run},
};

/// The maximum of runs.
const RUNS_MAX: usize = 400;

/// A failure without its numbers: a plan with fewer steps may fail for another reason.
fn kind(came: &Came) -> Option<String> {
    Some(came.failures.first()?.chars().filter(|c| !c.is_ascii_digit()).collect())
}

/// The smallest plan found that fails in the same way, and its result. `None` if the plan does not fail.
pub fn shrink(plan: &Plan) -> Option<(Plan, Came)> {
    let (mut least, mut came) = (plan.clone(), run(plan).ok()?);
    let wanted = kind(&came)?;
    let fails = |plan: &Plan| run(plan).ok().filter(|came| kind(came).as_ref() == Some(&wanted));
    let (mut size, mut runs) = (least.events.len().div_ceil(2).max(1), 0);
    loop {
        let (mut at, mut shrunk) = (0, false);
        while at < least.events.len() && runs < RUNS_MAX {
            let mut fewer = least.clone();
            fewer.events.drain(at..(at + size).min(least.events.len()));
            runs += 1;
            match fails(&fewer) {
                Some(failed) => (least, came, shrunk) = (fewer, failed, true),
                None => at += size,
            }
        }
        if runs >= RUNS_MAX || (size == 1 && !shrunk) {
            return Some((least, came));
        }
        size = size.div_ceil(2);
    }
}

/// The story of a failing plan, shrunk.
pub fn shrunk_story(plan: &Plan) -> String {
    let Some((least, came)) = shrink(plan) else { return format!("seed {} does not fail again", plan.seed) };
    let events: Vec<String> = least.events.iter().map(|event| format!("  {event}")).collect();
    let (count, events, story) = (events.len(), events.join("\n"), came.story.join("\n"));
    format!("seed {}, shrunk to {count} events:\n{events}\n\n{story}\n\n{}", plan.seed, came.failures.join("\n"))
}
