use super::harness::{Server, file, run, server};
use serde_json::{Value, json};

const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;
const ENDED: &str = r#"{"type":"run_lifecycle","status":"completed","reason":"done"}"#;
const BOOK: &str = r#"{"type":"tool_call_requested","request_id":"m","call_id":"c","tool_name":"book","arguments":{"n":12345678901234567890,"f":1.50}}"#;

fn completed(request: &str, result: &str) -> String {
    format!(r#"{{"type":"tool_call_completed","request_record_id":"{request}","result":{result}}}"#)
}

/// Publishes a run whose id needs encoding, with an ended call, a pending call, and a checkpoint.
fn run_with_calls(server: &Server) {
    let checkpoint = r#"{"type":"loop_checkpoint","checkpoint_id":"c1","checkpoint_seq":1,"covers_journal_seq":1,"messages":[{"role":"user","content":null,"n":1.0}]}"#;
    let done = completed("q1", r#"{"seat":"1A","price":10.00}"#);
    server.publish_applied(
        "trips/a b?:1",
        &[("s", STARTED), ("c", checkpoint), ("q1", BOOK), ("d1", &done), ("q2", BOOK)],
    );
}

#[test]
fn a_call_is_looked_up_by_the_meaning_of_its_arguments() {
    let (_folder, server) = server();
    run_with_calls(&server);
    let lookup = |more: &[&str]| {
        let mut arguments = vec!["lookup", "trips/a b?:1", "--tool", "book", "--args"];
        arguments.extend(more);
        server.ask(&arguments)
    };
    let shuffled = r#"{ "f" : 15e-1, "n": 12345678901234567890 }"#;
    let first = lookup(&[shuffled, "--occurrence", "1"]);
    let call = first.is(0);
    assert_eq!(
        (&call["status"], &call["occurrences"], &call["occurrence"]),
        (&json!("completed"), &json!(2), &json!(1))
    );
    // Every digit as it was written.
    assert!(first.stdout.contains(r#""result":{"seat":"1A","price":10.00}"#), "{}", first.stdout);
    assert!(first.stdout.contains(r#""arguments":{"n":12345678901234567890,"f":1.50}"#), "{}", first.stdout);
    let last = lookup(&[shuffled]).is(6);
    assert_eq!((&last["status"], &last["occurrence"], &last["result"]), (&json!("pending"), &json!(2), &Value::Null));
    assert_eq!(lookup(&[shuffled, "--occurrence", "3"]).is(1)["status"], "unknown");
    assert_eq!(lookup(&[r#"{"f":1.5,"n":12345678901234567891}"#]).is(1)["status"], "unknown");
    assert_eq!(lookup(&[r#"{"f":1.5,"f":1.5}"#]).error(3), "invalid");
    assert_eq!(server.ask(&["lookup", "nobody", "--tool", "book", "--args", "{}"]).is(1)["status"], "unknown");
}

#[test]
fn a_closed_stdout_changes_no_exit_code_and_stops_no_publish() {
    let (folder, server) = server();
    run_with_calls(&server);
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        server.command(arguments).stdout(writer).status().unwrap().code()
    };
    let lookup = |call: &'static str| unread(&["lookup", "trips/a b?:1", "--tool", "book", "--args", call]);
    assert_eq!(lookup(r#"{"n":12345678901234567890,"f":1.50}"#), Some(6), "pending");
    assert_eq!(lookup("{}"), Some(1), "unknown");
    assert_eq!(unread(&["recover", "trips/a b?:1"]), Some(1), "not resumable");
    let turn = r#"{"type":"conversation_turn","message_id":"m","kind":"user","content":"x"}"#;
    let lines: String =
        (0..600).map(|id| format!(r#"{{"run_id":"many","record_id":"{id}","payload":{turn}}}"#) + "\n").collect();
    let path = file(folder.path(), "many.ndjson", &lines);
    assert_eq!(unread(&["publish", path.to_str().unwrap()]), Some(0));
    assert_eq!(server.ask(&["runs", "--prefix", "many"]).is(0)["runs"][0]["records"], json!(600));
}

#[test]
fn a_call_whose_arguments_no_url_holds_is_found() {
    let (_folder, server) = server();
    let text = "é\n".repeat(30_000);
    let arguments = json!({"path": "a.txt", "text": text});
    let call = json!({"type": "tool_call_requested", "request_id": "m", "call_id": "c", "tool_name": "write", "arguments": arguments});
    server.publish_applied("r", &[("q", &call.to_string()), ("d", &completed("q", "null"))]);
    let answer = server.ask(&["lookup", "r", "--tool", "write", "--args", &arguments.to_string()]).is(0);
    assert_eq!((&answer["status"], &answer["arguments"]), (&json!("completed"), &arguments));
}

#[test]
fn a_checkpoint_is_printed_complete_and_a_missing_one_exits_with_1() {
    let (_folder, server) = server();
    run_with_calls(&server);
    let result = server.ask(&["checkpoint", "trips/a b?:1"]);
    let checkpoint = result.is(0);
    assert_eq!((&checkpoint["checkpoint_id"], &checkpoint["covers_journal_seq"]), (&json!("c1"), &json!(1)));
    assert!(result.stdout.contains(r#""messages":[{"role":"user","content":null,"n":1.0}]"#), "{}", result.stdout);
    assert_eq!(server.ask(&["checkpoint", "trips/a b?:1", "--at-or-before", "0"]).error(1), "not_found");
    assert_eq!(server.ask(&["checkpoint", "nobody"]).error(1), "not_found");
}

#[test]
fn a_run_with_an_unknown_effect_is_not_resumable_until_a_decision() {
    let (_folder, server) = server();
    run_with_calls(&server);
    let recovery = server.ask(&["recover", "trips/a b?:1"]).is(1);
    assert_eq!(recovery["resumable"], false);
    assert_eq!(recovery["checkpoint"].get("messages"), None);
    assert_eq!(
        (&recovery["pending"][0]["id"], &recovery["pending"][0]["class"]),
        (&json!("q2"), &json!("reconcile_required"))
    );
    assert_eq!((recovery["completed"].as_array().unwrap().len(), &recovery["next_cursor"]), (1, &Value::Null));
    let full = server.ask(&["recover", "trips/a b?:1", "--full"]).is(1);
    assert_eq!(full["checkpoint"]["messages"], json!([{"role": "user", "content": null, "n": 1.0}]));

    let pending = server.ask(&["effects", "--pending", "--unsafe"]).is(0);
    assert_eq!(pending["effects"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&pending["effects"][0]["run_id"], &pending["unavailable_partitions"]),
        (&json!("trips/a b?:1"), &json!([]))
    );
    let resolve = |id: &str, decision: &[&str]| {
        let mut arguments =
            vec!["effects", "resolve", "trips/a b?:1", id, "--who", "me", "--why", "asked the desk", "--yes"];
        arguments.extend(decision);
        server.ask(&arguments)
    };
    assert_eq!(resolve("nothing", &["--adopt"]).error(1), "not_found");
    assert_eq!(resolve("q2", &["--done", "{"]).error(3), "invalid");
    assert_eq!(resolve("q2", &["--done", r#"{"seat":"2B"}"#]).is(0)["outcome"], "applied");
    assert_eq!(resolve("q2", &["--give-up"]).code, 3);
    assert_eq!(server.ask(&["recover", "trips/a b?:1"]).is(0)["resumable"], true);
    assert_eq!(server.ask(&["effects", "--pending"]).is(0)["effects"], json!([]));
    assert_eq!(server.ask(&["effects"]).is(0)["effects"].as_array().unwrap().len(), 2);
    assert_eq!(server.ask(&["recover", "nobody"]).error(1), "not_found");
}

#[test]
fn runs_are_listed_by_id_in_pages_that_leave_nothing_out() {
    let (_folder, server) = server();
    let lines: String = (0..25).map(|n| format!(r#"{{"run_id":"run-{n:02}","payload":{STARTED}}}"#) + "\n").collect();
    assert_eq!(server.publish(&lines).code, 0);
    server.publish_applied("other", &[("s", STARTED), ("e", ENDED)]);
    let ids = |page: &Value| -> Vec<String> {
        page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut listed, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["runs", "--limit", "10", "--prefix", "run-"];
        arguments.extend(cursor.as_deref().map(|cursor| ["--cursor", cursor]).into_iter().flatten());
        let page = server.ask(&arguments).is(0);
        listed.extend(ids(&page));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, (0..25).map(|n| format!("run-{n:02}")).collect::<Vec<_>>());
    let ended = server.ask(&["runs", "--status", "completed"]).is(0);
    assert_eq!((ids(&ended), &ended["next_cursor"]), (vec!["other".to_owned()], &Value::Null));
    assert_eq!(server.ask(&["runs", "--status", "asleep"]).error(2), "usage");
}

#[test]
fn a_timeline_is_one_object_per_line_and_continues_after_a_cursor() {
    let (_folder, server) = server();
    run_with_calls(&server);
    let shown = server.ask(&["show", "trips/a b?:1"]);
    let lines = shown.lines();
    assert_eq!((shown.code, lines.len()), (0, 5));
    for field in [
        "cursor",
        "position",
        "journal_seq",
        "writer_seq",
        "record_id",
        "record_kind",
        "payload_type",
        "epoch",
        "timestamp",
        "payload",
    ] {
        assert!(lines.iter().all(|line| !line[field].is_null()), "{field}: {shown:?}");
    }
    assert_eq!(lines[1]["journal_seq"], 0);
    let tail = |more: &[&str]| {
        let mut arguments = vec!["tail", "trips/a b?:1", "--until-end"];
        arguments.extend(more);
        let result = server.ask(&arguments);
        assert_eq!(result.code, 0, "{result:?}");
        result.lines()
    };
    assert_eq!(tail(&["--from", "beginning"]), lines);
    assert_eq!(tail(&["--from", lines[2]["cursor"].as_str().unwrap()]), lines[3..]);
    assert_eq!(tail(&["--from", "end"]), [] as [Value; 0]);
    assert_eq!(server.ask(&["show", "nobody"]).error(1), "not_found");
    // Longer than a page.
    let turns: String = (0..1200)
        .map(|n| format!(r#"{{"run_id":"long","payload":{{"type":"conversation_turn","message_id":"{n}","kind":"user","content":"x"}}}}"#) + "\n")
        .collect();
    assert_eq!(server.publish(&turns).code, 0);
    let seqs: Vec<u64> =
        server.ask(&["show", "long"]).lines().iter().map(|line| line["journal_seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=1200).collect::<Vec<_>>());
}

#[test]
fn text_for_people_says_the_same_and_nothing_on_stderr() {
    let (_folder, server) = server();
    run_with_calls(&server);
    for (arguments, code, expected) in [
        (&["runs"][..], 0, "trips/a b?:1"),
        (&["show", "trips/a b?:1"], 0, "tool_call_requested"),
        (&["tail", "trips/a b?:1", "--until-end"], 0, "tool_call_requested"),
        (&["checkpoint", "trips/a b?:1"], 0, "c1"),
        (&["recover", "trips/a b?:1"], 1, "reconcile_required"),
        (&["lookup", "trips/a b?:1", "--tool", "book", "--args", "{}"], 1, "unknown"),
        (&["effects"], 0, "reconcile_required"),
        (&["anomalies"], 0, "no refused records"),
        (&["dead-letter", "list"], 0, "every record could be read"),
        (&["doctor"], 0, "healthy"),
        (&["overview"], 0, "contradicted effects"),
        (&["whoami"], 0, "credential"),
        (&["home"], 0, "this server reads the home"),
        (&["runs", "--status", "open", "--idle", "0s"], 0, "trips/a b?:1"),
        (&["runs", "--idle", "1h"], 0, "no runs"),
        (&["runs", "--summary"], 0, "DURATION"),
        (&["runs", "--summary"], 0, "CLAIMS"),
        (&["verify"], 0, "equal"),
    ] {
        let output = server.command(arguments).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), stderr.as_str()), (Some(code), ""), "{arguments:?} {stdout}");
        assert!(stdout.contains(expected) && !stdout.contains('\u{1b}'), "{arguments:?}: {stdout}");
    }
    let failed = server.command(&["show", "nobody"]).output().unwrap();
    assert_eq!((failed.status.code(), failed.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(String::from_utf8(failed.stderr).unwrap().starts_with("error (not_found): "));
}

#[test]
fn an_unknown_command_and_a_mistyped_flag_exit_with_2() {
    for arguments in [&["rebuild"][..], &["snapshot", "create"], &["bench"]] {
        let document = run(&[&["--json"], arguments].concat()).is(2);
        assert_eq!(document["error"]["kind"], "usage", "{document}");
        let unknown = format!("unrecognized subcommand '{}'", arguments[0]);
        assert!(document["error"]["message"].as_str().unwrap().contains(&unknown), "{document}");
    }
    for arguments in [
        &["nonsense"][..],
        &["runs", "--limit", "none"],
        &["show"],
        &["runs", "--deadline", "10"],
        &["runs", "--consistency", "x"],
        &["runs", "--server", "ftp://h"],
        &["dead-letter", "show", "7"],
        &["show", "r", "--as-of", "soon"],
        &["recover", "r", "--as-of", "2026-11-22T12:00:00Z"],
        &["serve", "--local"],
        &[],
    ] {
        assert_eq!(run(&[arguments, &["--json"]].concat()).error(2), "usage", "{arguments:?}");
    }
}

#[test]
fn a_missing_server_is_unavailable() {
    let unavailable = run(&["runs", "--json", "--server", "http://127.0.0.1:9"]);
    assert_eq!((unavailable.error(4).as_str(), unavailable.stderr.as_str()), ("unavailable", ""));
    assert!(unavailable.stdout.contains("runlog serve"), "what to do: {unavailable:?}");
}
