//! The HTTP interface: error answers, freshness of answers, and masked content.

use super::client::Target;
use super::{
    payloads::{request, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Checked, Scenario},
};
use serde_json::{Value, json};

const SECTION: &str = "Reads";
const RECORD: &str = "The record";

pub(crate) const RULES: &[Rule] = &[
    rule("unknown_run", SECTION, "a run without applied records is not_found, 404").test(|scenario, run| {
        for path in ["", "/records", "/recovery", "/checkpoints/latest", "/facts"] {
            scenario.query_run(&run, path, &[])?.expect_problem(404, "not_found")?;
        }
        Ok(())
    }),
    rule("problem_details", SECTION, "an error is an RFC 9457 problem with a kind").test(|scenario, run| {
        let errors = [
            scenario.get(Target::new("/v1/nothing"))?,
            scenario.get(Target::new("/v1/runs").with("limit", "many"))?,
            scenario.post(Target::new("/v1/runs"), "{}".to_owned())?,
            scenario.body(&run, "{".to_owned())?,
        ];
        for (answer, status) in errors.iter().zip([404, 400, 405, 400]) {
            answer.check(answer.status == status, format!("status {status}"))?;
            answer.has("/status", status)?;
            let typed = answer.content_type.starts_with("application/problem+json");
            answer.check(typed, format!("content type application/problem+json, not {:?}", answer.content_type))?;
            for member in ["/kind", "/title", "/detail", "/type"] {
                answer.check(answer.value_at(member).is_string(), format!("a text at {member}"))?;
            }
        }
        Ok(())
    }),
    rule("limits_refused", SECTION, "a limit of 0 or over 1000 is refused, not replaced by another limit").test(
        |scenario, _| {
            for limit in ["0", "1001"] {
                scenario
                    .get(Target::new("/v1/runs").with("prefix", scenario.prefix()).with("limit", limit))?
                    .expect_problem(400, "usage")?;
            }
            Ok(())
        },
    ),
    rule("mangled_refused", RECORD, "an invalid record is refused, and no record of its request is appended").test(
        |scenario, mut run| {
            let (good, other) = (run.record(turn("a")).0, run.record(turn("b")).0);
            let with = |name: &str, value: Value| {
                let mut record = other.clone();
                record[name] = value;
                record
            };
            let bad = [
                Value::Null,
                with("payload", json!({"type": "an unknown payload type"})),
                with("payload", json!({"type": "conversation_turn", "message_id": 7})),
                with("writer_seq", json!(-1)),
                json!({"run_id": run.id, "record_id": "x"}),
            ];
            for bad in bad {
                scenario.body(&run, json!([good, bad]).to_string())?.expect_problem(400, "invalid")?;
            }
            scenario.body(&run, format!("[{good}"))?.expect_problem(400, "invalid")?;
            untouched(scenario, &run)
        },
    ),
    rule("check_appends_nothing", RECORD, "check=true returns the outcome of an append without appending").test(
        |scenario, mut run| {
            let record = run.record(turn("a")).0.to_string();
            let target = Target::run(&run.id).path("/records").with("check", true);
            scenario.post(target, record)?.ok()?.has("/outcome", "applied")?;
            untouched(scenario, &run)
        },
    ),
    rule("ids_bounded", RECORD, "an id has 1 to 1024 bytes").test(|scenario, mut run| {
        let record = run.record(turn("a")).with("record_id", "x".repeat(1025));
        scenario.body(&run, record.0.to_string())?.expect_problem(400, "invalid")?;
        let record = record.with("record_id", "x".repeat(1024));
        scenario.send(&mut run, &record)?.expect_applied().map(drop)
    }),
    rule(
        "record_id_required",
        RECORD,
        "a record without a record_id is refused, because a resend would be another record",
    )
    .test(|scenario, mut run| {
        let mut record = run.record(turn("a"));
        if let Some(members) = record.0.as_object_mut() {
            members.remove("record_id");
        }
        scenario.body(&run, record.0.to_string())?.expect_problem(400, "invalid")
    }),
    rule("run_of_path", RECORD, "a record of another run than the path's is refused").test(|scenario, _| {
        let (run, mut other) = (scenario.run(), scenario.run());
        let record = other.record(turn("a"));
        scenario.body(&run, record.0.to_string())?.expect_problem(400, "invalid")
    }),
    rule("run_ids_encoded", RECORD, "a run id may be any text, percent-encoded in a path").test(|scenario, _| {
        let mut run = Run::new(format!("{} a/b?c#d%41:\u{e9}\u{1f600}", scenario.prefix()));
        scenario.append(&mut run, turn("a"))?;
        scenario.head(&run)?.has("/run_id", run.id.as_str())?;
        scenario.query_run(&run, "/records", &[])?.ok()?.lists("/records", "run_id", &[&run.id])
    }),
    rule(
        "stale_typed",
        SECTION,
        "a wait that reaches its deadline is answered stale with the lag, never with old data",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        let (partition, offset) = run.last.unwrap_or_default();
        let beyond = format!("at-least={partition}:{}", offset + 1_000_000);
        let answer = scenario.get(Target::run(&run.id).with("consistency", beyond).with("deadline_ms", 50))?;
        answer.expect_problem(503, "stale")?;
        answer.check(answer.value_at("/lag").as_u64().is_some_and(|lag| lag > 0), "a lag over 0")
    }),
    rule("default_is_latest", SECTION, "a query that names a run reads at latest by default").test(
        |scenario, mut run| {
            for number in 1..=3 {
                scenario.append(&mut run, turn("a"))?;
                scenario.get(Target::run(&run.id))?.ok()?.has("/records", number)?;
            }
            Ok(())
        },
    ),
    rule("latest_of_lists", SECTION, "a list at latest includes everything appended before the query").test(
        |scenario, _| {
            for _ in 0..3 {
                let mut run = scenario.run();
                scenario.append(&mut run, turn("a"))?;
                runs_at(scenario, &run, "latest")?;
            }
            Ok(())
        },
    ),
    rule("at_least_of_lists", SECTION, "a list at at-least=P:O includes the record at that position").test(
        |scenario, _| {
            for _ in 0..3 {
                let mut run = scenario.run();
                scenario.append(&mut run, turn("a"))?;
                let (partition, offset) = run.last.unwrap_or_default();
                runs_at(scenario, &run, &format!("at-least={partition}:{offset}"))?;
            }
            Ok(())
        },
    ),
    rule("eventual_answers", SECTION, "a query at eventual is answered without waiting").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        let target = Target::run(&run.id).with("consistency", "eventual").with("deadline_ms", 0);
        let answer = scenario.get(target)?;
        // The server may not have read the run yet.
        let is_expected = answer.status == 200 || (answer.status == 404 && answer.value_at("/kind") == "not_found");
        answer.check(is_expected, "status 200, or 404 if the server has not read the run yet")?;
        let wrong = Target::run(&run.id).with("consistency", "at_most");
        scenario.get(wrong)?.expect_problem(400, "usage")
    }),
    rule("masked", SECTION, "content is masked by its privacy class unless the query has raw=true").test(
        |scenario, mut run| {
            let masked_record = run.record(turn("a")).with("privacy", "sensitive");
            scenario.send(&mut run, &masked_record)?.expect_applied()?;
            let shown_record = run.record(turn("b")).with("privacy", "public");
            scenario.send(&mut run, &shown_record)?.expect_applied()?;
            let shown = scenario.query_run(&run, "/records", &[])?.ok()?;
            shown.has("/records/0/payload/content", json!({"masked": "sensitive"}))?;
            shown.has("/records/1/payload/content", "say b")?;
            scenario.query_run(&run, "/records", &[("raw", "true")])?.ok()?.has("/records/0/payload/content", "say a")
        },
    ),
    rule("lookup_whole", SECTION, "a lookup returns content unmasked, in every privacy class").test(
        |scenario, mut run| {
            let requested = run.record(request("book", &json!({"seat": 1}))).with("privacy", "secret");
            scenario.send(&mut run, &requested)?.expect_applied()?;
            let call = scenario.lookup(&run, "book", &json!({"seat": 1}))?;
            call.has("/status", "pending")?;
            call.has("/arguments", json!({"seat": 1}))?;
            call.has("/tool_name", "book")
        },
    ),
];

/// Checks that the run has neither applied nor refused records.
fn untouched(scenario: &mut Scenario<'_>, run: &Run) -> Checked {
    scenario.get(Target::run(&run.id).with("consistency", "latest"))?.expect_problem(404, "not_found")?;
    let anomalies = Target::new("/v1/anomalies").with("run", &run.id).with("consistency", "latest");
    scenario.get(anomalies)?.ok()?.lists("/anomalies", "record_id", &[])
}

/// Checks that the list of runs contains `run`.
pub(crate) fn runs_at(scenario: &mut Scenario<'_>, run: &Run, consistency: &str) -> Checked {
    let target = Target::new("/v1/runs").with("prefix", scenario.prefix()).with("consistency", consistency);
    let answer = scenario.get(target)?.ok()?;
    answer.check(answer.list("/runs")?.iter().any(|item| item["run_id"] == *run.id), format!("{} in /runs", run.id))
}
