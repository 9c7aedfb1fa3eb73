//! An effect does not start long after its intent was sent: an operator may have decided about the call since.

use anyhow::{Context, ensure};
use runlog_producer::{Config, Error, Journal, Runlog, failpoint};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::server::Launch;
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
/// Reports the acknowledgement of an intent, and waits for an answer. Used once.
static ACKNOWLEDGED: Mutex<Option<(SyncSender<()>, Receiver<()>)>> = Mutex::new(None);

/// Suspends the machine between the acknowledgement of an intent and its effect.
fn suspend(at: &'static str) {
    if at == failpoint::INTENT_ACKNOWLEDGED
        && let Some((acknowledged, resumed)) = ACKNOWLEDGED.lock().ok().and_then(|mut once| once.take())
        && acknowledged.send(()).is_ok()
        && resumed.recv().is_ok()
    {
        CLOCK.fetch_add(31_000, Ordering::SeqCst);
    }
}

#[test]
fn an_effect_whose_call_was_decided_while_its_process_was_suspended_runs_once() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let effects = AtomicU32::new(0);
    // Each process opens the run and makes the same call.
    let make_call = || -> anyhow::Result<()> {
        let config = Config {
            clock: || CLOCK.load(Ordering::SeqCst),
            failpoints: suspend,
            ..Config::new(Journal::Http(server.url.clone()), "test")
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let run = Runlog::connect(config).await?.open(RUN).await?;
            let effect = |_| async {
                effects.fetch_add(1, Ordering::SeqCst);
                Ok(json!(1).into())
            };
            run.tool("pay", &1).once(effect).await?;
            Ok(())
        })
    };
    let (acknowledged, wait_for_acknowledgement) = sync_channel(1);
    let (resume, resumed) = sync_channel(1);
    *ACKNOWLEDGED.lock().ok().context("a lock")? = Some((acknowledged, resumed));
    let late = thread::scope(|scope| {
        let late = scope.spawn(make_call);
        wait_for_acknowledgement.recv()?;
        let (_, recovery) = server.get(&format!("/v1/runs/{RUN}/recovery?consistency=latest"))?;
        let pending = &recovery["pending"][0];
        let decision = json!({ "decision": "not_done", "who": "jo", "why": "the bank has no payment", "force": true,
            "revision": pending["revision"] });
        let call = pending["id"].as_str().context("a pending call")?;
        let (status, decided) = server.post(&format!("/v1/runs/{RUN}/effects/{call}/resolution"), &decision)?;
        ensure!(status == 200, "{decided}");
        resume.send(())?;
        late.join().ok().context("the process panicked")
    })?;
    let error = late.err().context("the call was made")?;
    let (kind, runs) = (error.downcast_ref::<Error>().map(Error::kind), effects.load(Ordering::SeqCst));
    ensure!((kind, runs) == (Some(ErrorKind::Stale), 0), "{runs} effects: {error}");
    make_call()?;
    let runs = effects.load(Ordering::SeqCst);
    ensure!(runs == 1, "{runs} effects");
    server.terminate()?;
    Ok(())
}
