//! The commands in messages: a shell reads each id as one value, with any characters in it.

use anyhow::{Context, ensure};
use runlog_producer::{Config, Journal, Runlog};
use runlog_tests::{command::binary, server::Launch};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Folders of code that prints messages.
const SOURCES: [&str; 11] = [
    "cli/src",
    "cli/demo/src",
    "conformance/src",
    "content/src",
    "log/src",
    "ports",
    "producer/src",
    "projector/server/src",
    "projector/src",
    "registry/src",
    "schemas/src",
];
/// Files with commands that contain no value of a message: help texts, and tests.
const WITHOUT_VALUES: [&str; 3] = ["cli/src/args.rs", "cli/src/main.rs", "schemas/src/shell.rs"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["tests", "target", "examples"].contains(&name) {
            files(&path, found)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
    Ok(())
}

/// The part of a line that begins with a command or a flag and contains a value, which nothing quotes.
fn unquoted(line: &str) -> Option<&str> {
    let is_word = |text: &str| text.starts_with(|first: char| first.is_ascii_lowercase());
    let commands = ["runlog ", "chmod "].into_iter().flat_map(|name| line.match_indices(name));
    let commands = commands.map(|(at, name)| (at, &line[at + name.len()..])).filter(|(_, rest)| is_word(rest));
    let flags = line.match_indices(" --").map(|(at, _)| (at, &line[at + 3..])).filter(|(_, rest)| is_word(rest));
    let flags = flags.filter_map(|(at, rest)| {
        let value = rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase() || letter == '-');
        value.starts_with([' ', '=']).then(|| (at, value.get(1..2).unwrap_or_default()))
    });
    let is_value = |text: &str| text.contains('{') && !text.contains("{{");
    let until = |text: &'_ str| text.find(['`', '"', ',', ';', '(']).unwrap_or(text.len());
    let command = commands.map(|(at, rest)| (at, &rest[..until(rest)])).chain(flags).find(|(_, rest)| is_value(rest));
    command.map(|(at, _)| &line[at..])
}

#[test]
fn every_value_in_a_printed_command_is_quoted() -> anyhow::Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in SOURCES {
        files(&top.join(folder), &mut all)?;
    }
    ensure!(all.len() > 300, "{} files", all.len());
    let mut commands = Vec::new();
    for path in all {
        let name = path.strip_prefix(&top)?.display().to_string();
        if WITHOUT_VALUES.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        commands.extend(lines.filter_map(unquoted).map(|command| format!("{name}: {command}")));
    }
    ensure!(commands.is_empty(), "write these with runlog_schemas::shell:\n{}", commands.join("\n"));
    for line in [
        "format!(\"`runlog show {run_id}`\")",
        "             runlog dead-letter skip {partition}:{} --who NAME --why TEXT\",",
        "format!(\"continue later with --from {cursor}\")",
        "format!(\"remove this permission with chmod o-w {}\", folder.display())",
    ] {
        ensure!(unquoted(line).is_some(), "{line}");
    }
    Ok(())
}

#[test]
fn a_printed_decision_names_the_call_whatever_its_ids_contain() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    for (run, call) in [("it's $HOME & \"co\"; exit 3", "a b\\"), ("--yes", "-rf $(exit 3)")] {
        let in_path: String = run.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, claim) = server.post(&format!("/v1/runs/{in_path}/claims"), &json!({}))?;
        ensure!(status == 200, "{claim}");
        let request = json!({ "type": "tool_call_requested", "request_id": "r", "call_id": "c", "tool_name": "pay", "arguments": {} });
        let record = json!({ "run_id": run, "record_id": call, "writer_id": claim["writer_id"], "writer_epoch": claim["epoch"],
            "payload": request });
        let (_, outcome) = server.post(&format!("/v1/runs/{in_path}/records"), &record)?;
        ensure!(outcome["outcome"] == "applied", "{outcome}");

        let config = Config::new(Journal::Http(server.url.clone()), "test");
        let runtime = tokio::runtime::Runtime::new()?;
        let message = runtime.block_on(async {
            let handle = Runlog::connect(config).await?.open(run).await?;
            let refused = handle.tool("pay", &json!({})).once(|_| async { Ok(json!(1).into()) }).await;
            anyhow::Ok(refused.err().context("the call is pending")?.to_string())
        })?;
        let printed = message.split('`').nth(1).with_context(|| message.clone())?;
        let typed = printed.replace("RESULT_AS_JSON", "'{\"paid\":1}'").replacen("--who NAME", "--yes --who NAME", 1);
        let script = format!("runlog() {{ \"$RUNLOG\" \"$@\"; }}\n{typed}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("RUNLOG", binary()?)
            .env("RUNLOG_SERVER", &server.url)
            .output()?;
        ensure!(output.status.success(), "{typed}: {}", String::from_utf8_lossy(&output.stderr));
        let (_, recovery) = server.get(&format!("/v1/runs/{in_path}/recovery?from_start=true"))?;
        ensure!(recovery["pending"] == json!([]) && recovery["completed"][0]["id"] == call, "{recovery}");
        let (_, found) = server.get(&format!("/v1/runs/{in_path}/lookup?tool=pay&args=%7B%7D"))?;
        ensure!(found["status"] == "completed" && found["result"]["paid"] == 1, "{found}");
    }
    server.terminate()?;
    Ok(())
}
