//! What others read of an export.

use super::harness::{Server, server};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What a Python program of the tests printed, with the libraries of `tests/python/requirements.txt`.
fn python(program: &str, arguments: &[PathBuf]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python");
    let output = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let interpreter = output(&mut Command::new(folder.join("venv.sh")));
    let printed = output(Command::new(interpreter.trim_end()).arg(folder.join(program)).args(arguments));
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The samples, imported.
fn recorded(server: &Server) -> u64 {
    let samples = std::env::var_os("RUNLOG_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let import = |format: &str| {
        let report = server.ask(&["import", format, samples.join(format).to_str().unwrap()]).is(0);
        report["runs"].as_u64().unwrap()
    };
    import("swe-agent") + import("tau-bench")
}

#[test]
fn recorded_runs_are_trajectories_with_every_message_call_and_result() {
    let (folder, server) = server();
    let runs = recorded(&server);
    let out = folder.path().join("out");
    let report = server.ask(&["export", "--out", out.to_str().unwrap()]).is(0);
    assert_eq!(report["runs"], runs);
    let read = python("check_atif.py", &files(&out));
    assert_eq!(read.len() as u64, runs);
    let mut calls = 0;
    // Each fifth run, call by call.
    for trajectory in read.iter().step_by(5) {
        let run = trajectory["run"].as_str().unwrap();
        let shown = server.ask(&["show", run, "--raw"]).lines();
        let of = |wanted: &'static str| shown.iter().filter(move |line| line["payload_type"] == wanted);
        let said: Vec<&Value> = of("conversation_turn")
            .map(|line| &line["payload"])
            .filter(|payload| payload["kind"] != "tool")
            .map(|payload| &payload["content"])
            .collect();
        let messages = trajectory["messages"].as_array().unwrap();
        // Parts are the same list; what is none is an empty text.
        let told = messages.iter().filter(|message| said.contains(message) || **message == "").count();
        assert!(told == messages.len() && messages.len() >= said.len(), "{run}: {told} of {}", messages.len());
        let requests: Vec<&Value> = of("tool_call_requested").collect();
        let listed = trajectory["calls"].as_array().unwrap();
        assert_eq!(listed.len(), requests.len(), "{run}");
        for (call, request) in listed.iter().zip(requests) {
            let (tool, arguments) = (&request["payload"]["tool_name"], &request["payload"]["arguments"]);
            assert_eq!((&call[0], &call[1]), (tool, arguments), "{run}");
            let answers = |line: &&Value| line["payload"]["request_record_id"] == request["record_id"];
            let done = of("tool_call_completed").find(answers).map(|line| &line["payload"]["result"]);
            let failed = of("tool_call_failed").find(answers).map(|line| &line["payload"]["error_message"]);
            assert_eq!(Some(&call[2]), done.or(failed).or(Some(&Value::Null)), "{run}");
            calls += 1;
        }
    }
    assert!(calls > 100, "{calls} calls were compared");
}
