//! Judgement of a record: repeat, fenced, gap, conflict, content rules.

use super::{
    payloads::{checkpoint, completed, lifecycle, message, retraction, turn},
    rule::{Rule, rule},
    scenario::Needs,
};
use serde_json::json;

const SECTION: &str = "Judgement";

pub(crate) const RULES: &[Rule] = &[
    rule(
        "repeat_of_applied",
        SECTION,
        "a record sent again with the same content is answered with its first position and has no effect",
    )
    .test(|scenario, mut run| {
        let record = run.record(turn("a"));
        let first = scenario.send(&mut run, &record)?.expect_applied()?;
        scenario.send(&mut run, &record)?.expect_repeat(&first)?;
        scenario.head(&run)?.has("/records", 1)
    }),
    rule(
        "repeat_of_refused",
        SECTION,
        "a record refused by a content rule and sent again is answered with the first refusal",
    )
    .test(|scenario, mut run| {
        let wrong = run.record(turn("a")).with("journal_seq", 9);
        let first = scenario.send(&mut run, &wrong)?.expect_refused("sequence").needs("sequence_next")?;
        scenario.send(&mut run, &wrong)?.expect_repeat(&first)
    }),
    rule("repeat_consumes", SECTION, "a repeat consumes its writer_seq if that is the next number").test(
        |scenario, mut run| {
            let record = run.record(turn("a"));
            scenario.send(&mut run, &record)?.expect_applied()?;
            // The same content under the next number. Another rule tests the outcome.
            scenario.send(&mut run, &record.with("writer_seq", 2))?;
            run.writer_seq = 3;
            scenario.append(&mut run, turn("b")).map(drop)
        },
    ),
    rule("repeat_of_other_epoch", SECTION, "a repeat from another epoch consumes no number").test(
        |scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let record = run.record(turn("a"));
            scenario.send(&mut run, &record)?.expect_applied()?;
            scenario.claim(&mut run, "two")?;
            scenario.send(&mut run, &record)?;
            scenario.append(&mut run, turn("b")).map(drop)
        },
    ),
    rule("fenced_unclaimed", SECTION, "before any claim only records of epoch 0 are applied").test(
        |scenario, mut run| {
            let record = run.record(turn("a")).with("writer_epoch", 3);
            scenario.send(&mut run, &record)?.expect_refused("fenced").map(drop)
        },
    ),
    rule("fenced_writer", SECTION, "after a claim only records of its epoch and writer are applied").test(
        |scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let other = run.clone().record(turn("a")).with("writer_id", "two");
            scenario.send(&mut run, &other)?.expect_refused("fenced")?;
            let earlier = run.clone().record(turn("b")).with("writer_epoch", 0);
            scenario.send(&mut run, &earlier)?.expect_refused("fenced").map(drop)
        },
    ),
    rule("gap", SECTION, "a writer_seq beyond the next is a gap").test(|scenario, mut run| {
        let record = run.record(turn("a")).with("writer_seq", 2);
        scenario.send(&mut run, &record)?.expect_refused("gap").map(drop)
    }),
    rule("conflict_number", SECTION, "another record with a consumed writer_seq is a conflict").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let other = run.record(turn("b")).with("writer_seq", 1);
            scenario.send(&mut run, &other)?.expect_refused("conflict").map(drop)
        },
    ),
    rule("conflict_id", SECTION, "a known record_id with other content is a conflict").test(|scenario, mut run| {
        let id = scenario.append(&mut run, turn("a"))?;
        let other = run.record(turn("b")).with("record_id", id);
        scenario.send(&mut run, &other)?.expect_refused("conflict").map(drop)
    }),
    rule("order_of_judgement", SECTION, "fenced is judged before gap, and conflict before the content rules").test(
        |scenario, mut run| {
            let both = run.clone().record(turn("a")).with("writer_epoch", 3).with("writer_seq", 5);
            scenario.send(&mut run, &both)?.expect_refused("fenced").needs("fenced_unclaimed")?;
            let id = scenario.append(&mut run, turn("b"))?;
            let both = run.record(turn("c")).with("record_id", id).with("journal_seq", 9);
            scenario.send(&mut run, &both)?.expect_refused("conflict").needs("conflict_id").map(drop)
        },
    ),
    rule(
        "place_refusal_again",
        SECTION,
        "a record refused as fenced or gap consumes no number and is judged again when sent again",
    )
    .test(|scenario, mut run| {
        let first = run.record(turn("a"));
        let second = run.record(turn("b"));
        scenario.send(&mut run, &second)?.expect_refused("gap").needs("gap")?;
        scenario.send(&mut run, &first)?.expect_applied()?;
        scenario.send(&mut run, &second)?.expect_applied().map(drop)
    }),
    rule("refusal_consumes_writer_seq", SECTION, "a record refused by a content rule consumes its writer_seq").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let wrong = run.record(turn("b")).with("journal_seq", 9);
            scenario.send(&mut run, &wrong)?;
            run.journal_seq = 2;
            scenario.append(&mut run, turn("c")).map(drop)
        },
    ),
    rule(
        "refusal_consumes_journal_seq",
        SECTION,
        "a record refused as conflict consumes its journal_seq if that is the next number",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        // The writer_seq is consumed already, the journal_seq is the next number.
        let wrong = run.record(turn("b")).with("writer_seq", 1);
        scenario.send(&mut run, &wrong)?;
        run.writer_seq = 2;
        scenario.append(&mut run, turn("c")).map(drop)
    }),
    rule("unclaimed_kind", SECTION, "kinds that need no claim are not judged by epoch, writer and writer_seq").test(
        |scenario, mut run| {
            let id = scenario.append(&mut run, turn("a"))?;
            scenario.decide(&mut run, retraction(&id)).map(drop)
        },
    ),
    rule("sequence_next", SECTION, "a numbered record carries the run's next journal_seq").test(|scenario, mut run| {
        let wrong = run.record(turn("a")).with("journal_seq", 2);
        scenario.send(&mut run, &wrong)?.expect_refused("sequence").map(drop)
    }),
    rule("sequence_unnumbered", SECTION, "an unnumbered record carries journal_seq 0").test(|scenario, mut run| {
        let wrong = run.record(checkpoint("c", 0, &[message("hello")])).with("journal_seq", 1);
        scenario.send(&mut run, &wrong)?.expect_refused("sequence").map(drop)
    }),
    rule("started_once", SECTION, "a run starts once").test(|scenario, mut run| {
        scenario.append(&mut run, lifecycle("started"))?;
        let again = run.record(lifecycle("started"));
        scenario.send(&mut run, &again)?.expect_refused("transition").map(drop)
    }),
    rule("refusal_in_anomalies", SECTION, "a refusal is listed in anomalies with record, reason, writer and position")
        .test(|scenario, mut run| {
            let record = run.record(turn("a")).with("writer_seq", 2);
            let refused = scenario.send(&mut run, &record)?.expect_refused("gap").needs("gap")?;
            let target = super::client::Target::new("/v1/anomalies").with("run", &run.id);
            let answer =
                scenario.get(target.with("consistency", format!("at-least={}", refused.position_text())))?.ok()?;
            let expected = json!({"position": refused.value_at("/position"), "run_id": run.id, "record_id": record.id(),
        "reason": "gap", "writer_id": run.writer, "epoch": 0});
            answer.check(*answer.only("/anomalies")? == expected, format!("the one anomaly {expected}"))
        }),
    rule("refusal_has_no_effect", SECTION, "a refusal changes no other answer").test(|scenario, mut run| {
        let request_id = scenario.pending(&mut run)?;
        let before = scenario.head(&run)?;
        let early = run.record(completed(&request_id, &json!("done"))).with("writer_seq", 9);
        scenario.send(&mut run, &early)?.expect_refused("gap").needs("gap")?;
        let after = scenario.head(&run)?;
        for member in ["/records", "/position", "/hash", "/status", "/next_journal_seq", "/next_writer_seq"] {
            after.has(member, before.value_at(member).clone())?;
        }
        scenario.query_run(&run, "/records", &[])?.ok()?.lists("/records", "record_id", &[&request_id])?;
        scenario.recovery(&run)?.lists("/pending", "id", &[&request_id])
    }),
];
