//! The steps of a producer before a value becomes a record (redaction, limits, buffering), and its metrics.
//!
//! Each function panics if its claim does not hold.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all, maybe_done},
};
use runlog_producer::{
    Action, Answer, Call, Config, Error, Failure, Journal, Json, LoopState, Meter, Outcome, Redaction, Run, SideEffect,
    metric,
};
use runlog_schemas::{answer::ErrorKind, id::RecordId, judge::Reason};
use serde_json::{Value, json};

use super::held_append;
use crate::backend::{Backend, FaultOutcome, foreign};

async fn pay(run: &Run, card: u64, ends: Result<Value, &str>) -> Result<Answer, Error> {
    let args = json!({ "card": { "number": card }, "amount": 5 });
    let ended = ends.map(Json::from).map_err(|why| Failure { kind: "bank".into(), message: why.into() });
    run.tool("pay", &args).once(|_| async { ended }).await
}

/// A call is still recognised by the fingerprint of its unredacted arguments.
pub async fn redacted_content_reaches_no_journal(backend: &Backend) {
    let redaction = Redaction::new("cards")
        .pointer(Some("pay"), "/card/number")
        .texts(|text| text.replace("hunter2", "[redacted]").into());
    let runlog = backend.connect(|config| config.redaction = Some(redaction)).await;
    let run = runlog.open("redacted").await.expect("open");
    let result = json!({ "receipt": "for hunter2", "card": { "number": 4_111_111_111_111_111_u64 } });
    let answer = pay(&run, 4_111_111_111_111_111, Ok(result.clone())).await.expect("an answer");
    assert_eq!(answer.result.map(|result| result.to_value()), Some(result), "the caller gets it whole");
    let failed = pay(&run, 4_222_222_222_222_222, Err("no account hunter2")).await.expect("an answer");
    assert_eq!(failed.error.expect("a failure").message, "no account hunter2");
    run.turn("user", &json!({ "text": "I am hunter2" })).await.expect("a turn");
    let state = LoopState { messages: vec![json!("hunter2").into()], ..LoopState::default() };
    let state = LoopState { state: Some(json!({ "password": "hunter2" }).into()), ..state };
    run.checkpoint(&state).await.expect("a checkpoint");
    let records = backend.records("redacted").await;
    let text = serde_json::to_string(&records).expect("JSON");
    assert!(["4111111111111111", "4222222222222222", "hunter2"].iter().all(|secret| !text.contains(secret)), "{text}");
    assert!(text.contains(r#""amount":5"#), "other members stay: {text}");

    let run = runlog.open_with("redacted", runlog_producer::OpenOptions { from_start: true, ..Default::default() });
    let run = run.await.expect("open");
    let never = || Err("it ran again");
    let answer = pay(&run, 4_111_111_111_111_111, never()).await.expect("an answer");
    let recorded = json!({ "receipt": "for [redacted]", "card": { "number": "[redacted]" } });
    assert_eq!((answer.recorded, answer.result.map(|result| result.to_value())), (true, Some(recorded)));
    assert!(
        pay(&run, 4_222_222_222_222_222, never()).await.expect("an answer").recorded,
        "by the fingerprint of the true arguments"
    );
    assert!(
        !pay(&run, 4_333_333_333_333_333, Ok(json!(1))).await.expect("an answer").recorded,
        "another card is another call"
    );
}

/// A meter that sums counts.
#[derive(Debug, Default)]
struct Sums(Mutex<BTreeMap<&'static str, f64>>);

impl Meter for Sums {
    fn count(&self, name: &'static str, count: u64) {
        *self.0.lock().expect("a counter").entry(name).or_default() += count as f64;
    }

    fn observe(&self, name: &'static str, value: f64) {
        assert!(value >= 0.0, "{name}: {value}");
        self.count(name, 1);
    }
}

/// Counts records, effects, recorded answers, held results and handles that resume.
pub async fn producer_operations_are_counted(backend: &Backend) {
    let sums = Arc::new(Sums::default());
    let runlog = backend.connect(|config| config.meter = Some(sums.clone())).await;
    let run = runlog.open("counted").await.expect("open");
    pay(&run, 1, Ok(json!(1))).await.expect("an answer");
    let run = runlog.open("counted").await.expect("open");
    pay(&run, 1, Ok(json!(1))).await.expect("an answer");
    backend.stop_handle(backend.faults[0], &run).await;
    run.reopen().await.expect("reopened");
    runlog.open("counted").await.expect("open");
    run.turn("user", "late").await.ok();
    run.flush().await.expect_err("it is another's");
    let sums = sums.0.lock().expect("a counter");
    let count = |name| sums.get(name).copied().unwrap_or_default();
    assert_eq!((count(metric::EFFECTS), count(metric::RECORDED)), (1.0, 1.0));
    assert_eq!((count(metric::REOPENED), count(metric::LOST)), (1.0, 1.0), "{sums:?}");
    assert_eq!(count(metric::READ_BACK_SECONDS), count(metric::READ_BACK_SECONDS).max(2.0));
    assert!(count(metric::APPENDED) >= 3.0 && count(metric::APPEND_SECONDS) == count(metric::APPENDED), "{sums:?}");
}

/// A call above `calls_max` is refused; it appends no intent and runs no effect.
pub async fn a_call_above_the_limit_waits_and_is_refused_without_effect(backend: &Backend) {
    let runlog = backend.connect(|config| (config.calls_max, config.deadline) = (1, Duration::from_secs(2))).await;
    let run = runlog.open("bound").await.expect("open");
    let effect = |_| async {
        let error = pay(&run, 1, Err("it ran")).await.expect_err("calls_max is reached");
        assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{error}");
        assert_eq!(error.side_effect(), SideEffect::None);
        Ok(Json::from(json!(1)))
    };
    run.tool("book", &1).once(effect).await.expect("an answer");
    assert_eq!(backend.count("bound", "tool_call_requested").await, 1);
    assert!(!pay(&run, 1, Ok(json!(2))).await.expect("the permit is free").recorded);
}

/// All handles of a connection share the buffer. A record waits while it is full, and is not sent after its deadline.
pub async fn a_record_waits_for_the_send_buffer_and_is_refused_unsent(backend: &Backend) {
    let _alone = held_append::exclusive().await;
    let small = |config: &mut Config| {
        (config.buffer_records, config.deadline, config.failpoints) =
            (1, Duration::from_secs(2), held_append::hold_if_armed);
    };
    let runlog = backend.connect(small).await;
    let (one, other) = (runlog.open("room").await.expect("open"), runlog.open("no-room").await.expect("open"));
    held_append::arm();
    let one = tokio::spawn(async move { one.turn("user", "one").await });
    held_append::wait_until_held();
    let refused = other.turn("user", "other").await;
    held_append::release();
    let error = refused.expect_err("the buffer is full");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{error}");
    assert_eq!(error.side_effect(), SideEffect::None);
    one.await.expect("no panic").expect("a turn");
    other.turn("user", "other").await.expect("the buffer has capacity");
    other.flush().await.expect("its numbers are right");
    assert_eq!(backend.count("no-room", "conversation_turn").await, 1);
}

/// After its time limit, an operation without permission runs no effect. If the effect ran, the handle holds its result.
pub async fn a_timed_out_operation_reports_what_it_left(backend: &Backend) {
    let runlog = backend.connect(|config| config.operation = Duration::from_millis(500)).await;
    let run = runlog.open("late").await.expect("open");
    backend.hold("late");
    let error = pay(&run, 1, Err("it ran")).await.expect_err("it cannot be read back");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Reopen), "{error}");
    assert_eq!(error.side_effect(), SideEffect::Unknown);
    assert_eq!(run.reopen().await.expect_err("neither can a claim").side_effect(), SideEffect::Unknown);
    backend.release("late");
    run.reopen().await.expect("reopened");
    assert!(!pay(&run, 1, Ok(json!(1))).await.expect("it runs now").recorded);
    assert_eq!(backend.count("late", "tool_call_completed").await, 1);
}

/// An acknowledged record may be refused; a flush reports it.
pub async fn a_flush_reports_refusals(backend: &Backend) {
    let run = backend.open("flush").await;
    run.turn("user", "one").await.expect("a turn");
    run.flush().await.expect("applied");
    // A foreign record under this handle's writer id.
    backend.append(foreign(&run, 3, 3)).await.expect("appended");
    // Over HTTP the answer already reports the refusal.
    let refused_at_once = run.turn("user", "two").await.is_err();
    let error = run.flush().await.expect_err("it was refused");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::Reopen), "{refused_at_once}: {error}");
    let done = run.reopen().await.expect("reopened");
    assert_eq!((done.landed, done.appended), (0, 0), "a record refused for its content is not sent again");
    run.turn("user", "three").await.expect("a turn");
    run.flush().await.expect("applied");
}

/// Runs a call that is decided while its effect runs, and returns its id. Its result is acknowledged, and then refused.
async fn decided_meanwhile(backend: &Backend, run: &Run) -> RecordId {
    let id = Mutex::new(None);
    let effect = async |call: Call| {
        *id.lock().expect("not poisoned") = Some(call.id);
        backend.decide_done(run.id().as_str(), &json!("decided")).await;
        Ok(Json::from(json!("ran")))
    };
    let answer = run.tool("pay", &json!(1)).once(effect).await.expect("acknowledged");
    assert_eq!(answer.result.map(|result| result.to_value()), Some(json!("ran")));
    id.into_inner().expect("not poisoned").expect("it ran")
}

/// The next operation that reads back reports the refusal once, with the id of the call.
pub async fn a_result_refused_after_its_acknowledgement_is_reported_with_its_call(backend: &Backend) {
    type Next = for<'a> fn(&'a Run) -> BoxFuture<'a, Result<(), Error>>;
    let nexts: [(&str, Next); 4] = [
        ("intent", |run| pay(run, 1, Err("it ran")).map(|said| said.map(drop)).boxed()),
        ("checkpoint", |run| async { run.checkpoint(&LoopState::default()).await.map(drop) }.boxed()),
        ("flush", |run| run.flush().boxed()),
        ("end", |run| run.end(Outcome::Completed).map(|said| said.map(drop)).boxed()),
    ];
    for (name, next) in nexts {
        let run = backend.open(&format!("refused-{name}")).await;
        let call = decided_meanwhile(backend, &run).await;
        let error = next(&run).await.expect_err(name);
        assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::Reopen), "{name}: {error}");
        assert!(error.to_string().contains(call.as_str()), "{name}: {error}");
        let done = run.reopen().await.expect("reopened");
        assert!(done.refused_results.is_empty(), "{name}: reported once: {done:?}");
        if name != "end" {
            run.flush().await.expect("no refusal is reported twice");
            assert!(!pay(&run, 2, Ok(json!(2))).await.expect("the handle stays ready").recorded, "{name}");
            run.flush().await.expect("applied");
        }
    }
    let transition = || Some(Reason::Transition.into());
    let run = backend.open("refused-reopen").await;
    let call = decided_meanwhile(backend, &run).await;
    let done = run.reopen().await.expect("it is ready");
    assert_eq!(done.refused_results, vec![(call, transition())]);
    assert!(!pay(&run, 2, Ok(json!(2))).await.expect("the handle stays ready").recorded);
    let run = backend.open("refused-at-once").await;
    let call = decided_meanwhile(backend, &run).await;
    let ran = AtomicU32::new(0);
    let pay_again = async |number: u32| {
        let effect = async |_| Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst))));
        run.tool("pay", &number).once(effect).await
    };
    for said in join_all((2..10).map(pay_again)).await {
        let error = said.expect_err("its handle is stopped");
        assert!(error.to_string().contains(call.as_str()), "{error}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    run.reopen().await.expect("reopened");
    assert!(!pay(&run, 2, Ok(json!(2))).await.expect("the handle stays ready").recorded);
    // A handle that stopped for another reason before it read back.
    let run = backend.open("refused-stopped").await;
    let call = decided_meanwhile(backend, &run).await;
    let stopped = loop {
        match backend.run_with_fault(backend.faults[0], run.turn("user", "unknown")).await {
            FaultOutcome::Completed => {}
            FaultOutcome::Failed(error) => break Some(error),
            FaultOutcome::Dropped => break None,
        }
    };
    let told_before = stopped.is_some_and(|error| error.to_string().contains(call.as_str()));
    let done = run.reopen().await.expect("reopened");
    let expected = if told_before { vec![] } else { vec![(call, transition())] };
    assert_eq!(done.refused_results, expected);
}

/// Whether the next test's id generator returns the same id for every record.
static CHOSEN: AtomicBool = AtomicBool::new(false);

/// A used id gives no permission: the effect of the earlier call ran.
pub async fn an_intent_under_an_id_that_another_call_had_runs_nothing(backend: &Backend) {
    let ids = || {
        if CHOSEN.load(Ordering::SeqCst) { "chosen".into() } else { (Config::new(Journal::Local("".into()), "").ids)() }
    };
    let runlog = backend.connect(|config| config.ids = ids).await;
    let ran = AtomicU32::new(0);
    let call = async |run: &Run| {
        CHOSEN.store(true, Ordering::SeqCst);
        let effect = |_| async {
            CHOSEN.store(false, Ordering::SeqCst);
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(Json::from(json!(1)))
        };
        let answer = run.tool("pay", &json!(1)).once(effect).await;
        CHOSEN.store(false, Ordering::SeqCst);
        answer
    };
    let run = runlog.open("same-id").await.expect("open");
    call(&run).await.expect("an answer");
    // After the checkpoint, a process that resumes does not repeat the call.
    run.checkpoint(&LoopState::default()).await.expect("a checkpoint");
    let run = runlog.open("same-id").await.expect("open");
    assert!(run.recovery().checkpoint.is_some());
    let error = call(&run).await.expect_err("the id is in use");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::Reopen), "{error}");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    run.reopen().await.expect("reopened");
    assert_eq!(backend.count("same-id", "effect_resolution").await, 0, "the earlier call is not decided");
    // Two calls at the same time, while the intent of another is in flight.
    let run = runlog.open("same-id-at-once").await.expect("open");
    let paid = AtomicU32::new(0);
    let pay = async |number: u32| {
        let effect = async |_| Ok(Json::from(json!(paid.fetch_add(number - 1, Ordering::SeqCst))));
        run.tool("pay", &number).once(effect).await
    };
    let mut calls: Vec<_> = [1, 2, 2].into_iter().map(|number| Box::pin(maybe_done(pay(number)))).collect();
    for (nth, call) in calls.iter_mut().enumerate() {
        CHOSEN.store(nth > 0, Ordering::SeqCst);
        tokio::task::unconstrained(call).now_or_never();
    }
    CHOSEN.store(false, Ordering::SeqCst);
    // Polls all of them: a call that is not polled may hold the lock that another one waits for.
    join_all(&mut calls).await;
    let answers: Vec<_> = calls.iter_mut().map(|call| call.as_mut().take_output()).collect();
    assert!(matches!(answers.last(), Some(Some(Err(_)))), "{answers:?}");
    assert!(paid.load(Ordering::SeqCst) <= 1, "under one id: {answers:#?}");
}

/// Covers a handle whose records were applied before the takeover, and a handle without records.
pub async fn a_flush_reports_that_another_process_has_the_run(backend: &Backend) {
    for appends in [true, false] {
        let id = format!("taken-{appends}");
        let (first, run) = (backend.open(&id).await, backend.open(&id).await);
        if appends {
            run.turn("user", "one").await.expect("a turn");
        }
        run.flush().await.expect("it has the run");
        let error = first.flush().await.expect_err("it lost the run");
        assert_eq!((error.kind(), error.action()), (ErrorKind::ClaimLost, Action::Stop), "{error}");
        let other = backend.open(&id).await;
        let error = run.flush().await.expect_err("it lost the run");
        assert_eq!((error.kind(), error.action()), (ErrorKind::ClaimLost, Action::Stop), "{appends}: {error}");
        other.flush().await.expect("it has the run");
    }
}

/// The claims above, each as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! record_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, records:
            redacted_content_reaches_no_journal,
            producer_operations_are_counted,
            a_call_above_the_limit_waits_and_is_refused_without_effect,
            a_record_waits_for_the_send_buffer_and_is_refused_unsent,
            a_flush_reports_refusals,
            a_result_refused_after_its_acknowledgement_is_reported_with_its_call,
            an_intent_under_an_id_that_another_call_had_runs_nothing,
            a_flush_reports_that_another_process_has_the_run,
        }
    };
}
