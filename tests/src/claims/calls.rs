//! Concurrent calls on one handle, and calls whose outcome stays unknown.
//!
//! Each function panics if its claim does not hold.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use runlog_producer::{
    Action, Answer, Call, Ended, Error, Failure, Json, LoopState, OnDivergence, OpenOptions, Outcome, Run, SideEffect,
};
use runlog_schemas::{
    answer::{Class, ErrorKind, RunStatus},
    payload::RunLifecycle,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use crate::backend::{Backend, Fault};

/// Concurrent calls.
const CALLS: usize = 16;

fn seat(number: usize) -> Value {
    json!({ "seat": number })
}

fn value(answer: Answer) -> Value {
    answer.result.expect("a result").to_value()
}

/// Makes a call whose effect counts in `ran`.
async fn book(run: &Run, ran: &AtomicU32, tool: &str, key: Option<&str>, args: &Value) -> Result<Answer, Error> {
    let tool = run.tool(tool, args);
    let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
    tool.once(|_| async { Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst) + 1))) }).await
}

/// Intents are appended in the order of the calls, results in the order in which the effects end. Each call gets its own.
pub async fn concurrent_calls_are_requested_in_order_and_completed_in_any(backend: &Backend) {
    let run = backend.open("many").await;
    let started = Semaphore::new(0);
    let (ends, waits): (Vec<_>, Vec<_>) = (0..CALLS).map(|_| oneshot::channel::<()>()).unzip();
    let calls = waits.into_iter().enumerate().map(|(number, wait)| {
        let (run, started) = (&run, &started);
        async move {
            let effect = |_| async move {
                started.add_permits(1);
                wait.await.expect("it ends");
                if number == 3 {
                    return Err(Failure { kind: "full".into(), message: "no seat".into() });
                }
                Ok(Json::from(json!(number)))
            };
            let answer = run.tool("book", &seat(number)).once(effect).await.expect("an answer");
            (answer.result.map(|result| result.to_value()), answer.error.map(|error| error.kind))
        }
    });
    let end_last_first = async {
        started.acquire_many(CALLS as u32).await.expect("open").forget();
        ends.into_iter().rev().for_each(|end| end.send(()).expect("an effect waits"));
    };
    let (answers, ()) = tokio::join!(join_all(calls), end_last_first);
    for (number, answer) in answers.into_iter().enumerate() {
        let own = if number == 3 { (None, Some("full".into())) } else { (Some(json!(number)), None) };
        assert_eq!(answer, own, "call {number}");
    }
    let records = backend.records("many").await;
    let requested: Vec<&Value> = records
        .iter()
        .filter(|(kind, _)| kind == "tool_call_requested")
        .map(|(_, payload)| &payload["arguments"]["seat"])
        .collect();
    assert_eq!(requested, (0..CALLS).map(|number| json!(number)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    let next = backend.open("many").await;
    assert_eq!((next.recovery().completed.len(), next.recovery().pending.len()), (CALLS, 0));
}

/// Neither the effect of the call nor the effect of a later call runs, whether or not the intent is in the log.
pub async fn an_intent_that_got_no_answer_stops_the_calls_after_it(backend: &Backend) {
    for fault in backend.faults.iter().filter(|fault| **fault != Fault::Cancelled) {
        let (ran, id) = (AtomicU32::new(0), format!("unanswered-{fault:?}"));
        let run = backend.open(&id).await;
        let all = async || {
            let args: Vec<Value> = (0..CALLS).map(seat).collect();
            join_all(args.iter().map(|args| book(&run, &ran, "book", None, args))).await
        };
        backend.inject(*fault);
        for called in all().await {
            let error = called.expect_err("the append of the first call is unknown");
            assert_eq!(error.action(), Action::Reopen, "{error}");
        }
        assert_eq!(ran.load(Ordering::SeqCst), 0, "{fault:?}");
        run.reopen().await.expect("reopened");
        for called in all().await {
            called.expect("an answer");
        }
        let next = backend.open(&id).await;
        let counts = (next.recovery().completed.len(), next.recovery().pending.len());
        assert_eq!((counts, ran.load(Ordering::SeqCst)), ((CALLS, 0), CALLS as u32), "{fault:?}: each once");
    }
}

/// Covers a handle that already knows that it lost the run, and a handle that does not.
pub async fn a_result_after_a_takeover_is_evidence_for_the_new_writer(backend: &Backend) {
    for knows in [false, true] {
        let (ran, id) = (AtomicU32::new(0), format!("evidence-{knows}"));
        let a = backend.open(&id).await;
        let (happened, happens) = oneshot::channel();
        let (end, ends) = oneshot::channel::<()>();
        let effect = |_| async {
            happened.send(()).expect("the receiver waits");
            ends.await.expect("it ends");
            Ok(Json::from(json!("booked")))
        };
        let args = seat(1);
        let call = a.tool("book", &args).once(effect);
        let meanwhile = async {
            happens.await.expect("it happens");
            let b = backend.open(&id).await;
            assert!(b.recovery().pending[0].evidence.is_empty());
            if knows {
                let error = book(&a, &ran, "mail", None, &seat(2)).await.expect_err("the other handle has the run");
                assert_eq!((error.kind(), error.action()), (ErrorKind::Fenced, Action::Stop), "{error}");
            }
            end.send(()).expect("an effect waits");
            b
        };
        let (answer, b) = tokio::join!(call, meanwhile);
        // A backend that reports only the acknowledgement lets the call succeed; the next operation of the handle fails.
        let reported = answer.as_ref().is_err_and(|error| error.side_effect() == SideEffect::Evidence);
        assert!(reported || (!knows && answer.is_ok()), "{answer:?}");
        let error = book(&b, &ran, "book", None, &args).await.expect_err("no decision exists");
        assert_eq!(error.kind(), ErrorKind::ReconcileRequired);
        let c = backend.open(&id).await;
        let pending = &c.recovery().pending[0];
        let evidence: Vec<&str> = pending.evidence.iter().map(|found| found.status.as_str()).collect();
        assert_eq!((evidence, ran.load(Ordering::SeqCst)), (vec!["completed"], 0));
    }
}

/// An autosave, a signal handler or a parallel branch may save a message list that is older than the answers. A checkpoint
/// covers the calls only once no call is in flight.
#[allow(clippy::async_yields_async, reason = "the checkpoint is awaited once the long call is answered")]
pub async fn a_checkpoint_during_calls_does_not_cover_their_answers(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("autosave").await);
    let (happened, happens) = oneshot::channel();
    let (end, ends) = oneshot::channel::<()>();
    let effect = |_| async {
        happened.send(()).expect("the receiver waits");
        ends.await.expect("it ends");
        Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst) + 1)))
    };
    let (long, before) = (seat(2), LoopState::default());
    let long = run.tool("book", &long).once(effect);
    let beside = async {
        happens.await.expect("it happens");
        book(&run, &ran, "book", None, &seat(1)).await.expect("an answer");
        // The saved state has neither answer. The long call is answered before the checkpoint is appended.
        let saving = run.checkpoint(&before);
        end.send(()).expect("an effect waits");
        saving
    };
    let (answer, saving) = tokio::join!(long, beside);
    assert_eq!(value(answer.expect("an answer")), 2);
    saving.await.expect("saved");
    let next = backend.open("autosave").await;
    for (args, result) in [(1, 1), (2, 2)] {
        let answer = book(&next, &ran, "book", None, &seat(args)).await.expect("an answer");
        assert!(answer.recorded, "seat {args}: its effect ran again");
        assert_eq!(value(answer), result);
    }
    backend.checkpoint(&next).await;
    let last = backend.open("autosave").await;
    assert!(last.recovery().checkpoint.is_some(), "it resumes there");
    let answer = book(&last, &ran, "book", None, &seat(1)).await.expect("an answer");
    assert_eq!(value(answer), 3, "the last checkpoint covers both, so this is another call");
}

/// Covers the handle that ended the run and a later handle: a caller without an answer repeats its call.
pub async fn a_run_that_has_ended_answers_recorded_calls_and_the_same_end(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("ended").await);
    book(&run, &ran, "book", None, &seat(1)).await.expect("an answer");
    book(&run, &ran, "book", Some("k"), &seat(2)).await.expect("an answer");
    let unknown = run.tool("mail", &seat(3)).idempotency_key("open");
    unknown.once_or_unknown(|_| async { Ended::Unknown("hung up".into()) }).await.expect_err("the outcome is unknown");
    backend.checkpoint(&run).await;
    let end = run.end(Outcome::Completed).await.expect("an end");
    let records = backend.records("ended").await.len();
    let later = backend.open("ended").await;
    for handle in [&run, &later] {
        assert_eq!(value(book(handle, &ran, "book", Some("k"), &seat(2)).await.expect("recorded")), 2);
        assert_eq!(handle.end(Outcome::Completed).await.expect("the same end"), end);
        handle.checkpoint(&LoopState::default()).await.expect("the same checkpoint");
        let other = LoopState { messages: vec![json!("more").into()], ..LoopState::default() };
        for refused in [
            handle.end(Outcome::Failed).await.map(drop),
            handle.checkpoint(&other).await.map(drop),
            book(handle, &ran, "book", None, &seat(9)).await.map(drop),
            book(handle, &ran, "mail", Some("open"), &seat(3)).await.map(drop),
        ] {
            let error = refused.expect_err("it has ended");
            assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
        }
    }
    let answer = book(&later, &ran, "book", None, &seat(1)).await.expect("recorded");
    assert_eq!(value(answer), 1, "it never read its recovery, so it begins at the start");
    assert_eq!(
        (backend.records("ended").await.len(), ran.load(Ordering::SeqCst)),
        (records, 2),
        "no new record or effect"
    );
    backend.decide_done("ended", &json!("sent")).await;
    assert_eq!(value(book(&run, &ran, "mail", Some("open"), &seat(3)).await.expect("decided")), "sent");
    let writer = backend.runlog.writer("reason").await.expect("a writer");
    let lifecycle = RunLifecycle { status: "completed".into(), reason: "the budget is spent".into() };
    writer.write(writer.draft(None, lifecycle).expect("a draft")).await.expect("written");
    let error = backend.open("reason").await.end(Outcome::Completed).await.expect_err("another reason");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
}

/// The result of a call in flight at the end is evidence, and its call needs a decision.
pub async fn a_call_that_did_not_end_with_its_run_is_not_run_again(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("left").await);
    let call = run.tool("mail", &seat(1)).once(|_| async {
        run.end(Outcome::Completed).await.expect("an end");
        Ok(Json::from(json!("sent")))
    });
    let error = call.await.expect_err("the run has ended");
    assert_eq!((error.kind(), error.side_effect()), (ErrorKind::Conflict, SideEffect::Evidence), "{error}");
    for (name, handle) in [("own", run), ("later", backend.open("left").await)] {
        let error = book(&handle, &ran, "mail", None, &seat(1)).await.expect_err("it ended without an answer");
        let expected = if name == "later" { ErrorKind::ReconcileRequired } else { ErrorKind::Conflict };
        assert_eq!(error.kind(), expected, "{name}: {error}");
    }
    backend.decide_done("left", &json!("sent")).await;
    let later = backend.open("left").await;
    assert_eq!(value(book(&later, &ran, "mail", None, &seat(1)).await.expect("decided")), "sent");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// Otherwise a program that does not resume would run again the calls that its last checkpoint covers.
pub async fn a_process_that_reads_no_recovery_begins_at_the_start_of_its_run(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("unread").await);
    book(&run, &ran, "book", None, &seat(1)).await.expect("an answer");
    backend.checkpoint(&run).await;
    for (reads, result) in [(false, 1), (true, 2)] {
        let next = backend.open("unread").await;
        assert!(!reads || next.recovery().checkpoint.is_some());
        assert_eq!(value(book(&next, &ran, "book", None, &seat(1)).await.expect("an answer")), result);
    }
}

/// Otherwise a program whose arguments changed would repeat the effects of the process before it.
pub async fn a_new_call_before_the_recorded_ones_is_refused_if_its_run_is_opened_so(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("diverged").await);
    for number in 1..=7 {
        book(&run, &ran, "book", None, &seat(number)).await.expect("an answer");
        if number == 2 {
            backend.checkpoint(&run).await;
        }
    }
    let open = async || {
        let options = OpenOptions { on_divergence: OnDivergence::Fail, ..OpenOptions::default() };
        let run = backend.runlog.open_with("diverged", options).await.expect("open");
        assert!(run.recovery().checkpoint.is_some());
        run
    };
    let next = open().await;
    assert!(book(&next, &ran, "book", None, &seat(3)).await.expect("an answer").recorded);
    let requested = backend.count("diverged", "tool_call_requested").await;
    let error = book(&next, &ran, "book", None, &seat(9)).await.expect_err("four calls were not requested");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
    assert_eq!((error.side_effect(), error.not_requested().len()), (SideEffect::None, 4), "{error}");
    assert!(
        error.to_string().contains(r#"book({"seat":4}), call "#) && error.to_string().contains("; and 1 more"),
        "{error}"
    );
    let counts = (backend.count("diverged", "tool_call_requested").await, ran.load(Ordering::SeqCst));
    assert_eq!(counts, (requested, 7), "nothing was recorded, and no effect ran");
    // Neither repeats a recorded call.
    book(&next, &ran, "mail", Some("k"), &seat(9)).await.expect("it has a key");
    let poll = next.tool("poll", &seat(9)).repeatable().once(|_| async { Ok(Json::from(json!("ready"))) });
    poll.await.expect("it is repeatable");
    for number in [7, 5, 6, 4] {
        assert!(book(&next, &ran, "book", None, &seat(number)).await.expect("in any order").recorded);
    }
    book(&next, &ran, "book", None, &seat(9)).await.expect("all were requested");
    book(&backend.open("diverged").await, &ran, "book", None, &seat(10)).await.expect("allowed by default");
    let next = open().await;
    backend.checkpoint(&next).await;
    book(&next, &ran, "book", None, &seat(11)).await.expect("the checkpoint covers the recorded calls");
}

/// A key identifies one call of one tool in one run.
pub async fn a_key_is_scoped_to_its_tool_and_its_run(backend: &Backend) {
    let ran = AtomicU32::new(0);
    let call = async |run: &Run, tool: &str, args: &Value| book(run, &ran, tool, Some("k"), args).await.map(value);
    let (run, other) = (backend.open("scope").await, backend.open("another").await);
    assert_eq!(call(&run, "book", &seat(1)).await.expect("an answer"), 1);
    assert_eq!(call(&run, "mail", &seat(1)).await.expect("another tool"), 2);
    assert_eq!(call(&other, "book", &seat(2)).await.expect("another run"), 3);
    let mut run = run;
    for again in [false, true] {
        if again {
            run = backend.open("scope").await;
        }
        let error = call(&run, "book", &seat(2)).await.expect_err("other arguments");
        assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
        assert_eq!(call(&run, "book", &seat(1)).await.expect("the same"), 1);
        assert_eq!(call(&run, "mail", &seat(1)).await.expect("the same"), 2);
    }
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

/// A receiver cannot recognise an effect by an empty key.
pub async fn an_empty_key_is_refused_before_anything_is_appended(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("empty").await);
    let before = backend.records("empty").await.len();
    let error = book(&run, &ran, "book", Some(""), &seat(1)).await.expect_err("it is no key");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Invalid, Action::FixTheInput), "{error}");
    assert!(error.to_string().contains("book is empty"), "{error}");
    assert_eq!((backend.records("empty").await.len(), ran.load(Ordering::SeqCst)), (before, 0));
    book(&run, &ran, "book", None, &seat(1)).await.expect("the handle stays ready");
}

/// A second call with the key of a running call is refused.
pub async fn a_running_call_is_not_started_again(backend: &Backend) {
    let (ran, run) = (AtomicU32::new(0), backend.open("beside").await);
    let effect = |_| async {
        let error = book(&run, &ran, "book", Some("k"), &seat(1)).await.expect_err("it is running");
        assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{error}");
        Ok(Json::from(json!("once")))
    };
    let answer = run.tool("book", &seat(1)).idempotency_key("k").once(effect).await.expect("an answer");
    assert_eq!(value(answer), "once");
    assert_eq!(value(book(&run, &ran, "book", Some("k"), &seat(1)).await.expect("an answer")), "once");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// An effect may end with a result, with a failure or with an unknown outcome.
pub async fn an_effect_with_an_unknown_outcome_leaves_its_call_pending(backend: &Backend) {
    let ran = AtomicU32::new(0);
    let unknown = async |run: &Run, key: Option<&str>| {
        let tool = run.tool("book", &seat(1));
        let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
        tool.once_or_unknown(|_| async { Ended::Unknown("the desk hung up".into()) }).await
    };
    let run = backend.open("unknown").await;
    let error = unknown(&run, None).await.expect_err("the outcome is unknown");
    assert_eq!((error.kind(), error.action()), (ErrorKind::ReconcileRequired, Action::Operator), "{error}");
    assert_eq!(error.side_effect(), SideEffect::Unrecorded);
    for args in [1, 2] {
        let error = book(&run, &ran, "book", None, &seat(args)).await.expect_err("no decision exists");
        assert_eq!((error.kind(), error.side_effect()), (ErrorKind::ReconcileRequired, SideEffect::None), "{error}");
    }
    assert_eq!(backend.open("unknown").await.recovery().pending[0].class, Class::ReconcileRequired);
    let run = backend.open("unknown-keyed").await;
    let error = unknown(&run, Some("k")).await.expect_err("the outcome is unknown");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{error}");
    assert_eq!(error.side_effect(), SideEffect::Unrecorded);
    let again = async |call: Call| Ok(Json::from(json!(call.attempt)));
    let answer = run.tool("book", &seat(1)).idempotency_key("k").once(again).await.expect("an answer");
    assert_eq!((value(answer), ran.load(Ordering::SeqCst)), (json!(2), 0));
}

/// Other calls run; the call with the unknown outcome does not.
pub async fn a_handle_that_allows_unresolved_effects_runs_other_calls(backend: &Backend) {
    let ran = AtomicU32::new(0);
    let run = backend.open_unresolved("allowed").await;
    let unknown = run.tool("book", &seat(1)).once_or_unknown(|_| async { Ended::Unknown("hung up".into()) });
    unknown.await.expect_err("the outcome is unknown");
    let mut run = run;
    for again in [false, true] {
        if again {
            run = backend.open_unresolved("allowed").await;
        }
        let error = book(&run, &ran, "book", None, &seat(1)).await.expect_err("no decision exists");
        assert_eq!(error.kind(), ErrorKind::ReconcileRequired, "{error}");
        let before = ran.load(Ordering::SeqCst);
        book(&run, &ran, "mail", None, &json!(before)).await.expect("an answer");
        assert_eq!(ran.load(Ordering::SeqCst), before + 1);
    }
    let strict = backend.open("allowed").await;
    let error = book(&strict, &ran, "mail", None, &json!("new")).await.expect_err("no decision exists");
    assert_eq!((error.kind(), ran.load(Ordering::SeqCst)), (ErrorKind::ReconcileRequired, 2), "{error}");
}

/// The age of a run comes from the log's times, not from the process's clock.
pub async fn open_unless_active_does_not_take_over_a_recently_written_run(backend: &Backend) {
    let (hour, ran) = (std::time::Duration::from_secs(3600), AtomicU32::new(0));
    let a = backend.runlog.open_unless_active("active", hour).await.expect("the run has no writer");
    let error = backend.runlog.open_unless_active("active", hour).await.expect_err("it is active");
    let active = error.active().expect("the error names the writer");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Unavailable, Action::Retry), "{error}");
    assert_eq!((&active.writer_id, active.epoch), (&a.recovery().writer_id, a.recovery().epoch));
    assert!(active.age < hour && error.to_string().contains(active.writer_id.as_str()), "{error}");
    assert_eq!(backend.count("active", "run_claim").await, 1, "the refused open appends no claim");
    book(&a, &ran, "book", None, &seat(1)).await.expect("the first handle still has the run");
    let b =
        backend.runlog.open_unless_active("active", std::time::Duration::ZERO).await.expect("age zero is not active");
    assert_eq!(Some(b.recovery().epoch), a.recovery().epoch.next());
    b.end(runlog_producer::Outcome::Completed).await.expect("an end");
    let ended = backend.runlog.open_unless_active("active", hour).await.expect("an ended run is only read");
    assert_eq!(ended.recovery().status, RunStatus::Completed);
}

/// The claims above, each as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! call_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, calls:
            concurrent_calls_are_requested_in_order_and_completed_in_any,
            an_intent_that_got_no_answer_stops_the_calls_after_it,
            a_result_after_a_takeover_is_evidence_for_the_new_writer,
            a_checkpoint_during_calls_does_not_cover_their_answers,
            a_run_that_has_ended_answers_recorded_calls_and_the_same_end,
            a_call_that_did_not_end_with_its_run_is_not_run_again,
            a_process_that_reads_no_recovery_begins_at_the_start_of_its_run,
            a_new_call_before_the_recorded_ones_is_refused_if_its_run_is_opened_so,
            a_key_is_scoped_to_its_tool_and_its_run,
            an_empty_key_is_refused_before_anything_is_appended,
            a_running_call_is_not_started_again,
            an_effect_with_an_unknown_outcome_leaves_its_call_pending,
            a_handle_that_allows_unresolved_effects_runs_other_calls,
            open_unless_active_does_not_take_over_a_recently_written_run,
        }
    };
}
