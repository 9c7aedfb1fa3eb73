use super::*;
use crate::import::tests::trace;

fn run(file: &str) -> Result<ImportedRun, Malformed> {
    let file = runlog_schemas::canonical::compact(file).unwrap();
    plan("stem", &Value::whole(&file))
}

/// Returns the events between the run's start and its end.
fn events(file: &str) -> Vec<String> {
    trace(&run(file).unwrap()).into_iter().filter(|line| line != "started" && !line.starts_with("ended")).collect()
}

fn requests(file: &str) -> Vec<String> {
    events(file).into_iter().filter(|line| line.starts_with("requested")).collect()
}

fn complaint(file: &str) -> (String, String) {
    let Malformed { path, what } = run(file).unwrap_err();
    (path, what)
}

#[test]
fn a_run_is_named_by_its_file_and_ends_as_its_exit_status_says() {
    let end = |info: &str| trace(&run(&format!(r#"{{"history":[]{info}}}"#)).unwrap()).pop().unwrap();
    assert_eq!(run(r#"{"history":[]}"#).unwrap().run_id, "swe-agent:stem");
    assert_eq!(end(r#","info":{"exit_status":"submitted"}"#), "ended Completed exit_status=submitted");
    assert_eq!(
        end(r#","info":{"exit_status":"submitted (exit_cost)"}"#),
        "ended Completed exit_status=submitted (exit_cost)"
    );
    assert_eq!(end(r#","info":{"exit_status":"exit_cost"}"#), "ended Failed exit_status=exit_cost");
    for open in ["", r#","info":{}"#, r#","info":null"#, r#","info":{"exit_status":null}"#] {
        assert_eq!(end(open), "started", "{open}");
    }
}

#[test]
fn turns_and_checkpoints_are_history_with_its_demonstrations() {
    let file = r#"{"trajectory": [{"action": "ls\n", "observation": "a"}], "history": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "demo", "is_demo": true},
        {"role": "assistant", "content": "demo", "action": "ls\n", "is_demo": true},
        {"role": "user", "content": "go", "is_demo": false},
        {"role": "assistant", "content": "t", "action": "ls\n"},
        {"role": "user", "content": "a and a prompt"},
        {"role": "user", "content": "a hint"}]}"#;
    let expected = [
        "turn 0 system",
        "turn 1 user",
        "turn 2 assistant",
        "checkpoint 3",
        "turn 3 user",
        "turn 4 assistant",
        r#"requested message-4 call-1 shell {"command":"ls\n"}"#,
        r#"completed 7 "a""#,
        "turn 5 user",
        "turn 6 user",
        "checkpoint 7",
    ];
    assert_eq!(events(file), expected);
    assert_eq!(run(file).unwrap().messages[1].as_str(), r#"{"role":"user","content":"demo","is_demo":true}"#);
}

#[test]
fn a_step_is_paired_with_the_first_unpaired_message_of_equal_action() {
    let file = r#"{"trajectory": [
        {"action": "x", "observation": "1"}, {"action": "y", "observation": "2"}, {"action": "x", "observation": "3"}],
        "history": [
        {"role": "assistant", "content": "", "action": "x"},
        {"role": "assistant", "content": "", "action": "x"},
        {"role": "user", "content": "", "action": "y"},
        {"role": "assistant", "content": "", "action": "y"}]}"#;
    let expected = [
        "turn 0 assistant",
        r#"requested message-0 call-1 shell {"command":"x"}"#,
        r#"completed 2 "1""#,
        "checkpoint 1",
        "turn 1 assistant",
        r#"requested message-1 call-1 shell {"command":"x"}"#,
        r#"completed 6 "3""#,
        "turn 2 user",
        "checkpoint 3",
        "turn 3 assistant",
        r#"requested message-3 call-1 shell {"command":"y"}"#,
        r#"completed 11 "2""#,
        "checkpoint 4",
    ];
    assert_eq!(events(file), expected);
}

#[test]
fn name_and_arguments_come_from_the_first_tool_call_of_the_paired_message() {
    let file = r#"{"trajectory": [{"action": "find a.py", "observation": ""}, {"action": "find b.py", "observation": ""}], "history": [
        {"role": "assistant", "content": "", "action": "find a.py", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find_file", "arguments": "{\"file\": \"a.py\"}"}},
            {"id": "c2", "type": "function", "function": {"name": "never", "arguments": "not looked at"}}]},
        {"role": "assistant", "content": "", "action": "find b.py", "tool_calls": []}]}"#;
    assert_eq!(
        requests(file),
        [
            r#"requested message-0 c1 find_file {"file":"a.py"}"#,
            r#"requested message-1 call-1 shell {"command":"find b.py"}"#
        ]
    );
}

#[test]
fn a_step_without_a_message_follows_the_round_before_it() {
    let file = r#"{"trajectory": [
        {"action": "zero", "observation": "0"}, {"action": "x", "observation": "1"}, {"action": "submit", "observation": "2"}],
        "history": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "action": "x"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "no action"}]}"#;
    let expected = [
        "turn 0 user",
        r#"requested trajectory-0 call-1 shell {"command":"zero"}"#,
        r#"completed 2 "0""#,
        "checkpoint 1",
        "turn 1 assistant",
        r#"requested message-1 call-1 shell {"command":"x"}"#,
        r#"completed 6 "1""#,
        "turn 2 user",
        "checkpoint 3",
        r#"requested trajectory-2 call-1 shell {"command":"submit"}"#,
        r#"completed 10 "2""#,
        "checkpoint 3",
        "turn 3 assistant",
        "checkpoint 4",
    ];
    assert_eq!(events(file), expected);
}

#[test]
fn a_step_is_completed_with_any_observation() {
    for observation in ["null", r#""Error: no""#, r#"{"a":[1.0]}"#, r#""\ud800""#] {
        let file = format!(r#"{{"history": [], "trajectory": [{{"action": "x", "observation": {observation}}}]}}"#);
        assert_eq!(events(&file)[1], format!("completed 1 {observation}"));
    }
}

#[test]
fn without_a_trajectory_an_action_is_a_call_and_the_next_message_its_result() {
    let file = r#"{"history": [
        {"role": "assistant", "content": "", "action": "demo", "is_demo": true},
        {"role": "assistant", "content": "no action", "action": null},
        {"role": "assistant", "content": "", "action": "x", "tool_calls": [{"function": {"name": "t", "arguments": "{}"}, "id": "c"}]},
        {"role": "tool", "content": ["Error"]},
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": "", "action": "last"}]}"#;
    let expected = [
        "turn 0 assistant",
        "checkpoint 1",
        "turn 1 assistant",
        "checkpoint 2",
        "turn 2 assistant",
        "requested message-2 c t {}",
        r#"completed 6 ["Error"]"#,
        "turn 3 tool",
        "turn 4 user",
        "checkpoint 5",
        "turn 5 assistant",
        r#"requested message-5 call-1 shell {"command":"last"}"#,
    ];
    assert_eq!(events(file), expected);
}

#[test]
fn the_error_of_a_malformed_file_names_the_json_path() {
    let history = |message: &str| format!(r#"{{"history":[{{"role":"system"}},{message}]}}"#);
    let steps = |step: &str| format!(r#"{{"history":[],"trajectory":[{step}]}}"#);
    let arguments = r#"{"role":"assistant","action":"x","tool_calls":[{"function":{"name":"t","arguments":"{"}}]}"#;
    for (file, path) in [
        ("[]".to_owned(), "$"),
        ("{}".to_owned(), "$"),
        (r#"{"history":null}"#.to_owned(), "$.history"),
        (history("5"), "$.history[1]"),
        (history(r#"{"content":"x"}"#), "$.history[1]"),
        (history(r#"{"role":"assistant","action":["x"]}"#), "$.history[1].action"),
        (history(r#"{"role":"assistant","action":"\ud800"}"#), "$.history[1].action"),
        (history(r#"{"role":"user","is_demo":1}"#), "$.history[1].is_demo"),
        (history(arguments), "$.history[1].tool_calls[0].function.arguments"),
        (history(r#"{"role":"assistant","action":"x"},{"role":"user"}"#), "$.history[2]"),
        (steps(r#"{"observation":"x"}"#), "$.trajectory[0]"),
        (steps(r#"{"action":"x"}"#), "$.trajectory[0]"),
        (steps(r#"{"action":null,"observation":"x"}"#), "$.trajectory[0].action"),
        (r#"{"history":[],"trajectory":{}}"#.to_owned(), "$.trajectory"),
        (r#"{"history":[],"info":{"exit_status":0}}"#.to_owned(), "$.info.exit_status"),
    ] {
        assert_eq!(complaint(&file).0, path, "{file}");
    }
}
