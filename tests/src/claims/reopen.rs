//! `reopen` after an append that failed, was cancelled, or was never answered.
//!
//! Each function panics if its claim does not hold.

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use runlog_producer::{Action, Answer, Error, Json, LoopState, Outcome, Run, SideEffect};
use runlog_schemas::answer::{ErrorKind, RunStatus};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::backend::{Backend, Fault, FaultOutcome, dropped_after, foreign};

/// Concurrent calls.
const CALLS: usize = 3;

/// Effects that have happened and return only once they are released.
#[derive(Debug)]
struct Desk {
    ran: AtomicU32,
    began: Semaphore,
    let_go: Semaphore,
}

impl Desk {
    fn new() -> Self {
        Self { ran: AtomicU32::new(0), began: Semaphore::new(0), let_go: Semaphore::new(0) }
    }

    fn effect_count(&self) -> u32 {
        self.ran.load(Ordering::SeqCst)
    }

    async fn book(&self, run: &Run, number: usize) -> Result<Answer, Error> {
        let effect = |_| async {
            let booking = self.ran.fetch_add(1, Ordering::SeqCst);
            self.began.add_permits(1);
            self.let_go.acquire().await.expect("it is open").forget();
            Ok(Json::from(json!({ "number": number, "booking": booking })))
        };
        run.tool("book", &json!({ "number": number })).once(effect).await
    }

    /// Makes all calls. Runs `meanwhile` once their effects have happened, then lets them return.
    async fn book_all<T>(&self, run: &Run, meanwhile: impl Future<Output = T>) -> (Vec<Result<Answer, Error>>, T) {
        let happen = async {
            self.began.acquire_many(CALLS as u32).await.expect("it is open").forget();
            let came = meanwhile.await;
            self.let_go.add_permits(CALLS);
            came
        };
        let calls: Vec<_> = (0..CALLS).map(|number| self.book(run, number)).collect();
        tokio::join!(join_all(calls), happen)
    }

    /// Repeats all calls: each is answered from the journal, with its own booking.
    async fn all_recorded(&self, run: &Run) {
        self.let_go.add_permits(CALLS);
        let mut bookings = Vec::new();
        for number in 0..CALLS {
            let answer = self.book(run, number).await.expect("an answer");
            let result = answer.result.expect("a result").to_value();
            assert!(answer.recorded && result["number"] == number, "{result}");
            bookings.push(result["booking"].as_u64().expect("a booking"));
        }
        bookings.sort_unstable();
        assert_eq!((bookings, self.effect_count()), ((0..CALLS as u64).collect(), CALLS as u32));
    }
}

fn assert_held(called: &[Result<Answer, Error>]) {
    for called in called {
        let error = called.as_ref().expect_err("its result is held");
        assert_eq!((error.side_effect(), error.action()), (SideEffect::Held, Action::Reopen), "{error}");
    }
}

/// The unknown append is a turn or a result.
pub async fn reopen_after_an_unknown_append_neither_loses_nor_duplicates_a_held_result(backend: &Backend) {
    for fault in backend.faults {
        for result in [false, true] {
            let (desk, id) = (Desk::new(), format!("held-{fault:?}-{result}"));
            let run = backend.open(&id).await;
            let called = if result && *fault != Fault::Cancelled {
                let spoil = async {
                    backend.inject(*fault);
                    0
                };
                desk.book_all(&run, spoil).await
            } else {
                desk.book_all(&run, backend.stop_handle(*fault, &run)).await
            };
            let (called, turns) = called;
            assert_held(&called);
            assert_eq!(run.held().0, CALLS, "{fault:?}");
            run.reopen().await.expect("reopened");
            assert_eq!(run.held(), (0, 0));
            desk.all_recorded(&run).await;
            let next = backend.open(&id).await;
            assert_eq!((next.recovery().pending.len(), next.recovery().completed.len()), (0, CALLS), "{fault:?}");
            desk.all_recorded(&next).await;
            assert_eq!(backend.count(&id, "conversation_turn").await, turns, "{fault:?}");
            assert_eq!(backend.count(&id, "tool_call_completed").await, CALLS);
        }
    }
}

/// The results are evidence for the handle that took the run over.
pub async fn reopen_loses_to_a_takeover_and_leaves_held_results_as_evidence(backend: &Backend) {
    for fault in backend.faults {
        let (desk, id) = (Desk::new(), format!("lost-{fault:?}"));
        let run = backend.open(&id).await;
        let (called, most) = desk.book_all(&run, backend.stop_handle(*fault, &run)).await;
        assert_held(&called);
        let other = backend.open(&id).await;
        assert_eq!(other.recovery().pending.len(), CALLS);
        for _ in 0..2 {
            let error = run.reopen().await.expect_err("the other handle has the run");
            assert_eq!((error.kind(), error.action()), (ErrorKind::ClaimLost, Action::Stop), "{error}");
        }
        assert_eq!(run.held(), (0, 0), "a handle that lost its run holds no results");
        let third = backend.open(&id).await;
        let pending = &third.recovery().pending;
        let evidence: Vec<usize> = pending.iter().map(|pending| pending.evidence.len()).collect();
        assert_eq!(
            (evidence, third.recovery().epoch.get()),
            (vec![1; CALLS], 3),
            "evidence for each call, and no claim of the loser"
        );
        assert_eq!(desk.effect_count(), CALLS as u32);
        let (turns, not_done) =
            (backend.count(&id, "conversation_turn").await, backend.count(&id, "effect_resolution").await);
        assert!(turns <= most && not_done == 0, "{turns} turns, {not_done} decisions");
    }
}

/// Each call of the handle is pending, with its result as evidence, and the handle holds no results.
async fn all_evidence(backend: &Backend, desk: &Desk, run: &Run) {
    assert_eq!(run.held(), (0, 0));
    let next = backend.open(run.id().as_str()).await;
    let recovery = next.recovery();
    assert_eq!((recovery.status.clone(), desk.effect_count()), (RunStatus::Completed.into(), CALLS as u32));
    let evidence: Vec<usize> = recovery.pending.iter().map(|pending| pending.evidence.len()).collect();
    assert_eq!(evidence, [1; CALLS], "evidence for each call");
}

/// The run ended while calls were in flight. The handle knows it at once, after a reopen, or from the answer of its next
/// append.
pub async fn results_of_calls_that_outlive_their_run_are_evidence(backend: &Backend) {
    let (desk, id) = (Desk::new(), "outlived");
    let run = backend.open(id).await;
    let (called, _) = desk.book_all(&run, async { run.end(Outcome::Completed).await.expect("ended") }).await;
    for called in called {
        let error = called.expect_err("the run ended");
        assert_eq!((error.side_effect(), error.kind()), (SideEffect::Evidence, ErrorKind::Conflict), "{error}");
    }
    all_evidence(backend, &desk, &run).await;
    for fault in backend.faults {
        let (desk, run) = (Desk::new(), backend.open(&format!("outlived-{fault:?}")).await);
        let (called, came) = desk.book_all(&run, backend.run_with_fault(*fault, run.end(Outcome::Completed))).await;
        if !matches!(came, FaultOutcome::Completed) {
            assert_held(&called);
            run.reopen().await.expect("reopened");
        }
        all_evidence(backend, &desk, &run).await;
        if *fault == Fault::Cancelled {
            continue;
        }
        let (desk, run) = (Desk::new(), backend.open(&format!("outlived-unknown-{fault:?}")).await);
        let ended = async {
            run.end(Outcome::Completed).await.expect("ended");
            backend.inject(*fault);
        };
        let (called, ()) = desk.book_all(&run, ended).await;
        let side_effects = called.iter().flat_map(|called| called.as_ref().err()).map(Error::side_effect);
        assert_eq!(side_effects.filter(|left| *left == SideEffect::Held).count(), 1, "{fault:?}: {called:?}");
        let error = run.reopen().await.expect_err("it ended");
        assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
        all_evidence(backend, &desk, &run).await;
    }
}

/// The log holds back appended records. The run may have ended, so results stay held until that is known.
pub async fn an_end_cancelled_while_it_is_read_back_stops_the_handle(backend: &Backend) {
    let (desk, id) = (Desk::new(), "end-cancelled");
    let run = backend.open(id).await;
    let cancelled = async {
        backend.hold(id);
        assert!(dropped_after(1, run.end(Outcome::Completed)).await.is_none(), "it waits for its read-back");
        backend.release(id);
    };
    let (called, ()) = desk.book_all(&run, cancelled).await;
    assert_held(&called);
    run.reopen().await.expect("reopened");
    all_evidence(backend, &desk, &run).await;
}

/// A reopen that is cancelled at any point can be repeated.
pub async fn reopen_can_be_cancelled_anywhere_and_called_again(backend: &Backend) {
    let fault = backend.faults[0];
    for polls in 1.. {
        let (desk, id) = (Desk::new(), format!("cancelled-{polls}"));
        let run = backend.open(&id).await;
        let (called, turns) = desk.book_all(&run, backend.stop_handle(fault, &run)).await;
        assert_held(&called);
        let whole = dropped_after(polls, run.reopen()).await;
        run.reopen().await.expect("reopened");
        desk.all_recorded(&run).await;
        assert_eq!(backend.count(&id, "conversation_turn").await, turns, "cancelled after {polls} polls");
        assert_eq!(backend.count(&id, "tool_call_completed").await, CALLS, "cancelled after {polls} polls");
        if let Some(whole) = whole {
            whole.expect("reopened");
            return;
        }
    }
}

fn message(number: usize) -> Json {
    Json::from(json!({ "number": number, "content": "x".repeat(500) }))
}

/// The failed save is reported, the next operation succeeds, and the checkpoint is in the journal.
pub async fn a_checkpoint_with_an_unknown_outcome_fails_no_later_operation(backend: &Backend) {
    type Next = for<'a> fn(&'a Run) -> BoxFuture<'a, Result<(), Error>>;
    let nexts: [Next; 3] = [
        |run| run.turn("user", "next").map(|said| said.map(drop)).boxed(),
        |run| {
            run.tool("book", &json!(1)).once(|_| async { Ok(Json::from(json!(1))) }).map(|said| said.map(drop)).boxed()
        },
        |run| run.end(Outcome::Completed).map(|said| said.map(drop)).boxed(),
    ];
    for fault in backend.faults {
        for (number, next) in nexts.iter().enumerate() {
            let id = format!("checkpoint-{fault:?}-{number}");
            let run = backend.open(&id).await;
            let mut state = LoopState { messages: vec![message(0)], ..LoopState::default() };
            run.checkpoint(&state).await.expect("a checkpoint");
            // The first checkpoint is known to be applied, so the next checkpoint is sent without a query.
            run.flush().await.expect("applied");
            state.messages.push(message(1));
            backend.run_with_fault(*fault, run.checkpoint(&state)).await;
            if let Err(error) = next(&run).await {
                panic!("{fault:?}, {number}: {error}");
            }
            let saved = backend.open(&id).await.recovery().checkpoint.clone().expect("a checkpoint");
            assert_eq!(saved.messages, Some(state.messages), "{fault:?}: it is the last checkpoint");
        }
    }
}

/// An acknowledged checkpoint may be refused, and then every checkpoint based on it would be refused, too.
pub async fn no_checkpoint_builds_on_one_that_was_refused(backend: &Backend) {
    let run = backend.open("base").await;
    let mut state = LoopState { messages: vec![message(0)], ..LoopState::default() };
    run.checkpoint(&state).await.expect("a checkpoint");
    // A foreign record under this handle's writer id conflicts with the handle's next record.
    backend.append(foreign(&run, 3, 2)).await.expect("appended");
    state.messages.push(message(1));
    // Over HTTP the answer already reports the refusal.
    let refused = run.checkpoint(&state).await;
    assert!(refused.as_ref().is_ok() || refused.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict));
    state.messages.push(message(2));
    let position = run.checkpoint(&state).await.expect("the next checkpoint");
    run.applied(&position, std::time::Duration::from_secs(30)).await.expect("applied");
    state.messages.push(message(3));
    let position = run.checkpoint(&state).await.expect("a checkpoint based on that checkpoint");
    run.applied(&position, std::time::Duration::from_secs(30)).await.expect("applied");
    let saved = backend.open("base").await.recovery().checkpoint.clone().expect("a checkpoint");
    assert_eq!(saved.messages, Some(state.messages));
    assert_eq!(backend.count("base", "conversation_turn").await, 1, "the foreign record is applied");
}

/// A handle remembers across a reopen which recorded calls it has answered, and which it has not.
pub async fn replayed_calls_stay_replayed_across_a_reopen(backend: &Backend) {
    let polls = AtomicU32::new(0);
    let poll = async |run: &Run| {
        let effect = |_| async { Ok(Json::from(json!(polls.fetch_add(1, Ordering::SeqCst)))) };
        let answer = run.tool("poll", &json!({})).once(effect).await.expect("an answer");
        (answer.recorded, answer.result.expect("a result").to_value())
    };
    let run = backend.open("taken").await;
    for number in 0..3 {
        assert_eq!(poll(&run).await, (false, json!(number)));
    }
    let run = backend.open("taken").await;
    assert_eq!(poll(&run).await, (true, json!(0)));
    backend.stop_handle(backend.faults[0], &run).await;
    run.reopen().await.expect("reopened");
    assert_eq!(poll(&run).await, (true, json!(1)), "the first recorded call is not answered again");
    assert_eq!(poll(&run).await, (true, json!(2)));
    assert_eq!(poll(&run).await, (false, json!(3)), "after all recorded calls, the next call is new");
}

/// The end of the run also ends the handle.
pub async fn an_end_with_an_unknown_outcome_is_the_end_after_a_reopen(backend: &Backend) {
    for fault in backend.faults {
        let id = format!("end-{fault:?}");
        let run = backend.open(&id).await;
        if let FaultOutcome::Failed(_) | FaultOutcome::Dropped =
            backend.run_with_fault(*fault, run.end(Outcome::Completed)).await
        {
            run.reopen().await.expect("reopened");
        }
        let error = run.turn("user", "after").await.expect_err("it has ended");
        assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::FixTheInput), "{error}");
        assert_eq!(backend.open(&id).await.recovery().status, RunStatus::Completed);
        let ends = backend.records(&id).await;
        let ends = ends.iter().filter(|(kind, payload)| kind == "run_lifecycle" && payload["status"] == "completed");
        assert_eq!(ends.count(), 1);
    }
}

/// The claims above, each as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! reopen_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, reopen:
            reopen_after_an_unknown_append_neither_loses_nor_duplicates_a_held_result,
            reopen_loses_to_a_takeover_and_leaves_held_results_as_evidence,
            reopen_can_be_cancelled_anywhere_and_called_again,
            results_of_calls_that_outlive_their_run_are_evidence,
            a_checkpoint_with_an_unknown_outcome_fails_no_later_operation,
            no_checkpoint_builds_on_one_that_was_refused,
            replayed_calls_stay_replayed_across_a_reopen,
            an_end_with_an_unknown_outcome_is_the_end_after_a_reopen,
        }
        $crate::backend_claims! { $backend, cancelled_calls:
            a_call_cancelled_anywhere_runs_its_effect_once,
            an_intent_that_never_started_is_recorded_as_not_done,
            a_call_decided_before_its_handle_is_reopened_is_not_forgotten,
        }
    };
}

/// Each claim of a module of claims, as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! backend_claims {
    ($backend:path, $module:ident: $($claim:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $claim() {
            let backend = $backend().await;
            // On the heap: the future of a claim is large.
            Box::pin($crate::claims::$module::$claim(&backend)).await;
        }
    )*};
}
