//! Reads as of a position: the run's state after the record at that position.

use super::{
    payloads::{checkpoint, completed, message, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Checked, Needs, Scenario},
};
use serde_json::json;

const SECTION: &str = "Reads";

pub(crate) const RULES: &[Rule] = &[
    rule("lookup_as_of", SECTION, "a lookup as of a position includes the record at that position and no later record")
        .test(|scenario, run| {
            let (run, request_id, places) = call(scenario, run)?;
            for (place, status) in places.iter().zip(["pending", "completed"]) {
                let query = [("tool", "book"), ("args", r#"{"seat":1}"#), ("as_of", place)];
                scenario.query_run(&run, "/lookup", &query)?.ok()?.has("/status", status)?;
                let path = format!("/calls/{request_id}");
                let call = scenario.query_run(&run, &path, &[("as_of", place)])?.ok().needs("call_by_request")?;
                call.has("/status", status)?;
            }
            Ok(())
        }),
    rule(
        "recovery_as_of",
        SECTION,
        "a recovery as of a position includes the record at that position and no later record",
    )
    .test(|scenario, run| {
        let (run, _, places) = call(scenario, run)?;
        for (place, (pending, next)) in places.iter().zip([(1, 3), (0, 4)]) {
            let answer = scenario.query_run(&run, "/recovery", &[("as_of", place)])?.ok()?;
            answer.check(answer.list("/pending")?.len() == pending, format!("{pending} pending"))?;
            answer.has("/next_journal_seq", next)?;
        }
        Ok(())
    }),
    rule("checkpoint_as_of", SECTION, "the latest checkpoint as of a position is at that position or earlier").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let mut places = Vec::new();
            for (id, covers) in [("first", 0), ("second", 1)] {
                let record = run.record(checkpoint(id, covers, &[message(id)]));
                places.push((scenario.send(&mut run, &record)?.expect_applied()?.position_text(), id));
            }
            for (place, id) in places {
                let answer = scenario.query_run(&run, "/checkpoints/latest", &[("as_of", &place)])?.ok()?;
                answer.has("/checkpoint_id", id)?;
            }
            Ok(())
        },
    ),
    rule(
        "records_as_of",
        SECTION,
        "a timeline as of a position includes the record at that position and no later record",
    )
    .test(|scenario, run| {
        let (run, _, [at_request, _]) = call(scenario, run)?;
        let answer = scenario.query_run(&run, "/records", &[("as_of", &at_request)])?.ok()?;
        answer.lists("/records", "payload_type", &["conversation_turn", "tool_call_requested"])
    }),
    rule("unknown_as_of", SECTION, "a run is unknown as of a position before it").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        let (partition, offset) = run.last.unwrap_or_default();
        let place = format!("{partition}:{}", offset.saturating_sub(1));
        scenario.query_run(&run, "/facts", &[("as_of", &place)])?.expect_problem(404, "not_found")
    }),
    rule("partition_as_of", SECTION, "a position of another partition than the run's is refused").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let (partition, _) = run.last.unwrap_or_default();
            let other = if partition == 0 { 1 } else { partition - 1 };
            scenario.query_run(&run, "/facts", &[("as_of", &format!("{other}:0"))])?.expect_problem(400, "usage")
        },
    ),
];

/// Appends a call and its result. Returns the run, the id of the request, and the positions of both.
fn call(scenario: &mut Scenario<'_>, mut run: Run) -> Checked<(Run, String, [String; 2])> {
    scenario.append(&mut run, turn("a"))?;
    let requested = run.record(super::payloads::request("book", &json!({"seat": 1})));
    let at_request = scenario.send(&mut run, &requested)?.expect_applied()?.position_text();
    let result = run.record(completed(requested.id(), &json!("done")));
    let at_result = scenario.send(&mut run, &result)?.expect_applied()?.position_text();
    scenario.append(&mut run, turn("b"))?;
    Ok((run, requested.id().to_owned(), [at_request, at_result]))
}
