//! Valid time: what holds at a time, as records state it.

use super::{
    Rule,
    payloads::{request, retraction, turn},
    scenario::{Checked, Needs, Scenario},
};
use serde_json::json;

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    Rule::new("valid_time", SECTION, "a fact holds from its valid time on; the latest statement counts", valid_time),
    Rule::new("facts_of_family", SECTION, "facts of a family are that family's", of_family),
    Rule::new("retraction", SECTION, "a retraction ends a fact from its valid time on", retracted),
    Rule::new("assert_wins", SECTION, "at the same valid time an assertion wins over a retraction", assert_wins),
    Rule::new("retraction_of_later", SECTION, "a retraction of what is said behind it says nothing", of_later),
    Rule::new("decision_states", SECTION, "a decision that ends a call states that of it", decision_states),
];

fn valid_time(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let first = run.record(turn("m")).valid(20);
    scenario.send(&mut run, &first)?.applied()?;
    // Said later, of an earlier time.
    let second = run.record(turn("m")).valid(10);
    scenario.send(&mut run, &second)?.applied()?;
    scenario.facts(&run, 5)?.lists("/facts", "record_id", &[])?;
    scenario.facts(&run, 15)?.lists("/facts", "record_id", &[second.id()])?;
    scenario.facts(&run, 20)?.lists("/facts", "record_id", &[first.id()])
}

fn of_family(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let said = scenario.say(&mut run, turn("m"))?;
    let asked = scenario.say(&mut run, request("book", &json!({"seat": 1})))?;
    for (family, id) in [("conversation_turn", said), ("tool_call", asked)] {
        let answer = scenario.of(&run, "/facts", &[("family", family), ("at", "2026-11-22T01:00:00Z")])?.ok()?;
        answer.lists("/facts", "record_id", &[&id])?;
    }
    Ok(())
}

/// A turn that holds from 10 on, and its retraction.
fn retract(scenario: &mut Scenario<'_>, from: u64) -> Checked<(super::run::Run, String)> {
    let mut run = scenario.run();
    let said = run.record(turn("m")).valid(10);
    scenario.send(&mut run, &said)?.applied()?;
    let taken_back = run.unclaimed(retraction(said.id())).invalid(from);
    scenario.send(&mut run, &taken_back)?.applied().needs("unclaimed_kind")?;
    Ok((run, said.id().to_owned()))
}

fn retracted(scenario: &mut Scenario<'_>) -> Checked {
    let (run, said) = retract(scenario, 20)?;
    scenario.facts(&run, 15)?.lists("/facts", "record_id", &[&said])?;
    scenario.facts(&run, 25)?.lists("/facts", "record_id", &[])
}

fn assert_wins(scenario: &mut Scenario<'_>) -> Checked {
    let (run, said) = retract(scenario, 10)?;
    scenario.facts(&run, 15)?.lists("/facts", "record_id", &[&said])
}

fn of_later(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let early = run.unclaimed(retraction("to-come")).invalid(20);
    scenario.send(&mut run, &early)?.applied().needs("unclaimed_kind")?;
    let said = run.record(turn("m")).with("record_id", "to-come").valid(10);
    scenario.send(&mut run, &said)?.applied()?;
    scenario.facts(&run, 25)?.lists("/facts", "record_id", &["to-come"])
}

fn decision_states(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let asked = run.record(request("book", &json!({"seat": 1}))).valid(10);
    scenario.send(&mut run, &asked)?.applied()?;
    let decided = run.decision(asked.id(), "done", 1, None).valid(20);
    scenario.send(&mut run, &decided)?.applied().needs("unclaimed_kind")?;
    scenario.facts(&run, 15)?.lists("/facts", "record_id", &[asked.id()])?;
    scenario.facts(&run, 25)?.lists("/facts", "record_id", &[decided.id()])
}
