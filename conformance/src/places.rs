//! Positions and numbers of records, the run hash, and outcomes by position and by id.

use super::client::Target;
use super::{
    Rule,
    payloads::{checkpoint, message, proposal, prune, turn, write_back},
    scenario::{Checked, Needs, Scenario},
};
use runlog_schemas::{id::RunId, partition::partition_of};
use serde_json::json;

pub(crate) const RULES: &[Rule] = &[
    Rule::new("journal_told", "A journal", "a server reports topic, journal id and partition count", journal_told),
    Rule::new(
        "partition_of_run",
        "The parts",
        "a run's partition is murmur2(run_id) mod the journal's partition count",
        partition,
    ),
    Rule::new(
        "one_partition",
        "The parts",
        "all records of a run are in one partition, in the order of their offsets",
        one_partition,
    ),
    Rule::new("unnumbered_take_none", "The record", "unnumbered kinds consume no journal_seq", unnumbered),
    Rule::new("next_numbers", "Judgement", "a run reports its next journal_seq and writer_seq", next_numbers),
    Rule::new("hash_of_applied", "The record", "the run hash changes with every applied record, and only then", hash),
    Rule::new("unknown_members", "The record", "unknown members belong to a record's content", unknown_members),
    Rule::new("outcome_by_position", "Judgement", "the outcome of an append is found by its position", by_position),
    Rule::new("outcome_by_id", "Judgement", "the outcome of a record is found by its id", by_id),
];

fn journal_told(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a"));
    let sent = scenario.send(&mut run, &record)?.applied()?;
    let answer = scenario.get(Target::new("/v1/journal"))?.ok()?;
    answer.that(answer.at("/partitions").as_u64().is_some_and(|count| count > 0), "at least 1 in partitions")?;
    answer.that(answer.at("/journal_id").as_str().is_some_and(|id| !id.is_empty()), "a journal_id")?;
    answer.has("/topic", sent.at("/position/topic").clone())
}

fn partition(scenario: &mut Scenario<'_>) -> Checked {
    let journal = scenario.get(Target::new("/v1/journal"))?.ok()?;
    let count = journal.at("/partitions").as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    for _ in 0..8 {
        let mut run = scenario.run();
        let record = run.record(turn("a"));
        let sent = scenario.send(&mut run, &record)?.applied()?;
        let run_id = RunId::new(run.id.as_str()).map_err(|_| sent.fails("a legal run id"))?;
        sent.has("/position/partition", partition_of(run_id, count).get())?;
    }
    Ok(())
}

fn one_partition(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let mut before = None;
    for id in ["a", "b", "c"] {
        let record = run.record(turn(id));
        let sent = scenario.send(&mut run, &record)?.applied()?;
        let place = (sent.at("/position/partition").as_u64(), sent.at("/position/offset").as_u64());
        let follows = before.is_none_or(|(partition, offset)| partition == place.0 && offset < place.1);
        sent.that(follows, "the partition of the record before it, and a higher offset")?;
        before = Some(place);
    }
    Ok(())
}

fn unnumbered(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, turn("a"))?;
    for unnumbered in [
        checkpoint("c", 1, &[message("hello")]),
        proposal("p", "pending"),
        write_back("staged", 1),
        write_back("committed", 1),
        prune(1, false),
    ] {
        scenario.say(&mut run, unnumbered)?;
        scenario.say(&mut run, turn("b"))?;
    }
    Ok(())
}

fn next_numbers(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    scenario.say(&mut run, turn("a"))?;
    scenario.say(&mut run, checkpoint("c", 1, &[message("hello")]))?;
    let head = scenario.head(&run)?;
    head.has("/next_journal_seq", 2)?;
    head.has("/next_writer_seq", 3)
}

fn hash(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let first = run.record(turn("a"));
    scenario.send(&mut run, &first)?.applied()?;
    let before = scenario.head(&run)?;
    let is_hash = before.at("/hash").as_str().is_some_and(|hash| hash.len() == 64);
    before.that(is_hash, "64 hexadecimal digits at /hash")?;
    scenario.send(&mut run, &first)?;
    scenario.head(&run)?.has("/hash", before.at("/hash").clone())?;
    let again = run.record(turn("a"));
    scenario.send(&mut run, &again)?.applied()?;
    let after = scenario.head(&run)?;
    after.that(after.at("/hash") != before.at("/hash"), "another hash after another record")
}

fn unknown_members(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a")).with("x_of_the_host", json!({"deep": [1, "two"]}));
    let first = scenario.send(&mut run, &record)?.applied()?;
    scenario.send(&mut run, &record)?.repeats(&first).needs("repeat_of_applied")?;
    let other = record.with("x_of_the_host", json!({"deep": [1, "three"]}));
    scenario.send(&mut run, &other)?.refused("conflict").needs("conflict_id").map(drop)
}

fn by_position(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a"));
    let sent = scenario.send(&mut run, &record)?.applied()?;
    let (place, id) = (sent.place(), record.id());
    let answer = scenario.of(&run, "/outcome", &[("position", &place), ("record_id", id)])?.ok()?;
    answer.has("/outcome", "applied")?;
    answer.has("/position", sent.at("/position").clone())?;
    let early = run.record(turn("b")).with("writer_seq", 7);
    let refused = scenario.send(&mut run, &early)?.refused("gap").needs("gap")?;
    let place = refused.place();
    let answer = scenario.of(&run, "/outcome", &[("position", &place), ("record_id", early.id())])?.ok()?;
    answer.has("/outcome", "refused")?;
    answer.has("/reason", "gap")
}

fn by_id(scenario: &mut Scenario<'_>) -> Checked {
    let mut run = scenario.run();
    let record = run.record(turn("a"));
    let sent = scenario.send(&mut run, &record)?.applied()?;
    let answer = scenario.of(&run, "/outcome", &[("record_id", record.id())])?.ok()?;
    answer.has("/outcome", "applied")?;
    answer.has("/position", sent.at("/position").clone())?;
    answer.has("/epoch", 0)?;
    scenario.of(&run, "/outcome", &[("record_id", "nobody's")])?.problem(404, "not_found")
}
