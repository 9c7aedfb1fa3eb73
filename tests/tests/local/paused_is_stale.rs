//! A lagging server reports its lag and never presents stale data as current.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use runlog_tests::{
    agent::{Agent, entry, run_in},
    foreign::append_local,
    server::Launch,
};
use serde_json::{Value, json};
use tempfile::tempdir;

const PARTITIONS: u32 = 4;

#[test]
fn a_paused_server_answers_stale_with_the_lag_at_latest_and_its_state_at_eventual() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path());
    launch.start()?.kill()?;
    let (mut lagging, mut current) = (Agent::new(&run_in(1, PARTITIONS, "a")), Agent::new(&run_in(3, PARTITIONS, "b")));
    let before = [lagging.lifecycle("started"), lagging.turn("one"), lagging.checkpoint(&[json!("one")])];
    append_local(folder.path(), &before.map(|record| (1.into(), entry(&record))))?;
    append_local(folder.path(), &[(3.into(), entry(&current.lifecycle("started")))])?;
    let server = launch.start()?;
    server.runlog().answer(&["runs", "--consistency", "latest"])?;
    server.terminate()?;

    let more = [lagging.turn("two"), lagging.turn("three"), lagging.checkpoint(&[json!("one"), json!("three")])];
    let offsets = append_local(folder.path(), &more.map(|record| (1.into(), entry(&record))))?;
    let server = launch.clone().paused().start()?;
    let runlog = server.runlog();
    let run = lagging.run_id.as_str();
    // With the default consistency of queries about a run, and with a named one.
    let queries: [&[&str]; 5] = [
        &["show", run],
        &["checkpoint", run, "--consistency", "latest"],
        &["recover", run],
        &["lookup", run, "--tool", "t", "--args", "{}"],
        &["show", run, "--consistency", &format!("at-least=1:{}", offsets[2])],
    ];
    for query in queries {
        let start = Instant::now();
        let stale = runlog.json(&[query, &["--deadline", "300ms"]].concat())?.exits(4)?;
        ensure!(stale.error_kind()? == "stale" && stale.json()?["error"]["lag"] == 3, "{query:?}: {}", stale.stdout);
        ensure!(start.elapsed() >= Duration::from_millis(300), "it was given 300 ms to catch up");
    }
    let (status, problem) = server.get(&format!("/v1/runs/{run}?deadline_ms=100"))?;
    ensure!((status, &problem["kind"], &problem["lag"]) == (503, &json!("stale"), &json!(3)), "{status} {problem}");
    let end = offsets[2].saturating_add(1);
    ensure!(problem["topic"].is_string() && problem["partition"] == 1 && problem["offset"] == end.get(), "{problem}");
    let stale = runlog.json(&["show", run, "--deadline", "100ms"])?.exits(4)?.json()?;
    for member in ["topic", "partition", "offset"] {
        ensure!(stale["error"][member] == problem[member], "{member} of {stale}");
    }
    let (status, ready) = server.get("/readyz")?;
    ensure!(status == 503 && ready["lagging"] == json!([1]), "{status} {ready}");

    let old = runlog.answer(&["checkpoint", run, "--consistency", "eventual"])?;
    ensure!(old["messages"] == json!(["one"]), "the applied state: {old}");
    let old = runlog.answer(&[
        "checkpoint",
        run,
        "--consistency",
        &format!("at-least=1:{}", offsets[0].saturating_sub(1)),
    ])?;
    ensure!(old["messages"] == json!(["one"]), "the requested position is applied: {old}");
    // Nothing is missing from the other partitions.
    runlog.json(&["show", &current.run_id, "--deadline", "10s"])?.exits(0)?;
    server.terminate()?;

    let server = launch.start()?;
    let new = server.runlog().answer(&["checkpoint", run])?;
    ensure!(new["messages"] == json!(["one", "three"]), "{new}");
    Ok(())
}

#[test]
fn a_server_is_ready_while_records_are_appended() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let appender = scope.spawn(|| -> anyhow::Result<()> {
            let turn = |id: String| {
                json!({ "run_id": "r", "record_id": id,
                "payload": { "type": "conversation_turn", "message_id": id, "kind": "user", "content": "hello" } })
            };
            let mut ids = (0..).map(|number| format!("turn-{number}"));
            while !stop.load(Ordering::Relaxed) {
                let records: Vec<Value> = ids.by_ref().take(100).map(turn).collect();
                let (status, answer) = server.post("/v1/runs/r/records", &json!(records))?;
                ensure!(status == 200, "{status} {answer}");
            }
            Ok(())
        });
        let answers: Vec<_> = (0..40).map(|_| server.get("/readyz")).collect();
        stop.store(true, Ordering::Relaxed);
        appender.join().expect("the appender")?;
        for answer in answers {
            let (status, ready) = answer?;
            ensure!(status == 200, "{status} {ready}");
        }
        Ok(())
    })
}
