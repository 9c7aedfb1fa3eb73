//! Batches and lifecycles in the fold: visibility of a batch, open states, and an identical rebuild.

use anyhow::{Context, ensure};
use runlog_projector::{
    Contents,
    index::{
        query::{
            self,
            events::Filter,
            timeline::{BYTES_MAX, Budget, Show},
            visible::Visible,
        },
        store::{INDICES, Rows, anomalies, dead_letters, deliveries, effects::EffectKind, runs, write_backs},
    },
};
use runlog_schemas::{
    answer::{Class, Disposition, EffectStatus, ErrorKind, Reason},
    draft::Draft,
    id::{Epoch, JournalSeq, Offset, PartitionId, RecordId, RunId, WriterSeq},
    judge::lifecycle::LifecycleStatus,
    payload::{lifetime::RetentionHorizon, wrapped::Batch},
    record::JournalRecord,
    refs::EntityKind,
};
use runlog_tests::{
    agent::Agent,
    checkpoints::Journal,
    example_records::{examples, head, number},
    random::Random,
};
use serde_json::{Value, json};

const PLACE: query::TopicPartition<'_> = query::TopicPartition { topic: "test", partition: PartitionId::ZERO };

/// The run of most tests here.
fn run() -> RunId<&'static str> {
    RunId::new("run").expect("an id")
}

/// The id of a record.
fn id(text: &str) -> RecordId {
    RecordId::new(text.to_owned()).expect("an id")
}

/// The agent's next records as one batch.
fn batch(name: &str, records: Vec<JournalRecord>) -> anyhow::Result<JournalRecord> {
    let place = records[0].place.clone();
    let mut batch = JournalRecord::new(run(), id(name), "agent", Batch { records }.into());
    batch.place = place;
    batch.place.journal_seq = JournalSeq::ZERO;
    Ok(batch)
}

/// A record of the agent's with a payload given as JSON.
fn typed(agent: &mut Agent, payload: &Value) -> anyhow::Result<JournalRecord> {
    let text = json!({ "run_id": agent.run_id, "payload": payload }).to_string();
    Ok(agent.record(Draft::parse(&text)?.record.payload))
}

fn intent(effect_id: &str) -> Value {
    let at = |kind: &str| json!({ "kind": kind, "id": "x", "trust": "trusted", "privacy": "internal" });
    json!({ "type": "effect_intent", "effect_id": effect_id, "kind": "file_write",
        "subject_ref": { "kind": "tool_call", "id": "c", "privacy": "internal" }, "source": at("sdk"),
        "redacted_summary": "" })
}

fn result(effect_id: &str, status: &str) -> Value {
    json!({ "type": "effect_result", "effect_id": effect_id, "terminal_status": status, "redacted_summary": "" })
}

#[test]
fn a_batch_is_never_half_visible() -> anyhow::Result<()> {
    let (mut journal, mut random) = (Journal::new()?, Random::new(7));
    let mut agent = Agent::new("run");
    let (mut applied, mut refused) = (0, 0);
    for round in 0..100 {
        let mut made = Vec::new();
        for _ in 0..=random.between(0, 4) {
            let request = agent.request("book", &json!(random.between(0, 3)));
            let id = request.body.record_id.clone();
            made.push(request);
            made.push(agent.complete(&id, &json!("ok")));
            made.push(agent.turn("said"));
        }
        let bad = random.between(0, 2) == 0;
        if bad {
            // A position among the turns.
            let at = 2 + 3 * usize::try_from(random.between(0, made.len() as u64 / 3))?;
            let place = made[at].place.clone();
            let mut orphan = agent.complete("nobody", &json!(1));
            orphan.place = place;
            made[at] = orphan;
        }
        journal.fold(1)?;
        let before = journal.digests()?;
        journal.append(&batch(&format!("batch {round}"), made)?);
        journal.fold(1)?;
        for ((index, before), after) in INDICES.into_iter().zip(before).zip(journal.digests()?) {
            // A refused record is kept unchanged, so that it can be folded again.
            let may_change = !bad || [anomalies::INDEX, runs::INDEX, deliveries::INDEX].contains(&index);
            ensure!(may_change || before == after, "round {round}: a refused batch changed {}", index.name);
        }
        *(if bad { &mut refused } else { &mut applied }) += 1;
        continue_numbers(&mut agent, &journal)?;
    }
    ensure!(
        journal.refused()?.len() == refused && refused > 20 && applied > 20,
        "{refused} refused, {applied} applied"
    );
    ensure!(journal.refused()?.iter().all(|reason| reason.ends_with(" transition")), "{:?}", journal.refused()?);
    for batch in [1, 3, 1000] {
        ensure!(journal.rebuilt(batch)?.digests()? == journal.digests()?, "folded {batch} at a time");
    }
    Ok(())
}

/// Continues the agent's numbers after the applied records.
fn continue_numbers(agent: &mut Agent, journal: &Journal) -> anyhow::Result<()> {
    let head = head(journal.store(), RunId::new(agent.run_id.as_str())?)?;
    agent.continue_after(head.next_writer_seq.saturating_sub(1), head.next_journal_seq.saturating_sub(1));
    Ok(())
}

#[test]
fn a_batch_leaves_the_run_as_its_records_would_alone_and_each_is_found_by_its_index() -> anyhow::Result<()> {
    let (mut whole, mut alone) = (Journal::new()?, Journal::new()?);
    let mut agent = Agent::new("run");
    let request = agent.request("book", &json!(1));
    let id = request.body.record_id.clone();
    let records = vec![request, agent.complete(&id, &json!(2)), agent.checkpoint(&[json!("m")])];
    for record in &records {
        alone.append(record);
    }
    whole.append(&batch("batch", records.clone())?);
    whole.fold(1)?;
    alone.fold(1)?;
    ensure!(head(whole.store(), run())? == head(alone.store(), run())?, "the run hash included");
    let outcome =
        |at: (Offset, u32), id: &str| query::outcome::get(whole.store(), PLACE, run(), at, RecordId::new(id).ok());
    for (index, record) in (0..).zip(&records) {
        let row = outcome((1.into(), index), record.body.record_id.as_str())?.context("an outcome")?;
        ensure!((row.outcome.as_str(), row.position.index) == ("applied", index), "{row:?}");
    }
    ensure!(
        outcome((1.into(), 0), "batch")?.context("an outcome")?.outcome == Disposition::Applied,
        "by the batch's id"
    );
    ensure!(outcome((1.into(), 0), "never sent")?.is_none(), "the record there has another id");
    // Again, as a whole and in part.
    whole.append(&batch("batch", records.clone())?);
    whole.append(&records[1]);
    whole.fold(1)?;
    let outcome =
        |at: (Offset, u32), id: &str| query::outcome::get(whole.store(), PLACE, run(), at, RecordId::new(id).ok());
    let again = outcome((2.into(), 0), "batch")?.context("an outcome")?;
    ensure!((again.outcome.as_str(), again.position.offset) == ("repeat", 1.into()), "{again:?}");
    let part = outcome((3.into(), 0), records[1].body.record_id.as_str())?.context("an outcome")?;
    ensure!((part.outcome.as_str(), part.position.index) == ("repeat", 1), "{part:?}");
    Ok(())
}

#[test]
fn a_refused_batch_names_the_record_at_fault() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    let records = vec![agent.turn("x"), agent.complete("nobody", &json!(1)), agent.turn("y")];
    journal.append(&batch("bad", records)?);
    journal.fold(1)?;
    for (index, id) in [(0, "bad"), (0, ""), (1, "run/2"), (2, "run/3")] {
        let row = query::outcome::get(journal.store(), PLACE, run(), (1.into(), index), RecordId::new(id).ok())?
            .context("an outcome")?;
        ensure!((row.outcome.as_str(), row.position.index) == ("refused", 1), "{index} {id:?}: {row:?}");
        ensure!(row.reason == Some(Reason::Transition.into()), "{row:?}");
    }
    let (anomalies, _) = query::anomalies::page(journal.store(), PLACE, &Visible::default(), Some(run()), None, 9)?;
    ensure!(
        anomalies.len() == 1 && anomalies[0].record_id == "bad" && anomalies[0].position.index == 1,
        "{anomalies:?}"
    );
    Ok(())
}

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
    journal.append(&JournalRecord::of_partition(id("horizon"), "agent", horizon.into()));
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
fn a_contracts_effect_is_pending_until_its_result_and_keeps_refused_results_as_evidence() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    journal.append(&agent.claim());
    let mut safe = typed(&mut agent, &intent("safe"))?;
    safe.body.idempotency_key = Some("key".into());
    let intents = vec![safe, typed(&mut agent, &intent("e1"))?, typed(&mut agent, &intent("e2"))?];
    for record in &intents {
        journal.append(record);
    }
    journal.append(&typed(&mut agent, &result("e2", "failed"))?);
    let mut zombie = agent.clone();
    journal.append(&agent.claim());
    // Refused as fenced, in a batch.
    let late = vec![typed(&mut zombie, &result("e1", "completed"))?, zombie.turn("late")];
    journal.append(&batch("late", late)?);
    journal.fold(1)?;
    let pending = query::effects::pending(journal.store(), None, PLACE, run(), (None, 100), None)?.0;
    let rows: Vec<_> = pending
        .iter()
        .map(|effect| (effect.kind.as_str(), effect.id.as_str(), effect.class.as_str(), effect.evidence.len()))
        .collect();
    ensure!(rows == [("effect", "safe", "retry_safe", 0), ("effect", "e1", "reconcile_required", 1)], "{rows:?}");
    ensure!(
        pending[1].tool_name == "file_write" && pending[1].evidence[0].status == EffectStatus::Completed,
        "{pending:?}"
    );
    let (every, shown) = (query::effects::Listed::All, (Show::Raw, &Budget::new(BYTES_MAX)));
    let (all, _) = query::effects::page(journal.store(), PLACE, &Visible::default(), every, shown, (None, 9), 0)?;
    let statuses: Vec<_> =
        all.iter().map(|effect| (effect.pending.id.as_str(), effect.pending.status.as_str())).collect();
    ensure!(statuses == [("e1", "pending"), ("safe", "pending"), ("e2", "failed")], "{statuses:?}");
    // A decision adopts the evidence.
    let decision = json!({ "type": "effect_resolution", "request_record_id": "e1", "decision": "adopt",
        "who": "jo", "why": "it is there" });
    let mut decided = typed(&mut agent.clone(), &decision)?;
    (decided.place.writer_seq, decided.body.record_id) = (WriterSeq::ZERO, id("decision"));
    journal.append(&decided);
    journal.fold(1)?;
    ensure!(
        query::effects::status(journal.store(), run(), id("e1").borrow())?
            .is_some_and(|status| status == LifecycleStatus::Completed),
        "adopted"
    );
    ensure!(
        journal
            .store()
            .row(
                runlog_projector::index::store::effects::pending(run(), EffectKind::Effect, id("e1").borrow()).bytes()
            )?
            .is_none(),
        "not pending"
    );
    ensure!(journal.rebuilt(5)?.digests()? == journal.digests()?, "rebuilt");
    Ok(())
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

#[test]
fn recovery_lists_open_items_in_pages() -> anyhow::Result<()> {
    let (mut journal, mut agent) = (Journal::new()?, Agent::new("run"));
    let wake = |id: &str| {
        json!({ "type": "wake", "condition_id": id, "run_id": "run", "event_filter_fingerprint": "f",
        "resume_policy": "none", "trigger_status": "registered", "idempotency_key": "i" })
    };
    let message = json!({ "type": "run_message", "message_id": "m", "source_run_id": "run", "content_ref": "c",
        "address_target": { "type": "run", "run_id": "b" }, "correlation": {}, "delivery_status": "accepted",
        "idempotency_key": "i" });
    for tool in ["a", "b"] {
        let request = agent.request(tool, &json!(1));
        let id = request.body.record_id.clone();
        journal.append(&request);
        journal.append(&agent.complete(&id, &json!(1)));
    }
    for payload in [wake("w1"), wake("w2"), message, staged(0), staged(1)] {
        journal.append(&typed(&mut agent, &payload)?);
    }
    journal.fold(1)?;
    for limit in [1, 2, 3, 100] {
        let (mut cursor, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let ask = query::recovery::Query {
                full: false,
                from_start: false,
                content: true,
                limit,
                pending: limit,
                now: None,
            };
            let key = query::parse_cursor(cursor.as_deref())?;
            let page = query::recovery::get(journal.store(), &Contents::none(), PLACE, run(), ask, key.as_deref())?;
            let page = page.context("a run")?;
            let here: Vec<String> = [
                page.completed.into_iter().map(|call| call.tool_name).collect(),
                [page.approvals, page.wakes, page.messages, page.write_backs]
                    .concat()
                    .into_iter()
                    .map(|open| open.id)
                    .collect::<Vec<_>>(),
            ]
            .concat();
            ensure!(here.len() <= limit, "{here:?} in a page of {limit}");
            found.extend(here);
            pages += 1;
            ensure!(pages < 20, "it ends");
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        ensure!(found == ["a", "b", "w1", "w2", "m", "0", "1"], "by {limit}: {found:?}");
    }
    Ok(())
}

#[test]
fn events_are_found_by_each_part_of_their_summary() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    for run in ["a", "b"] {
        let mut agent = Agent::new(run);
        let mut turn = agent.turn("hello");
        turn.body.event_index.tags = vec!["red".into(), run.into()];
        turn.body.event_index.correlation_keys = serde_json::from_value(json!([{ "key": "ticket", "value": run }]))?;
        turn.body.event_index.related_refs =
            serde_json::from_value(json!([{ "kind": "message", "id": "m", "privacy": "internal" }]))?;
        journal.append(&turn);
        journal.append(&agent.request("book", &json!(1)));
    }
    journal.fold(1)?;
    let event_ids = |filter: Filter| -> anyhow::Result<Vec<String>> {
        let (mut cursor, mut ids) = (None, Vec::new());
        loop {
            let (page, next) = query::events::page(journal.store(), PLACE, &filter, cursor.as_deref(), 1)?;
            ids.extend(page.into_iter().map(|event| event.record_id.to_string()));
            cursor = next;
            if cursor.is_none() {
                return Ok(ids);
            }
        }
    };
    let some = |text: &str| Some(text.to_owned());
    for (filter, ids) in [
        (Filter { family: some("conversation_turn"), ..Filter::default() }, vec!["a/1", "b/1"]),
        (Filter { family: some("tool_call"), kind: some("requested"), ..Filter::default() }, vec!["a/2", "b/2"]),
        (Filter { family: some("tool_call"), kind: some("failed"), ..Filter::default() }, vec![]),
        (Filter { tag: some("red"), ..Filter::default() }, vec!["a/1", "b/1"]),
        (Filter { tag: some("red"), run_id: Some(RunId::new("b".to_owned())?), ..Filter::default() }, vec!["b/1"]),
        (Filter { tag: some("a"), ..Filter::default() }, vec!["a/1"]),
        (Filter { correlation: vec![("ticket".into(), "b".into())], ..Filter::default() }, vec!["b/1"]),
        (Filter { related: Some((EntityKind::Message, "m".into())), ..Filter::default() }, vec!["a/1", "b/1"]),
        (Filter { subject: Some((EntityKind::ToolCall, "a/2".into())), ..Filter::default() }, vec!["a/2"]),
        (Filter { subject: Some((EntityKind::Run, "a".into())), ..Filter::default() }, vec!["a/1"]),
        (Filter { run_id: Some(RunId::new("b".to_owned())?), ..Filter::default() }, vec!["b/1", "b/2"]),
    ] {
        ensure!(event_ids(filter.clone())? == ids, "{:?}", (&filter, event_ids(filter.clone())?));
    }
    ensure!(event_ids(Filter::default()).is_err(), "a filter needs a condition");
    Ok(())
}

/// An operator's decision on an effect.
fn decided(agent: &Agent, name: &str, effect_id: &str, decision: &str) -> anyhow::Result<JournalRecord> {
    let payload = json!({ "type": "effect_resolution", "request_record_id": effect_id, "decision": decision,
        "who": "jo", "why": "looked" });
    let mut record = typed(&mut agent.clone(), &payload)?;
    (record.place.writer_seq, record.body.record_id) = (WriterSeq::ZERO, id(name));
    Ok(record)
}

/// The class and the revision of the run's only pending effect.
fn only_pending(journal: &mut Journal) -> anyhow::Result<(Class, u64)> {
    journal.fold(1)?;
    let pending = query::effects::pending(journal.store(), None, PLACE, run(), (None, 100), None)?.0;
    ensure!(pending.len() == 1, "{pending:?}");
    Ok((*pending[0].class.known().context("a class")?, pending[0].revision))
}

/// Why the journal refused its last record.
fn refused(journal: &mut Journal) -> anyhow::Result<String> {
    journal.fold(1)?;
    journal.refused()?.pop().context("a refusal")
}

#[test]
fn a_paused_writers_decision_that_the_effect_did_not_happen_does_not_undo_a_later_attempt() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    let mut agent = Agent::new("run");
    journal.append(&agent.claim());
    journal.append(&typed(&mut agent, &intent("e"))?);
    // The writer is cancelled before its effect, decides so, and pauses before the append.
    let mut paused = decided(&agent, "paused", "e", "not_done")?;
    paused.body.facts.epoch = Some(paused.place.writer_epoch);
    // Another writer claims the run. The operator is right that the effect did not happen, and the effect is started
    // again.
    journal.append(&agent.claim());
    let (_, revision) = only_pending(&mut journal)?;
    let mut operators = decided(&agent, "operator's", "e", "not_done")?;
    operators.body.facts.revision = Some(revision);
    journal.append(&operators);
    ensure!(only_pending(&mut journal)? == (Class::RetrySafe, revision + 1), "not done");
    agent.continue_after(WriterSeq::ZERO, JournalSeq::from(1));
    journal.append(&typed(&mut agent, &intent("e"))?);
    ensure!(only_pending(&mut journal)? == (Class::ReconcileRequired, revision + 2), "started again");
    journal.append(&paused);
    ensure!(
        only_pending(&mut journal)? == (Class::ReconcileRequired, revision + 2),
        "the paused decision decides nothing"
    );
    ensure!(refused(&mut journal)? == "paused fenced", "as of another epoch");
    ensure!(journal.rebuilt(5)?.digests()? == journal.digests()?, "rebuilt");
    Ok(())
}

#[test]
fn a_decision_does_not_discard_evidence_that_arrived_meanwhile() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    let mut agent = Agent::new("run");
    journal.append(&agent.claim());
    journal.append(&typed(&mut agent, &intent("e"))?);
    let mut zombie = agent.clone();
    journal.append(&agent.claim());
    let (_, seen) = only_pending(&mut journal)?;
    // While the operator asks the bank, the first writer's result arrives.
    let late = typed(&mut zombie, &result("e", "completed"))?;
    journal.append(&late);
    let mut stale = decided(&agent, "stale", "e", "not_done")?;
    stale.body.facts.revision = Some(seen);
    journal.append(&stale);
    ensure!(only_pending(&mut journal)? == (Class::ReconcileRequired, seen + 1), "the journal holds its completion");
    ensure!(refused(&mut journal)? == "stale stale_decision", "made at an earlier state");
    // Against that evidence the decision has to name it.
    let mut unnamed = decided(&agent, "unnamed", "e", "not_done")?;
    unnamed.body.facts.revision = Some(seen + 1);
    journal.append(&unnamed);
    ensure!(refused(&mut journal)? == "unnamed transition", "names no evidence");
    let mut named = decided(&agent, "named", "e", "not_done")?;
    (named.body.facts.revision, named.body.facts.evidence) = (Some(seen + 1), Some(late.body.record_id));
    journal.append(&named);
    ensure!(only_pending(&mut journal)? == (Class::RetrySafe, seen + 2), "decided against it");
    Ok(())
}

#[test]
fn every_later_record_of_an_effect_cancels_a_not_done_decision() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    let mut agent = Agent::new("run");
    journal.append(&typed(&mut agent, &intent("e"))?);
    journal.append(&typed(&mut agent, &result("e", "unknown"))?);
    for (round, payload) in [intent("e"), result("e", "unknown")].iter().enumerate() {
        journal.append(&decided(&agent, &format!("decision {round}"), "e", "not_done")?);
        journal.fold(1)?;
        let before = query::effects::pending(journal.store(), None, PLACE, run(), (None, 100), None)?.0;
        ensure!(before[0].class == Class::RetrySafe, "{before:?}");
        journal.append(&typed(&mut agent, payload)?);
        journal.fold(1)?;
        let after = query::effects::pending(journal.store(), None, PLACE, run(), (None, 100), None)?.0;
        ensure!(after[0].class == Class::ReconcileRequired, "{after:?}");
        // Only the intent is another start.
        ensure!(after[0].attempts == 2, "{after:?}");
    }
    Ok(())
}

#[test]
fn refused_content_is_refused_again_and_a_record_delivered_twice_is_applied_once() -> anyhow::Result<()> {
    let mut journal = Journal::new()?;
    let mut agent = Agent::new("run");
    let turn = agent.turn("said");
    journal.append(&turn);
    let mut other = agent.turn("said otherwise");
    other.body.record_id = turn.body.record_id.clone();
    journal.append(&other);
    journal.append(&other);
    journal.fold(1)?;
    ensure!(journal.refused()?.len() == 1, "{:?}", journal.refused()?);
    let row = query::outcome::get(journal.store(), PLACE, run(), (3.into(), 0), Some(turn.body.record_id.borrow()))?;
    let row = row.context("an outcome")?;
    ensure!(row.outcome == Disposition::Repeat, "{row:?}");
    ensure!(row.reason == Some(Reason::Conflict.into()), "{row:?}");
    ensure!(row.position.offset.get() == 2, "{row:?}");
    for batch in [1, 100] {
        ensure!(journal.rebuilt_stuttering(batch)?.digests()? == journal.digests()?, "each twice, {batch} at a time");
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
