//! What the gate promises to an agent that comes back: on a journal in this process, a crash being a handle that is
//! dropped and a run that is opened again.

use runlog_producer::{Config, Journal, Json, LoopState, Run, Runlog, answer};
use runlog_schemas::answer::ErrorKind;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// An effect that counts how often it ran.
#[derive(Default)]
struct Desk(AtomicU32);

impl Desk {
    async fn call(&self, run: &Run, key: Option<&str>, args: &Value) -> Result<Value, ErrorKind> {
        let mut tool = run.tool("book", args);
        if let Some(key) = key {
            tool = tool.idempotency_key(key);
        }
        let answer = tool.once(|_| async { Ok(Json::from(json!(self.0.fetch_add(1, Ordering::SeqCst) + 1))) }).await;
        answer.map(|answer| answer.result.expect("a result").to_value()).map_err(|error| error.kind())
    }

    fn ran(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn journal() -> (Runlog, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let config = Config::new(Journal::Local(dir.path().to_owned()), "test");
    (Runlog::connect(config).await.expect("a journal"), dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_behind_the_checkpoint_is_answered_from_the_journal_after_every_crash() {
    let (runlog, _dir) = journal().await;
    let (desk, seat, meal) = (Desk::default(), json!({"seat": 1}), json!({"meal": 1}));
    let run = runlog.open("r").await.expect("open");
    run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    assert_eq!(desk.call(&run, None, &seat).await, Ok(json!(1)));
    // One crash, then a checkpoint that does not cover what was not asked for again, then another.
    let run = runlog.open("r").await.expect("open");
    run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    let run = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&run, None, &seat).await, Ok(json!(1)));
    assert_eq!(desk.call(&run, None, &meal).await, Ok(json!(2)));
    assert_eq!(desk.ran(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_before_and_after_a_checkpoint_runs_twice() {
    let (runlog, _dir) = journal().await;
    let (desk, poll) = (Desk::default(), json!({"price": "HAT136"}));
    let run = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(1)));
    run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    let run = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_its_call_across_checkpoints_and_crashes() {
    let (runlog, _dir) = journal().await;
    let (desk, seat) = (Desk::default(), json!({"seat": 1}));
    let run = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    run.checkpoint(&LoopState::default()).await.expect("checkpoint");
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    let run = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    assert_eq!(desk.call(&run, Some("k"), &json!({"seat": 2})).await, Err(ErrorKind::Conflict));
    assert_eq!(desk.ran(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_call_without_key_blocks_what_is_new_and_with_a_key_runs_again() {
    let (runlog, _dir) = journal().await;
    let (desk, seat, meal) = (Desk::default(), json!({"seat": 1}), json!({"meal": 1}));
    let open = async |id: &str| runlog.open(id).await.expect("open");
    // The effect is given up in its middle, as by a crash.
    let abandon = async |run: &Run, key: Option<&str>| {
        let tool = run.tool("book", &seat);
        let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
        let (started, begun) = tokio::sync::oneshot::channel();
        let effect = tool.once(|_| async {
            started.send(()).expect("somebody waits");
            std::future::pending().await
        });
        tokio::select! { _ = effect => panic!("the effect has no end"), begun = begun => begun.expect("begun") }
    };
    abandon(&open("keyless").await, None).await;
    let run = open("keyless").await;
    let pending: Vec<&answer::Pending> = run.recovery().pending.iter().collect();
    assert_eq!(pending[0].class, "reconcile_required");
    assert_eq!(desk.call(&run, None, &seat).await, Err(ErrorKind::ReconcileRequired));
    assert_eq!(desk.call(&run, None, &meal).await, Err(ErrorKind::ReconcileRequired));
    assert_eq!(desk.ran(), 0);
    abandon(&open("keyed").await, Some("k")).await;
    let run = open("keyed").await;
    assert_eq!(desk.call(&run, None, &meal).await, Ok(json!(1)));
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_was_taken_over_runs_no_effect() {
    let (runlog, _dir) = journal().await;
    let desk = Desk::default();
    let a = runlog.open("r").await.expect("open");
    let b = runlog.open("r").await.expect("open");
    assert_eq!(desk.call(&a, None, &json!({"seat": 1})).await, Err(ErrorKind::Fenced));
    assert_eq!(desk.call(&b, None, &json!({"seat": 1})).await, Ok(json!(1)));
    assert_eq!(desk.ran(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_brings_what_is_new_and_builds_on_the_recovered_one_behind_a_takeover() {
    let (runlog, _dir) = journal().await;
    // Two of these and a little more fit a record: a list that is written whole at some point is refused.
    let message = |n: usize| Json::from(json!({"n": n, "content": "x".repeat(400_000)}));
    let mut state = LoopState::default();
    let mut run = runlog.open("r").await.expect("open");
    for n in 0..9 {
        state.messages.push(message(n));
        if n == 5 {
            // Edited in the middle, by a text of its own and by one that is there already.
            state.messages[2] = message(12);
            state.messages.swap(0, 1);
        }
        state.turn += 1;
        run.checkpoint(&state).await.expect("a checkpoint");
        if n % 3 == 2 {
            run = runlog.open("r").await.expect("open");
            let saved = run.recovery().checkpoint.as_ref().expect("a checkpoint");
            assert_eq!(saved.messages.as_ref(), Some(&state.messages));
            // What an agent that comes back has is what it was given.
            state.messages = saved.messages.clone().expect("messages");
        }
    }
    // What does not fit is refused before it is numbered, and the handle goes on.
    state.messages.extend((20..24).map(message));
    let error = run.checkpoint(&state).await.expect_err("too large");
    assert_eq!((error.kind(), error.action()), (ErrorKind::TooLarge, runlog_producer::Action::FixTheInput));
    state.messages.truncate(9);
    run.checkpoint(&state).await.expect("a checkpoint");
    run.prune_checkpoints(0, false).await.expect("a prune");
    state.messages = vec![message(1)];
    run.checkpoint(&state).await.expect("a whole checkpoint");
    let run = runlog.open("r").await.expect("open");
    assert_eq!(run.recovery().checkpoint.as_ref().expect("a checkpoint").messages.as_ref(), Some(&state.messages));
}
