//! The end of a run, and what may still follow it.

use super::{
    Rule,
    payloads::{
        checkpoint, completed, effect_intent, lifecycle, message, recovery_marker, retraction, terminal_result, turn,
        turn_lifecycle,
    },
    site::{Checked, Needs, Site},
};
use serde_json::json;

const SECTION: &str = "Judgement";

pub(super) const RULES: &[Rule] = &[
    Rule::new("ended", SECTION, "behind a run's end nothing numbered follows", ended),
    Rule::new("turn_ends_later", SECTION, "the end of a turn may follow the run's end", turn_ends_later),
    Rule::new(
        "follows_the_end",
        SECTION,
        "checkpoints, recovery markers and what is not numbered may follow it",
        follows,
    ),
    Rule::new("marker_ends_run", SECTION, "a terminal result ends the run", marker),
    Rule::new("run_status", SECTION, "a run is open until its terminal record says how it ended", status),
    Rule::new("evidence_ended", SECTION, "a result behind the run's end is evidence of its effect", evidence),
];

fn ended(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, lifecycle("completed"))?;
    let late = run.record(turn("a"));
    site.send(&mut run, &late)?.refused("ended").map(drop)
}

fn turn_ends_later(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, lifecycle("completed"))?;
    let ends = turn_lifecycle(&run.id, "completed");
    site.say(&mut run, ends).map(drop)
}

fn follows(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let id = site.say(&mut run, turn("a"))?;
    site.say(&mut run, lifecycle("completed"))?;
    site.say(&mut run, checkpoint("c", 2, &[message("hello")]))?;
    site.say(&mut run, recovery_marker())?;
    let retracted = run.unclaimed(retraction(&id));
    site.send(&mut run, &retracted)?.applied().needs("unclaimed_kind").map(drop)
}

fn marker(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, effect_intent("e"))?;
    site.say(&mut run, terminal_result("e", "completed"))?;
    site.head(&run)?.has("/status", "completed")
}

fn status(site: &mut Site<'_>) -> Checked {
    for end in ["completed", "failed", "cancelled"] {
        let mut run = site.run();
        site.say(&mut run, lifecycle("started"))?;
        site.head(&run)?.has("/status", "open")?;
        site.say(&mut run, lifecycle(end))?;
        site.head(&run)?.has("/status", end)?;
    }
    Ok(())
}

fn evidence(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    site.say(&mut run, lifecycle("completed"))?;
    let late = run.record(completed(&asked, &json!("done")));
    site.send(&mut run, &late)?.refused("ended").needs("ended")?;
    let answer = site.recovery(&run)?;
    answer.lists("/pending/0/evidence", "record_id", &[late.id()])?;
    answer.has("/pending/0/evidence/0/reason", "ended")
}
