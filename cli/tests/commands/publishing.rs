use super::harness::{Server, file, server};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

const STARTED: &str = r#"{"run_id":"r","record_id":"s","payload":{"type":"run_lifecycle","status":"started"}}"#;

fn outcomes(lines: &[Value]) -> Vec<(&str, Option<&str>)> {
    lines.iter().map(|line| (line["outcome"].as_str().unwrap(), line["reason"].as_str())).collect()
}

#[test]
fn a_repeat_gives_the_first_position_and_a_refusal_its_reason() {
    let (folder, server) = server();
    let first = server.publish(STARTED);
    let position = first.is(0)["position"].clone();
    assert_eq!(first.json()["outcome"], "applied");
    let again = server.publish(STARTED).is(0);
    assert_eq!((&again["outcome"], &again["position"]), (&json!("repeat"), &position));
    // The same id with other content, a second start, and a record after a refusal.
    let path = file(
        folder.path(),
        "records.ndjson",
        concat!(
            r#"{"run_id":"r","record_id":"s","payload":{"type":"run_lifecycle","status":"failed"}}"#,
            "\n\n",
            r#"{"run_id":"r","payload":{"type":"run_lifecycle","status":"started"}}"#,
            "\n",
            r#"{"run_id":"r","payload":{"type":"run_lifecycle","status":"completed"}}"#,
            "\n",
        ),
    );
    let result = server.ask(&["publish", path.to_str().unwrap()]);
    assert_eq!(result.code, 1, "{result:?}");
    let expected = [("refused", Some("conflict")), ("refused", Some("transition")), ("applied", None)];
    assert_eq!(outcomes(&result.lines()), expected);
    // Sent again, a refused record stays refused.
    let conflict = r#"{"run_id":"r","record_id":"x","payload":{"type":"run_lifecycle","status":"started"}}"#;
    assert_eq!(outcomes(&server.publish(conflict).lines()), [("refused", Some("ended"))]);
    let again = server.publish(conflict);
    assert_eq!((again.code, outcomes(&again.lines())), (1, vec![("repeat", Some("ended"))]));
    let reasons = server.ask(&["anomalies", "r"]).is(0);
    let reasons: Vec<&str> =
        reasons["anomalies"].as_array().unwrap().iter().map(|anomaly| anomaly["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["conflict", "transition", "ended"]);
    server.publish_applied("other", &[("o", r#"{"type":"run_lifecycle","status":"started"}"#)]);
    assert_eq!(server.ask(&["anomalies", "other"]).is(0)["anomalies"], json!([]));
}

#[test]
fn an_answer_reports_outcome_number_writer_and_reason() {
    let (_folder, server) = server();
    let first = server.publish(STARTED).is(0);
    assert_eq!((&first["applied"], &first["journal_seq"], &first["detail"]), (&json!(true), &json!(1), &Value::Null));
    assert_eq!(first["writer"], json!({ "writer_id": "", "epoch": 0 }));
    let again = server.publish(STARTED).is(0);
    assert_eq!((&again["applied"], &again["journal_seq"]), (&json!(true), &json!(1)));
    assert!(again["detail"].as_str().unwrap().contains("before"), "{again}");
    server.publish_applied("r", &[("claim", r#"{"type":"run_claim","writer_id":"w","epoch":1}"#)]);
    let turn = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":"x"}"#;
    let of = |id: &str, more: &str| format!(r#"{{"run_id":"r","record_id":"{id}",{more}"payload":{turn}}}"#);
    let fenced = server.publish(&of("old", "")).is(1);
    assert_eq!((&fenced["applied"], &fenced["reason"]), (&json!(false), &json!("fenced")));
    assert_eq!(fenced["writer"], json!({ "writer_id": "w", "epoch": 1 }));
    assert!(fenced["detail"].as_str().unwrap().contains("writer_id and writer_epoch"), "{fenced}");
    let applied = server.publish(&of("new", r#""writer_id":"w","writer_epoch":1,"#)).is(0);
    assert_eq!((&applied["applied"], &applied["journal_seq"]), (&json!(true), &json!(2)));
}

#[test]
fn a_misspelled_member_or_status_is_warned_of_and_strict_refuses_it() {
    let (_folder, server) = server();
    let lifecycle = |id: &str, status: &str, more: &str| {
        format!(r#"{{"run_id":"r","record_id":"{id}","payload":{{"type":"run_lifecycle","status":"{status}"}}{more}}}"#)
    };
    let warned = server.publish(&lifecycle("a", "complete", r#","writerId":"w""#)).is(0);
    assert_eq!(warned["applied"], true);
    let pointers: Vec<&str> =
        warned["warnings"].as_array().unwrap().iter().map(|one| one["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/payload/status", "/writerId"]);
    assert!(warned["warnings"][0]["message"].as_str().unwrap().contains("completed"), "{warned}");
    let strict = |record: &str| {
        let mut child = server.command(&["publish", "--strict", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(record.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = strict(&lifecycle("b", "complete", ""));
    assert!(code == Some(3) && text.contains("/payload/status") && text.contains(r#""kind":"invalid""#), "{text}");
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 1, "nothing was appended");
    assert_eq!(strict(&lifecycle("c", "started", "")).0, Some(0));
    assert_eq!(server.publish(&lifecycle("d", "completed", "")).is(0)["warnings"], json!([]));
}

#[test]
fn what_may_have_been_published_is_named_by_the_ids_that_make_it_safe_to_send_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let paused = Server::start(&data, &["--paused"]);
    let line = r#"{"run_id":"r","payload":{"type":"run_lifecycle","status":"started"}}"#;
    let path = file(folder.path(), "one.ndjson", line);
    let publish = ["publish", path.to_str().unwrap(), "--deadline", "1s"];
    let error = paused.ask(&publish).is(4)["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("line 1 may have been published"), "{error}");
    let id = error["record_ids"][0].as_str().unwrap().to_owned();
    drop(paused);
    let server = Server::start(&data, &[]);
    let again = line.replacen('{', &format!(r#"{{"record_id":"{id}","#), 1);
    assert!(["applied", "repeat"].contains(&server.publish(&again).is(0)["outcome"].as_str().unwrap()));
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 1);
}

#[test]
fn a_malformed_line_is_named_and_earlier_lines_stay_published() {
    let (_folder, server) = server();
    let result =
        server.publish(&format!("{STARTED}\n{{\"run_id\":\"r\",\"payload\":{{\"type\":\"x\"}}}}\n{STARTED}\n"));
    let lines = result.lines();
    assert_eq!((result.code, lines.len(), &lines[0]["outcome"]), (3, 2, &json!("applied")), "{result:?}");
    let error = &lines[1]["error"];
    assert_eq!((&error["kind"], &error["line"], &error["pointer"]), (&json!("invalid"), &json!(2), &json!("/payload")));
    assert_eq!(error["published"], 1);
    assert_eq!(server.ask(&["show", "r"]).lines().len(), 1);
    let genesis = server.publish(r#"{"payload":{"type":"genesis","journal_id":"j","partitions":9}}"#);
    assert_eq!(genesis.error(3), "invalid");
    assert_eq!(server.ask(&["publish", "/no/such/file"]).error(3), "invalid");
}

#[test]
fn a_record_beyond_the_limit_is_refused_by_its_line() {
    let (_folder, server) = server();
    // A value that is no payload does not go to the content store.
    let large = "x".repeat(2 << 20);
    let turn = |tag: &str| {
        format!(
            r#"{{"run_id":"r","tags":["{tag}"],"payload":{{"type":"conversation_turn","message_id":"m","kind":"user","content":""}}}}"#
        )
    };
    let result = server.publish(&format!("{}\n{}\n{}\n", turn("a"), turn("b"), turn(&large)));
    let lines = result.lines();
    let error = &lines.last().unwrap()["error"];
    assert_eq!((result.code, &error["kind"], &error["line"]), (3, &json!("too_large"), &json!(3)), "{error}");
    assert_eq!(outcomes(&lines[..2]), [("applied", None), ("applied", None)]);
}

#[test]
fn a_single_line_is_answered_before_the_next_arrives() {
    let (_folder, server) = server();
    let mut child = server.command(&["publish", "-", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for seq in 1..=3 {
        let kind = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":null}"#;
        writeln!(stdin, r#"{{"run_id":"r","payload":{kind}}}"#).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["outcome"], "applied");
        assert_eq!(server.ask(&["runs"]).is(0)["runs"][0]["next_journal_seq"], seq + 1);
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn existing_records_do_not_change_the_numbers_of_new_ones() {
    let (_folder, server) = server();
    let turn = |id: &str| {
        format!(
            r#"{{"run_id":"r","record_id":"{id}","payload":{{"type":"conversation_turn","message_id":"{id}","kind":"user","content":"x"}}}}"#
        ) + "\n"
    };
    assert_eq!(server.publish(&[turn("a"), turn("b")].concat()).code, 0);
    let result = server.publish(&[turn("a"), turn("b"), turn("c"), turn("a"), turn("d")].concat());
    let expected = ["repeat", "repeat", "applied", "repeat", "applied"].map(|outcome| (outcome, None));
    assert_eq!(outcomes(&result.lines()), expected, "{result:?}");
}
