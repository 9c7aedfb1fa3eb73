use super::harness::{Server, command, run, run_line, server};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread::JoinHandle,
};

const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;
const TURN: &str = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":"x"}"#;

#[test]
fn a_signal_ends_the_server_with_0_although_a_client_tails_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut tails = Vec::new();
    for (index, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let server = Server::start(&data, &[]);
        server.publish_applied("r", &[(signal, if index == 0 { STARTED } else { TURN })]);
        // One that would wait for ever must not hold it up.
        let mut tail = server.command(&["tail", "r", "--from", "beginning", "--json"]).spawn().unwrap();
        let mut tailed = BufReader::new(tail.stdout.take().unwrap());
        tailed.read_line(&mut String::new()).unwrap();
        assert_eq!(server.signal(signal), 0, "SIG{signal}");
        tails.push((tail, tailed));
    }
    // Deleting the index while nothing runs is legal.
    std::fs::remove_dir_all(data.join("index")).unwrap();
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 2);
    assert_eq!(server.ask(&["verify"]).is(0)["equal"], true);
    // The server of these tails does not return. Each tail prints the cursor to resume from.
    for (mut tail, mut tailed) in tails {
        let mut rest = String::new();
        tailed.read_to_string(&mut rest).unwrap();
        assert_eq!(tail.wait().unwrap().code(), Some(4), "{rest}");
        assert!(rest.contains(r#""kind":"unavailable""#) && rest.contains(r#""cursor":"#), "{rest}");
    }
}

/// The answer to a request that waits, and the time at which it came.
fn send_waiting_request(url: &str, method: &str, path: &str, body: &str) -> JoinHandle<String> {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    std::thread::spawn(move || {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

#[test]
fn a_shutdown_answers_what_is_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    // A paused server applies no record, so a request that waits for one waits until its deadline.
    let server = Server::start(&folder.path().join("data"), &["--paused"]);
    let record = json!({ "run_id": "r", "record_id": "s", "journal_seq": 1, "writer_seq": 1, "writer_id": "w",
        "payload": { "type": "run_lifecycle", "status": "started" } });
    let path = "/v1/runs/r?consistency=at-least=0:1000000&deadline_ms=60000";
    let (read, appended) = (
        send_waiting_request(&server.url, "GET", path, ""),
        send_waiting_request(&server.url, "POST", "/v1/runs/r/records?deadline_ms=60000", &record.to_string()),
    );
    // Both were accepted before this one is answered.
    server.ask(&["runs"]).is(0);
    assert_eq!(server.signal("TERM"), 0);
    let (read, appended) = (read.join().unwrap(), appended.join().unwrap());
    for answer in [&read, &appended] {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(r#""kind":"unavailable""#), "{answer}");
    }
    assert!(appended.contains("record ids"), "says how to find out: {appended}");
}

#[test]
fn the_server_logs_its_start_requests_and_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let server = Server::start_logged(&data, &["--log-format", "json"], &log);
    server.publish_applied("a b", &[("s", STARTED)]);
    assert_eq!(server.ask(&["show", "nobody"]).code, 1);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    assert_eq!(server.signal("TERM"), 0);
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().all(|line| line["target"].as_str().unwrap().starts_with("runlog")), "{text}");
    let find = |message: &str| {
        let line = lines.iter().find(|line| line["message"].as_str().unwrap().starts_with(message));
        line.unwrap_or_else(|| panic!("{message}: {text}"))
    };
    let started = find("started");
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&started["partitions"], &started["address"]), (&json!(4), &json!(address)));
    assert_eq!(started["data"], data.to_str().unwrap());
    assert!(started["journal_id"].as_str().is_some_and(|id| !id.is_empty()), "{started}");
    let request_line =
        |run: &str| lines.iter().find(|line| line["run"] == run).unwrap_or_else(|| panic!("{run}: {text}"));
    let appended = request_line("a b");
    assert_eq!((&appended["method"], &appended["path"]), (&json!("POST"), &json!("/v1/runs/a%20b/records")));
    assert_eq!((&appended["status"], &appended["level"]), (&json!(200), &json!("INFO")));
    assert!(appended["duration_ms"].as_f64().is_some_and(|spent| spent > 0.0), "{appended}");
    assert_eq!((&request_line("nobody")["status"], &request_line("nobody")["level"]), (&json!(404), &json!("INFO")));
    assert_eq!(find("shutting down")["signal"], "SIGTERM");
    // The genesis of each partition, and the record.
    assert_eq!(find("stopped")["records"], 5);

    let text_log = folder.path().join("text");
    let server = Server::start_logged(&data, &[], &text_log);
    assert_eq!(server.signal("INT"), 0);
    let text = std::fs::read_to_string(&text_log).unwrap();
    assert!(text.contains(" INFO ") && text.contains("shutting down") && text.contains("SIGINT"), "{text}");
}

#[test]
fn a_journal_keeps_its_partition_count() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, &["--partitions", "3"]);
    assert_eq!(server.partitions, 3);
    assert_eq!(server.signal("TERM"), 0);
    let serve = format!("serve --local --data {} --listen 127.0.0.1:0 --json", data.display());
    let other = run_line(&format!("{serve} --partitions 4"));
    assert_eq!(other.error(3), "invalid");
    assert_eq!(Server::start(&data, &[]).partitions, 3);
}

#[test]
fn an_error_does_not_say_where_the_servers_folders_are() {
    let folder = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (folder.path().join("data"), folder.path().join("elsewhere"));
    let long = "x".repeat(300 << 10);
    let turn = json!({ "run_id": "r", "record_id": "m",
        "payload": { "type": "conversation_turn", "message_id": "m", "kind": "user", "content": long } });
    let url = format!("file:{}", elsewhere.display());
    for (flags, content, placeholder) in
        [(&[][..], &data.join("content"), "DIR/content"), (&["--content", &url][..], &elsewhere, "CONTENT/")]
    {
        let server = Server::start(&data, flags);
        std::fs::remove_dir_all(content).unwrap();
        std::fs::write(content, "no folder").unwrap();
        let result = server.publish(&turn.to_string());
        let output = format!("{result:?}");
        assert!(output.contains(placeholder) && !output.contains(folder.path().to_str().unwrap()), "{output}");
    }
}

#[test]
fn a_folder_or_an_address_in_use_is_unavailable() {
    let (folder, server) = server();
    let data = folder.path().join("data");
    let second = |data: &str, listen: &str| run(&["serve", "--local", "--data", data, "--listen", listen, "--json"]);
    assert_eq!(second(data.to_str().unwrap(), "127.0.0.1:0").error(4), "unavailable");
    let address = server.url.strip_prefix("http://").unwrap();
    assert_eq!(second(folder.path().join("other").to_str().unwrap(), address).error(4), "unavailable");
    assert_eq!(second(folder.path().join("other").to_str().unwrap(), "nowhere").error(2), "usage");
}

#[test]
fn flags_and_environment_take_precedence_over_the_file() {
    let (folder, server) = server();
    let config = super::harness::file(folder.path(), "runlog.json", &json!({"server": server.url}).to_string());
    let config = config.to_str().unwrap();
    assert_eq!(run(&["runs", "--json", "--config", config]).code, 0);
    let dead =
        command().args(["runs", "--json", "--config", config]).env("RUNLOG_SERVER", "http://127.0.0.1:9").output();
    assert_eq!(dead.unwrap().status.code(), Some(4));
    let unknown = super::harness::file(folder.path(), "unknown.json", r#"{"sever": "x"}"#);
    let refused = run(&["runs", "--json", "--config", unknown.to_str().unwrap()]);
    assert_eq!(refused.error(3), "invalid");
    assert!(refused.stdout.contains("sever"), "{refused:?}");
}

#[test]
fn an_index_of_another_log_answers_at_eventual_only_and_applies_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let call = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"pay","arguments":{}}"#;
    let lookup = ["lookup", "r", "--tool", "pay", "--args", "{}"];
    let server = Server::start(&data, &[]);
    server.publish_applied("r", &[("s", r#"{"type":"run_lifecycle","status":"started"}"#), ("call", call)]);
    assert_eq!(server.ask(&lookup).is(6)["status"], "pending");
    // An orderly end flushes the index to disk.
    assert_eq!(server.signal("TERM"), 0);
    std::fs::remove_dir_all(data.join("log")).unwrap();
    let missing = run(&["--json", "serve", "--local", "--data", data.to_str().unwrap()]);
    assert_eq!(missing.error(3), "invalid", "no new log beside the index of another one");
    // Another, shorter log: it ends before the position of the index.
    let other = folder.path().join("other");
    drop(Server::start(&other, &[]));
    std::fs::rename(other.join("log"), data.join("log")).unwrap();
    let server = Server::start(&data, &[]);
    for consistency in ["latest", "at-least=0:0"] {
        let result = server.ask(&[&lookup[..], &["--consistency", consistency]].concat());
        assert_eq!(result.error(4), "partition_stopped", "{consistency}");
    }
    let refused =
        server.publish(r#"{"run_id":"r","record_id":"x","payload":{"type":"run_lifecycle","status":"failed"}}"#);
    assert_eq!(refused.error(4), "partition_stopped");
    assert_eq!(server.ask(&[&lookup[..], &["--consistency", "eventual"]].concat()).is(6)["status"], "pending");
    let ends = |doctor: &serde_json::Value| -> Vec<u64> {
        doctor["partitions"].as_array().unwrap().iter().map(|partition| partition["end"].as_u64().unwrap()).collect()
    };
    assert!(ends(&server.ask(&["doctor"]).is(1)).iter().all(|end| *end == 1), "the log contains only the genesis");
}
