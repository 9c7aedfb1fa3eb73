//! The ports' examples are killed after each line of output and restarted. Each reported step is in the journal once.

use anyhow::ensure;
use runlog_tests::port_fixture::PortBackend;
use serde_json::{Value, json};
use std::time::Duration;

const END_WAIT: Duration = Duration::from_secs(60);

/// Runs an example to its end, killed after each of its first `kills` lines in turn. Returns the lines of the last
/// life.
fn killed(backend: &PortBackend, name: &str, arguments: &[&str], kills: usize) -> anyhow::Result<Vec<Value>> {
    for life in 0..kills {
        let mut example = backend.example(name, arguments)?;
        example.receive()?;
        // This life gets further than the previous one.
        for _ in 0..life % 4 {
            example.request(&json!("go on"))?;
        }
        example.kill()?;
    }
    let mut example = backend.example(name, arguments)?;
    let mut lines = vec![example.receive()?];
    while !last(&lines[lines.len() - 1]) {
        lines.push(example.request(&json!("go on"))?);
    }
    if name != "bob_core" {
        example.release()?;
    }
    example.wait_for_exit(END_WAIT)?;
    Ok(lines)
}

/// Whether this is an example's last line.
fn last(line: &Value) -> bool {
    ["entries", "jsonl", "turns"].iter().any(|name| line.get(name).is_some())
}

#[test]
fn a_bob_agent_charges_each_order_once() -> anyhow::Result<()> {
    let (backend, folder) = (PortBackend::local()?, tempfile::tempdir()?);
    let ledger = folder.path().join("ledger");
    let lines = killed(&backend, "bob_core", &[&ledger.display().to_string()], 6)?;
    ensure!(lines.last() == Some(&json!({ "entries": 10 })), "{lines:?}");
    ensure!(lines[0]["how"] == "recorded" && lines[9]["how"] == "done", "it resumed at its last step: {lines:?}");
    let charged = std::fs::read_to_string(ledger)?;
    let expected: Vec<String> = (0..10).map(|order| order.to_string()).collect();
    ensure!(charged.lines().collect::<Vec<_>>() == expected, "{charged}");
    Ok(())
}

#[test]
fn a_codetether_session_commits_each_step_once() -> anyhow::Result<()> {
    let (backend, folder) = (PortBackend::local()?, tempfile::tempdir()?);
    let state = folder.path().join("state");
    let lines = killed(&backend, "codetether", &[&state.display().to_string()], 5)?;
    let jsonl = lines.last().and_then(|line| line["jsonl"].as_str()).unwrap_or_default();
    let entries: Vec<Value> = jsonl.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let of = |phase: &str| -> Vec<&Value> {
        entries.iter().filter(|entry| entry["phase"] == phase).map(|entry| &entry["txn"]).collect()
    };
    // Each staged transaction has one end, and five of them happened.
    let mut ends = [of("committed"), of("rejected")].concat();
    ends.sort_by_key(|txn| txn.as_u64());
    ensure!(ends == of("staged") && of("committed").len() == 5, "{jsonl}");
    ensure!(!of("rejected").is_empty(), "no kill met a step that had not happened: {jsonl}");
    ensure!(std::fs::read_to_string(state)? == "5", "the state");
    Ok(())
}

#[test]
fn rows_of_an_observed_workspace_are_stored_once() -> anyhow::Result<()> {
    let lines = killed(&PortBackend::local()?, "observability", &[], 5)?;
    ensure!(lines.last() == Some(&json!({ "turns": 4, "ended": 4 })), "{lines:?}");
    Ok(())
}
