//! One writer per run: claims, the writer that answers report, and numbers that the server fills in.

use super::client::Target;
use super::{
    payloads::turn,
    rule::{Rule, rule},
    scenario::Needs,
};
use serde_json::{Value, json};

const SECTION: &str = "One writer per run";

pub(crate) const RULES: &[Rule] = &[
    rule("claim_applied", SECTION, "a claim of the next epoch takes the run over; writer_seq restarts at 1").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            scenario.claim(&mut run, "one")?;
            let head = scenario.head(&run)?;
            head.has("/epoch", 1)?;
            head.has("/writer_id", "one")?;
            head.has("/next_journal_seq", 2)?;
            scenario.append(&mut run, turn("b"))?;
            scenario.claim(&mut run, "two")?;
            scenario.append(&mut run, turn("c")).map(drop)
        },
    ),
    rule("claim_lost", SECTION, "only the first claim of the next epoch wins; every other claim is fenced").test(
        |scenario, mut run| {
            let early = run.claim("early", 2);
            scenario.send(&mut run, &early)?.expect_refused("fenced")?;
            scenario.claim(&mut run, "one")?;
            let late = run.claim("two", 1);
            scenario.send(&mut run, &late)?.expect_refused("fenced")?;
            scenario.head(&run)?.has("/writer_id", "one")
        },
    ),
    rule("claim_reuses_id", "Judgement", "a claim with a known record_id is a conflict").test(|scenario, mut run| {
        let id = scenario.append(&mut run, turn("a"))?;
        let claim = run.claim("one", 1).with("record_id", id);
        scenario.send(&mut run, &claim)?.expect_refused("conflict").map(drop)
    }),
    rule("claim_served", SECTION, "a server claims for a client and returns writer, epoch, next number and hash").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let body = json!({"claimed_by": "conformance"}).to_string();
            let claim = scenario.post(Target::run(&run.id).path("/claims"), body)?.ok().needs("claim_applied")?;
            run.note_position(&claim);
            claim.has("/epoch", 1)?;
            claim.has("/next_journal_seq", 2)?;
            let head = scenario.head(&run)?;
            head.has("/writer_id", claim.value_at("/writer_id").clone())?;
            claim.has("/hash", head.value_at("/hash").clone())
        },
    ),
    rule(
        "claim_resent",
        SECTION,
        "a claim sent again with its record_id is made once, and is claim_lost after a later claim",
    )
    .test(|scenario, mut run| {
        let target = || Target::run(&run.id).path("/claims");
        let body = json!({"record_id": "named", "writer_id": "one"}).to_string();
        let first = scenario.post(target(), body.clone())?.ok().needs("claim_applied")?;
        first.has("/writer_id", "one")?;
        first.has("/epoch", 1)?;
        let again = scenario.post(target(), body.clone())?.ok()?;
        again.has("/writer_id", "one")?;
        again.has("/epoch", 1)?;
        again.has("/position", first.value_at("/position").clone())?;
        scenario.post(target(), json!({"record_id": "another"}).to_string())?.ok()?.has("/epoch", 2)?;
        let late = scenario.post(target(), body)?;
        run.note_position(&late);
        late.expect_problem(409, "claim_lost")
    }),
    rule("claim_resent_late", SECTION, "a claim sent again is claim_lost once its writer has appended a record").test(
        |scenario, mut run| {
            let target = Target::run(&run.id).path("/claims");
            let body = json!({"record_id": "named", "writer_id": "one"}).to_string();
            let claim = scenario.post(target.clone(), body.clone())?.ok().needs("claim_applied")?;
            run.note_position(&claim);
            scenario.post(target.clone(), body.clone())?.ok()?.has("/epoch", 1).needs("claim_resent")?;
            (run.writer, run.epoch) = ("one".to_owned(), 1);
            scenario.append(&mut run, turn("a"))?;
            let late = scenario.post(target, body)?;
            run.note_position(&late);
            late.expect_problem(409, "claim_lost")
        },
    ),
    rule("claim_only_if", SECTION, "a claim whose only_if names another hash than the run's is a conflict").test(
        |scenario, mut run| {
            scenario.append(&mut run, turn("a"))?;
            let read = scenario.head(&run)?.value_at("/hash").clone();
            scenario.append(&mut run, turn("b"))?;
            let target = || Target::run(&run.id).path("/claims");
            let claim = |hash: &Value| json!({"only_if": {"hash": hash}}).to_string();
            scenario.post(target(), claim(&read))?.expect_problem(409, "conflict").needs("hash_of_applied")?;
            let head = scenario.head(&run)?;
            head.has("/epoch", 0)?;
            scenario.post(target(), claim(head.value_at("/hash")))?.ok().needs("claim_applied")?.has("/epoch", 1)
        },
    ),
    rule("read_back_writer", SECTION, "an outcome reports the run's current writer").test(|scenario, mut run| {
        scenario.claim(&mut run, "one")?;
        let id = scenario.append(&mut run, turn("a"))?;
        scenario.claim(&mut run, "two")?;
        let answer = scenario.query_run(&run, "/outcome", &[("record_id", &id)])?.ok()?;
        answer.has("/outcome", "applied")?;
        answer.has("/epoch", 2)?;
        answer.has("/writer_id", "two")
    }),
    rule("record_writer", SECTION, "an outcome reports the writer of the record, or of the record that it repeats")
        .test(|scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let record = run.record(turn("a"));
            scenario.send(&mut run, &record)?.expect_applied()?;
            scenario.claim(&mut run, "two")?;
            let again = record.with("writer_id", "two").with("writer_epoch", 2).with("writer_seq", 1);
            let repeat = scenario.post(Target::run(&run.id).path("/records"), again.0.to_string())?.ok()?;
            repeat.has("/outcome", "repeat").needs("repeat_of_applied")?;
            run.note_position(&repeat);
            let id = again.0["record_id"].as_str().unwrap_or_default().to_owned();
            let outcome = scenario.query_run(&run, "/outcome", &[("record_id", &id)])?.ok()?;
            for answer in [repeat, outcome] {
                answer.has("/record_writer/writer_id", "one")?;
                answer.has("/record_writer/epoch", 1)?;
            }
            Ok(())
        }),
    rule("append_reads_back", SECTION, "an append at latest reports the run's current writer").test(
        |scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let record = run.record(turn("a"));
            for (writer, epoch, outcome) in [("one", 1, "applied"), ("two", 2, "repeat")] {
                let target = Target::run(&run.id).path("/records").with("consistency", "latest");
                let answer = scenario.post(target, record.0.to_string())?.ok()?;
                run.note_position(&answer);
                answer.has("/outcome", outcome).needs("repeat_of_applied")?;
                answer.has("/writer/writer_id", writer)?;
                answer.has("/writer/epoch", epoch)?;
                if epoch == 1 {
                    scenario.claim(&mut run, "two")?;
                }
            }
            Ok(())
        },
    ),
    rule("writer_not_filled_in", SECTION, "the server does not fill in the run's writer for a record without one")
        .test(|scenario, mut run| {
            scenario.claim(&mut run, "one")?;
            let mut record = run.record(turn("a"));
            if let Some(members) = record.0.as_object_mut() {
                members.remove("writer_id");
                members.remove("writer_epoch");
            }
            scenario.send(&mut run, &record)?.expect_refused("fenced").needs("fenced_writer").map(drop)
        }),
    rule("numbers_filled_in", "The record", "the server fills in the next numbers if a client omits them").test(
        |scenario, mut run| {
            for (id, number) in [("a", 1), ("b", 2)] {
                let mut record = run.record(turn(id));
                if let Some(members) = record.0.as_object_mut() {
                    members.remove("writer_seq");
                    members.remove("journal_seq");
                }
                scenario.send(&mut run, &record)?.expect_applied()?;
                let head = scenario.head(&run)?;
                head.has("/next_writer_seq", number + 1)?;
                head.has("/next_journal_seq", number + 1)?;
            }
            Ok(())
        },
    ),
    rule(
        "renumbered",
        "Judgement",
        "a record refused for its number and sent again without one gets the next number and is applied once",
    )
    .test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        scenario.append(&mut run, turn("z"))?;
        // The writer_seq is consumed, as if another server had assigned it to another record.
        let lost = run.record(turn("b")).with("writer_seq", 1);
        scenario.send(&mut run, &lost)?.expect_refused("conflict").needs("conflict_number")?;
        let again = lost.with("writer_seq", Value::Null).with("journal_seq", Value::Null);
        let applied = scenario.send(&mut run, &again)?.expect_applied().needs("numbers_filled_in")?;
        scenario.send(&mut run, &again)?.expect_repeat(&applied).needs("repeat_of_applied")?;
        scenario.head(&run)?.has("/records", 3)
    }),
];
