use super::harness::{Server, file, server};
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeMap, path::Path};

/// A tau-bench file of one run: the agent finds, books, and says so.
pub(super) fn trajectory(task: u32, said: &str) -> String {
    let call = |id: &str, name: &str| {
        format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{{\"n\": 1}}"}}}}"#)
    };
    let messages = [
        r#"{"role":"user","content":"hello"}"#.to_owned(),
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, call("c", "find")),
        r#"{"role":"tool","content":"[1, 2]"}"#.to_owned(),
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, call("c", "book")),
        r#"{"role":"tool","content":"Error: full"}"#.to_owned(),
        format!(r#"{{"role":"assistant","content":"{said}"}}"#),
    ];
    format!(r#"{{"task_id":{task},"trial":0,"reward":0.0,"traj":[{}]}}"#, messages.join(","))
}

pub(super) fn import(server: &Server, file: &Path, more: &[&str]) -> super::harness::CommandResult {
    let mut arguments = vec!["import", "tau-bench", file.to_str().unwrap()];
    arguments.extend(more);
    server.ask(&arguments)
}

/// Runs, calls, records, duplicates.
fn figures(report: &Value) -> [Value; 4] {
    ["runs", "tool_calls", "records", "duplicates"].map(|name| report[name].clone())
}

#[test]
fn importing_again_changes_nothing_and_every_call_is_found() {
    let (folder, server) = server();
    let path = file(folder.path(), "a.json", &format!("[{},{}]", trajectory(1, "no"), trajectory(2, "no")));
    let report = import(&server, &path, &[]).is(0);
    let records = report["records"].as_u64().unwrap();
    assert_eq!(figures(&report), [json!(2), json!(4), json!(records), json!(0)]);
    assert!(report["seconds"].is_f64());
    let before = server.ask(&["show", "tau-bench:1:0"]).stdout;
    assert_eq!(figures(&import(&server, &path, &[]).is(0)), [json!(2), json!(4), json!(0), json!(records)]);
    assert_eq!(server.ask(&["show", "tau-bench:1:0"]).stdout, before);
    let lookup = |tool: &str| server.ask(&["lookup", "tau-bench:2:0", "--tool", tool, "--args", "{\"n\":1}"]).is(0);
    assert_eq!((&lookup("find")["status"], &lookup("find")["result"]), (&json!("completed"), &json!("[1, 2]")));
    let failed = lookup("book");
    assert_eq!(
        (&failed["status"], &failed["result"], &failed["error"]["message"]),
        (&json!("failed"), &Value::Null, &json!("Error: full"))
    );
    let checkpoint = server.ask(&["checkpoint", "tau-bench:1:0"]).is(0);
    assert_eq!(checkpoint["messages"].as_array().unwrap().len(), 6);
    assert_eq!(server.ask(&["recover", "tau-bench:1:0"]).is(1)["reason"], "the run is completed");
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
}

#[test]
fn an_oversized_payload_goes_to_the_content_store_and_is_read_back() {
    let (folder, server) = server();
    let large = "x".repeat(3 << 20);
    let run = trajectory(1, &large).replace("[1, 2]", &large);
    let path = file(folder.path(), "a.json", &format!("[{run}]"));
    let report = import(&server, &path, &[]).is(0);
    let lookup = server.ask(&["lookup", "tau-bench:1:0", "--tool", "find", "--args", "{\"n\":1}"]).is(0);
    assert_eq!((&lookup["status"], &lookup["result"]), (&json!("completed"), &json!(large)));
    let checkpoint = server.ask(&["checkpoint", "tau-bench:1:0"]).is(0);
    assert_eq!(checkpoint["messages"], serde_json::from_str::<Value>(&run).unwrap()["traj"]);
    let again = import(&server, &path, &[]).is(0);
    assert_eq!((&again["records"], &again["duplicates"]), (&json!(0), &report["records"]));
}

#[test]
fn one_run_with_other_content_and_nothing_of_any_file_is_written() {
    let (folder, server) = server();
    let first = file(folder.path(), "first.json", &format!("[{}]", trajectory(1, "no")));
    assert_eq!(import(&server, &first, &[]).code, 0);
    let second = file(folder.path(), "second.json", &format!("[{},{}]", trajectory(9, "no"), trajectory(1, "yes")));
    let refused = import(&server, &second, &[]);
    let error = refused.is(3)["error"].clone();
    assert_eq!((&error["run_id"], &error["reason"]), (&json!("tau-bench:1:0"), &json!("conflict")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("--run-prefix"), "{error}");
    assert_eq!(server.ask(&["show", "tau-bench:9:0"]).error(1), "not_found");
    assert_eq!(server.ask(&["anomalies"]).is(0)["anomalies"], json!([]));
    assert_eq!(import(&server, &second, &["--run-prefix", "again/"]).code, 0);
    assert_eq!(server.ask(&["runs", "--prefix", "again/"]).is(0)["runs"].as_array().unwrap().len(), 2);
    let malformed = file(folder.path(), "bad.json", r#"[{"task_id": 2}]"#);
    let error = import(&server, &malformed, &[]).is(3)["error"].clone();
    assert!(error["path"].as_str().unwrap().starts_with("$[0]") && error["file"].is_string(), "{error}");
}

#[test]
fn an_import_checks_every_record_before_it_writes_any() {
    let (folder, server) = server();
    let early = r#"{"role":"user","content":"x"},"#.repeat(600);
    for (late, path) in [
        (r#"{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"","arguments":"{}"}}]}"#, "name"),
        (r#"{"role":"user","content":1e999}"#, "$[0].traj[600]"),
    ] {
        let run = format!(r#"[{{"task_id":1,"trial":0,"reward":0.0,"traj":[{early}{late}]}}]"#);
        let file = file(folder.path(), "late.json", &run);
        let error = import(&server, &file, &[]).is(3)["error"].clone();
        assert!(error["path"].as_str().unwrap().contains(path) && error["file"].is_string(), "{error}");
        assert_eq!(server.ask(&["runs"]).is(0)["runs"], json!([]), "{late}");
    }
    // Some editors write a byte order mark, and some terminals leave a lone surrogate.
    let run = trajectory(1, "no").replace("hello", r"\ud83d");
    let odd = file(folder.path(), "odd.json", &format!("\u{feff}[{run}]"));
    assert_eq!(import(&server, &odd, &[]).code, 0);
    let checkpoint = server.ask(&["checkpoint", "tau-bench:1:0"]);
    assert!(checkpoint.stdout.contains(r#"{"role":"user","content":"\ud83d"}"#), "{checkpoint:?}");
}

/// A line of a timeline as the record that it shows, content unchanged to the letter.
fn record(line: &str) -> String {
    let mut members: BTreeMap<&str, Box<RawValue>> = serde_json::from_str(line).unwrap();
    members.retain(|name, _| ["record_id", "writer_seq", "journal_seq", "payload"].contains(name));
    for (name, value) in [("run_id", "\"tau-bench:1:0\""), ("agent_id", "\"tau-bench\""), ("writer_epoch", "0")] {
        members.insert(name, RawValue::from_string(value.to_owned()).unwrap());
    }
    serde_json::to_string(&members).unwrap() + "\n"
}

#[test]
fn an_import_that_was_killed_halfway_completes_unless_the_run_was_claimed_since() {
    let (folder, server) = server();
    let path = file(folder.path(), "a.json", &format!("[{}]", trajectory(1, "no")));
    assert_eq!(import(&server, &path, &[]).code, 0);
    // The same records up to the middle, as an import that was killed leaves them, on a server that has nothing else.
    let shown = server.ask(&["show", "tau-bench:1:0", "--raw"]).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    let half: String = lines[..7].iter().map(|line| record(line)).collect();
    for claimed in [false, true] {
        let other = tempfile::tempdir().unwrap();
        let server = Server::start(&other.path().join("data"), &[]);
        assert_eq!(server.publish(&half).code, 0);
        if claimed {
            server.publish_applied("tau-bench:1:0", &[("claim", r#"{"type":"run_claim","writer_id":"w","epoch":1}"#)]);
            let refused = import(&server, &path, &[]);
            assert_eq!(refused.error(3), "fenced");
            assert!(refused.stdout.contains("claimed since"), "{}", refused.stdout);
        } else {
            let [_, _, records, duplicates] = figures(&import(&server, &path, &[]).is(0));
            assert_eq!((records, duplicates), (json!(lines.len() - 7), json!(7)));
            server.publish_applied("tau-bench:1:0", &[("claim", r#"{"type":"run_claim","writer_id":"w","epoch":1}"#)]);
            // The run is claimed but complete, so the import has no record to write.
            assert_eq!(figures(&import(&server, &path, &[]).is(0))[2..], [json!(0), json!(lines.len())]);
        }
    }
}

#[test]
fn a_folder_and_stdin_are_imported_like_files() {
    let (folder, server) = server();
    let runs = folder.path().join("runs");
    std::fs::create_dir_all(runs.join("more")).unwrap();
    file(&runs, "a.json", &format!("[{}]", trajectory(1, "no")));
    file(&runs, "more/b.json", &format!("[{}]", trajectory(2, "no")));
    file(&runs, "notes.txt", "no run");
    assert_eq!(import(&server, &runs, &[]).is(0)["runs"], 2);
    let mut command = server.command(&["import", "tau-bench", "-", "--json"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let text = format!("[{},{}]", trajectory(2, "no"), trajectory(3, "no"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(report["runs"], 2);
    assert!(report["duplicates"].as_u64() > Some(0) && report["duplicates"] == report["records"], "{report}");
    assert_eq!(server.ask(&["import", "tau-bench", runs.join("nothing").to_str().unwrap()]).error(3), "invalid");
    assert_eq!(server.ask(&["import", "swe-agent", "-"]).error(3), "invalid");
}

/// The spans of an agent that asks its model, calls a tool and fails, as the collector's file exporter writes them.
const SPANS: &str = include_str!("genai_spans.jsonl");

#[test]
fn observed_calls_are_imported_once_and_answer_no_gate() {
    let (folder, server) = server();
    let path = file(folder.path(), "spans.jsonl", SPANS);
    let import = || server.ask(&["import", "otlp", path.to_str().unwrap()]).is(0);
    let first = import();
    let records = first["records"].clone();
    assert_eq!(figures(&first), [json!(1), json!(2), records.clone(), json!(0)]);
    assert_eq!(figures(&import()), [json!(1), json!(2), json!(0), records]);
    let run = "otlp:5b8efff798038103d269b633813fc60c:eee19b7ec3c1b173";
    let shown = server.ask(&["show", run, "--raw"]).lines();
    let calls: Vec<&Value> = shown.iter().filter(|line| line["payload_type"] == "tool_journal_entry").collect();
    assert_eq!(calls[0]["payload"]["arguments"], json!({"flight": "HAT136"}));
    assert_eq!((&calls[1]["payload"]["is_error"], &calls[1]["payload"]["result"]), (&json!(true), &json!("no seat")));
    assert_eq!(calls[0]["timestamp"], "2026-11-23T10:00:03.250Z");
    // An observed call is no answer: the same call of an agent would run.
    let lookup = server.ask(&["lookup", run, "--tool", "book_flight", "--args", r#"{"flight":"HAT136"}"#]);
    assert_eq!(lookup.is(1)["status"], "unknown");
    assert_eq!(server.ask(&["effects"]).is(0)["effects"], json!([]));
    let recovered = server.ask(&["recover", run]).is(1);
    assert_eq!((&recovered["completed"], &recovered["pending"]), (&json!([]), &json!([])));
    let document = server.ask(&["export", run]).is(0);
    assert_eq!(document["steps"][1]["tool_calls"][0]["extra"]["observed"], true);
    assert_eq!((&document["agent"]["name"], &document["extra"]["status"]), (&json!("travel-agent"), &json!("failed")));
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
}
