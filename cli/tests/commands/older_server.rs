//! The command against an older server: it sends no request that such a server would interpret differently.

use super::harness::command;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
};

/// The answer to `GET /v1/journal` of commit 696bf14, recorded: there is no list of features.
const JOURNAL: &str = r#"{"topic":"runlog.journal","journal_id":"a-journal","partitions":4,"schemas":["1cc1e7c4cb2c1db8"],"schema_ids":{},"payload_bytes_max":786432}"#;

/// Starts a server that ignores unknown parameters and members, and carries out the rest of a request. Returns its URL and
/// the first lines of the requests to it.
fn older() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream, &seen);
        }
    });
    (url, requests)
}

fn answer(mut stream: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    reader.take(length.unwrap_or(0)).read_to_end(&mut Vec::new()).unwrap();
    let first = lines.first().cloned().unwrap_or_default();
    let body = if first.contains("/v1/journal") { JOURNAL } else { "{}" };
    seen.lock().unwrap().push(first);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

#[test]
fn an_older_server_gets_no_request_that_it_would_interpret_differently() {
    let signed = ["--who", "jo", "--why", "a test"];
    let skip = r#"{"partition":0,"payload":{"type":"skip","offset":9,"who":"w","why":"t"}}"#;
    let decision = r#"{"run_id":"r","record_id":"d","facts":{"revision":3},"payload":{"type":"effect_resolution","request_record_id":"q","decision":"not_done","who":"w","why":"t"}}"#;
    let started = r#"{"run_id":"r","record_id":"a","payload":{"type":"run_lifecycle","status":"started"}}"#;
    let repeatable = r#"{"run_id":"r","record_id":"q","facts":{"repeatable":true},"payload":{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"look","arguments":1}}"#;
    let until = ["retention", "conversation_turn", "--until", "2100-01-01T00:00:00Z"];
    for (arguments, more, line, feature) in [
        (&["dead-letter", "skip", "0:9"][..], &["--dry-run"][..], "", "dry_run"),
        (&["dead-letter", "skip", "0:9"], &["--yes"], "", "dry_run"),
        (&["dead-letter", "skip", "0:9"], &["--yes", "--force"], "", "dry_run"),
        (&until, &["--dry-run"], "", "dry_run"),
        (&until, &["--yes"], "", "dry_run"),
        (&["effects", "resolve", "r", "q", "--not-done"], &["--yes"], "", "revisions"),
        (&["effects", "--contradicted"], &[], "", "contradictions"),
        (&["publish", "--strict"], &[], started, "strict"),
        (&["publish"], &[], skip, "force"),
        (&["publish"], &[], decision, "revisions"),
        (&["publish"], &[], repeatable, "bases"),
    ] {
        let (url, requests) = older();
        let mut command = command();
        command.args(["--json", "--server", &url]).args(arguments).args(more).stdin(Stdio::piped());
        if !matches!(arguments, ["publish", ..] | ["effects", "--contradicted"]) {
            command.args(signed);
        }
        let mut child = command.spawn().unwrap();
        // It may have ended without reading.
        writeln!(child.stdin.take().unwrap(), "{line}").ok();
        let output = child.wait_with_output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let message = document["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {document}");
        assert!(message.contains(&format!("does not have the feature {feature};")), "{arguments:?}: {message}");
        // A server of this version lacks the feature, too, unless it writes version 3.
        assert_eq!(message.contains("--write-schema 3"), feature == "bases", "{arguments:?}: {message}");
        let requests = requests.lock().unwrap();
        assert!(
            !requests.is_empty() && requests.iter().all(|line| line.starts_with("GET /v1/journal")),
            "{requests:?}"
        );
    }
}
