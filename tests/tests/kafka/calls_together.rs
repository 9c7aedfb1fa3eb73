//! Calls of one handle that are made at the same time, with intents sent directly to Kafka.

use futures_util::{
    FutureExt as _,
    future::{join, join_all},
};
use runlog_log::kafka::KafkaLog;
use runlog_producer::{Action, Json, Run, Runlog, SideEffect};
use runlog_tests::{append_counter::Counter, deployment::Deployment, hooked_log::hook, http_proxy::HttpProxy};
use serde_json::json;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
use tokio::sync::Barrier;

const CALLS: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_share_the_appends_of_their_intents() {
    let deployment = Deployment::kafka().unwrap();
    let (run, counter) = open_counted(&deployment, &deployment.server.url, "few").await;
    let (before, all_run) = (counter.appends().sent, Barrier::new(CALLS));
    let calls = (0..CALLS).map(|seat| {
        let (run, counter, all_run) = (&run, &counter, &all_run);
        async move {
            let effect = async |_| {
                all_run.wait().await;
                Ok(Json::from(json!(counter.appends().sent)))
            };
            run.tool("book", &seat).once(effect).await.unwrap()
        }
    });
    let sent = join_all(calls).await.into_iter().filter_map(|answer| answer.result.unwrap().to_value().as_u64());
    let sent = sent.min().unwrap() - before;
    assert!(sent < CALLS as u64 / 2, "{sent} appends for {CALLS} intents");
}

/// Only the effects of the first calls run.
#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_is_not_read_back_stops_later_effects() {
    let deployment = Deployment::kafka().unwrap();
    let proxy = HttpProxy::start(&deployment.server.url, "/outcome").unwrap();
    // The first intent has its own append and read-back. The others wait for its acknowledgement and share an append.
    for (run_id, read_back) in [("first", 0), ("second", 1)] {
        let (run, counter) = open_counted(&deployment, &proxy.url, run_id).await;
        let ran: Vec<AtomicBool> = (0..CALLS).map(|_| AtomicBool::new(false)).collect();
        proxy.skip(u32::try_from(read_back).unwrap());
        proxy.drop_next_request();
        counter.hold_later();
        let all_wait = async {
            // After the yield each call has been polled twice.
            tokio::task::yield_now().await;
            // The first intent is acknowledged, and the others only after its read-back: the proxy counts read-backs, and those
            // that are sent at the same time could overtake each other.
            counter.hold_later();
            // Polled again after each step of a call.
            poll_fn(|_| if ran.iter().take(read_back).all(is_set) { Poll::Ready(()) } else { Poll::Pending }).await;
            counter.release_all();
        };
        let (answers, ()) = join(join_all((0..CALLS).map(|seat| book(&run, seat, &ran))), all_wait).await;
        let ran: Vec<bool> = ran.iter().map(is_set).collect();
        let failed = ran.iter().position(|ran| !ran).unwrap();
        assert!(failed >= read_back && ran[failed..].iter().all(|ran| !ran), "{run_id}: {ran:?}");
        assert_eq!(answers, ran, "each call that ran is answered or held");
        run.reopen().await.unwrap();
        let again: Vec<AtomicBool> = (0..CALLS).map(|_| AtomicBool::new(false)).collect();
        for seat in failed..CALLS {
            assert!(book(&run, seat, &again).await, "{run_id}: call {seat}");
        }
        let next = deployment.connect().await.unwrap().open(run_id).await.unwrap();
        assert_eq!((next.recovery().completed.len(), next.recovery().pending.len()), (CALLS, 0), "{run_id}");
    }
}

/// The next call waits for the unpolled call, at most for the read-back timeout, and fails. After a reopen later calls run.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_call_stops_the_later_calls_once() {
    let deployment = Deployment::kafka().unwrap();
    let (run, counter) = open_counted(&deployment, &deployment.server.url, "unpolled").await;
    let ran: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
    let mut unpolled = pin!(book(&run, 0, &ran));
    // Held acknowledgements stop the call at the append of its intent, not at a later step.
    counter.hold_later();
    assert!(unpolled.as_mut().now_or_never().is_none());
    counter.release_all();
    assert!(!book(&run, 1, &ran).await, "it waited for the unpolled call");
    run.reopen().await.unwrap();
    assert!(book(&run, 2, &ran).await, "made after the failure");
    assert!(!unpolled.await);
    assert!(book(&run, 3, &ran).await, "made after the failure");
    let ran: Vec<bool> = ran.iter().map(is_set).collect();
    assert_eq!(ran, [false, false, true, true]);
}

/// Opens a run through `server`; returns it with the counter of its appends.
async fn open_counted(deployment: &Deployment, server: &str, run_id: &str) -> (Run, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    let log = KafkaLog::connect(deployment.topic().unwrap().clone()).unwrap();
    let mut config = deployment.config(server).unwrap();
    config.log = Some(hook(log, &counter));
    (Runlog::connect(config).await.unwrap().open(run_id).await.unwrap(), counter)
}

fn is_set(ran: &AtomicBool) -> bool {
    ran.load(Ordering::SeqCst)
}

/// Makes a call. Returns whether it was answered, or its result is held because the handle stopped meanwhile. Otherwise the
/// run must be reopened.
async fn book(run: &Run, seat: usize, ran: &[AtomicBool]) -> bool {
    let effect = async |_| {
        ran[seat].store(true, Ordering::SeqCst);
        Ok(Json::from(json!(seat)))
    };
    match run.tool("book", &seat).once(effect).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.action(), Action::Reopen, "{error}");
            error.side_effect() == SideEffect::Held
        }
    }
}
