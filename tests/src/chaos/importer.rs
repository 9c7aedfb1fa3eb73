//! Repeats `runlog import`, each time with other run ids. A failed import is run again until it has written all records.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::command::Runlog;

/// Runs of a file, and rounds of a run.
const RUNS: usize = 3;
const ROUNDS: usize = 4;
/// The pause between two imports.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long one import may fail.
const PATIENCE: Duration = Duration::from_secs(240);

/// The finished imports.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The prefix of each import's run ids.
    prefixes: Vec<String>,
    /// The records of all imports.
    pub records: u64,
    /// Imports that were run again.
    pub repeated: u64,
}

/// Runs in the format of tau-bench.
fn file() -> Value {
    let round = |round: usize| {
        let (id, arguments) = (format!("call_{round}"), json!({ "flight": round }).to_string());
        let call = json!({ "id": id, "type": "function", "function": { "name": "book", "arguments": arguments } });
        [
            json!({ "role": "user", "content": format!("book flight {round}") }),
            json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "name": "book", "content": format!("booked {round}") }),
            json!({ "role": "assistant", "content": format!("flight {round} is booked") }),
        ]
    };
    let run = |task: usize| {
        let messages: Vec<Value> = (0..ROUNDS).flat_map(round).collect();
        json!({ "task_id": task, "trial": 0, "reward": 1.0, "info": {}, "traj": messages })
    };
    (0..RUNS).map(run).collect()
}

/// Imports through the servers in turn, until `ending`.
pub fn run(folder: &Path, servers: &[Runlog], ending: &AtomicBool) -> anyhow::Result<Imported> {
    let path = folder.join("import.json");
    std::fs::write(&path, file().to_string())?;
    let (path, mut imported) = (path.to_str().context("a path in UTF-8")?, Imported::default());
    while !ending.load(Ordering::Relaxed) {
        let prefix = format!("import-{}-", imported.prefixes.len());
        let arguments = ["import", "tau-bench", path, "--run-prefix", &prefix];
        let (begun, mut tries) = (Instant::now(), 0);
        loop {
            let ran = servers[(imported.prefixes.len() + tries) % servers.len()].json(&arguments)?;
            if ran.code == Some(0) {
                let report = ran.json()?;
                imported.records += report["records"].as_u64().context("records")?;
                break;
            }
            ensure!(ran.code == Some(4), "{}: {:?} {} {}", ran.line, ran.code, ran.stdout, ran.stderr);
            ensure!(begun.elapsed() < PATIENCE, "{} fails for {PATIENCE:?}: {}", ran.line, ran.stdout);
            (tries, imported.repeated) = (tries + 1, imported.repeated + 1);
        }
        imported.prefixes.push(prefix);
        thread::sleep(INTERVAL);
    }
    Ok(imported)
}

/// Imports everything once more: every record must be a duplicate.
pub fn check(folder: &Path, server: &Runlog, imported: &Imported) -> anyhow::Result<()> {
    let path = folder.join("import.json");
    let path = path.to_str().context("a path in UTF-8")?;
    for prefix in &imported.prefixes {
        let report = server.answer(&["import", "tau-bench", path, "--run-prefix", prefix])?;
        ensure!(report["records"] == 0 && report["duplicates"].as_u64() > Some(0), "{prefix}: written again: {report}");
    }
    Ok(())
}
