//! An effect does not start long after its intent was sent, nor if its call has changed since: an operator may have decided about the
//! call, or a result may have arrived.

use anyhow::{Context, ensure};
use runlog_producer::{Config, Error, Journal, Runlog, failpoint};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::server::{Launch, Server};
use serde_json::json;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

const RUN: &str = "r";

/// The agent's clock, milliseconds since the Unix epoch.
static CLOCK: AtomicU64 = AtomicU64::new(1_700_000_000_000);
/// How long the machine is suspended: after 10 s an intent is read back again, and after 20 s its effect does not start.
static SUSPENDED_MS: AtomicU64 = AtomicU64::new(31_000);
/// Reports the acknowledgement of an intent, and waits for an answer. Used once.
static ACKNOWLEDGED: Mutex<Option<(SyncSender<()>, Receiver<()>)>> = Mutex::new(None);

/// Suspends the machine between the acknowledgement of an intent and its effect.
fn suspend(at: &'static str) {
    if at == failpoint::INTENT_ACKNOWLEDGED
        && let Some((acknowledged, resumed)) = ACKNOWLEDGED.lock().ok().and_then(|mut once| once.take())
        && acknowledged.send(()).is_ok()
        && resumed.recv().is_ok()
    {
        CLOCK.fetch_add(SUSPENDED_MS.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn config(server: &Server) -> Config {
    let clock = || CLOCK.load(Ordering::SeqCst);
    Config { clock, failpoints: suspend, ..Config::new(Journal::Http(server.url.clone()), "test") }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Opens the run in a process of its own, makes a call there, and counts the effects.
fn make_call(server: &Server, effects: &AtomicU32) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let run = Runlog::connect(config(server)).await?.open(RUN).await?;
        let effect = |_| async {
            effects.fetch_add(1, Ordering::SeqCst);
            Ok(json!(1).into())
        };
        let made = run.tool("pay", &1).once(effect).await;
        // Settles the call that did not start.
        drop(run.turn("user", "hello").await);
        made?;
        Ok(())
    })
}

/// Makes a call whose process is suspended between the acknowledgement of its intent and its effect, and `change` meanwhile.
fn suspended(
    server: &Server,
    effects: &AtomicU32,
    change: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Option<Error>> {
    let (acknowledged, wait_for_acknowledgement) = sync_channel(1);
    let (resume, resumed) = sync_channel(1);
    *ACKNOWLEDGED.lock().ok().context("a lock")? = Some((acknowledged, resumed));
    let made = thread::scope(|scope| {
        let late = scope.spawn(|| make_call(server, effects));
        wait_for_acknowledgement.recv()?;
        let changed = change();
        resume.send(())?;
        let made = late.join().ok().context("the process panicked")?;
        changed.map(|()| made)
    })?;
    made.err().map(|error| error.downcast::<Error>()).transpose()
}

/// Decides that the only pending call did not happen.
fn not_done(server: &Server) -> anyhow::Result<()> {
    let (_, recovery) = server.get(&format!("/v1/runs/{RUN}/recovery?consistency=latest"))?;
    let pending = &recovery["pending"][0];
    let decision = json!({ "decision": "not_done", "who": "jo", "why": "the bank has no payment", "force": true,
        "revision": pending["revision"] });
    let call = pending["id"].as_str().context("a pending call")?;
    let (status, decided) = server.post(&format!("/v1/runs/{RUN}/effects/{call}/resolution"), &decision)?;
    ensure!(status == 200, "{decided}");
    Ok(())
}

/// The number of decisions in a run.
fn decisions(server: &Server, run_id: &str) -> anyhow::Result<usize> {
    let (_, page) = server.get(&format!("/v1/runs/{run_id}/records"))?;
    let records = page["records"].as_array().context("records")?;
    Ok(records.iter().filter(|line| line["payload_type"] == "effect_resolution").count())
}

#[test]
fn an_effect_whose_call_was_decided_while_its_process_was_suspended_runs_once() -> anyhow::Result<()> {
    for milliseconds in [31_000, 10_001] {
        SUSPENDED_MS.store(milliseconds, Ordering::SeqCst);
        let (server, effects) = (Launch::temporary()?.partitions(1).start()?, AtomicU32::new(0));
        let error = suspended(&server, &effects, || not_done(&server))?.context("the call was made")?;
        let runs = effects.load(Ordering::SeqCst);
        ensure!((error.kind(), runs) == (ErrorKind::Stale, 0), "{milliseconds} ms, {runs} effects: {error}");
        make_call(&server, &effects)?;
        let runs = effects.load(Ordering::SeqCst);
        ensure!(runs == 1, "{milliseconds} ms: {runs} effects");
        server.terminate()?;
    }
    Ok(())
}

#[test]
fn an_effect_does_not_run_again_if_its_first_result_arrives_before_the_read_back() -> anyhow::Result<()> {
    SUSPENDED_MS.store(10_001, Ordering::SeqCst);
    let (server, effects) = (Launch::temporary()?.partitions(1).start()?, AtomicU32::new(0));
    let (_, dead) = server.post(&format!("/v1/runs/{RUN}/claims"), &json!({}))?;
    let post = |id: &str, payload: serde_json::Value| {
        let record = json!({ "run_id": RUN, "record_id": id, "writer_id": dead["writer_id"], "writer_epoch": dead["epoch"],
            "payload": payload });
        server.post(&format!("/v1/runs/{RUN}/records"), &record)
    };
    let (_, intent) = post(
        "pay",
        json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "1", "tool_name": "pay", "arguments": 1 }),
    )?;
    ensure!(intent["outcome"] == "applied", "{intent}");
    not_done(&server)?;
    let arrive = || {
        let result = json!({ "type": "tool_call_completed", "request_record_id": "pay", "result": "B-1" });
        let (_, late) = post("pay-result", result)?;
        ensure!(late["reason"] == "fenced", "{late}");
        Ok(())
    };
    let error = suspended(&server, &effects, arrive)?.context("the call was made")?;
    let runs = effects.load(Ordering::SeqCst);
    ensure!((error.kind(), runs) == (ErrorKind::ReconcileRequired, 0), "{runs} effects: {error}");
    ensure!(decisions(&server, RUN)? == 1, "only the operator has decided");
    server.terminate()?;
    Ok(())
}
