//! Batches: applied or refused as a whole, at one offset.

use super::{
    payloads::{completed, request, turn},
    rule::{Rule, rule},
    scenario::Needs,
};
use serde_json::{Value, json};

const SECTION: &str = "Batches";

pub(crate) const RULES: &[Rule] = &[
    rule("batch_applied", SECTION, "a batch is applied as a whole, in the order of its records").test(
        |scenario, mut run| {
            let (arguments, result) = (json!({"n": 1}), json!("done"));
            let mut batch = run.batch(vec![request("book", &arguments), completed("?", &result), turn("a")]);
            let request_id = batch.0["payload"]["records"][0]["record_id"].clone();
            batch.0["payload"]["records"][1]["payload"]["request_record_id"] = request_id;
            scenario.send(&mut run, &batch)?.expect_applied()?;
            scenario.head(&run)?.has("/records", 3)?;
            scenario.lookup(&run, "book", &arguments)?.has("/status", "completed")?;
            scenario.append(&mut run, turn("b")).map(drop)
        },
    ),
    rule("batch_refused", SECTION, "a batch with a refused record is refused as a whole and stays invisible").test(
        |scenario, mut run| {
            let mut batch = run.batch(vec![turn("a"), turn("b")]);
            batch.0["payload"]["records"][1]["journal_seq"] = 9.into();
            scenario.send(&mut run, &batch)?.expect_refused("sequence").needs("sequence_next")?;
            scenario.query_run(&run, "/records", &[])?.expect_problem(404, "not_found")
        },
    ),
    rule(
        "batch_takes_numbers",
        SECTION,
        "a refused batch consumes one writer_seq per record, and each journal_seq that was the next number",
    )
    .test(|scenario, mut run| {
        let mut batch = run.batch(vec![turn("a"), turn("b")]);
        batch.0["payload"]["records"][1]["journal_seq"] = 9.into();
        // Another rule tests the outcome. An applied batch consumes these numbers too.
        scenario.send(&mut run, &batch)?;
        run.journal_seq = 2;
        let next = run.record(turn("c"));
        let answer = scenario.send(&mut run, &next)?;
        answer.check(answer.value_at("/reason") != "gap", "no gap").needs("refusal_consumes_writer_seq")?;
        answer
            .check(answer.value_at("/reason") != "sequence", "the next number")
            .needs("refusal_consumes_journal_seq")?;
        answer.expect_applied().map(drop)
    }),
    rule("batch_shape", SECTION, "a batch has one writer and consecutive writer_seq").test(|scenario, mut run| {
        let mut batch = run.batch(vec![turn("a"), turn("b")]);
        batch.0["payload"]["records"][1]["writer_seq"] = 6.into();
        scenario.send(&mut run, &batch)?.expect_refused("batch").map(drop)
    }),
    rule("evidence_of_batch", SECTION, "a result in a malformed batch is evidence of its effect").test(
        |scenario, mut run| {
            let request_id = scenario.pending(&mut run)?;
            let mut batch = run.batch(vec![completed(&request_id, &json!("done")), turn("a")]);
            batch.0["payload"]["records"][1]["writer_seq"] = 9.into();
            let result = batch.0["payload"]["records"][0]["record_id"].clone();
            scenario.send(&mut run, &batch)?.expect_refused("batch").needs("batch_shape")?;
            let answer = scenario.recovery(&run)?;
            answer.lists("/pending/0/evidence", "record_id", &[result.as_str().unwrap_or_default()])
        },
    ),
    rule("batch_positions", SECTION, "the records of a batch share one offset and are indexed from 0").test(
        |scenario, mut run| {
            let batch = run.batch(vec![turn("a"), turn("b"), turn("c")]);
            let sent = scenario.send(&mut run, &batch)?.expect_applied()?;
            let shown = scenario.query_run(&run, "/records", &[])?;
            let whole = shown.list("/records").is_ok_and(|records| records.len() == 3);
            shown.check(whole, "three records").needs("batch_applied")?;
            for index in 0..3 {
                shown.has(&format!("/records/{index}/position/index"), index)?;
                shown.has(&format!("/records/{index}/position/offset"), sent.value_at("/position/offset").clone())?;
            }
            Ok(())
        },
    ),
    rule("batch_repeat", SECTION, "a batch sent again is a repeat, and so is one of its records sent alone").test(
        |scenario, mut run| {
            let batch = run.batch(vec![turn("a"), turn("b")]);
            let first = scenario.send(&mut run, &batch)?.expect_applied()?;
            scenario.send(&mut run, &batch)?.expect_repeat(&first).needs("repeat_of_applied")?;
            let alone: Value = batch.0["payload"]["records"][1].clone();
            let answer = scenario.body(&run, alone.to_string())?.ok()?;
            answer.has("/outcome", "repeat").needs("batch_applied")?;
            answer.has("/position/offset", first.value_at("/position/offset").clone())?;
            answer.has("/position/index", 1)
        },
    ),
    rule("array_not_atomic", SECTION, "a JSON array is not a batch: each record is judged by itself").test(
        |scenario, mut run| {
            let first = run.record(turn("a")).0;
            let early = run.clone().record(turn("b")).with("writer_seq", 9).with("record_id", "early").0;
            let second = run.record(turn("c")).0;
            let answer = scenario.body(&run, json!([first, early, second]).to_string())?.ok()?;
            run.note_position(&answer);
            answer.has("/1/outcome", "refused").needs("gap")?;
            answer.has("/0/outcome", "applied")?;
            answer.has("/2/outcome", "applied")?;
            scenario.head(&run)?.has("/records", 2)
        },
    ),
];
