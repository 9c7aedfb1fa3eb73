//! Valid time: the facts of a run that hold at a given time.

use super::{
    payloads::{request, retraction, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use serde_json::json;

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    rule(
        "valid_time",
        SECTION,
        "a fact holds from its valid time on; of several facts, the fact with the latest valid time holds",
    )
    .test(|scenario, mut run| {
        let first = run.record(turn("m")).valid(20);
        scenario.send(&mut run, &first)?.expect_applied()?;
        // It is appended later and has an earlier valid time.
        let second = run.record(turn("m")).valid(10);
        scenario.send(&mut run, &second)?.expect_applied()?;
        scenario.facts(&run, 5)?.lists("/facts", "record_id", &[])?;
        scenario.facts(&run, 15)?.lists("/facts", "record_id", &[second.id()])?;
        scenario.facts(&run, 20)?.lists("/facts", "record_id", &[first.id()])
    }),
    rule("facts_of_family", SECTION, "a query by family returns only facts of that family").test(
        |scenario, mut run| {
            let turn_id = scenario.append(&mut run, turn("m"))?;
            let request_id = scenario.append(&mut run, request("book", &json!({"seat": 1})))?;
            for (family, id) in [("conversation_turn", turn_id), ("tool_call", request_id)] {
                let answer =
                    scenario.query_run(&run, "/facts", &[("family", family), ("at", "2026-11-22T01:00:00Z")])?.ok()?;
                answer.lists("/facts", "record_id", &[&id])?;
            }
            Ok(())
        },
    ),
    rule("retraction", SECTION, "a retraction ends a fact from its valid time on").test(|scenario, run| {
        let (run, turn_id) = retract(scenario, run, 20)?;
        scenario.facts(&run, 15)?.lists("/facts", "record_id", &[&turn_id])?;
        scenario.facts(&run, 25)?.lists("/facts", "record_id", &[])
    }),
    rule("assert_wins", SECTION, "at the same valid time an assertion wins over a retraction").test(|scenario, run| {
        let (run, turn_id) = retract(scenario, run, 10)?;
        scenario.facts(&run, 15)?.lists("/facts", "record_id", &[&turn_id])
    }),
    rule("retraction_of_later", SECTION, "a retraction has no effect on a record that follows it in the log").test(
        |scenario, mut run| {
            let early = run.unclaimed_record(retraction("to-come")).invalid(20);
            scenario.send(&mut run, &early)?.expect_applied().needs("unclaimed_kind")?;
            let stated = run.record(turn("m")).with("record_id", "to-come").valid(10);
            scenario.send(&mut run, &stated)?.expect_applied()?;
            scenario.facts(&run, 25)?.lists("/facts", "record_id", &["to-come"])
        },
    ),
    rule("decision_states", SECTION, "a decision that ends a call replaces the call's fact from its valid time on")
        .test(|scenario, mut run| {
            let requested = run.record(request("book", &json!({"seat": 1}))).valid(10);
            scenario.send(&mut run, &requested)?.expect_applied()?;
            let decided = run.decision(requested.id(), "done", 1, None).valid(20);
            scenario.send(&mut run, &decided)?.expect_applied().needs("unclaimed_kind")?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.has("/status", "completed").needs("resolved_done")?;
            scenario.facts(&run, 15)?.lists("/facts", "record_id", &[requested.id()])?;
            scenario.facts(&run, 25)?.lists("/facts", "record_id", &[decided.id()])
        }),
];

/// Appends a turn that is valid from second 10 on, and its retraction from second `from` on.
fn retract(scenario: &mut Scenario<'_>, mut run: Run, from: u64) -> Checked<(Run, String)> {
    let stated = run.record(turn("m")).valid(10);
    scenario.send(&mut run, &stated)?.expect_applied()?;
    let retracted = run.unclaimed_record(retraction(stated.id())).invalid(from);
    scenario.send(&mut run, &retracted)?.expect_applied().needs("unclaimed_kind")?;
    Ok((run, stated.id().to_owned()))
}
