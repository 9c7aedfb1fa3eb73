//! Batches: all or none, one place.

use super::{
    Rule,
    payloads::{completed, request, turn},
    scenario::{Checked, Needs, Scenario},
};
use serde_json::{Value, json};

const SECTION: &str = "Batches";

pub(crate) const RULES: &[Rule] = &[
    Rule::new("batch_applied", SECTION, "a batch takes effect whole, each record behind those before it", applied),
    Rule::new("batch_refused", SECTION, "one refusal refuses a batch, and nothing of it is visible", refused),
    Rule::new(
        "batch_takes_numbers",
        SECTION,
        "a refused batch takes a number of its writer's for each record, and of the run's those that were next",
        takes_numbers,
    ),
    Rule::new("batch_shape", SECTION, "a batch is of one writer, its numbers one behind the other", shape),
    Rule::new("batch_positions", SECTION, "the records of a batch stand at one offset, by index from 0", positions),
    Rule::new("batch_repeat", SECTION, "a batch again is a repeat, and so is a record of it sent alone", repeat),
    Rule::new("array_not_atomic", SECTION, "an array is no batch: each record is judged for itself", array),
];

fn applied(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let (arguments, result) = (json!({"n": 1}), json!("done"));
    let mut batch = run.batch(vec![request("book", &arguments), completed("?", &result), turn("a")]);
    let asked = batch.0["payload"]["records"][0]["record_id"].clone();
    batch.0["payload"]["records"][1]["payload"]["request_record_id"] = asked;
    scenario.send(&mut run, &batch)?.applied()?;
    scenario.head(&run)?.has("/records", 3)?;
    scenario.lookup(&run, "book", &arguments)?.has("/status", "completed")?;
    scenario.say(&mut run, turn("b")).map(drop)
}

fn refused(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let mut batch = run.batch(vec![turn("a"), turn("b")]);
    batch.0["payload"]["records"][1]["journal_seq"] = 9.into();
    scenario.send(&mut run, &batch)?.refused("sequence").needs("sequence_next")?;
    scenario.of(&run, "/records", &[])?.problem(404, "not_found")
}

fn takes_numbers(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let mut batch = run.batch(vec![turn("a"), turn("b")]);
    batch.0["payload"]["records"][1]["journal_seq"] = 9.into();
    // What becomes of it is another rule: it takes these numbers applied, too.
    scenario.send(&mut run, &batch)?;
    run.journal_seq = 2;
    let next = run.record(turn("c"));
    let answer = scenario.send(&mut run, &next)?;
    answer.that(answer.at("/reason") != "gap", "no gap").needs("refusal_consumes_writer_seq")?;
    answer.that(answer.at("/reason") != "sequence", "the next number").needs("refusal_consumes_journal_seq")?;
    answer.applied().map(drop)
}

fn shape(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let mut batch = run.batch(vec![turn("a"), turn("b")]);
    batch.0["payload"]["records"][1]["writer_seq"] = 6.into();
    scenario.send(&mut run, &batch)?.refused("batch").map(drop)
}

fn positions(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let batch = run.batch(vec![turn("a"), turn("b"), turn("c")]);
    let sent = scenario.send(&mut run, &batch)?.applied()?;
    let shown = scenario.of(&run, "/records", &[])?;
    let whole = shown.list("/records").is_ok_and(|records| records.len() == 3);
    shown.that(whole, "three records").needs("batch_applied")?;
    for index in 0..3 {
        shown.has(&format!("/records/{index}/position/index"), index)?;
        shown.has(&format!("/records/{index}/position/offset"), sent.at("/position/offset").clone())?;
    }
    Ok(())
}

fn repeat(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let batch = run.batch(vec![turn("a"), turn("b")]);
    let first = scenario.send(&mut run, &batch)?.applied()?;
    scenario.send(&mut run, &batch)?.repeats(&first).needs("repeat_of_applied")?;
    let alone: Value = batch.0["payload"]["records"][1].clone();
    let answer = scenario.body(&run, alone.to_string())?.ok()?;
    answer.has("/outcome", "repeat").needs("batch_applied")?;
    answer.has("/position/offset", first.at("/position/offset").clone())?;
    answer.has("/position/index", 1)
}

fn array(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let first = run.record(turn("a")).0;
    let early = run.clone().record(turn("b")).with("writer_seq", 9).with("record_id", "early").0;
    let second = run.record(turn("c")).0;
    let answer = scenario.body(&run, json!([first, early, second]).to_string())?.ok()?;
    run.seen(&answer);
    answer.has("/1/outcome", "refused").needs("gap")?;
    answer.has("/0/outcome", "applied")?;
    answer.has("/2/outcome", "applied")?;
    scenario.head(&run)?.has("/records", 2)
}
