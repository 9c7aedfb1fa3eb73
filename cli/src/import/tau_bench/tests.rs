use super::*;
use crate::import::tests::trace;

/// Returns the plan of one run with these messages.
fn run(traj: &str) -> Result<ImportedRun, Malformed> {
    let file = format!(r#"[{{"task_id":7,"trial":2,"reward":0.5,"info":{{}},"traj":{traj}}}]"#);
    let file = runlog_schemas::canonical::compact(&file).unwrap();
    plan(&Value::whole(&file)).map(|mut runs| runs.remove(0))
}

fn events(traj: &str) -> Vec<String> {
    trace(&run(traj).unwrap())
}

fn complaint(traj: &str) -> (String, String) {
    let Malformed { path, what } = run(traj).unwrap_err();
    (path, what)
}

/// Returns an assistant message with these calls: (id, name, arguments in the file's spelling).
fn message_with_calls(calls: &[(&str, &str, &str)]) -> String {
    let call = |(id, name, arguments): &(&str, &str, &str)| {
        format!(r#"{{"id":{id},"type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#)
    };
    let calls: Vec<_> = calls.iter().map(call).collect();
    format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
}

fn tool(content: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"x","name":"n","content":{content}}}"#)
}

const ONE: (&str, &str, &str) = ("\"c1\"", "find", r#""{\"q\": 1}""#);
const TWO: (&str, &str, &str) = ("\"c2\"", "book", r#""{}""#);

#[test]
fn a_run_is_named_by_task_and_trial_and_ends_completed_with_its_reward() {
    let run = run("[]").unwrap();
    assert_eq!(run.run_id, "tau-bench:7:2");
    assert_eq!(trace(&run), ["started", "ended Completed reward=0.5"]);
}

#[test]
fn every_message_is_a_turn_exactly_as_in_the_file() {
    let run = run(r#"[{"role":"system","content":"s"}, {"content":null, "role":"assistant", "n":1.0}, {"role":"user","content":"\u0041"}]"#).unwrap();
    assert_eq!(trace(&run)[1..5], ["turn 0 system", "turn 1 assistant", "checkpoint 2", "turn 2 user"]);
    assert_eq!(run.messages[1].as_str(), r#"{"content":null,"role":"assistant","n":1.0}"#);
    assert_eq!(run.messages[2].as_str(), r#"{"role":"user","content":"\u0041"}"#);
}

#[test]
fn a_round_is_requested_then_answered_then_saved() {
    let traj = format!("[{},{}]", message_with_calls(&[ONE]), tool(r#""{\"found\": [1]}""#));
    let expected = [
        "started",
        "turn 0 assistant",
        r#"requested message-0 c1 find {"q":1}"#,
        r#"completed 2 "{\"found\": [1]}""#,
        "turn 1 tool",
        "checkpoint 2",
        "ended Completed reward=0.5",
    ];
    assert_eq!(events(&traj), expected);
}

#[test]
fn a_result_that_starts_with_error_is_a_failure_with_the_whole_content_as_message() {
    let traj = format!(
        "[{},{}]",
        message_with_calls(&[ONE, TWO]),
        [tool(r#""Error: no \"seat\"""#), tool(r#""An Error""#)].join(",")
    );
    assert_eq!(
        events(&traj)[4..8],
        ["failed 2 Error: no \"seat\"", "turn 1 tool", "completed 3 \"An Error\"", "turn 2 tool"]
    );
    // The spelling of the text does not matter.
    assert_eq!(events(&format!("[{},{}]", message_with_calls(&[ONE]), tool(r#""\u0045rror""#)))[3], "failed 2 Error");
}

#[test]
fn results_are_paired_by_order_whatever_their_ids() {
    let traj = format!("[{},{},{}]", message_with_calls(&[ONE, TWO]), tool("\"first\""), tool("\"second\""));
    let events = events(&traj);
    assert_eq!(events[2..4], [r#"requested message-0 c1 find {"q":1}"#, "requested message-0 c2 book {}"]);
    assert_eq!(
        events[4..],
        [
            "completed 2 \"first\"",
            "turn 1 tool",
            "completed 3 \"second\"",
            "turn 2 tool",
            "checkpoint 3",
            "ended Completed reward=0.5"
        ]
    );
}

#[test]
fn a_repeated_call_id_is_made_unique_within_its_message_only() {
    let same = ("\"c1\"", "book", r#""{}""#);
    let nameless = ("null", "book", r#""{}""#);
    let traj = format!("[{},{}]", message_with_calls(&[ONE, same, same, nameless]), message_with_calls(&[ONE]));
    let requests: Vec<_> = events(&traj).into_iter().filter(|line| line.starts_with("requested")).collect();
    let expected = [
        r#"requested message-0 c1 find {"q":1}"#,
        "requested message-0 c1#2 book {}",
        "requested message-0 c1#3 book {}",
        "requested message-0 call-4 book {}",
        r#"requested message-1 c1 find {"q":1}"#,
    ];
    assert_eq!(requests, expected);
}

#[test]
fn a_rounds_messages_end_before_the_next_assistant_message() {
    let traj = format!(
        r#"[{},{},{{"role":"user","content":"thanks"}},{{"role":"assistant","content":"bye","tool_calls":[]}},{{"role":"user","content":"done"}}]"#,
        message_with_calls(&[ONE]),
        tool("\"ok\"")
    );
    let expected = [
        "turn 1 tool",
        "turn 2 user",
        "checkpoint 3",
        "turn 3 assistant",
        "checkpoint 4",
        "turn 4 user",
        "ended Completed reward=0.5",
    ];
    assert_eq!(events(&traj)[4..], expected);
}

#[test]
fn a_call_without_a_result_stays_pending_and_its_round_is_not_saved() {
    let traj =
        format!(r#"[{},{},{{"role":"assistant","content":"later"}}]"#, message_with_calls(&[ONE, TWO]), tool("\"ok\""));
    let expected = [
        "completed 2 \"ok\"",
        "turn 1 tool",
        "turn 2 assistant",
        "checkpoint 3 without [3]",
        "ended Completed reward=0.5",
    ];
    assert_eq!(events(&traj)[4..], expected);
}

#[test]
fn a_result_without_a_call_is_malformed() {
    let late = format!(r#"[{},{{"role":"assistant","content":"x"}},{}]"#, message_with_calls(&[ONE]), tool("\"late\""));
    for (traj, path) in [
        (format!("[{}]", tool("\"x\"")), "$[0].traj[0]"),
        (format!("[{},{},{}]", message_with_calls(&[ONE]), tool("\"x\""), tool("\"y\"")), "$[0].traj[2]"),
        (late, "$[0].traj[2]"),
    ] {
        assert_eq!(complaint(&traj).0, path, "{traj}");
    }
}

#[test]
fn arguments_are_the_json_inside_the_string_or_the_file_is_malformed() {
    let request = |arguments| events(&format!("[{}]", message_with_calls(&[("\"c\"", "t", arguments)])))[2].clone();
    assert_eq!(
        request(r#""{ \"id\": 12345678901234567890, \"f\": 1.0 }""#),
        r#"requested message-0 c t {"id":12345678901234567890,"f":1.0}"#
    );
    assert_eq!(request(r#"{"a" : 1}"#), r#"requested message-0 c t {"a":1}"#);
    for (arguments, what) in [
        (r#""{\"a\": ""#, "the arguments cannot be used: not JSON: expected a value at byte 6 at /a"),
        (r#""""#, "the arguments cannot be used: not JSON: expected a value at byte 0 at the top level"),
        (r#""{\"a\":1,\"a\":1}""#, "the arguments cannot be used: duplicate key \"a\" at the top level"),
        ("5", "expected a string"),
        ("null", "expected a string"),
    ] {
        let traj = format!("[{}]", message_with_calls(&[ONE, ("\"c\"", "t", arguments)]));
        assert_eq!(complaint(&traj), ("$[0].traj[0].tool_calls[1].function.arguments".to_owned(), what.to_owned()));
    }
}

#[test]
fn what_is_not_understood_is_malformed_rather_than_left_out() {
    for (message, path) in [
        (r#"{"role":"function","content":"x"}"#, "$[0].traj[0].role"),
        (r#"{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}"#, "$[0].traj[0].function_call"),
        (r#"{"role":"user"}"#, "$[0].traj[0]"),
        (r#"{"content":"x"}"#, "$[0].traj[0]"),
        (r#""text""#, "$[0].traj[0]"),
        (r#"{"role":"assistant","tool_calls":{}}"#, "$[0].traj[0].tool_calls"),
    ] {
        assert_eq!(complaint(&format!("[{message}]")).0, path, "{message}");
    }
}
