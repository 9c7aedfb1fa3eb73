use super::*;
use runlog_schemas::{
    json::Json,
    payload::{PayloadType, ToolCallRequested},
};

/// Formats a run's events for comparison, one per line.
pub(super) fn trace(run: &ImportedRun) -> Vec<String> {
    run.events.iter().map(line).collect()
}

fn line(event: &Event) -> String {
    match event {
        Event::RunStarted => "started".to_owned(),
        Event::Turn { role, message, .. } => format!("turn {message} {role}"),
        Event::CallRequested(ToolCallRequested { request_id, call_id, tool_name, arguments, .. }) => {
            format!("requested {request_id} {call_id} {tool_name} {}", arguments.as_ref().map_or("", Json::as_str))
        }
        Event::CallCompleted { request, result } => format!("completed {request} {}", result.as_str()),
        Event::CallFailed { request, message } => format!("failed {request} {message}"),
        Event::Checkpoint { messages, unanswered } if unanswered.is_empty() => format!("checkpoint {messages}"),
        Event::Checkpoint { messages, unanswered } => format!("checkpoint {messages} without {unanswered:?}"),
        Event::CallObserved(call) => format!("observed {}", call.tool_name),
        Event::RunEnded { outcome, reason } => format!("ended {outcome:?} {reason}"),
    }
}

const GOOD: &str = r#"[{"task_id": 1, "trial": 0, "reward": 1.0, "traj": []}]"#;

/// Writes the files to a temporary folder and plans their import.
fn plan_of(format: Format, files: &[(&str, &str)], prefix: Option<&str>) -> Result<Vec<ImportedRun>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
    for (path, (_, content)) in paths.iter().zip(files) {
        std::fs::write(path, content).unwrap();
    }
    plan_files(format, &paths, prefix)
}

#[test]
fn one_malformed_file_among_several_leaves_nothing_to_write() {
    let error = plan_of(Format::TauBench, &[("a.json", GOOD), ("b.json", r#"[{"task_id": 2}]"#)], None).unwrap_err();
    let Error::Malformed { file, path, what } = error else { panic!("{error}") };
    assert!(file.ends_with("b.json"));
    assert_eq!((path.as_str(), what.as_str()), ("$[0]", "the member \"trial\" is missing"));
}

#[test]
fn a_file_cut_off_is_malformed_where_it_ends() {
    let cut_off = r#"[{"task_id": 1, "traj": [{"role": "user", "con"#;
    let message = plan_of(Format::TauBench, &[("a.json", cut_off)], None).unwrap_err().to_string();
    assert!(
        message.ends_with("a.json is malformed at $[0].traj[0]: not JSON: expected the string's end at byte 46"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_not_utf_8_or_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    assert!(matches!(plan_files(Format::TauBench, std::slice::from_ref(&path), None), Err(Error::Unreadable { .. })));
    std::fs::write(&path, b"[\"\xff\"]").unwrap();
    assert!(matches!(plan_files(Format::TauBench, &[path], None), Err(Error::Malformed { .. })));
}

#[test]
fn a_duplicate_key_is_malformed() {
    let twice = r#"[{"task_id": 1, "task_id": 2, "trial": 0, "reward": 1.0, "traj": []}]"#;
    let message = plan_of(Format::TauBench, &[("a.json", twice)], None).unwrap_err().to_string();
    assert!(message.contains("malformed at $[0]: duplicate key \"task_id\""), "{message}");
}

#[test]
fn a_prefix_starts_every_run_id() {
    let runs = plan_of(Format::TauBench, &[("a.json", GOOD)], Some("again-")).unwrap();
    assert_eq!(runs[0].run_id, "again-tau-bench:1:0");
}

#[test]
fn the_same_run_twice_is_fine_and_with_other_content_is_refused() {
    let spaced = GOOD.replace(',', " ,\n");
    assert_eq!(plan_of(Format::TauBench, &[("a.json", GOOD), ("b.json", &spaced)], None).unwrap().len(), 2);
    let other = GOOD.replace("1.0", "0.0");
    let error = plan_of(Format::TauBench, &[("a.json", GOOD), ("b.json", &other)], None).unwrap_err();
    assert!(matches!(&error, Error::Collision { run_id, .. } if run_id == "tau-bench:1:0"), "{error}");
}

#[test]
fn a_record_that_the_journal_would_not_take_is_refused_before_any_is_written() {
    let run = |content: &str| {
        format!(r#"[{{"task_id":1,"trial":0,"reward":0,"traj":[{{"role":"user","content":"{content}"}}]}}]"#)
    };
    let checked = |content: usize, most| {
        check(&plan_of(Format::TauBench, &[("a.json", &run(&"x".repeat(content)))], None).unwrap(), most)
    };
    assert!(checked(1_000_000, 1 << 20).is_ok());
    assert!(checked(1 << 20, 1 << 26).is_ok());
    let error = checked(1 << 20, 1 << 20).unwrap_err();
    assert!(matches!(error, Error::TooLarge { event: 1, payload_type: PayloadType::ConversationTurn, .. }), "{error}");
}
