//! An independent reader of recorded runs: `serde_json` and the documented rules, without code of the importer.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde_json::Value;

pub mod check;

/// A run as its file describes it.
#[derive(Debug)]
pub struct Run {
    /// The id that it is imported under.
    pub id: String,
    /// Its messages.
    pub messages: Vec<Value>,
    /// Its calls, in the order of their requests.
    pub calls: Vec<Call>,
    /// The distinct message counts of its checkpoints.
    pub checkpoints: Vec<usize>,
    /// `completed`, `failed`, or `open`.
    pub status: &'static str,
    /// The reason of its end.
    pub reason: String,
}

/// A call as its file describes it.
#[derive(Debug)]
pub struct Call {
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// The result, or the message of the failure; `None` while it is pending.
    pub outcome: Option<Result<Value, String>>,
}

/// The sample files of a format (`tau-bench`, `swe-agent`), sorted.
///
/// Errors: if there are no samples. scripts/test.sh then leaves out the tests that need them.
pub fn samples(format: &str) -> anyhow::Result<Vec<PathBuf>> {
    let folder = env::var_os("RUNLOG_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let entries = fs::read_dir(folder.join(format))
        .with_context(|| format!("set RUNLOG_SAMPLES to a folder with {format}/: {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json" || extension == "traj") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "{} holds no samples", folder.join(format).display());
    Ok(files)
}

/// The runs of a file.
pub fn read(format: &str, file: &Path) -> anyhow::Result<Vec<Run>> {
    let text = fs::read(file).with_context(|| format!("{}", file.display()))?;
    let top: Value = serde_json::from_slice(&text)?;
    if format == "tau-bench" {
        return top.as_array().context("an array of runs")?.iter().map(tau_bench).collect();
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).context("a name")?;
    Ok(vec![swe_agent(stem, &top)?])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().with_context(|| format!("{value} is no string"))
}

/// Name and arguments of an element of `tool_calls`, whose arguments are JSON in a string.
fn parse_call(call: &Value) -> anyhow::Result<Call> {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::String(text) => serde_json::from_str(text)?,
        object => object.clone(),
    };
    Ok(Call { tool: text(&function["name"])?.to_owned(), arguments, outcome: None })
}

fn tau_bench(run: &Value) -> anyhow::Result<Run> {
    let messages = list(&run["traj"]).to_vec();
    let (mut calls, mut checkpoints): (Vec<Call>, _) = (Vec::new(), Vec::new());
    let (mut answered, mut open) = (0, false);
    for (at, message) in messages.iter().enumerate() {
        match text(&message["role"])? {
            "assistant" => {
                if open && answered == calls.len() {
                    checkpoints.push(at);
                }
                open = !list(&message["tool_calls"]).is_empty();
                for call in list(&message["tool_calls"]) {
                    calls.push(parse_call(call)?);
                }
                if !open {
                    checkpoints.push(at + 1);
                }
            }
            "tool" => {
                let content = message["content"].clone();
                let failed = content.as_str().filter(|text| text.starts_with("Error")).map(str::to_owned);
                let call = calls.get_mut(answered).context("a result without a call")?;
                call.outcome = Some(failed.map_or(Ok(content), Err));
                answered += 1;
            }
            _ => {}
        }
    }
    if open && answered == calls.len() {
        checkpoints.push(messages.len());
    }
    let id = format!("tau-bench:{}:{}", run["task_id"], run["trial"]);
    let reason = format!("reward={}", run["reward"]);
    Ok(Run { id, messages, calls, checkpoints, status: "completed", reason })
}

fn swe_agent(stem: &str, top: &Value) -> anyhow::Result<Run> {
    let messages = list(&top["history"]).to_vec();
    let acts = |message: &Value| message["role"] == "assistant" && message["is_demo"] != true;
    // Calls with the index of the message that requested them; calls without such a message come last.
    let mut calls: Vec<(usize, Call)> = Vec::new();
    if top["trajectory"].is_null() {
        for (at, message) in messages.iter().enumerate() {
            if acts(message) && message["action"].is_string() {
                let mut call = of_message(message)?;
                call.outcome = messages.get(at + 1).map(|next| Ok(next["content"].clone()));
                calls.push((at, call));
            }
        }
    }
    for step in list(&top["trajectory"]) {
        let taken = |at: &usize| calls.iter().any(|(taken, _)| taken == at);
        let pair = (0..messages.len())
            .find(|at| acts(&messages[*at]) && messages[*at]["action"] == step["action"] && !taken(at));
        let mut call = match pair {
            Some(at) => of_message(&messages[at])?,
            None => shell(&step["action"]),
        };
        call.outcome = Some(Ok(step["observation"].clone()));
        calls.push((pair.unwrap_or(usize::MAX), call));
    }
    let mut checkpoints = Vec::new();
    for (at, message) in messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant") {
        let rest = messages.iter().skip(at + 1);
        let end = at + 1 + rest.take_while(|message| message["role"] != "assistant").count();
        match calls.iter().find(|(asked, _)| *asked == at) {
            Some((_, call)) if call.outcome.is_some() => checkpoints.push(end),
            Some(_) => {}
            None if message["role"] == "assistant" => checkpoints.push(at + 1),
            None => {}
        }
    }
    ensure!(checkpoints.is_sorted(), "rounds do not overlap");
    checkpoints.dedup();
    let exit = top["info"]["exit_status"].as_str();
    let status = match exit {
        Some(exit) if exit.starts_with("submitted") => "completed",
        Some(_) => "failed",
        None => "open",
    };
    let reason = exit.map_or_else(String::new, |exit| format!("exit_status={exit}"));
    let calls = calls.into_iter().map(|(_, call)| call).collect();
    Ok(Run { id: format!("swe-agent:{stem}"), messages, calls, checkpoints, status, reason })
}

fn of_message(message: &Value) -> anyhow::Result<Call> {
    list(&message["tool_calls"]).first().map_or_else(|| Ok(shell(&message["action"])), parse_call)
}

fn shell(action: &Value) -> Call {
    Call { tool: "shell".to_owned(), arguments: serde_json::json!({ "command": action }), outcome: None }
}
