//! Positions and numbers of records, the run hash, and outcomes by position and by id.

use super::client::Target;
use super::{
    payloads::{checkpoint, message, proposal, prune, turn, write_back},
    rule::{Rule, rule},
    scenario::Needs,
};
use runlog_schemas::{id::RunId, partition::partition_of};
use serde_json::json;

pub(crate) const RULES: &[Rule] = &[
    rule("journal_told", "A journal", "a server reports topic, journal id and partition count").test(
        |scenario, mut run| {
            let record = run.record(turn("a"));
            let sent = scenario.send(&mut run, &record)?.expect_applied()?;
            let answer = scenario.get(Target::new("/v1/journal"))?.ok()?;
            answer.check(
                answer.value_at("/partitions").as_u64().is_some_and(|count| count > 0),
                "at least 1 in partitions",
            )?;
            answer.check(answer.value_at("/journal_id").as_str().is_some_and(|id| !id.is_empty()), "a journal_id")?;
            answer.has("/topic", sent.value_at("/position/topic").clone())
        },
    ),
    rule("partition_of_run", "The parts", "a run's partition is murmur2(run_id) mod the journal's partition count")
        .test(|scenario, _| {
            let journal = scenario.get(Target::new("/v1/journal"))?.ok()?;
            let count =
                journal.value_at("/partitions").as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
            for _ in 0..8 {
                let mut run = scenario.run();
                let record = run.record(turn("a"));
                let sent = scenario.send(&mut run, &record)?.expect_applied()?;
                let run_id = RunId::new(run.id.as_str()).map_err(|_| sent.failure("a legal run id"))?;
                sent.has("/position/partition", partition_of(run_id, count).get())?;
            }
            Ok(())
        }),
    rule("one_partition", "The parts", "all records of a run are in one partition, in the order of their offsets")
        .test(|scenario, mut run| {
            let mut before = None;
            for id in ["a", "b", "c"] {
                let record = run.record(turn(id));
                let sent = scenario.send(&mut run, &record)?.expect_applied()?;
                let place = (sent.value_at("/position/partition").as_u64(), sent.value_at("/position/offset").as_u64());
                let follows = before.is_none_or(|(partition, offset)| partition == place.0 && offset < place.1);
                sent.check(follows, "the partition of the record before it, and a higher offset")?;
                before = Some(place);
            }
            Ok(())
        }),
    rule("unnumbered_take_none", "The record", "unnumbered kinds consume no journal_seq").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        for unnumbered in [
            checkpoint("c", 1, &[message("hello")]),
            proposal("p", "pending"),
            write_back("staged", 1),
            write_back("committed", 1),
            prune(1, false),
        ] {
            scenario.append(&mut run, unnumbered)?;
            scenario.append(&mut run, turn("b"))?;
        }
        Ok(())
    }),
    rule("next_numbers", "Judgement", "a run reports its next journal_seq and writer_seq").test(|scenario, mut run| {
        scenario.append(&mut run, turn("a"))?;
        scenario.append(&mut run, checkpoint("c", 1, &[message("hello")]))?;
        let head = scenario.head(&run)?;
        head.has("/next_journal_seq", 2)?;
        head.has("/next_writer_seq", 3)
    }),
    rule("hash_of_applied", "The record", "the run hash changes with every applied record, and only then").test(
        |scenario, mut run| {
            let first = run.record(turn("a"));
            scenario.send(&mut run, &first)?.expect_applied()?;
            let before = scenario.head(&run)?;
            let is_hash = before.value_at("/hash").as_str().is_some_and(|hash| hash.len() == 64);
            before.check(is_hash, "64 hexadecimal digits at /hash")?;
            scenario.send(&mut run, &first)?;
            scenario.head(&run)?.has("/hash", before.value_at("/hash").clone())?;
            let again = run.record(turn("a"));
            scenario.send(&mut run, &again)?.expect_applied()?;
            let after = scenario.head(&run)?;
            after.check(after.value_at("/hash") != before.value_at("/hash"), "another hash after another record")
        },
    ),
    rule("unknown_members", "The record", "unknown members belong to a record's content").test(|scenario, mut run| {
        let record = run.record(turn("a")).with("x_of_the_host", json!({"deep": [1, "two"]}));
        let first = scenario.send(&mut run, &record)?.expect_applied()?;
        scenario.send(&mut run, &record)?.expect_repeat(&first).needs("repeat_of_applied")?;
        let other = record.with("x_of_the_host", json!({"deep": [1, "three"]}));
        scenario.send(&mut run, &other)?.expect_refused("conflict").needs("conflict_id").map(drop)
    }),
    rule("outcome_by_position", "Judgement", "the outcome of an append is found by its position").test(
        |scenario, mut run| {
            let record = run.record(turn("a"));
            let sent = scenario.send(&mut run, &record)?.expect_applied()?;
            let (place, id) = (sent.position_text(), record.id());
            let answer = scenario.query_run(&run, "/outcome", &[("position", &place), ("record_id", id)])?.ok()?;
            answer.has("/outcome", "applied")?;
            answer.has("/position", sent.value_at("/position").clone())?;
            let early = run.record(turn("b")).with("writer_seq", 7);
            let refused = scenario.send(&mut run, &early)?.expect_refused("gap").needs("gap")?;
            let place = refused.position_text();
            let answer =
                scenario.query_run(&run, "/outcome", &[("position", &place), ("record_id", early.id())])?.ok()?;
            answer.has("/outcome", "refused")?;
            answer.has("/reason", "gap")
        },
    ),
    rule("outcome_by_id", "Judgement", "the outcome of a record is found by its id").test(|scenario, mut run| {
        let record = run.record(turn("a"));
        let sent = scenario.send(&mut run, &record)?.expect_applied()?;
        let answer = scenario.query_run(&run, "/outcome", &[("record_id", record.id())])?.ok()?;
        answer.has("/outcome", "applied")?;
        answer.has("/position", sent.value_at("/position").clone())?;
        answer.has("/epoch", 0)?;
        scenario.query_run(&run, "/outcome", &[("record_id", "nobody's")])?.expect_problem(404, "not_found")
    }),
];
