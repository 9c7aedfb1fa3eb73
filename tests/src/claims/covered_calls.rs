//! Calls that the last checkpoint covers: found when they are needed, by their key or in the list of the run's ended calls.
//!
//! Each function panics if its claim does not hold.

use std::sync::atomic::{AtomicU32, Ordering};

use runlog_producer::{Answer, Error, Failure, Json, Outcome, Run, Runlog};
use runlog_schemas::answer::ErrorKind;
use serde_json::{Value, json};

use crate::backend::Backend;

/// Keys are looked up, or the covered calls are listed.
const COVERED_LIST_MAX: [u64; 2] = [0, 1000];

/// Counts the effects of a tool.
#[derive(Default)]
struct Desk(AtomicU32);

impl Desk {
    async fn call(&self, run: &Run, tool: &str, key: Option<&str>, args: u32) -> Result<Answer, Error> {
        let tool = run.tool(tool, &args);
        let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
        tool.once(|_| async { Ok(Json::from(json!(self.0.fetch_add(1, Ordering::SeqCst) + 1))) }).await
    }

    /// Books with a key.
    async fn book(&self, run: &Run, key: &str, args: u32) -> Result<Value, Error> {
        self.call(run, "book", Some(key), args).await.map(value)
    }

    fn effects(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn value(answer: Answer) -> Value {
    answer.result.map_or(Value::Null, |result| result.to_value())
}

async fn producer(backend: &Backend, covered_list_max: u64) -> Runlog {
    backend.connect(|config| config.covered_list_max = covered_list_max).await
}

/// A process that resumes at the checkpoint.
async fn resume(runlog: &Runlog, run: &str) -> Run {
    let run = runlog.open(run).await.expect("open");
    assert!(run.recovery().checkpoint.is_some());
    run
}

/// Drops a call during its effect.
async fn abandon(run: &Run, key: &str, args: u32) {
    let tool = run.tool("book", &args).idempotency_key(key);
    let (started, begun) = tokio::sync::oneshot::channel();
    let effect = tool.once(|_| async {
        started.send(()).expect("the receiver waits");
        std::future::pending().await
    });
    tokio::select! { _ = effect => panic!("the effect has no end"), begun = begun => begun.expect("begun") }
}

/// Otherwise an effect would run twice, or a key would be taken for another call's.
pub async fn a_key_identifies_its_call_although_a_checkpoint_covers_it(backend: &Backend) {
    for max in COVERED_LIST_MAX {
        let (runlog, desk, id) = (producer(backend, max).await, Desk::default(), format!("covered-{max}"));
        let run = runlog.open(&id).await.expect("open");
        for number in 1..=3 {
            assert_eq!(desk.book(&run, &format!("k{number}"), number).await.expect("an answer"), number);
        }
        let full = run.tool("book", &4).idempotency_key("full");
        let failure = Failure { kind: "full".into(), message: "no seat".into() };
        full.once(|_| async { Err(failure) }).await.expect("a failure is an answer");
        abandon(&run, "early", 5).await;
        backend.checkpoint(&run).await;
        desk.book(&run, "after", 6).await.expect("an answer");
        abandon(&run, "late", 7).await;
        drop(run);
        for process in 0..2 {
            let run = resume(&runlog, &id).await;
            let before = desk.effects();
            for number in [2, 1, 2, 3] {
                let answer = desk.book(&run, &format!("k{number}"), number).await.expect("an answer");
                assert_eq!(answer, number, "process {process}");
            }
            desk.book(&run, "after", 6).await.expect("an answer");
            let answer = desk.call(&run, "book", Some("full"), 4).await.expect("an answer");
            assert_eq!(answer.error.map(|error| error.kind).as_deref(), Some("full"));
            let error = desk.book(&run, "k1", 9).await.expect_err("other arguments");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert_eq!(desk.effects(), before, "process {process}, max {max}");
            // Pending calls run again, a key of another tool and a new key run once.
            for (tool, key, args) in [("book", "early", 5), ("book", "late", 7), ("mail", "k1", 1), ("book", "new", 8)]
            {
                let answer = desk.call(&run, tool, Some(key), args).await.expect("an answer");
                assert_eq!(answer.recorded, process == 1, "{tool} {key}");
            }
            assert_eq!(desk.effects(), before + if process == 0 { 4 } else { 0 });
        }
        let run = runlog.open(&id).await.expect("open");
        assert_eq!(desk.call(&run, "book", Some("k3"), 3).await.map(value).expect("an answer"), 3, "from the start");
    }
}

/// Otherwise such a process would repeat the calls that its last checkpoint covers.
pub async fn a_process_that_begins_at_the_start_finds_covered_calls_without_a_key(backend: &Backend) {
    for max in COVERED_LIST_MAX {
        let (runlog, desk, id) = (producer(backend, max).await, Desk::default(), format!("start-{max}"));
        let poll = async |run: &Run| desk.call(run, "poll", None, 1).await.map(value).expect("an answer");
        let run = runlog.open(&id).await.expect("open");
        desk.book(&run, "k", 1).await.expect("an answer");
        assert_eq!((poll(&run).await, poll(&run).await), (json!(2), json!(3)));
        backend.checkpoint(&run).await;
        assert_eq!(poll(&run).await, 4);
        let run = runlog.open(&id).await.expect("open");
        assert_eq!(desk.book(&run, "k", 1).await.expect("an answer"), 1, "a call with a key comes first");
        assert_eq!((poll(&run).await, poll(&run).await), (json!(2), json!(3)), "in the order of the requests");
        // The checkpoint lists the answers that this process has not requested.
        let run = runlog.open(&id).await.expect("open");
        backend.checkpoint(&run).await;
        let run = resume(&runlog, &id).await;
        let answers = [poll(&run).await, poll(&run).await, poll(&run).await, poll(&run).await];
        assert_eq!(answers, [2, 3, 4, 5].map(Value::from), "the last one is new");
        assert_eq!(desk.book(&run, "k", 1).await.expect("an answer"), 1);
    }
}

/// A run that has ended is read, not claimed.
pub async fn a_run_that_has_ended_answers_the_calls_that_its_checkpoint_covers(backend: &Backend) {
    for max in COVERED_LIST_MAX {
        let (runlog, desk, id) = (producer(backend, max).await, Desk::default(), format!("ended-{max}"));
        let run = runlog.open(&id).await.expect("open");
        desk.book(&run, "k", 1).await.expect("an answer");
        desk.call(&run, "poll", None, 1).await.expect("an answer");
        backend.checkpoint(&run).await;
        run.end(Outcome::Completed).await.expect("ended");
        for run in [run, runlog.open(&id).await.expect("open")] {
            assert_eq!(desk.book(&run, "k", 1).await.expect("an answer"), 1);
            let error = desk.book(&run, "other", 1).await.expect_err("it is new");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
        let run = runlog.open(&id).await.expect("open");
        assert_eq!(value(desk.call(&run, "poll", None, 1).await.expect("an answer")), 2);
        assert_eq!(desk.effects(), 2);
    }
}

/// The answer of a process that took the run over is not this handle's: it must notice that it lost the run.
pub async fn a_handle_that_lost_its_run_takes_no_answer_of_the_next_process_by_key(backend: &Backend) {
    for max in COVERED_LIST_MAX {
        let (runlog, desk, id) = (producer(backend, max).await, Desk::default(), format!("lost-{max}"));
        let run = runlog.open(&id).await.expect("open");
        desk.book(&run, "k", 1).await.expect("an answer");
        backend.checkpoint(&run).await;
        let lost = resume(&runlog, &id).await;
        let next = resume(&runlog, &id).await;
        desk.book(&next, "new", 2).await.expect("an answer");
        let error = desk.book(&lost, "new", 2).await.expect_err("another process has the run");
        let kind = error.kind();
        assert!(matches!(kind, ErrorKind::Fenced | ErrorKind::ClaimLost), "max {max}: {kind:?} {error}");
        assert_eq!(desk.effects(), 2);
    }
}

/// The claims of this file, each as a test on `$backend`.
#[macro_export]
macro_rules! covered_call_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, covered_calls:
            a_key_identifies_its_call_although_a_checkpoint_covers_it,
            a_process_that_begins_at_the_start_finds_covered_calls_without_a_key,
            a_run_that_has_ended_answers_the_calls_that_its_checkpoint_covers,
            a_handle_that_lost_its_run_takes_no_answer_of_the_next_process_by_key,
        }
    };
}
