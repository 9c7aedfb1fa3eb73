//! What takes something away from a whole partition: horizons of retention, and skips. For a journal of its own.

use super::{
    Rule,
    payloads::{checkpoint, completed, failed, message, proposal, turn},
    run::Run,
    site::{Checked, Needs, Site},
};
use crate::client::Target;
use serde_json::{Value, json};

const SECTION: &str = "Retention";
/// Behind whatever any log takes.
const FUTURE: &str = "2999-01-01T00:00:00Z";

pub(super) const RULES: &[Rule] = &[
    Rule::of_partition("retention", SECTION, "a horizon takes content away, and no status", retention),
    Rule::of_partition("retention_in_front", SECTION, "what stands behind a horizon keeps its content", in_front),
    Rule::of_partition("retention_until", SECTION, "so does what the log took later than the horizon says", until),
    Rule::of_partition(
        "retention_of_messages",
        SECTION,
        "a checkpoint whose messages are gone is not answered",
        of_messages,
    ),
    Rule::of_partition(
        "retention_furthest",
        SECTION,
        "of several horizons the one with the latest time is named",
        furthest,
    ),
    Rule::of_partition("skip_voids", "The record", "a skip voids its record for every reader", skip),
];

/// Takes content away from the run's partition; where the horizon stands.
fn retain(site: &mut Site<'_>, run: &mut Run, family: &str, until: &str) -> Checked<Value> {
    let (partition, _) = run.last.unwrap_or_default();
    let body = json!({"partition": partition, "family": family, "until": until, "who": "conformance", "why": "to see"});
    let answer = site.post(Target::new("/v1/horizons"), body.to_string())?.ok()?;
    let position = answer.at("/outcomes/0/position").clone();
    let offset = position["offset"].as_u64().ok_or_else(|| answer.fails("the horizon's position"))?;
    run.last = run.last.max(Some((partition, offset)));
    Ok(position)
}

fn retention(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    site.say(&mut run, completed(&asked, &json!("done")))?;
    let horizon = retain(site, &mut run, "tool_call_completed", FUTURE)?;
    let call = site.lookup(&run, "book", &json!({"seat": 1}))?;
    call.has("/status", "completed")?;
    call.has("/result", Value::Null)?;
    call.has("/dropped/0/dropped", horizon)?;
    call.has("/arguments", json!({"seat": 1}))
}

fn in_front(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, turn("a"))?;
    retain(site, &mut run, "conversation_turn", FUTURE)?;
    site.say(&mut run, turn("b"))?;
    let answer = site.of(&run, "/records", &[("raw", "true")])?.ok()?;
    answer.has("/records/1/payload/content", "say b")
}

fn until(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let asked = site.pending(&mut run)?;
    site.say(&mut run, failed(&asked, "no seats"))?;
    retain(site, &mut run, "tool_call_failed", "1990-01-01T00:00:00Z")?;
    let call = site.lookup(&run, "book", &json!({"seat": 1}))?;
    call.has("/error/message", "no seats")
}

fn of_messages(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    let own = message("hello");
    site.say(&mut run, checkpoint("first", 0, std::slice::from_ref(&own)))?;
    retain(site, &mut run, "loop_checkpoint", FUTURE)?;
    site.of(&run, "/checkpoints/latest", &[])?.problem(404, "not_found").needs("retention")?;
    let mut second = checkpoint("second", 0, &[]);
    second["base"] = "first".into();
    second["state_hash"] = super::checkpoints::state_hash(&[own]).into();
    site.say(&mut run, second)?;
    site.of(&run, "/checkpoints/latest", &[])?.problem(404, "not_found")
}

fn furthest(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, proposal("p", "pending"))?;
    retain(site, &mut run, "code_edit_proposal", "2997-01-01T00:00:00Z")?;
    let furthest = retain(site, &mut run, "code_edit_proposal", FUTURE)?;
    retain(site, &mut run, "code_edit_proposal", "2998-01-01T00:00:00Z")?;
    let shown = site.of(&run, "/records", &[("raw", "true")])?.ok()?;
    shown.that(shown.at("/records/0/payload/dropped").is_object(), "a payload that is gone").needs("retention")?;
    shown.has("/records/0/payload", json!({"dropped": furthest}))
}

fn skip(site: &mut Site<'_>) -> Checked {
    let mut run = site.run();
    site.say(&mut run, turn("a"))?;
    let (partition, offset) = run.last.unwrap_or_default();
    let body = json!({"partition": partition, "offset": offset, "who": "conformance", "why": "to see"});
    let answer = site.post(Target::new("/v1/skips"), body.to_string())?.ok()?;
    run.seen(&answer);
    site.of(&run, "", &[])?.problem(404, "not_found")
}
