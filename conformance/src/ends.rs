//! The end of a run, and the records that may still follow it.

use super::{
    payloads::{
        checkpoint, completed, effect_intent, lifecycle, message, recovery_marker, retraction, terminal_result, turn,
        turn_lifecycle,
    },
    rule::{Rule, rule},
    scenario::Needs,
};
use serde_json::json;

const SECTION: &str = "Judgement";

pub(crate) const RULES: &[Rule] = &[
    rule("ended", SECTION, "after a run's end numbered records are refused").test(|scenario, mut run| {
        scenario.append(&mut run, lifecycle("completed"))?;
        let late = run.record(turn("a"));
        scenario.send(&mut run, &late)?.expect_refused("ended").map(drop)
    }),
    rule("turn_ends_later", SECTION, "the end of a turn may follow the run's end").test(|scenario, mut run| {
        scenario.append(&mut run, lifecycle("completed"))?;
        let ends = turn_lifecycle(&run.id, "completed");
        scenario.append(&mut run, ends).map(drop)
    }),
    rule("follows_the_end", SECTION, "checkpoints, recovery markers and unnumbered records may follow the run's end")
        .test(|scenario, mut run| {
            let id = scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, lifecycle("completed"))?;
            scenario.append(&mut run, checkpoint("c", 2, &[message("hello")]))?;
            scenario.append(&mut run, recovery_marker())?;
            let retracted = run.unclaimed_record(retraction(&id));
            scenario.send(&mut run, &retracted)?.expect_applied().needs("unclaimed_kind").map(drop)
        }),
    rule("marker_ends_run", SECTION, "a terminal result ends the run").test(|scenario, mut run| {
        scenario.append(&mut run, effect_intent("e"))?;
        scenario.append(&mut run, terminal_result("e", "completed"))?;
        scenario.head(&run)?.has("/status", "completed")
    }),
    rule("run_status", SECTION, "a run is open until its terminal record, which sets its status").test(
        |scenario, _| {
            for end in ["completed", "failed", "cancelled"] {
                let mut run = scenario.run();
                scenario.append(&mut run, lifecycle("started"))?;
                scenario.head(&run)?.has("/status", "open")?;
                scenario.append(&mut run, lifecycle(end))?;
                scenario.head(&run)?.has("/status", end)?;
            }
            Ok(())
        },
    ),
    rule("evidence_ended", SECTION, "a result after the run's end is kept as evidence of its effect").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, lifecycle("completed"))?;
            let late = run.record(completed(&request_id, &json!("done")));
            scenario.send(&mut run, &late)?.expect_refused("ended").needs("ended")?;
            let answer = scenario.recovery(&run)?;
            answer.lists("/pending/0/evidence", "record_id", &[late.id()])?;
            answer.has("/pending/0/evidence/0/reason", "ended")
        },
    ),
];
