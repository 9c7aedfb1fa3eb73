//! Operations on a whole partition: retention horizons and skips. Run them only on a journal made for these tests.

use super::client::Target;
use super::{
    payloads::{checkpoint, completed, failed, message, proposal, turn},
    permissions::{basis, decide_at},
    rule::{Rule, partition_rule},
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use runlog_schemas::answer::Feature;
use serde_json::{Value, json};

const SECTION: &str = "Retention";
/// A time later than the timestamp of every record.
const FUTURE: &str = "2999-01-01T00:00:00Z";

pub(crate) const RULES: &[Rule] = &[
    partition_rule("retention", SECTION, "a horizon drops content and keeps statuses").test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        scenario.append(&mut run, completed(&request_id, &json!("done")))?;
        let horizon = retain(scenario, &mut run, "tool_call_completed", FUTURE)?;
        let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
        call.has("/status", "completed")?;
        call.has("/result", Value::Null)?;
        call.has("/dropped/0/dropped", horizon)?;
        call.has("/arguments", json!({"seat": 1}))
    }),
    partition_rule("retention_in_front", SECTION, "a record after a horizon keeps its content").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            retain(scenario, &mut run, "conversation_turn", FUTURE)?;
            scenario.append(&mut run, turn("b"))?;
            let answer = scenario.query_run(&run, "/records", &[("raw", "true")])?.ok()?;
            answer.has("/records/1/payload/content", "say b")
        },
    ),
    partition_rule("retention_until", SECTION, "a record that was appended after the horizon's time keeps its content")
        .test(|scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, failed(&request_id, "no seats"))?;
            retain(scenario, &mut run, "tool_call_failed", "1990-01-01T00:00:00Z")?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.has("/error/message", "no seats")
        }),
    partition_rule("retention_of_messages", SECTION, "a checkpoint whose messages were dropped is not returned").test(
        |scenario, mut run| {
            let own = message("hello");
            scenario.append(&mut run, checkpoint("first", 0, std::slice::from_ref(&own)))?;
            retain(scenario, &mut run, "loop_checkpoint", FUTURE)?;
            scenario
                .query_run(&run, "/checkpoints/latest", &[])?
                .expect_problem(404, "not_found")
                .needs("retention")?;
            let mut second = checkpoint("second", 0, &[]);
            second["base"] = "first".into();
            second["state_hash"] = super::checkpoints::state_hash(&[own]).into();
            scenario.append(&mut run, second)?;
            scenario.query_run(&run, "/checkpoints/latest", &[])?.expect_problem(404, "not_found")
        },
    ),
    partition_rule(
        "retention_furthest",
        SECTION,
        "if several horizons drop a payload, the answer names the horizon with the latest time",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, proposal("p", "pending"))?;
        retain(scenario, &mut run, "code_edit_proposal", "2997-01-01T00:00:00Z")?;
        let furthest = retain(scenario, &mut run, "code_edit_proposal", FUTURE)?;
        retain(scenario, &mut run, "code_edit_proposal", "2998-01-01T00:00:00Z")?;
        let shown = scenario.query_run(&run, "/records", &[("raw", "true")])?.ok()?;
        shown
            .check(shown.value_at("/records/0/payload/dropped").is_object(), "a dropped payload")
            .needs("retention")?;
        shown.has("/records/0/payload", json!({"dropped": furthest}))
    }),
    partition_rule("skip_voids", "The record", "a skip voids the record for every reader").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        skip_last(scenario, &mut run)?;
        scenario.query_run(&run, "", &[])?.expect_problem(404, "not_found")
    }),
    partition_rule("skip_permits_nothing", "The record", "a decision from before skipped evidence stays refused")
        .only_with(Feature::Bases)
        .test(|scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let before = basis(scenario, &run)?;
            scenario.evidence(&mut run, failed(&request_id, "busy"))?;
            basis(scenario, &run)?.check_change(&before).needs("evidence_fenced")?;
            skip_last(scenario, &mut run)?;
            decide_at(scenario, &mut run, &request_id, &before)?
                .expect_refused("stale_decision")
                .needs("decision_basis")?;
            let now = basis(scenario, &run)?;
            decide_at(scenario, &mut run, &request_id, &now)?.expect_applied().map(drop)
        }),
];

/// Voids the record that was appended last.
fn skip_last(scenario: &mut Scenario<'_>, run: &mut Run) -> Checked {
    let (partition, offset) = run.last.unwrap_or_default();
    let body = json!({"partition": partition, "offset": offset, "who": "conformance", "why": "to see"});
    let answer = scenario.post(Target::new("/v1/skips").with("force", true), body.to_string())?.ok()?;
    run.note_position(&answer);
    Ok(())
}

/// Drops a family's content in the run's partition and returns the horizon's position.
fn retain(scenario: &mut Scenario<'_>, run: &mut Run, family: &str, until: &str) -> Checked<Value> {
    let (partition, _) = run.last.unwrap_or_default();
    let body = json!({"partition": partition, "family": family, "until": until, "who": "conformance", "why": "to see"});
    let answer = scenario.post(Target::new("/v1/horizons"), body.to_string())?.ok()?;
    let position = answer.value_at("/outcomes/0/position").clone();
    let offset = position["offset"].as_u64().ok_or_else(|| answer.failure("the horizon's position"))?;
    run.last = run.last.max(Some((partition, offset)));
    Ok(position)
}
