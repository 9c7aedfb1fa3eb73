//! The observability store: its contract, and durability.

use anyhow::{Context, ensure};
use runlog_ports::{
    Blocking,
    observability::{
        Change, Config, ConversationTurn, DbError, ObservabilityStore, Operation, Relation, Row, Store, ToolCallDone,
        ToolCallReq, ToolStatus, Validity, Write,
    },
};
use serde_json::json;
use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use crate::port_fixture::{PortBackend, done, request, row, turn};

/// Concurrent writers, and the calls of each.
const WRITERS: u8 = 8;
const CALLS_EACH: u8 = 6;
/// How long a change may take to reach a callback.
const CALLBACK_WAIT: Duration = Duration::from_secs(30);

const WHOLE: Config = Config { content: true };

fn open_store(backend: &PortBackend, config: Config) -> anyhow::Result<Store> {
    Ok(Store::open(Blocking::connect(backend.config()?)?, "workspace", config)?)
}

fn failed_end(n: u8, at: i64) -> ToolCallDone {
    let (error_kind, error_msg) = (Some("timeout".to_owned()), Some("late".to_owned()));
    ToolCallDone { outcome_json: None, error_kind, error_msg, status: ToolStatus::Failed, ..done(n, at) }
}

/// The claim.
pub fn rows_are_upserted_and_a_call_ends_once(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    for n in [3, 1, 2] {
        store.upsert_conversation_turn(turn(n, 10 * i64::from(n)))?;
        store.upsert_conversation_turn(turn(n, 10 * i64::from(n)))?;
    }
    let changed = ConversationTurn { kind: "tool".into(), ..turn(2, 20) };
    store.upsert_conversation_turn(changed.clone())?;
    ensure!(store.list_conversation_since(20, 9)? == [changed.clone(), turn(3, 30)], "since, the oldest first");
    ensure!(store.list_conversation_since(0, 2)? == [turn(1, 10), changed], "no more than the limit");

    let never = store.record_tool_call_done(done(0, 20));
    ensure!(matches!(never, Err(DbError::NotRequested { .. })), "{never:?}");
    ensure!(store.get_tool_call(row(0), "call")?.is_none(), "it was not requested");
    for n in 0..6 {
        store.record_tool_call_requested(request(n, 10 + i64::from(n)))?;
        store.record_tool_call_requested(request(n, 10 + i64::from(n)))?;
    }
    store.record_tool_call_done(done(0, 20))?;
    store.record_tool_call_done(done(0, 20))?;
    store.record_tool_call_done(failed_end(1, 20))?;
    for other in [failed_end(0, 30), ToolCallDone { latency_ms: 8, ..done(0, 20) }, done(1, 30)] {
        let refused = store.record_tool_call_done(other);
        ensure!(matches!(refused, Err(DbError::Ended { .. })), "{refused:?}");
    }
    // An update of other fields of an ended call: it stays ended.
    let mut moved = request(0, 10);
    (moved.vendor, moved.parent_id) = ("anthropic".into(), row(40));
    store.record_tool_call_requested(moved.clone())?;
    ensure!(store.get_tool_call(row(0), "call")? == Some((moved.clone(), Some(done(0, 20)))), "updated, and ended");
    ensure!(store.get_tool_call(row(1), "call")? == Some((request(1, 11), Some(failed_end(1, 20)))), "it failed");
    ensure!(store.get_tool_call(row(1), "other")?.is_none(), "another call of the request");
    let of = |parent: u8, limit: usize| store.list_tool_calls_by_parent(row(parent), limit);
    let first = [(request(3, 13), None), (request(2, 12), None), (request(1, 11), Some(failed_end(1, 20)))];
    ensure!(of(0, 9)? == first && of(0, 2)? == first[..2], "the latest first: {:?}", of(0, 9)?);
    ensure!(of(40, 9)? == [(moved, Some(done(0, 20)))], "where it went: {:?}", of(40, 9)?);
    let invalid = store.record_tool_call_requested(request(9, 10)).and_then(|()| {
        store.record_tool_call_done(ToolCallDone { outcome_json: Some("no JSON".into()), ..done(9, 20) })
    });
    ensure!(matches!(invalid, Err(DbError::Invalid(_))), "{invalid:?}");
    // Each row was written once: repeats without a change were not written.
    let records = records(backend, &store)?;
    ensure!(records.is_none_or(|records| records == 1 + 4 + 7 + 2 + 1), "{records:?} records");
    Ok(())
}

/// The number of records of the run, with its claim.
fn records(backend: &PortBackend, _store: &Store) -> anyhow::Result<Option<u64>> {
    let PortBackend::Served(deployment) = backend else { return Ok(None) };
    let run = deployment.server.runlog().answer(&["runs", "--prefix", "workspace", "--consistency", "latest"])?;
    Ok(run["runs"][0]["records"].as_u64())
}

/// The claim.
pub fn content_is_stored_if_the_store_is_configured_to(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, Config::default())?;
    store.record_tool_call_requested(request(0, 10))?;
    store.record_tool_call_done(done(0, 20))?;
    let (req, ended) = store.get_tool_call(row(0), "call")?.context("it was requested")?;
    ensure!((req.arguments_json, req.args_sha256) == (None, request(0, 10).args_sha256), "the hash alone");
    ensure!(ended.context("it ended")?.outcome_json.is_none(), "the hash alone");
    // The hash still distinguishes another outcome.
    store.record_tool_call_done(done(0, 20))?;
    let other = ToolCallDone { outcome_json: Some("[1,2]".into()), ..done(0, 20) };
    ensure!(matches!(store.record_tool_call_done(other), Err(DbError::Ended { .. })), "another outcome");
    Ok(())
}

/// The claim.
pub fn a_row_as_of_a_time_has_the_statements_up_to_it(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    store.record_tool_call_requested(request(1, 10))?;
    store.record_tool_call_done(done(1, 20))?;
    store.retract_tool_call(row(1), "call", 30, "an auditor", "it was a drill")?;
    let gone = store.retract_tool_call(row(1), "call", 31, "an auditor", "again");
    ensure!(matches!(gone, Err(DbError::NotThere)), "{gone:?}");
    let at = |at: i64| store.get_tool_call_at(row(1), "call", at);
    ensure!(at(9)?.is_none(), "before it");
    ensure!(at(10)? == Some((request(1, 10), None)) && at(19)? == at(10)?, "requested");
    ensure!(at(20)? == Some((request(1, 10), Some(done(1, 20)))) && at(29)? == at(20)?, "ended");
    ensure!(at(30)?.is_none() && store.get_tool_call(row(1), "call")?.is_none(), "retracted");
    // An assertion at the time of the retraction: the assertion counts, and the ended call stays ended.
    store.record_tool_call_requested(request(1, 30))?;
    // Its start is not after its end.
    ensure!(at(30)? == Some((request(1, 10), Some(done(1, 20)))), "{:?}", at(30)?);
    store.retract_tool_call(row(1), "call", 30, "an auditor", "too late for that time")?;
    ensure!(at(30)?.is_some(), "an assertion of the same time counts, whichever came first");
    ensure!(store.list_tool_calls_by_parent_at(row(0), 25, 9)? == [(request(1, 10), Some(done(1, 20)))], "as of 25");
    ensure!(store.list_tool_calls_by_parent(row(0), 9)? == [(request(1, 10), Some(done(1, 20)))], "now");

    store.upsert_conversation_turn(turn(1, 10))?;
    store.upsert_conversation_turn(ConversationTurn { content: "corrected".into(), ..turn(1, 20) })?;
    store.retract_turn(row(1), 30, "an auditor", "not said")?;
    let contents = |at: i64| {
        let turns = store.list_conversation_at(0, at, 9)?;
        anyhow::Ok(turns.into_iter().map(|turn| turn.content).collect::<Vec<_>>())
    };
    ensure!(
        contents(9)?.is_empty() && contents(10)? == [turn(1, 10).content] && contents(20)? == ["corrected"],
        "corrected"
    );
    ensure!(contents(30)?.is_empty() && store.list_conversation_since(0, 9)?.is_empty(), "retracted");
    let retracted = Validity { at: 40, is_valid: false };
    store.upsert_conversation_turn(turn(2, 10))?;
    store.upsert_conversation_turn(ConversationTurn { created_at: retracted, ..turn(2, 0) })?;
    ensure!(contents(39)? == [turn(2, 10).content] && contents(40)?.is_empty(), "retracted by a statement");
    Ok(())
}

/// The claim.
pub fn corrections_of_past_rows_are_stored(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    let says = |content: &str, at: i64| ConversationTurn { content: content.into(), ..turn(1, at) };
    let from = |vendor: &str, at: i64| ToolCallReq { vendor: vendor.into(), ..request(1, at) };
    // The last statement repeats the first. It changes the row as of 10, but not as of 20.
    for (what, at) in [("one", 10), ("two", 10), ("now", 20), ("one", 10)] {
        store.upsert_conversation_turn(says(what, at))?;
        store.record_tool_call_requested(from(what, at))?;
    }
    for (at, what, since) in [(10, "one", 10), (19, "one", 10), (20, "now", 20)] {
        ensure!(store.list_conversation_at(0, at, 9)? == [says(what, since)], "as of {at}: {what}");
        ensure!(store.get_tool_call_at(row(1), "call", at)? == Some((from(what, since), None)), "as of {at}: {what}");
    }
    let before = records(backend, &store)?;
    store.upsert_conversation_turn(says("one", 10))?;
    store.record_tool_call_requested(from("one", 10))?;
    ensure!(records(backend, &store)? == before, "a statement without a change at any time is not written");
    Ok(())
}

/// The claim.
pub fn an_end_finds_a_request_and_no_call_starts_after_it(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    store.record_tool_call_requested(request(1, 10))?;
    store.retract_tool_call(row(1), "call", 30, "an auditor", "it was a drill")?;
    let revived = store.record_tool_call_done(done(1, 40));
    ensure!(matches!(revived, Err(DbError::Retracted { at: 40, .. })), "{revived:?}");
    ensure!(store.get_tool_call(row(1), "call")?.is_none(), "it stays retracted");
    // An end before the retraction corrects the past.
    store.record_tool_call_done(done(1, 20))?;
    ensure!(store.get_tool_call_at(row(1), "call", 29)? == Some((request(1, 10), Some(done(1, 20)))), "it had ended");
    ensure!(store.get_tool_call(row(1), "call")?.is_none(), "it stays retracted");
    let early = store.retract_tool_call(row(1), "call", 9, "an auditor", "before it was written");
    ensure!(matches!(early, Err(DbError::NotThere)), "{early:?}");

    // The retraction holds from a time before the end: the end does not restore the call.
    store.record_tool_call_requested(request(3, 10))?;
    store.record_tool_call_done(done(3, 40))?;
    store.retract_tool_call(row(3), "call", 30, "an auditor", "it was a drill")?;
    for at in [30, 40] {
        let call = store.get_tool_call_at(row(3), "call", at)?;
        ensure!(call.is_none(), "retracted from 30, and as of {at} it is {call:?}");
    }

    store.record_tool_call_requested(request(2, 10))?;
    store.record_tool_call_done(done(2, 20))?;
    let before = records(backend, &store)?;
    store.record_tool_call_requested(request(2, 30))?;
    ensure!(records(backend, &store)? == before, "a repeat after the end changes nothing, and is not written");
    let late = ToolCallReq { vendor: "anthropic".into(), ..request(2, 30) };
    store.record_tool_call_requested(late.clone())?;
    let corrected = ToolCallReq { started_at: request(2, 10).started_at, ..late };
    ensure!(store.get_tool_call(row(2), "call")? == Some((corrected, Some(done(2, 20)))), "it started before it ended");
    Ok(())
}

/// The claim.
pub fn a_group_takes_effect_together_or_not_at_all(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    store.atomically(vec![Write::Turn(turn(0, 10)), Write::Requested(request(0, 10)), Write::Done(done(0, 20))])?;
    ensure!(
        store.get_tool_call(row(0), "call")? == Some((request(0, 10), Some(done(0, 20)))),
        "applied in their order"
    );
    let refused = store.atomically(vec![
        Write::Turn(turn(1, 10)),
        Write::Requested(request(1, 10)),
        Write::Done(failed_end(0, 30)),
    ]);
    ensure!(matches!(refused, Err(DbError::Ended { .. })), "{refused:?}");
    ensure!(store.list_conversation_since(0, 9)? == [turn(0, 10)], "the turn of the refused group is absent");
    ensure!(store.get_tool_call(row(1), "call")?.is_none(), "the request of the refused group is absent");
    // A repeat of the first group changes no row.
    store.atomically(vec![Write::Turn(turn(0, 10)), Write::Requested(request(0, 10)), Write::Done(done(0, 20))])?;
    store.atomically(Vec::new())?;
    let large = ConversationTurn { content: "x".repeat(2 << 20), ..turn(2, 10) };
    let refused = store.atomically(vec![Write::Turn(large), Write::Turn(turn(3, 10))]);
    ensure!(matches!(refused, Err(DbError::Journal(_))), "a group is within a record");
    store.upsert_conversation_turn(turn(4, 30))?;
    ensure!(store.list_conversation_since(0, 9)? == [turn(0, 10), turn(4, 30)], "the store stays usable");
    Ok(())
}

/// The claim.
pub fn callbacks_run_in_order_and_block_no_writer(backend: &PortBackend) -> anyhow::Result<()> {
    let store = open_store(backend, WHOLE)?;
    let (tell, told) = mpsc::channel::<Change>();
    let calls = store.register_callback(Relation::ToolCalls, 16, move |change| {
        let broken = change.old.is_none();
        // The receiver is dropped when the test ends.
        tell.send(change).ok();
        assert!(!broken, "this callback is broken");
    })?;
    // A callback that blocks until it is released.
    let (let_go, going) = mpsc::channel::<()>();
    let (tell_slow, told_slow) = mpsc::channel::<Change>();
    store.register_callback(Relation::ConversationTurns, 2, move |change| {
        tell_slow.send(change).ok();
        going.recv().ok();
    })?;
    store.record_tool_call_requested(request(1, 10))?;
    store.record_tool_call_requested(request(1, 10))?;
    store.record_tool_call_done(done(1, 20))?;
    store.retract_tool_call(row(1), "call", 30, "an auditor", "a drill")?;
    let call = |ended: bool| Some(Row::Call(Box::new((request(1, 10), ended.then(|| done(1, 20))))));
    let put = |new, old| (Operation::Put, new, old);
    let expected = [put(call(false), None), put(call(true), call(false)), (Operation::Rm, None, call(true))];
    for expected in expected {
        let change = told.recv_timeout(CALLBACK_WAIT)?;
        ensure!((change.operation, change.new, change.old) == expected, "{expected:?}");
        ensure!(change.missed == 0 && change.relation == Relation::ToolCalls, "no change was missed");
    }
    store.upsert_conversation_turn(turn(0, 0))?;
    let first = told_slow.recv_timeout(CALLBACK_WAIT)?;
    ensure!(first.new == Some(Row::Turn(turn(0, 0))), "{first:?}");
    // The callback blocks: two changes wait, and the other four are missed.
    for n in 1..7 {
        store.upsert_conversation_turn(turn(n, 0))?;
    }
    for n in 1..3 {
        let_go.send(())?;
        let next = told_slow.recv_timeout(CALLBACK_WAIT)?;
        ensure!(next.new == Some(Row::Turn(turn(n, 0))) && next.missed == 0, "{next:?}");
    }
    store.upsert_conversation_turn(turn(7, 0))?;
    let_go.send(())?;
    let last = told_slow.recv_timeout(CALLBACK_WAIT)?;
    ensure!(last.new == Some(Row::Turn(turn(7, 0))) && last.missed == 4, "{last:?}");
    drop(let_go);
    ensure!(store.unregister_callback(calls) && !store.unregister_callback(calls), "there was one");
    store.record_tool_call_requested(request(2, 10))?;
    ensure!(told.recv_timeout(CALLBACK_WAIT).is_err(), "it was unregistered");
    Ok(())
}

/// The claim: from plain threads, from the workers of a runtime, and from the only thread of one.
pub fn concurrent_writers_lose_and_duplicate_nothing(backend: &PortBackend) -> anyhow::Result<()> {
    let store = Arc::new(open_store(backend, WHOLE)?);
    // All writers write all calls: each call is stored once.
    let write = |store: Arc<Store>, first: u8| -> anyhow::Result<()> {
        for n in first..first + CALLS_EACH {
            store.record_tool_call_requested(request(n, 10))?;
            store.record_tool_call_done(done(n, 20))?;
            store.upsert_conversation_turn(turn(n, 10))?;
        }
        Ok(())
    };
    let threads: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || write(store, 0))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
    }
    let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    workers.block_on(async {
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move { write(store, (1 + writer) * CALLS_EACH) })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    })?;
    let count = (WRITERS + 1) * CALLS_EACH;
    let single = tokio::runtime::Builder::new_current_thread().build()?;
    single.block_on(async { write(store.clone(), count) })?;
    let turns = store.list_conversation_since(0, 1000)?;
    ensure!(turns.len() == usize::from(count + CALLS_EACH), "{} turns", turns.len());
    for n in 0..count + CALLS_EACH {
        ensure!(turns.contains(&turn(n, 10)), "turn {n}");
        ensure!(store.get_tool_call(row(n), "call")? == Some((request(n, 10), Some(done(n, 20)))), "call {n}");
    }
    // Each row has its records once, although eight writers wrote them: a claim, and three records for each number.
    let records = records(backend, &store)?;
    let expected = 1 + 3 * u64::from(count + CALLS_EACH);
    ensure!(records.is_none_or(|records| records == expected), "{records:?} records, not {expected}");
    Ok(())
}

/// The claim.
pub fn writes_of_a_killed_process_are_found_by_the_next(backend: &PortBackend) -> anyhow::Result<()> {
    let order = |order: serde_json::Value| json!({ "observability": ["workspace", order] });
    let call = |ended: bool| json!(format!("{:?}", Some((request(1, 10), ended.then(|| done(1, 20))))));
    let (nothing, turns) = (json!(format!("{:?}", None::<()>)), json!(format!("{:?}", [turn(5, 10)])));
    // The write of each process, and the query and answer of the next process.
    let lives = [
        (json!({ "requested": 1 }), json!({ "call": 1 }), call(false)),
        (json!({ "done": 1 }), json!({ "call": 1 }), call(true)),
        (json!({ "done": 1 }), json!({ "call": 1 }), call(true)),
        (json!({ "turn": 5 }), json!("turns"), turns.clone()),
        (json!({ "both": 2 }), json!({ "call": 2 }), json!(format!("{:?}", Some((request(2, 10), Some(done(2, 20))))))),
        (json!({ "requested": 1 }), json!({ "call": 1 }), call(true)),
    ];
    let mut process = backend.process()?;
    ensure!(process.run(&order(json!({ "call": 1 })))? == nothing, "the store is empty");
    for (write, ask, expected) in lives {
        process.run(&order(write.clone()))?;
        process.kill()?;
        process = backend.process()?;
        let read = process.run(&order(ask))?;
        ensure!(read == expected, "after {write}: {read} and not {expected}");
    }
    ensure!(process.run(&order(json!("turns")))? == turns, "one turn");
    Ok(())
}

/// The claim.
pub fn only_the_process_that_took_over_writes(backend: &PortBackend) -> anyhow::Result<()> {
    let order = |order: serde_json::Value| json!({ "observability": ["workspace", order] });
    let (mut first, mut second) = (backend.process()?, backend.process()?);
    first.run(&order(json!({ "requested": 1 })))?;
    // A read does not take a run over.
    second.run(&order(json!({ "call": 1 })))?;
    first.run(&order(json!({ "requested": 2 })))?;
    second.run(&order(json!({ "done": 1 })))?;
    first.expect_taken_over(&order(json!({ "done": 2 })))?;
    first.expect_taken_over(&order(json!({ "turn": 1 })))?;
    second.run(&order(json!({ "done": 2 })))?;
    let read = first.run(&order(json!({ "call": 2 })))?;
    ensure!(read == json!(format!("{:?}", Some((request(2, 10), Some(done(2, 20)))))), "{read}");
    Ok(())
}
