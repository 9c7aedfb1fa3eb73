//! Runs the demo as a user does: it proves its claims, it can fail, and no process outlives it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// How long anything here may take.
const WAIT: Duration = Duration::from_secs(120);
/// How long is waited before looking again.
const PAUSE: Duration = Duration::from_millis(2);

fn runlog(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runlog"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one document: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The command lines that name `command` and `what`.
fn processes_of(command: &str, what: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(command) && line.contains(what)).collect()
}

#[test]
fn the_demo_proves_what_it_says() {
    let output = runlog(&["demo", "--agents", "40", "--seed", "7", "--json"]).output().unwrap();
    let figures = document(&output);
    assert!(output.status.success() && figures["proved"] == true, "{figures:#}");
    assert_eq!((&figures["killed"], &figures["taken_over"], &figures["reconciled"]), (&8.into(), &8.into(), &4.into()));
    assert_eq!(figures["audit"]["in_ledger"], figures["audit"]["in_journal"]);
    assert_eq!((&figures["audit"]["twice"], &figures["audit"]["lost"]), (&0.into(), &0.into()));
    let calls = figures["calls"].as_u64().unwrap();
    assert!(calls >= 160, "{calls}");
    let ways = figures["lookups"].as_array().unwrap();
    assert!(ways.len() == 4 && ways.iter().all(|way| way["found"] == calls), "{ways:?}");
    assert_eq!((&figures["found_after_rebuild"], &figures["audit"]["calls"]), (&calls.into(), &calls.into()));
    assert_eq!(figures["rebuild"]["digests"], figures["rebuild"]["digests_equal"]);
}

#[test]
fn a_served_demo_leaves_one_call_to_decide() {
    let mut command = runlog(&["demo", "--agents", "13", "--serve", "--listen", "127.0.0.1:0", "--json"]);
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let figures: Value = serde_json::from_str(&line).unwrap();
    let (url, undecided) = (figures["serving"].as_str().unwrap(), &figures["undecided"]);
    let ask = |words: &[&str]| document(&runlog(&[words, &["--json", "--server", url]].concat()).output().unwrap());
    let pending = ask(&["effects", "--pending", "--unsafe", "--consistency", "latest"])["effects"].clone();
    assert_eq!(pending.as_array().unwrap().len(), 1, "{pending}");
    assert_eq!((&pending[0]["run_id"], &pending[0]["id"]), (&undecided["run_id"], &undecided["id"]));
    let (run_id, id) = (undecided["run_id"].as_str().unwrap(), undecided["id"].as_str().unwrap());
    let decision = ["effects", "resolve", run_id, id, "--not-done", "--who", "jo", "--why", "a test", "--yes"];
    assert_eq!(ask(&decision)["outcome"], "applied");
    assert!(Command::new("kill").args(["-s", "TERM", &demo.id().to_string()]).status().unwrap().success());
    assert!(demo.wait().unwrap().success());
}

#[test]
fn the_audit_reports_a_booking_that_the_journal_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let ledger = data.join("desk-ledger.jsonl");
    let mut command = runlog(&["demo", "--agents", "20", "--json", "--data", data.to_str().unwrap()]);
    let demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    // The file exists before the first agent starts. A line that is appended now is a booking that the desk did not make.
    let mut file = loop {
        assert!(start.elapsed() < WAIT, "no ledger");
        match fs::OpenOptions::new().append(true).open(&ledger) {
            Ok(file) => break file,
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    let line = r#"{"confirmation":"FORGED","item":"AQ 1","date":"2027-01-01","customer":"Nobody","key":null}"#;
    writeln!(file, "{line}").unwrap();
    let output = demo.wait_with_output().unwrap();
    let figures = document(&output);
    assert_eq!((output.status.code(), &figures["proved"]), (Some(1), &false.into()), "{figures:#}");
    assert_eq!(figures["audit"]["lost"], 1);
    assert!(figures["differences"].to_string().contains("FORGED"), "{}", figures["differences"]);
    assert!(data.join("log").exists(), "the folder of a disproved demo is kept");
}

#[test]
fn no_process_outlives_a_demo_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = runlog(&["demo", "--agents", "300", "--data", data.to_str().unwrap()]);
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let journal = lines.find_map(|line| line.unwrap().split_once("http://")?.1.split(',').next().map(str::to_owned));
    let (journal, data) = (journal.unwrap(), data.display().to_string());
    // One run was taken over already. Other agents still run at that time.
    assert!(lines.any(|line| line.unwrap().contains("killed, ")));
    let remaining_processes = || [processes_of("demo-desk", &data), processes_of("demo-agent", &journal)];
    assert!(remaining_processes().iter().all(|processes| !processes.is_empty()), "{:?}", remaining_processes());
    demo.kill().unwrap();
    demo.wait().unwrap();
    let start = Instant::now();
    while remaining_processes().iter().any(|processes| !processes.is_empty()) {
        assert!(start.elapsed() < WAIT, "still running: {:?}", remaining_processes());
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_folder_that_holds_something_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x"), "mine").unwrap();
    let output = runlog(&["demo", "--json", "--data", dir.path().to_str().unwrap()]).output().unwrap();
    assert_eq!((output.status.code(), &document(&output)["error"]["kind"]), (Some(3), &"invalid".into()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
