//! Lists and streams: long ids, unknown runs, reconnecting.

use super::harness::{Server, server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;
const TURN: &str = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":"hi"}"#;

fn text(server: &Server, words: &[&str]) -> String {
    String::from_utf8(server.command(words).output().unwrap().stdout).unwrap()
}

#[test]
fn a_long_run_id_does_not_widen_the_table() {
    let (_folder, server) = server();
    let long = format!("run-{}-end", "x".repeat(180));
    server.publish_applied(&long, &[("s", STARTED)]);
    server.publish_applied("short", &[("s", STARTED)]);
    let table = text(&server, &["runs"]);
    assert!(table.lines().all(|line| line.chars().count() < 130), "{table}");
    assert!(table.contains("…") && table.contains("-end") && table.contains("-v prints them whole"), "{table}");
    assert!(text(&server, &["runs", "-v"]).contains(&long));
    assert_eq!(server.ask(&["runs"]).is(0)["runs"][0]["run_id"], long.as_str());
}

#[test]
fn an_unknown_run_differs_from_one_without_anomalies() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED)]);
    assert_eq!(server.ask(&["anomalies", "r"]).is(0)["anomalies"], json!([]));
    assert_eq!(server.ask(&["anomalies", "typo"]).error(1), "not_found");
    assert_eq!(server.ask(&["tail", "typo", "--until-end"]).error(1), "not_found");
}

#[test]
fn the_verdict_of_verify_is_the_first_line() {
    let (_folder, server) = server();
    server.publish_applied("r", &[("s", STARTED)]);
    let short = text(&server, &["verify"]);
    assert!(short.starts_with("equal ") && short.lines().count() == 1, "{short}");
    let long = text(&server, &["verify", "-v"]);
    assert!(long.starts_with("equal ") && long.lines().count() > 20, "{long}");
}

#[test]
fn a_tail_shows_new_records_and_resumes_at_its_cursor_when_the_server_returns() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    let address = server.url.trim_start_matches("http://").to_owned();
    server.publish_applied("r", &[("s", STARTED)]);
    let mut tail = server.command(&["tail", "r", "--from", "beginning", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["record_id"].clone();
    assert_eq!(next(), "s");
    server.publish_applied("r", &[("live", TURN)]);
    assert_eq!(next(), "live");
    assert_eq!(server.signal("TERM"), 0);
    let server = Server::start_at(&data, &address);
    server.publish_applied("r", &[("t", TURN)]);
    assert_eq!(next(), "t");
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn runs_are_found_by_time_and_by_a_call_that_waits() {
    let (_folder, server) = server();
    let book = r#"{"type":"tool_call_requested","request_id":"m","call_id":"c","tool_name":"book","arguments":{}}"#;
    server.publish_applied("c-waits", &[("s1", STARTED), ("q1", book)]);
    server.publish_applied("a-retries", &[("s2", STARTED)]);
    let keyed = format!(r#"{{"run_id":"a-retries","record_id":"q2","idempotency_key":"k","payload":{book}}}"#);
    assert_eq!(server.publish(&keyed).is(0)["outcome"], "applied");
    server.publish_applied("b-last", &[("s3", STARTED)]);
    let ids = |more: &[&str]| -> Vec<String> {
        let page = server.ask(&[&["runs", "--consistency", "latest"], more].concat()).is(0);
        page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["a-retries", "b-last", "c-waits"]);
    assert_eq!(ids(&["--newest"]), ["b-last", "a-retries", "c-waits"]);
    assert_eq!(ids(&["--newest", "--limit", "1"]), ["b-last"]);
    let (mut paged, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let from: Vec<&str> = cursor.iter().flat_map(|cursor| ["--cursor", cursor]).collect();
        let page = server.ask(&[&["runs", "--newest", "--limit", "2"], &from[..]].concat()).is(0);
        paged.extend(page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, ["b-last", "a-retries", "c-waits"]);
    assert_eq!(ids(&["--stuck"]), ["c-waits"]);
    assert_eq!((ids(&["--since", "1h"]).len(), ids(&["--since", "2100-01-01T00:00:00Z"]).len()), (3, 0));
    assert_eq!(server.ask(&["runs", "--since", "yesterday"]).error(2), "usage");
    let newest = server.ask(&["runs", "--newest"]).is(0);
    let at = newest["runs"][1]["updated_at"].as_str().unwrap().to_owned();
    assert!(ids(&["--since", &at]).contains(&"a-retries".to_owned()), "since is inclusive");
}
