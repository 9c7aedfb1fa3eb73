//! Examples of all kinds of records in the fold, a successor's write-backs, and a bound of a list.

use anyhow::{Context, ensure};
use runlog_projector::index::{
    query,
    store::{INDICES, anomalies, dead_letters, write_backs},
};
use runlog_schemas::{
    answer::ErrorKind,
    draft::Draft,
    id::{Epoch, PartitionId, RecordId, RunId},
    payload::lifetime::RetentionHorizon,
    record::JournalRecord,
};
use runlog_tests::{
    agent::Agent,
    checkpoints::Journal,
    example_records::{examples, head, number},
};
use serde_json::{Value, json};

const PLACE: query::TopicPartition<'_> =
    query::TopicPartition { topic: "test", partition: PartitionId::ZERO, log: None };

#[test]
fn every_kind_of_record_is_rebuilt_identically() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    for mut record in examples()? {
        let head = head(journal.store(), record.body.run_id.borrow().context("a run")?)?;
        number(&mut record, &head);
        journal.append(&record);
        journal.fold(1)?;
    }
    // A payload in the content store, in a run without other records.
    let mut detached_turn = Agent::new("held").turn("held elsewhere");
    detached_turn.detach(0);
    journal.append(&detached_turn);
    journal.fold(1)?;
    // A kind of the partition's own records that has rows.
    let (family, who, why) = ("conversation_turn".to_owned(), "jo".to_owned(), "policy".to_owned());
    let horizon = RetentionHorizon { family, until_millis: i64::MAX, who, why };
    journal.append(&JournalRecord::of_partition(RecordId::new("horizon".to_owned())?, "agent", horizon.into()));
    journal.fold(1)?;
    // Refusals here are due to the examples' content, and not to a number.
    let refused: Vec<String> = journal.refused()?;
    ensure!(refused.iter().all(|reason| !reason.ends_with(" gap") && !reason.ends_with(" sequence")), "{refused:?}");
    ensure!(refused == ["42-6 transition", "42-6 too transition", "42-9 transition"], "a call ends once: {refused:?}");
    let digests = journal.digests()?;
    for (index, (rows, _)) in INDICES.into_iter().zip(&digests) {
        // No kind of record is unreadable.
        ensure!(
            *rows > 0 || index == dead_letters::INDEX || (index == anomalies::INDEX && refused.is_empty()),
            "no rows in {}",
            index.name
        );
    }
    for batch in [7, 1000] {
        ensure!(journal.rebuilt(batch)?.digests()? == digests, "folded {batch} at a time");
    }
    Ok(())
}

#[test]
fn runs_are_sorted_by_time_up_to_a_bound_and_refused_beyond_it() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    journal.append(&Agent::new("run").claim());
    journal.fold(1)?;
    let newest = |mut steps: usize| {
        query::runs::newest(journal.store(), PLACE, &query::runs::Filter::default(), None, 10, 0, &mut steps)
    };
    ensure!(newest(1)?.len() == 1, "one step for each run");
    let refused = newest(0).err().context("a refusal")?;
    ensure!(refused.kind() == ErrorKind::Usage && refused.to_string().contains("prefix"), "{refused}");
    Ok(())
}

/// The run of most tests here.
fn run() -> RunId<&'static str> {
    RunId::new("run").expect("an id")
}

/// A record of the agent's with a payload given as JSON.
fn typed(agent: &mut Agent, payload: &Value) -> anyhow::Result<JournalRecord> {
    let text = json!({ "run_id": agent.run_id, "payload": payload }).to_string();
    Ok(agent.record(Draft::parse(&text)?.record.payload))
}

fn staged(txn: u64) -> Value {
    json!({ "type": "write_back_staged", "txn": txn, "at": "now", "op": { "op": "save" } })
}

fn rejected(txn: u64) -> Value {
    json!({ "type": "write_back_rejected", "txn": txn, "at": "now", "reason": { "reason": "destructive_op" } })
}

#[test]
fn a_successor_gives_up_the_newest_write_back_that_a_dead_writer_left() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    for _ in 0..2 {
        journal.append(&agent.claim());
        journal.append(&typed(&mut agent, &staged(0))?);
    }
    journal.append(&agent.claim());
    let open = |journal: &Journal| -> anyhow::Result<Vec<(String, Option<Epoch>)>> {
        let of = (Some(run()), false);
        let (found, _) = query::open_items::page(journal.store(), PLACE, write_backs::INDEX, of, None, 9)?;
        Ok(found.into_iter().map(|(_, open)| (open.id, open.epoch)).collect())
    };
    journal.fold(1)?;
    ensure!(
        open(&journal)? == [("0".to_owned(), Some(Epoch::from(1))), ("0".to_owned(), Some(Epoch::from(2)))],
        "{:?}",
        open(&journal)?
    );
    for left in [1, 0, 0] {
        journal.append(&typed(&mut agent, &rejected(0))?);
        journal.fold(1)?;
        ensure!(open(&journal)?.len() == left, "{:?}", open(&journal)?);
    }
    ensure!(journal.refused()?.is_empty(), "{:?}", journal.refused()?);
    Ok(())
}
