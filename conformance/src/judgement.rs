//! How a record is judged: repeat, fenced, gap, conflict, content.

use super::{
    Rule,
    payloads::{checkpoint, completed, lifecycle, message, retraction, turn},
    scenario::{Checked, Needs, Scenario},
};
use serde_json::json;

const SECTION: &str = "Judgement";

pub(crate) const RULES: &[Rule] = &[
    Rule::new(
        "repeat_of_applied",
        SECTION,
        "a record again, same content: its first position, no effect",
        repeat_of_applied,
    ),
    Rule::new(
        "repeat_of_refused",
        SECTION,
        "what was refused for its content, again: refused as it was, once",
        repeat_of_refused,
    ),
    Rule::new("repeat_consumes", SECTION, "a repeat with the writer's next number takes it", repeat_consumes),
    Rule::new("repeat_of_other_epoch", SECTION, "a repeat of another epoch takes no number", repeat_of_other_epoch),
    Rule::new("fenced_unclaimed", SECTION, "before any claim only epoch 0 writes", fenced_unclaimed),
    Rule::new("fenced_writer", SECTION, "behind a claim only its epoch and writer write", fenced_writer),
    Rule::new("gap", SECTION, "a writer_seq beyond the next is a gap", gap),
    Rule::new(
        "conflict_number",
        SECTION,
        "a writer_seq that was taken, with another record, is a conflict",
        conflict_number,
    ),
    Rule::new("conflict_id", SECTION, "a record_id that is known, with other content, is a conflict", conflict_id),
    Rule::new("order_of_judgement", SECTION, "fenced comes before gap, conflict before content", order),
    Rule::new(
        "place_refusal_again",
        SECTION,
        "refused for its place: takes no number, and is judged anew",
        place_refusal_again,
    ),
    Rule::new(
        "refusal_consumes_writer_seq",
        SECTION,
        "refused for its content: takes the writer's number",
        takes_writer_seq,
    ),
    Rule::new(
        "refusal_consumes_journal_seq",
        SECTION,
        "refused for its content: takes the run's number",
        takes_journal_seq,
    ),
    Rule::new("unclaimed_kind", SECTION, "kinds that need no claim are not judged by their place", unclaimed_kind),
    Rule::new("sequence_next", SECTION, "a numbered record carries the run's next journal_seq", sequence_next),
    Rule::new("sequence_unnumbered", SECTION, "a record that is not numbered carries 0", sequence_unnumbered),
    Rule::new("started_once", SECTION, "a run starts once", started_once),
    Rule::new(
        "refusal_in_anomalies",
        SECTION,
        "a refusal is an anomaly: record, reason, writer, position",
        in_anomalies,
    ),
    Rule::new("refusal_has_no_effect", SECTION, "a refusal is in no other answer", no_effect),
];

fn repeat_of_applied(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a"));
    let first = scenario.send(&mut run, &record)?.applied()?;
    scenario.send(&mut run, &record)?.repeats(&first)?;
    scenario.head(&run)?.has("/records", 1)
}

fn repeat_of_refused(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let wrong = run.record(turn("a")).with("journal_seq", 9);
    let first = scenario.send(&mut run, &wrong)?.refused("sequence").needs("sequence_next")?;
    scenario.send(&mut run, &wrong)?.repeats(&first)
}

fn repeat_consumes(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a"));
    scenario.send(&mut run, &record)?.applied()?;
    // The same under the next number; what becomes of it is another rule.
    scenario.send(&mut run, &record.with("writer_seq", 2))?;
    run.writer_seq = 3;
    scenario.say(&mut run, turn("b")).map(drop)
}

fn repeat_of_other_epoch(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.claim(&mut run, "one")?;
    let record = run.record(turn("a"));
    scenario.send(&mut run, &record)?.applied()?;
    scenario.claim(&mut run, "two")?;
    scenario.send(&mut run, &record)?;
    scenario.say(&mut run, turn("b")).map(drop)
}

fn fenced_unclaimed(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a")).with("writer_epoch", 3);
    scenario.send(&mut run, &record)?.refused("fenced").map(drop)
}

fn fenced_writer(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.claim(&mut run, "one")?;
    let other = run.clone().record(turn("a")).with("writer_id", "two");
    scenario.send(&mut run, &other)?.refused("fenced")?;
    let earlier = run.clone().record(turn("b")).with("writer_epoch", 0);
    scenario.send(&mut run, &earlier)?.refused("fenced").map(drop)
}

fn gap(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a")).with("writer_seq", 2);
    scenario.send(&mut run, &record)?.refused("gap").map(drop)
}

fn conflict_number(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, turn("a"))?;
    let other = run.record(turn("b")).with("writer_seq", 1);
    scenario.send(&mut run, &other)?.refused("conflict").map(drop)
}

fn conflict_id(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let id = scenario.say(&mut run, turn("a"))?;
    let other = run.record(turn("b")).with("record_id", id);
    scenario.send(&mut run, &other)?.refused("conflict").map(drop)
}

fn order(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let both = run.clone().record(turn("a")).with("writer_epoch", 3).with("writer_seq", 5);
    scenario.send(&mut run, &both)?.refused("fenced").needs("fenced_unclaimed")?;
    let id = scenario.say(&mut run, turn("b"))?;
    let both = run.record(turn("c")).with("record_id", id).with("journal_seq", 9);
    scenario.send(&mut run, &both)?.refused("conflict").needs("conflict_id").map(drop)
}

fn place_refusal_again(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let first = run.record(turn("a"));
    let second = run.record(turn("b"));
    scenario.send(&mut run, &second)?.refused("gap").needs("gap")?;
    scenario.send(&mut run, &first)?.applied()?;
    scenario.send(&mut run, &second)?.applied().map(drop)
}

fn takes_writer_seq(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, turn("a"))?;
    let wrong = run.record(turn("b")).with("journal_seq", 9);
    scenario.send(&mut run, &wrong)?;
    run.journal_seq = 2;
    scenario.say(&mut run, turn("c")).map(drop)
}

fn takes_journal_seq(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, turn("a"))?;
    // The writer's number was taken, the run's is the next.
    let wrong = run.record(turn("b")).with("writer_seq", 1);
    scenario.send(&mut run, &wrong)?;
    run.writer_seq = 2;
    scenario.say(&mut run, turn("c")).map(drop)
}

fn unclaimed_kind(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let id = scenario.say(&mut run, turn("a"))?;
    scenario.decide(&mut run, retraction(&id)).map(drop)
}

fn sequence_next(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let wrong = run.record(turn("a")).with("journal_seq", 2);
    scenario.send(&mut run, &wrong)?.refused("sequence").map(drop)
}

fn sequence_unnumbered(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let wrong = run.record(checkpoint("c", 0, &[message("hello")])).with("journal_seq", 1);
    scenario.send(&mut run, &wrong)?.refused("sequence").map(drop)
}

fn started_once(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, lifecycle("started"))?;
    let again = run.record(lifecycle("started"));
    scenario.send(&mut run, &again)?.refused("transition").map(drop)
}

fn in_anomalies(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a")).with("writer_seq", 2);
    let refused = scenario.send(&mut run, &record)?.refused("gap").needs("gap")?;
    let target = super::client::Target::new("/v1/anomalies").with("run", &run.id);
    let answer = scenario.get(target.with("consistency", format!("at-least={}", refused.place())))?.ok()?;
    let expected = json!({"position": refused.at("/position"), "run_id": run.id, "record_id": record.id(),
        "reason": "gap", "writer_id": run.writer, "epoch": 0});
    answer.that(*answer.only("/anomalies")? == expected, format!("the one anomaly {expected}"))
}

fn no_effect(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let asked = scenario.pending(&mut run)?;
    let before = scenario.head(&run)?;
    let early = run.record(completed(&asked, &json!("done"))).with("writer_seq", 9);
    scenario.send(&mut run, &early)?.refused("gap").needs("gap")?;
    let after = scenario.head(&run)?;
    for member in ["/records", "/position", "/hash", "/status", "/next_journal_seq", "/next_writer_seq"] {
        after.has(member, before.at(member).clone())?;
    }
    scenario.of(&run, "/records", &[])?.ok()?.lists("/records", "record_id", &[&asked])?;
    scenario.recovery(&run)?.lists("/pending", "id", &[&asked])
}
