//! The gate's claims for an agent that restarts. A crash here is a dropped handle and a reopened run;
//! `killed_producers` kills real processes.
//!
//! Each function panics if its claim does not hold.

use runlog_producer::{LoopState, Run, Runlog};
use runlog_schemas::{
    answer::{ErrorKind, Pending},
    json::Json,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{deployment::Deployment, http_proxy::HttpProxy};

/// Counts the runs of an effect.
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

    fn effect_count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

async fn open(runlog: &Runlog, run: &str) -> Run {
    runlog.open(run).await.expect("open")
}

/// A process that resumes at the checkpoint.
async fn resume(runlog: &Runlog, run: &str) -> Run {
    let run = open(runlog, run).await;
    assert!(run.recovery().checkpoint.is_some());
    run
}

async fn checkpoint(run: &Run) {
    run.checkpoint(&LoopState::default()).await.expect("checkpoint");
}

/// Drops a call during its effect.
async fn abandon(run: &Run, key: Option<&str>, args: &Value) {
    let tool = run.tool("book", args);
    let tool = if let Some(key) = key { tool.idempotency_key(key) } else { tool };
    let (started, begun) = tokio::sync::oneshot::channel();
    let effect = tool.once(|_| async {
        started.send(()).expect("the receiver waits");
        std::future::pending().await
    });
    tokio::select! { _ = effect => panic!("the effect has no end"), begun = begun => begun.expect("begun") }
}

/// Covers one crash, and two crashes with a checkpoint in between that does not cover a call that was not repeated.
pub async fn a_call_after_the_checkpoint_is_answered_from_the_journal_after_every_crash(runlog: &Runlog) {
    let (seat, meal) = (json!({"seat": 1}), json!({"meal": 1}));
    for crashes in [1, 2] {
        let (desk, id) = (Desk::default(), format!("behind-{crashes}"));
        let run = open(runlog, &id).await;
        checkpoint(&run).await;
        assert_eq!(desk.call(&run, None, &seat).await, Ok(json!(1)));
        for _ in 1..crashes {
            checkpoint(&open(runlog, &id).await).await;
        }
        let run = open(runlog, &id).await;
        assert_eq!(desk.call(&run, None, &seat).await, Ok(json!(1)));
        assert_eq!(desk.call(&run, None, &meal).await, Ok(json!(2)));
        assert_eq!(desk.effect_count(), 2);
    }
}

/// A repeat after the checkpoint is a new call.
pub async fn a_poll_before_and_after_a_checkpoint_runs_twice(runlog: &Runlog) {
    let (desk, poll) = (Desk::default(), json!({"price": "HAT136"}));
    let run = open(runlog, "poll").await;
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(1)));
    checkpoint(&run).await;
    let run = resume(runlog, "poll").await;
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(2)));
    // One recorded call follows the last checkpoint: it answers once.
    let run = resume(runlog, "poll").await;
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(2)));
    assert_eq!(desk.call(&run, None, &poll).await, Ok(json!(3)));
}

/// A key identifies its call independently of the checkpoint at which the agent resumes.
pub async fn a_key_identifies_its_call_across_checkpoints_and_crashes(runlog: &Runlog) {
    let (desk, seat) = (Desk::default(), json!({"seat": 1}));
    let run = open(runlog, "key").await;
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    checkpoint(&run).await;
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    let run = open(runlog, "key").await;
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(1)));
    assert_eq!(desk.call(&run, Some("k"), &json!({"seat": 2})).await, Err(ErrorKind::Conflict));
    assert_eq!(desk.effect_count(), 1);
}

/// Covers the same process and the next process.
pub async fn a_pending_call_blocks_new_calls_without_a_key_and_runs_again_with_a_key(runlog: &Runlog) {
    let (desk, seat, meal) = (Desk::default(), json!({"seat": 1}), json!({"meal": 1}));
    let run = open(runlog, "keyless").await;
    abandon(&run, None, &seat).await;
    assert_eq!(desk.call(&run, None, &seat).await, Err(ErrorKind::ReconcileRequired));
    let run = open(runlog, "keyless").await;
    let pending: Vec<&Pending> = run.recovery().pending.iter().collect();
    assert_eq!((pending.len(), pending[0].class.as_str()), (1, "reconcile_required"));
    assert_eq!(desk.call(&run, None, &seat).await, Err(ErrorKind::ReconcileRequired));
    assert_eq!(desk.call(&run, None, &meal).await, Err(ErrorKind::ReconcileRequired));
    assert_eq!(desk.effect_count(), 0);
    let run = open(runlog, "keyed").await;
    abandon(&run, Some("k"), &seat).await;
    let run = open(runlog, "keyed").await;
    assert_eq!(desk.call(&run, None, &meal).await, Ok(json!(1)));
    assert_eq!(desk.call(&run, Some("k"), &seat).await, Ok(json!(2)));
}

/// Both writers are in one process.
pub async fn a_writer_that_was_taken_over_runs_no_effect(runlog: &Runlog) {
    let desk = Desk::default();
    let a = open(runlog, "taken").await;
    let b = open(runlog, "taken").await;
    assert_eq!(desk.call(&a, None, &json!({"seat": 1})).await, Err(ErrorKind::Fenced));
    assert_eq!(desk.call(&b, None, &json!({"seat": 1})).await, Ok(json!(1)));
    assert_eq!(desk.effect_count(), 1);
}

/// The claims above, each as a test on the journal that `$journal` makes: a value to keep alive, and a `Runlog`.
#[macro_export]
macro_rules! gate_claims {
    ($journal:path) => {
        $crate::gate_claims! { $journal:
            a_call_after_the_checkpoint_is_answered_from_the_journal_after_every_crash,
            a_poll_before_and_after_a_checkpoint_runs_twice,
            a_key_identifies_its_call_across_checkpoints_and_crashes,
            a_pending_call_blocks_new_calls_without_a_key_and_runs_again_with_a_key,
            a_writer_that_was_taken_over_runs_no_effect,
        }
    };
    ($journal:path: $($claim:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $claim() {
            let (_keep, runlog) = $journal().await;
            $crate::claims::gate::$claim(&runlog).await;
        }
    )*};
}

/// The claims of this file and of `decisions`, each as a test on a server: `$deployment` starts it.
#[macro_export]
macro_rules! served_claims {
    ($deployment:path) => {
        async fn journal() -> ($crate::deployment::Deployment, ::runlog_producer::Runlog) {
            let deployment = $deployment().expect("a server");
            let runlog = deployment.connect().await.expect("a journal");
            (deployment, runlog)
        }

        $crate::gate_claims!(journal);
        $crate::served_claims! { $deployment:
            gate {
                a_truncated_recorded_answer_is_fetched_again_and_the_effect_does_not_run,
                a_call_given_up_and_then_decided_as_done_does_not_run_again,
            }
            decisions {
                agents_get_the_decided_result,
                the_evidence_of_a_fenced_result_can_be_adopted,
            }
        }
    };
    ($deployment:path: gate { $($called:ident,)* } decisions { $($decided:ident,)* }) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $called() {
                $crate::claims::gate::$called(&$deployment().expect("a server")).await;
            }
        )*
        $(
            #[test]
            fn $decided() -> anyhow::Result<()> {
                $crate::claims::decisions::$decided(&$deployment()?)
            }
        )*
    };
}

/// The journal's answer is truncated once; the same handle queries again.
pub async fn a_truncated_recorded_answer_is_fetched_again_and_the_effect_does_not_run(deployment: &Deployment) {
    let proxy = HttpProxy::start(&deployment.server.url, "/calls/").expect("a proxy");
    let runlog = deployment.connect_by(&proxy.url).await.expect("a journal");
    let (desk, seat) = (Desk::default(), json!({"seat": 1}));
    for (run, key) in [("cut", None), ("cut-keyed", Some("k"))] {
        let before = desk.effect_count();
        let expected = Ok(json!(before + 1));
        assert_eq!(desk.call(&open(&runlog, run).await, key, &seat).await, expected);
        let run = open(&runlog, run).await;
        let cut = proxy.truncated();
        proxy.truncate_next_response();
        assert_eq!(desk.call(&run, key, &seat).await, Err(ErrorKind::Unavailable));
        assert_eq!(proxy.truncated(), cut + 1, "the answer was truncated");
        assert_eq!(desk.call(&run, key, &seat).await, expected);
        assert_eq!(desk.effect_count(), before + 1);
    }
}

/// A call that its process abandoned is decided as done. The decision answers its repeat by that process.
pub async fn a_call_given_up_and_then_decided_as_done_does_not_run_again(deployment: &Deployment) {
    let runlog = deployment.connect().await.expect("a journal");
    let (desk, seat) = (Desk::default(), json!({"seat": 1}));
    let run = open(&runlog, "given-up").await;
    abandon(&run, None, &seat).await;
    let pending =
        deployment.server.runlog().answer(&["effects", "--pending", "--consistency", "latest"]).expect("effects");
    let id = pending["effects"][0]["id"].as_str().expect("a pending call");
    let done = ["effects", "resolve", "given-up", id, "--done", "42", "--who", "test", "--why", "it happened"];
    deployment.server.runlog().answer(&[&done[..], &["--yes", "--force"]].concat()).expect("a decision");
    assert_eq!(desk.call(&run, None, &seat).await, Ok(json!(42)));
    assert_eq!(desk.effect_count(), 0);
}
