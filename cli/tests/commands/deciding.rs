//! Commands that void, delete or decide something ask first; here without a terminal.

use super::harness::{CommandResult, Server, run, server};
use serde_json::json;

const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;
const BOOK: &str = r#"{"type":"tool_call_requested","request_id":"m","call_id":"c","tool_name":"book","arguments":{}}"#;
const SIGNED: [&str; 4] = ["--who", "jo", "--why", "a test"];

fn ask(server: &Server, words: &[&str], more: &[&str]) -> CommandResult {
    server.ask(&[words, &SIGNED[..], more].concat())
}

/// The position of the run's record with this id, `PARTITION:OFFSET`.
fn position(server: &Server, run_id: &str, record_id: &str) -> String {
    let lines = server.ask(&["show", run_id]).lines();
    let line = lines.iter().find(|line| line["record_id"] == record_id).unwrap();
    format!("{}:{}", line["position"]["partition"], line["position"]["offset"])
}

#[test]
fn without_a_terminal_and_without_yes_nothing_happens() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED), ("q", BOOK)]);
    let skipped = position(&server, "r", "q");
    let before = server.ask(&["show", "r"]).stdout;
    for words in [
        &["effects", "resolve", "r", "q", "--give-up"][..],
        &["retention", "conversation_turn", "--until", "2020-01-01T00:00:00Z"],
        &["cancel", "r"],
        &["dead-letter", "skip", &skipped, "--force"],
    ] {
        let refused = ask(&server, words, &[]);
        assert_eq!(refused.error(2), "usage", "{words:?}");
        assert!(refused.stdout.contains("--yes") && refused.stdout.contains("Nothing happened"), "{refused:?}");
        assert!(!refused.stderr.is_empty(), "{words:?} shows the consequences");
    }
    assert_eq!(server.ask(&["show", "r"]).stdout, before);
    assert_eq!(server.ask(&["retention"]).is(0)["horizons"], json!([]));
    assert_eq!(ask(&server, &["effects", "resolve", "r", "q", "--give-up"], &["--yes"]).is(0)["outcome"], "applied");
    assert_eq!(server.ask(&["lookup", "r", "--tool", "book", "--args", "{}"]).is(0)["status"], "failed");
}

#[test]
fn a_record_that_can_be_read_is_skipped_only_by_force() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED), ("q", BOOK)]);
    let healthy = position(&server, "r", "q");
    let refused = ask(&server, &["dead-letter", "skip", &healthy], &["--yes"]);
    assert_eq!(refused.error(3), "invalid");
    assert!(refused.stdout.contains("--force"), "{refused:?}");
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 2);
    let blank = ["dead-letter", "skip", &healthy, "--who", " ", "--why", "t", "--yes", "--force"];
    assert_eq!(server.ask(&blank).error(2), "usage");
    let shown = server.command(&["dead-letter", "skip", &healthy, "--who", "w", "--why", "t", "--dry-run"]).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("the call becomes pending, until someone decides") && shown.contains("--force"), "{shown}");
    let plan = ask(&server, &["dead-letter", "skip", &healthy], &["--dry-run"]).is(0);
    assert_eq!((&plan["dry_run"], &plan["target"], &plan["run_id"]), (&json!(true), &json!("readable"), &json!("r")));
    assert_eq!((&plan["record_id"], &plan["payload_type"]), (&json!("q"), &json!("tool_call_requested")));
    // The server refuses it for every client.
    let (partition, offset) = healthy.split_once(':').unwrap();
    let line =
        format!(r#"{{"partition":{partition},"payload":{{"type":"skip","offset":{offset},"who":"w","why":"t"}}}}"#);
    let published = server.publish(&line);
    assert!(published.error(3) == "invalid" && published.stdout.contains("force"), "{published:?}");
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 2);
    assert_eq!(ask(&server, &["dead-letter", "skip", &healthy], &["--yes", "--force"]).is(0)["outcome"], "applied");
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 1);
}

#[test]
fn retention_first_shows_the_number_of_records() {
    let (_folder, server) = server();
    let turn = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":"x"}"#;
    server.publish_applied("r", &[("s", STARTED), ("t1", turn), ("t2", turn)]);
    server.publish_applied("other", &[("t3", turn)]);
    let retain = |until: &str, more: &[&str]| {
        ask(&server, &[&["retention", "conversation_turn", "--until", until], more].concat(), &[])
    };
    let plan = retain("2100-01-01T00:00:00Z", &["--dry-run"]).is(0);
    assert_eq!((&plan["dry_run"], &plan["records"], &plan["complete"]), (&json!(true), &json!(3), &json!(true)));
    assert_eq!(plan["partitions"].as_array().unwrap().len(), 4);
    assert_eq!(retain("2020-01-01T00:00:00Z", &["--dry-run"]).is(0)["records"], 0);
    assert_eq!(server.ask(&["retention"]).is(0)["horizons"], json!([]), "nothing happened");
    let refused = retain("2100-01-01T00:00:00Z", &[]);
    assert!(refused.error(2) == "usage" && refused.stdout.contains("3 conversation_turn records"), "{refused:?}");
    retain("2100-01-01T00:00:00Z", &["--yes"]).is(0);
    assert_eq!(retain("2100-01-01T00:00:00Z", &["--dry-run"]).is(0)["records"], 0, "they are gone");
    let unknown = ask(&server, &["retention", "turns", "--until", "2100-01-01T00:00:00Z"], &["--yes"]);
    assert!(unknown.error(3) == "invalid" && unknown.stdout.contains("conversation_turn"), "{unknown:?}");
}

#[test]
fn a_cancelled_run_is_cancelled_once_and_accepts_no_more_records() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED)]);
    assert_eq!(ask(&server, &["cancel", "r"], &["--yes"]).is(0)["outcome"], "applied");
    let runs = server.ask(&["runs", "--status", "cancelled", "--consistency", "latest"]).is(0);
    assert_eq!(runs["runs"][0]["run_id"], "r");
    let last = server.ask(&["show", "r", "--raw"]).lines().pop().unwrap();
    assert_eq!((&last["payload"]["status"], &last["payload"]["reason"]), (&json!("cancelled"), &json!("jo: a test")));
    assert_eq!(ask(&server, &["cancel", "r"], &["--yes"]).error(3), "conflict");
    assert_eq!(ask(&server, &["cancel", "nobody"], &["--yes"]).error(1), "not_found");
    let late = server.publish(&format!(r#"{{"run_id":"r","record_id":"late","payload":{BOOK}}}"#));
    assert_eq!(late.is(1)["outcome"], "refused");
}

#[test]
fn conformance_runs_only_against_a_server_that_was_named() {
    let (_folder, server) = server();
    let refused = server.ask(&["conformance", "--rule", "gap"]);
    assert_eq!(refused.error(2), "usage");
    assert!(refused.stdout.contains("--server") && refused.stdout.contains("cannot be removed"), "{refused:?}");
    assert_eq!(server.ask(&["runs"]).is(0)["runs"], json!([]));
    // A variable that is not set names no server, least of all the default one.
    assert_eq!(server.ask(&["cancel", "r", "--who", "w", "--why", "t", "--yes", "--server", ""]).error(2), "usage");
    let report = run(&["conformance", "--rule", "gap", "--json", "--server", &server.url]).is(0);
    assert_eq!((&report["passed"], &report["failed"]), (&json!(1), &json!(0)));
}

#[test]
fn a_pending_call_is_named_with_its_request_and_class() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED), ("q", BOOK)]);
    let lookup = ["lookup", "r", "--tool", "book", "--args", "{}"];
    let call = server.ask(&lookup).is(6);
    assert_eq!((&call["status"], &call["id"]), (&json!("pending"), &json!("q")));
    assert_eq!((&call["class"], &call["evidence"]), (&json!("reconcile_required"), &json!([])));
    let text = server.command(&lookup).output().unwrap();
    let shown = String::from_utf8(text.stdout).unwrap();
    assert_eq!(text.status.code(), Some(6));
    assert!(shown.lines().any(|line| line.starts_with("request id") && line.ends_with(" q")), "{shown}");
    assert!(shown.contains("reconcile_required"), "{shown}");
}

#[test]
fn an_effect_is_listed_with_the_content_of_its_evidence() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("q", BOOK), ("claim", r#"{"type":"run_claim","writer_id":"w","epoch":1}"#)]);
    let late = r#"{"run_id":"r","record_id":"late","payload":{"type":"tool_call_completed","request_record_id":"q",
        "result":{"seat":1.0}}}"#;
    assert_eq!(server.publish(&late.replace('\n', "")).is(1)["reason"], "fenced");
    let listed = server.ask(&["effects", "--consistency", "latest"]).is(0);
    let payload = &listed["effects"][0]["evidence"][0]["payload"];
    assert_eq!((&payload["type"], &payload["result"]), (&json!("tool_call_completed"), &json!({ "seat": 1.0 })));
}

#[test]
fn the_list_of_effects_shows_arguments_without_characters_that_a_terminal_acts_on() {
    let (_folder, server) = server();
    let call =
        r#"{"type":"tool_call_requested","request_id":"m","call_id":"c","tool_name":"book","arguments":{"to":"LHR?"}}"#;
    let call = call.replace('?', "\u{202e}\u{9b}");
    let line = format!(r#"{{"run_id":"r","record_id":"q","agent_id":"desk-agent","payload":{call}}}"#);
    assert_eq!(server.publish(&line).is(0)["outcome"], "applied");
    let listed = server.ask(&["effects", "--consistency", "latest"]).is(0);
    let effect = &listed["effects"][0];
    assert_eq!((&effect["agent_id"], &effect["attempts"]), (&json!("desk-agent"), &json!(1)));
    assert_eq!(effect["arguments"], json!({ "to": "LHR\u{202e}\u{9b}" }));
    let table = String::from_utf8(server.command(&["effects"]).output().unwrap().stdout).unwrap();
    for part in ["AGE", "AGENT", "desk-agent", "ATTEMPTS", r"LHR\u{202e}\u{9b}"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains(['\u{202e}', '\u{9b}']), "{table}");
}

#[test]
fn what_exists_is_documented() {
    let help = run(&["--help"]);
    for part in ["Exit codes:", "6  `lookup` found the call pending", "Config file", "\"consistency\": \"latest\""] {
        assert!(help.code == 0 && help.stdout.contains(part), "{part}: {}", help.stdout);
    }
    let script = run(&["completions", "bash"]);
    assert!(script.code == 0 && script.stdout.contains("dead-letter"), "{script:?}");
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(run(&["man", pages.to_str().unwrap()]).code, 0);
    let page = std::fs::read_to_string(pages.join("runlog-lookup.1")).unwrap();
    assert!(page.contains("idempoten") || page.contains("occurrence"), "{page}");
    assert!(!pages.join("runlog-demo-agent.1").exists(), "hidden commands have no page");
}
