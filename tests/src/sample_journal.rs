//! A served journal that has an example of everything that a query can return.

use anyhow::{Context, ensure};
use runlog_log::Entry;
use runlog_schemas::payload::Payload;
use serde_json::{Value, json};
use std::path::Path;

use crate::{
    foreign::append_local,
    server::{Launch, Server},
};

/// The run of the examples: a record of every kind of a run except a claim and an erasure.
pub const RUN: &str = "run-42";
/// An imported run, with calls that ended and a checkpoint.
pub const IMPORTED: &str = "tau-bench:1:0";
/// A claimed run, with a call that is pending.
pub const CLAIMED: &str = "claimed";

/// A trajectory of tau-bench with two calls.
const TRAJECTORY: &str = r#"[{"task_id": 1, "trial": 0, "reward": 1.0, "traj": [
    {"role": "user", "content": "to London, please"},
    {"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{\"to\": \"LHR\"}"}}]},
    {"role": "tool", "content": "[1, 2]"},
    {"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "book", "arguments": "{\"n\": 1}"}}]},
    {"role": "tool", "content": "Error: full"},
    {"role": "assistant", "content": "no seats"}]}]"#;

/// Starts a server under `dir` on a journal that has runs, anomalies, evidence and a dead letter.
pub fn start(dir: &Path) -> anyhow::Result<Server> {
    let launch = Launch::local(dir);
    launch.start()?.kill()?;
    append_local(dir, &[(0.into(), Entry { value: b"no record".to_vec(), ..Entry::default() })])?;
    let server = launch.start()?;
    fill(&server, dir)?;
    Ok(server)
}

/// Writes the runs, anomalies and evidence to a server's journal. The imported file is written to `dir`.
pub fn fill(server: &Server, dir: &Path) -> anyhow::Result<()> {
    for example in examples()? {
        let run = example["run_id"].as_str().with_context(|| format!("{example}"))?;
        post(server, &format!("/v1/runs/{run}/records"), &example)?;
    }
    let file = dir.join("trajectory.json");
    std::fs::write(&file, TRAJECTORY)?;
    server.runlog().json(&["import", "tau-bench", file.to_str().context("a path")?])?.exits(0)?;
    write_claimed_run(server)
}

/// A run that two writers claimed. The result of the first writer is too late, and is evidence.
fn write_claimed_run(server: &Server) -> anyhow::Result<()> {
    let (records, claims) = (format!("/v1/runs/{CLAIMED}/records"), format!("/v1/runs/{CLAIMED}/claims"));
    let claim = post(server, &claims, &json!({ "claimed_by": "one" }))?;
    let by_one = |id: &str, payload: Value| {
        json!({ "run_id": CLAIMED, "record_id": id, "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"],
            "payload": payload })
    };
    let call = json!({ "type": "tool_call_requested", "request_id": "r", "call_id": "c", "tool_name": "book",
        "arguments": { "seat": 1 } });
    ensure!(post(server, &records, &by_one("asked", call))?["outcome"] == "applied");
    post(server, &claims, &json!({ "claimed_by": "two" }))?;
    let result = json!({ "type": "tool_call_completed", "request_record_id": "asked", "result": "ok" });
    let late = post(server, &records, &by_one("late", result))?;
    ensure!(late["outcome"] == "refused" && late["reason"] == "fenced", "{late}");
    Ok(())
}

/// The examples of a run's records, in the order of their numbers: a record follows the records that it refers to.
fn examples() -> anyhow::Result<Vec<Value>> {
    let mut examples = Vec::new();
    // A server refuses an erasure.
    for tag in Payload::TYPES.iter().filter(|tag| !["run_claim", "stored_payload", "erasure"].contains(tag)) {
        let file = format!("{}/../schemas/examples/{tag}.json", env!("CARGO_MANIFEST_DIR"));
        let example: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        if example["run_id"].is_string() {
            let number = example["record_id"].as_str().and_then(|id| id.rsplit('-').next()?.parse::<u64>().ok());
            examples.push((number, example));
        }
    }
    examples.sort_by_key(|(number, _)| *number);
    Ok(examples.into_iter().map(|(_, example)| example).collect())
}

fn post(server: &Server, path: &str, body: &Value) -> anyhow::Result<Value> {
    let (status, answer) = server.post(path, body)?;
    ensure!(status == 200, "{path} {body}: {status} {answer}");
    Ok(answer)
}
