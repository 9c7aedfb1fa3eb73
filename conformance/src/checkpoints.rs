//! Checkpoints: when they are refused, when they are returned, and how their message lists are built.

use super::client::Target;
use super::{
    payloads::{checkpoint, completed, lifecycle, message, prune, turn},
    rule::{Rule, rule},
    run::Run,
    scenario::{Answer, Checked, Needs, Scenario},
};
use runlog_schemas::datum::Sha256;
use serde_json::{Value, json};

const SECTION: &str = "Checkpoints";

pub(crate) const RULES: &[Rule] = &[
    rule("checkpoint_covers", "Judgement", "a checkpoint covers no more records than the run has").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            refuses(scenario, &mut run, checkpoint("c", 2, &[message("hello")]))
        },
    ),
    rule("checkpoint_id_taken", "Judgement", "a checkpoint's id is new in its run").test(|scenario, mut run| {
        scenario.append(&mut run, checkpoint("c", 0, &[message("hello")]))?;
        refuses(scenario, &mut run, checkpoint("c", 0, &[message("goodbye")]))
    }),
    rule("checkpoint_base", "Judgement", "a checkpoint's base is an applied checkpoint").test(|scenario, mut run| {
        let own = [message("hello")];
        refuses(scenario, &mut run, based("c", "nobody's", &own, json!([]), &own))
    }),
    rule("checkpoint_spans", "Judgement", "a checkpoint's spans lie within the lists that they refer to").test(
        |scenario, mut run| {
            let own = [message("hello")];
            scenario.append(&mut run, checkpoint("c", 0, &own))?;
            let outside = json!([{"from_base": true, "from": 90, "count": 3}]);
            refuses(scenario, &mut run, based("d", "c", &own, outside, &own))
        },
    ),
    rule("checkpoint_hash", SECTION, "a checkpoint whose list does not match its state_hash is not returned").test(
        |scenario, mut run| {
            let own = [message("hello")];
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, checkpoint("c", 0, &own))?;
            let mut wrong = based("d", "c", &own, json!([]), &own);
            wrong["covers_journal_seq"] = 1.into();
            // Its list has two messages, but the hash is for one message.
            scenario.append(&mut run, wrong)?;
            latest(scenario, &run, "c").map(drop)
        },
    ),
    rule("checkpoint_version", SECTION, "a checkpoint of an unknown schema version is not returned").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, checkpoint("c", 0, &[message("hello")]))?;
            let mut later = checkpoint("d", 1, &[message("hello")]);
            later["schema_version"] = 9.into();
            scenario.append(&mut run, later)?;
            latest(scenario, &run, "c").map(drop)
        },
    ),
    rule("checkpoint_list", SECTION, "a list consists of messages of the base and of the checkpoint, each unchanged")
        .test(|scenario, mut run| {
            let texts = ["a", "b", "c", "d"].map(message);
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, checkpoint("first", 0, &texts))?;
            let own = [json!({"role": "tool", "content": null, "of the host": {"id": 9_007_199_254_740_993_u64}})];
            let whole = [texts[0].clone(), texts[1].clone(), own[0].clone(), texts[3].clone()];
            let spans = json!([{"from_base": true, "from": 0, "count": 2}, {"from_base": false, "from": 0, "count": 1},
        {"from_base": true, "from": 3, "count": 1}]);
            let mut second = based("second", "first", &own, spans, &whole);
            second["covers_journal_seq"] = 1.into();
            scenario.append(&mut run, second)?;
            latest(scenario, &run, "second")?.has("/messages", whole.to_vec())
        }),
    rule("latest_by_covers", "Reads", "the latest checkpoint covers the most records")
        .test(|scenario, run| first_wins(scenario, run, "covers_journal_seq", [2, 1])),
    rule("latest_by_seq", "Reads", "if two cover the same records, the higher checkpoint_seq is the latest")
        .test(|scenario, run| first_wins(scenario, run, "checkpoint_seq", [5, 3])),
    rule("latest_by_time", "Reads", "if checkpoint_seq is equal too, the higher created_at_millis is the latest")
        .test(|scenario, run| first_wins(scenario, run, "created_at_millis", [2000, 1000])),
    rule(
        "checkpoint_at_or_before",
        "Reads",
        "at_or_before returns the latest checkpoint that covers no more than its number",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        scenario.append(&mut run, turn("b"))?;
        scenario.append(&mut run, checkpoint("first", 1, &[message("a")]))?;
        scenario.append(&mut run, checkpoint("second", 2, &[message("b")]))?;
        let answer = scenario.query_run(&run, "/checkpoints/latest", &[("at_or_before", "1")])?.ok()?;
        answer.has("/checkpoint_id", "first")?;
        scenario.query_run(&run, "/checkpoints/latest", &[("at_or_before", "0")])?.expect_problem(404, "not_found")
    }),
    rule("checkpoints_listed", "Reads", "checkpoints are listed latest first, and returned by id").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, turn("b"))?;
            for (id, covers) in [("first", 1), ("third", 2), ("second", 1)] {
                let mut payload = checkpoint(id, covers, &[message(id)]);
                payload["checkpoint_seq"] = run.writer_seq.into();
                scenario.append(&mut run, payload)?;
            }
            let page = scenario.query_run(&run, "/checkpoints", &[("limit", "2")])?.ok()?;
            page.lists("/checkpoints", "checkpoint_id", &["third", "second"])?;
            let next = page.value_at("/next_cursor").as_str().unwrap_or_default().to_owned();
            let page = scenario.query_run(&run, "/checkpoints", &[("limit", "2"), ("cursor", &next)])?.ok()?;
            page.lists("/checkpoints", "checkpoint_id", &["first"])?;
            scenario.query_run(&run, "/checkpoints/second", &[])?.ok()?.has("/messages", vec![message("second")])?;
            scenario.query_run(&run, "/checkpoints/fourth", &[])?.expect_problem(404, "not_found")
        },
    ),
    rule("checkpoint_unanswered", SECTION, "a checkpoint does not cover the calls that it names as unanswered").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, completed(&request_id, &json!(1)))?;
            let mut payload = checkpoint("c", 2, &[message("hello")]);
            payload["unanswered"] = json!([request_id]);
            scenario.append(&mut run, payload)?;
            scenario.recovery(&run)?.lists("/completed", "id", &[&request_id])
        },
    ),
    rule("checkpoint_covered", SECTION, "a recovery does not list a completed call that its checkpoint covers").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            scenario.append(&mut run, completed(&request_id, &json!(1)))?;
            scenario.recovery(&run)?.lists("/completed", "id", &[&request_id])?;
            scenario.append(&mut run, checkpoint("c", 2, &[message("hello")]))?;
            scenario.recovery(&run)?.lists("/completed", "id", &[])?;
            // A process that starts from the beginning ignores the checkpoint, so it needs the call.
            scenario.query_run(&run, "/recovery", &[("from_start", "true")])?.ok()?.lists(
                "/completed",
                "id",
                &[&request_id],
            )
        },
    ),
    rule("copy_has_checkpoints", "Copies", "a copy contains the checkpoints and turns with new numbers, and no call")
        .test(|scenario, _| {
            let (mut source, target) = (scenario.run(), scenario.run());
            scenario.append(&mut source, turn("a"))?;
            scenario.pending(&mut source)?;
            scenario.append(&mut source, turn("b"))?;
            scenario.append(&mut source, checkpoint("c", 3, &[message("hello")]))?;
            for _ in 0..2 {
                let answer = copy(scenario, &source, &target)?.ok().needs("repeat_of_applied")?;
                answer.has("/records", 3)?;
                answer.has("/left_out", 1)?;
            }
            let lines = scenario.query_run(&target, "/records", &[])?.ok()?;
            lines.lists("/records", "payload_type", &["conversation_turn", "conversation_turn", "loop_checkpoint"])?;
            let latest = scenario.query_run(&target, "/checkpoints/latest", &[])?.ok()?;
            latest.has("/covers_journal_seq", 2)?;
            latest.has("/messages", vec![message("hello")])?;
            scenario.recovery(&target)?.lists("/pending", "id", &[])
        }),
    rule("copy_of_new_run", "Copies", "a copy into a run with other records is refused").test(|scenario, _| {
        let (mut source, mut target) = (scenario.run(), scenario.run());
        scenario.append(&mut source, turn("a"))?;
        scenario.append(&mut target, turn("b"))?;
        copy(scenario, &source, &target)?.expect_problem(409, "conflict").needs("sequence_next")?;
        scenario.head(&target)?.has("/records", 1)
    }),
    rule("prune_hides", SECTION, "a prune hides checkpoints that cover fewer records than its number").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.append(&mut run, checkpoint("c", 1, &[message("hello")]))?;
            scenario.append(&mut run, prune(5, false))?;
            scenario.query_run(&run, "/checkpoints/latest", &[])?.expect_problem(404, "not_found")
        },
    ),
    rule(
        "prune_preserves",
        SECTION,
        "a prune with preserve_latest_terminal keeps the latest checkpoint after the run's end",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, lifecycle("completed"))?;
        let record = run.record(checkpoint("c", 1, &[message("hello")]));
        scenario.send(&mut run, &record)?.expect_applied().needs("follows_the_end")?;
        scenario.append(&mut run, prune(5, true))?;
        latest(scenario, &run, "c").map(drop)
    }),
];

/// Returns the `state_hash` of a list without usage, reports and state. In Avro each of these is one zero byte.
pub(crate) fn state_hash(list: &[Value]) -> String {
    let mut bytes: Vec<u8> = list.iter().flat_map(|message| Sha256::of(message.to_string().as_bytes()).0).collect();
    bytes.extend_from_slice(&Sha256::of(&[0, 0, 0]).0);
    Sha256::of(&bytes).to_string()
}

fn refuses(scenario: &mut Scenario<'_>, run: &mut Run, payload: Value) -> Checked {
    let record = run.record(payload);
    scenario.send(run, &record)?.expect_refused("checkpoint").map(drop)
}

/// Returns a checkpoint with a base and the `state_hash` of `list`.
fn based(id: &str, base: &str, own: &[Value], spans: Value, list: &[Value]) -> Value {
    let mut payload = checkpoint(id, 0, own);
    payload["base"] = base.into();
    payload["spans"] = spans;
    payload["state_hash"] = state_hash(list).into();
    payload
}

fn latest(scenario: &mut Scenario<'_>, run: &Run, expected: &str) -> Checked<Answer> {
    let answer = scenario.query_run(run, "/checkpoints/latest", &[])?.ok()?;
    answer.has("/checkpoint_id", expected)?;
    Ok(answer)
}

/// Checks that the first of two checkpoints is the latest. They differ in one member.
fn first_wins(scenario: &mut Scenario<'_>, mut run: Run, member: &str, values: [u64; 2]) -> Checked {
    scenario.append(&mut run, turn("a"))?;
    scenario.append(&mut run, turn("b"))?;
    for (id, value) in ["first", "second"].into_iter().zip(values) {
        let mut payload = checkpoint(id, 1, &[message(id)]);
        payload[member] = value.into();
        scenario.append(&mut run, payload)?;
    }
    latest(scenario, &run, "first").map(drop)
}

fn copy(scenario: &mut Scenario<'_>, source: &Run, target: &Run) -> Checked<Answer> {
    let to = Target::run(&target.id).path("/copies");
    scenario.post(to, json!({ "from": source.id }).to_string())
}
