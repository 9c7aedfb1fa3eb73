//! Calls of one handle that are cancelled, reopened and ended at chosen points while other operations of it are in
//! progress.
//!
//! Each function panics if its claim does not hold.

use std::{
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
};

use futures_util::FutureExt;
use runlog_producer::{Answer, Config, Error, Json, Run};
use serde_json::{Value, json};

use super::held_append;
use crate::backend::{Backend, dropped_after};

async fn book(run: &Run, ran: &AtomicU32) -> Result<Answer, Error> {
    let effect = |_| async { Ok(Json::from(json!(ran.fetch_add(1, Ordering::SeqCst)))) };
    run.tool("book", &json!({ "seat": 1 })).once(effect).await
}

fn value(answer: Answer) -> Option<Value> {
    answer.result.map(|result| result.to_value())
}

/// A call is cancelled while its next attempt waits for the send buffer. Its repeat must still be the pending call. As a
/// new call it would run the effect, and the next process would run the effect of the pending call again.
pub async fn a_retry_cancelled_before_its_attempt_is_sent_forgets_no_call(backend: &Backend) {
    let _alone = held_append::exclusive().await;
    let small = |config: &mut Config| (config.buffer_records, config.failpoints) = (1, held_append::hold_if_armed);
    let runlog = backend.connect(small).await;
    let (run, other) = (runlog.open("retried").await.expect("open"), runlog.open("other").await.expect("open"));
    let ran = AtomicU32::new(0);
    // The intent is acknowledged and its effect never starts. The next operation records that, and the call is safe to retry.
    backend.hold("retried");
    assert!(dropped_after(1, book(&run, &ran)).await.is_none(), "it waits for its read-back");
    backend.release("retried");
    run.turn("user", "settles it").await.expect("a turn");
    // The buffer holds one record, and another handle fills it.
    held_append::arm();
    let other = tokio::spawn(async move { other.turn("user", "fills the buffer").await });
    held_append::wait_until_held();
    let retried = dropped_after(1, tokio::task::unconstrained(book(&run, &ran))).await;
    held_append::release();
    other.await.expect("no panic").expect("a turn");
    assert!(retried.is_none(), "it waits for the buffer");
    let attempt = async |call: runlog_producer::Call| {
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(Json::from(json!(call.attempt)))
    };
    let answer = run.tool("book", &json!({ "seat": 1 })).once(attempt).await.expect("an answer");
    assert_eq!(value(answer), Some(json!(2)), "another attempt of the same call");
    let next = backend.open("retried").await;
    assert_eq!((next.recovery().pending.len(), next.recovery().completed.len()), (0, 1), "one call, answered");
    assert_eq!((backend.count("retried", "tool_call_requested").await, ran.load(Ordering::SeqCst)), (1, 1));
}

/// A read-back of an intent may be answered after the next claim of the same handle, applied or in flight. That claim is
/// not a takeover by another process.
pub async fn a_handle_reopened_during_a_read_back_keeps_its_run_and_its_call(backend: &Backend) {
    for polls in 1.. {
        let (ran, id) = (AtomicU32::new(0), format!("reopened-{polls}"));
        let run = backend.open(&id).await;
        backend.hold(&id);
        let mut call = pin!(book(&run, &ran));
        assert!(call.as_mut().now_or_never().is_none(), "it waits for its read-back");
        backend.stop_handle(crate::backend::Fault::AppendLost, &run).await;
        backend.release(&id);
        let whole = dropped_after(polls, run.reopen()).await;
        let called = call.await;
        if let Err(error) = &called {
            assert_eq!(error.side_effect(), runlog_producer::SideEffect::Held, "{polls} polls: {error}");
        }
        run.reopen().await.unwrap_or_else(|error| panic!("{polls} polls: {error}"));
        run.turn("user", "after").await.expect("a turn");
        run.flush().await.expect("applied");
        assert_eq!((run.held(), ran.load(Ordering::SeqCst)), ((0, 0), 1), "{polls} polls");
        let next = backend.open(&id).await;
        assert_eq!((next.recovery().pending.len(), next.recovery().completed.len()), (0, 1), "{polls} polls");
        if let Some(whole) = whole {
            whole.expect("reopened");
            called.expect("its effect ran");
            return;
        }
    }
}
