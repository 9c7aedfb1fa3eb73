//! Calls that were cancelled, or whose intent has an unknown outcome: what their repeats answer.
//!
//! Each function panics if its claim does not hold.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use runlog_producer::{Action, Answer, Call, Ended, Error, Json, Outcome, Run, SideEffect, failpoint};
use runlog_schemas::answer::{Class, ErrorKind};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::backend::{Backend, Fault, FaultOutcome, dropped_after};

/// The effect has no await point: a cancelled call ran it whole or not at all.
pub async fn a_call_cancelled_anywhere_runs_its_effect_once(backend: &Backend) {
    for key in [None, Some("k")] {
        for polls in 1.. {
            let (ran, id) = (AtomicU32::new(0), format!("call-{polls}-{}", key.is_some()));
            let run = backend.open(&id).await;
            let call = || {
                let tool = run.tool("book", &json!({ "seat": 1 }));
                let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
                tool.once(|_| async { Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst)))) })
            };
            let whole = dropped_after(polls, call()).await;
            if whole.is_none() {
                let mut answer = call().await;
                if answer.as_ref().is_err_and(|error| error.action() == Action::Reopen) {
                    run.reopen().await.expect("reopened");
                    answer = call().await;
                }
                let result = answer.expect("an answer").result.map(|result| result.to_value());
                assert_eq!(result, Some(json!(0)), "cancelled after {polls} polls");
            }
            assert_eq!(ran.load(Ordering::SeqCst), 1, "cancelled after {polls} polls");
            let next = backend.open(&id).await;
            assert!(next.recovery().pending.is_empty() && next.recovery().completed.len() == 1, "{polls} polls");
            if whole.is_some() {
                break;
            }
        }
    }
}

/// The run ended after the intent and before its read-back. The recorded decision spares later readers a reconciliation.
pub async fn a_call_cancelled_after_the_end_counts_as_never_started(backend: &Backend) {
    let (ran, id) = (AtomicU32::new(0), "never-started-at-the-end");
    let run = backend.open(id).await;
    backend.hold(id);
    let mut call = Box::pin(book_seat(&run, None, &ran));
    assert!(call.as_mut().now_or_never().is_none(), "it waits for its read-back");
    backend.release(id);
    run.end(Outcome::Completed).await.expect("ended");
    drop(call);
    let error = run.reopen().await.expect_err("it ended");
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
    let recovery = backend.runlog.recovery(id).await.expect("an answer").expect("a run");
    let classes: Vec<_> = recovery.pending.iter().map(|pending| pending.class.clone()).collect();
    assert_eq!((classes, ran.load(Ordering::SeqCst)), (vec![Class::RetrySafe.into()], 0));
    assert!(run.reopen().await.is_err(), "it ended");
    assert_eq!(backend.count(id, "effect_resolution").await, 1, "decided once");
}

/// The log holds back appended records. Only this process knows that the effect never started.
pub async fn a_call_cancelled_while_it_is_read_back_counts_as_never_started(backend: &Backend) {
    for key in [None, Some("k")] {
        let id = format!("read-back-{}", key.is_some());
        let run = backend.open(&id).await;
        let call = || {
            let tool = run.tool("book", &json!({ "seat": 1 }));
            let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
            tool.once(async |call: Call| Ok(Json::from(json!(call.attempt))))
        };
        backend.hold(&id);
        assert!(dropped_after(1, call()).await.is_none(), "it waits for its read-back");
        backend.release(&id);
        let answer = call().await.expect("an answer").result.map(|result| result.to_value());
        assert_eq!(answer, Some(json!(2)), "another attempt of the same call");
        let next = backend.open(&id).await;
        assert!(next.recovery().pending.is_empty() && next.recovery().completed.len() == 1);
        assert_eq!(backend.count(&id, "effect_resolution").await, usize::from(key.is_none()), "only without a key");
    }
}

/// The first attempt may have happened, although its repeat never started. The log holds back appended records. Needs schema version 3,
/// which records that a call is repeatable.
pub async fn a_repeat_cancelled_while_it_is_read_back_leaves_the_first_attempt_undecided(backend: &Backend) {
    static ACKNOWLEDGED: Notify = Notify::const_new();
    let notify = |at: &'static str| {
        if at == failpoint::INTENT_ACKNOWLEDGED {
            ACKNOWLEDGED.notify_one();
        }
    };
    let runlog = backend.connect(|config| config.failpoints = notify).await;
    for ends in [false, true] {
        let id = format!("repeat-{ends}");
        let run = runlog.open(&id).await.expect("open");
        let poll = || run.tool("poll", &json!({ "job": 1 })).repeatable();
        let lost = poll().once_or_unknown(|_| async { Ended::Unknown("the answer was lost".to_owned()) }).await;
        assert!(lost.is_err(), "its outcome is unknown");
        ACKNOWLEDGED.notified().await;
        backend.hold(&id);
        let mut repeat = Box::pin(poll().once(|_| async { panic!("the repeat is not read back") }));
        tokio::select! {
            _ = &mut repeat => panic!("it waits for its read-back"),
            () = ACKNOWLEDGED.notified() => backend.release(&id),
        }
        if ends {
            run.end(Outcome::Cancelled).await.expect("ended");
            drop(repeat);
            run.reopen().await.expect_err("it ended");
        } else {
            drop(repeat);
            let answer = poll().once(async |call: Call| Ok(Json::from(json!(call.attempt)))).await.expect("an answer");
            assert_eq!(
                answer.result.map(|result| result.to_value()),
                Some(json!(3)),
                "another attempt of the same call"
            );
        }
        assert_eq!(backend.count(&id, "tool_call_attempt").await, if ends { 1 } else { 2 });
        assert_eq!(backend.count(&id, "effect_resolution").await, 0, "the first attempt may have happened");
    }
}

/// The log holds back appended records. The handle learns of the decision from its next record.
pub async fn a_call_decided_after_it_was_cancelled_is_not_forgotten(backend: &Backend) {
    for key in [None, Some("k")] {
        for stopped in [false, true] {
            let (ran, id) = (AtomicU32::new(0), format!("decided-{}-{stopped}", key.is_some()));
            let run = backend.open(&id).await;
            backend.hold(&id);
            assert!(dropped_after(1, book_seat(&run, key, &ran)).await.is_none(), "it waits for its read-back");
            backend.release(&id);
            backend.decide_done(&id, &json!("decided")).await;
            if stopped {
                // The handle stops at this turn and settles the call only in its reopen.
                backend.inject(Fault::AckLost);
            }
            drop(run.turn("user", "next").await);
            run.reopen().await.expect("reopened");
            is_answered_by_the_decision(&run, key, &ran).await;
            assert_eq!(backend.count(&id, "tool_call_requested").await, 1, "{key:?}");
        }
    }
}

/// Only this process knows that the effect never started.
pub async fn an_intent_that_never_started_is_recorded_as_not_done(backend: &Backend) {
    for fault in backend.faults {
        for asks_again in [true, false] {
            let (ran, id) = (AtomicU32::new(0), format!("intent-{fault:?}-{asks_again}"));
            let run = backend.open(&id).await;
            let call = || {
                let effect = async |call: Call| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(Json::from(json!(call.attempt)))
                };
                run.tool("book", &json!({ "seat": 1 })).once(effect)
            };
            match backend.run_with_fault(*fault, call()).await {
                FaultOutcome::Failed(error) => assert_eq!(error.side_effect(), SideEffect::Unknown, "{error}"),
                FaultOutcome::Dropped => {}
                FaultOutcome::Completed => continue,
            }
            if *fault != Fault::Cancelled {
                assert!(call().await.is_err(), "the handle is stopped");
            } else if ran.load(Ordering::SeqCst) > 0 {
                // One poll was enough to begin its effect.
                continue;
            }
            run.reopen().await.expect("reopened");
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            let landed = backend.count(&id, "tool_call_requested").await;
            assert_eq!(backend.count(&id, "effect_resolution").await, landed, "{fault:?}: as many as landed");
            assert!(*fault == Fault::Cancelled || landed == usize::from(*fault == Fault::AckLost), "{fault:?}");
            if asks_again {
                let answer = call().await.expect("an answer").result.map(|result| result.to_value());
                assert_eq!(
                    answer,
                    Some(json!(1 + landed)),
                    "another attempt of the same call if its intent is in the log"
                );
                assert_eq!(ran.load(Ordering::SeqCst), 1);
            }
            let next = backend.open(&id).await;
            let recovery = next.recovery();
            assert!(recovery.resumable, "{:?}", recovery.reason);
            let left = if asks_again { 0 } else { landed };
            assert_eq!(recovery.pending.len(), left, "{fault:?}: {:?}", recovery.pending);
        }
    }
}

/// The acknowledgement of the intent was lost. A checkpoint of the handle lists the request as unanswered.
pub async fn a_call_decided_before_its_handle_is_reopened_is_not_forgotten(backend: &Backend) {
    for fault in backend.faults.iter().filter(|fault| **fault != Fault::AppendLost) {
        for key in [None, Some("k")] {
            let (ran, id) = (AtomicU32::new(0), format!("decided-{fault:?}-{}", key.is_some()));
            let run = backend.open(&id).await;
            if matches!(backend.run_with_fault(*fault, book_seat(&run, key, &ran)).await, FaultOutcome::Completed) {
                continue;
            }
            if *fault == Fault::Cancelled && backend.count(&id, "tool_call_requested").await == 0 {
                continue;
            }
            if ran.load(Ordering::SeqCst) > 0 {
                // One poll was enough to begin its effect.
                continue;
            }
            backend.decide_done(&id, &json!("decided")).await;
            run.reopen().await.expect("reopened");
            backend.checkpoint(&run).await;
            is_answered_by_the_decision(&run, key, &ran).await;
            let next = backend.open(&id).await;
            is_answered_by_the_decision(&next, key, &ran).await;
            assert_eq!(backend.count(&id, "tool_call_requested").await, 1, "{fault:?}, {key:?}");
        }
    }
}

/// The call is dropped during its effect, at any point of a reopen of its handle. It answers one call, not two.
pub async fn a_call_abandoned_during_a_reopen_answers_once(backend: &Backend) {
    for polls in 0.. {
        let (ran, id, began) = (AtomicU32::new(0), format!("abandoned-{polls}"), Semaphore::new(0));
        let run = backend.open(&id).await;
        let effect = |_| async {
            began.add_permits(1);
            std::future::pending().await
        };
        let mut call = Box::pin(run.tool("book", &json!({ "seat": 1 })).once(effect));
        tokio::select! {
            _ = &mut call => panic!("the effect has no end"),
            began = began.acquire() => drop(began.expect("it is open")),
        }
        backend.stop_handle(Fault::AppendLost, &run).await;
        let mut reopened = Box::pin(run.reopen());
        let whole = dropped_after(polls, &mut reopened).await;
        drop(call);
        let ended = whole.is_some();
        match whole {
            Some(whole) => drop(whole.expect("reopened")),
            None => drop(reopened.await.expect("reopened")),
        }
        backend.decide_done(&id, &json!("decided")).await;
        is_answered_by_the_decision(&run, None, &ran).await;
        let next = book_seat(&run, None, &ran).await.expect("an answer");
        assert_eq!((next.recorded, ran.load(Ordering::SeqCst)), (false, 1), "{polls} polls: another call");
        if ended {
            return;
        }
    }
}

/// Once an operator has decided a call, the decision answers its repeat. As a new call its effect could run twice.
async fn is_answered_by_the_decision(run: &Run, key: Option<&str>, ran: &AtomicU32) {
    let mut answer = book_seat(run, key, ran).await;
    if answer.as_ref().is_err_and(|error| error.action() == Action::Reopen) {
        // A call with a key is retried; the refusal of the attempt reports the decision.
        run.reopen().await.expect("reopened");
        answer = book_seat(run, key, ran).await;
    }
    let answer = answer.expect("an answer");
    let result = answer.result.as_ref().map(Json::to_value);
    assert_eq!((answer.recorded, result, ran.load(Ordering::SeqCst)), (true, Some(json!("decided")), 0), "{key:?}");
}

async fn book_seat(run: &Run, key: Option<&str>, ran: &AtomicU32) -> Result<Answer, Error> {
    let tool = run.tool("book", &json!({ "seat": 1 }));
    let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
    tool.once(|_| async { Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst)))) }).await
}
