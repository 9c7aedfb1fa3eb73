use super::{
    harness::{CommandResult, Server, file, server},
    importing::{import, trajectory},
};
use serde_json::{Value, json};
use std::path::Path;

fn export(server: &Server, arguments: &[&str]) -> CommandResult {
    server.ask(&[&["export"], arguments].concat())
}

/// The names of a folder's entries.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn import_runs(folder: &Path, server: &Server, runs: &[(u32, &str)]) {
    let runs: Vec<_> = runs.iter().map(|(task, said)| trajectory(*task, said)).collect();
    let path = file(folder, "runs.json", &format!("[{}]", runs.join(",")));
    import(server, &path, &[]).is(0);
}

#[test]
fn a_folder_and_stdout_have_the_same_trajectories() {
    let (folder, server) = server();
    import_runs(folder.path(), &server, &[(1, "no"), (2, "never")]);
    let printed = export(&server, &[]).lines();
    let out = folder.path().join("new/out");
    let report = export(&server, &["--out", out.to_str().unwrap(), "--prefix", "tau-bench:2"]).is(0);
    assert_eq!([&report["runs"], &report["tool_calls"]], [1, 2], "{report}");
    assert_eq!(names(&out), ["tau-bench%3A2%3A0.json"]);
    let written: Value = serde_json::from_slice(&std::fs::read(out.join("tau-bench%3A2%3A0.json")).unwrap()).unwrap();
    assert_eq!(printed[1], written);
    let ids: Vec<&Value> = printed.iter().map(|document| &document["trajectory_id"]).collect();
    assert_eq!(ids, ["tau-bench:1:0", "tau-bench:2:0"]);
    let steps = written["steps"].as_array().unwrap();
    let results: Vec<&Value> = steps.iter().map(|step| &step["observation"]["results"][0]["content"]).collect();
    assert_eq!(results, [&Value::Null, &json!("[1, 2]"), &json!("Error: full"), &Value::Null]);
    assert_eq!(steps[1]["tool_calls"][0]["arguments"], json!({"n": 1}));
    assert_eq!((&steps[3]["message"], &written["extra"]["status"]), (&json!("never"), &json!("completed")));
}

#[test]
fn an_export_that_fails_leaves_nothing_and_replaces_nothing() {
    let (folder, server) = server();
    import_runs(folder.path(), &server, &[(1, "no")]);
    let place = folder.path().join("exports");
    std::fs::create_dir(&place).unwrap();
    let out = place.join("out");
    let out = out.to_str().unwrap();
    assert_eq!(export(&server, &["tau-bench:1:0", "tau-bench:9:0", "--out", out]).error(1), "not_found");
    assert_eq!(names(&place), Vec::<String>::new());
    export(&server, &["--out", out]).is(0);
    assert_eq!(export(&server, &["--out", out]).error(3), "invalid");
    assert_eq!(
        (names(&place), names(Path::new(out))),
        (vec!["out".to_owned()], vec!["tau-bench%3A1%3A0.json".to_owned()])
    );
    assert_eq!(export(&server, &["--at", "0:1,0:2"]).error(2), "usage");
}

#[test]
fn content_of_the_store_is_fetched_and_hidden_content_stays_hidden() {
    let (folder, server) = server();
    let large = "x".repeat(3 << 20);
    import_runs(folder.path(), &server, &[(1, &large)]);
    let document = export(&server, &["tau-bench:1:0"]).is(0);
    assert_eq!(document["steps"][3]["message"], json!(large));

    let turn = |id: &str, privacy: &str| {
        let payload =
            json!({"type": "conversation_turn", "message_id": id, "kind": "user", "content": format!("said {id}")});
        json!({"run_id": "r", "record_id": id, "privacy": privacy, "payload": payload}).to_string() + "\n"
    };
    let call = json!({"run_id": "r", "record_id": "c", "privacy": "sensitive", "payload":
        {"type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "pay", "arguments": {"card": "4711"}}});
    let lines = [turn("a", "public"), turn("b", "secret"), call.to_string()].concat();
    assert_eq!(server.publish(&lines).code, 0);
    let hidden = export(&server, &["r"]);
    assert!(!hidden.stdout.contains("4711") && !hidden.stdout.contains("said b"), "{hidden:?}");
    assert!(hidden.stderr.contains("2 records"), "{hidden:?}");
    let document = hidden.is(0);
    let messages: Vec<&Value> = document["steps"].as_array().unwrap().iter().map(|step| &step["message"]).collect();
    assert_eq!(messages, ["said a", "[hidden: secret]", ""]);
    assert_eq!(document["steps"][2]["tool_calls"][0]["function_name"], "pay");
    assert_eq!(document["extra"]["calls_without_result"], json!(["c"]));
    let raw = export(&server, &["r", "--raw"]).is(0);
    assert_eq!(
        (&raw["steps"][1]["message"], &raw["steps"][2]["tool_calls"][0]["arguments"]["card"]),
        (&json!("said b"), &json!("4711"))
    );
}

#[test]
fn the_same_position_gives_the_same_bytes_whatever_came_after_it() {
    let (_folder, server) = server();
    let turn =
        |kind: &str| format!(r#"{{"type":"conversation_turn","message_id":"{kind}","kind":"{kind}","content":"hi"}}"#);
    let (user, assistant) = (turn("user"), turn("assistant"));
    let request = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"find","arguments":{}}"#;
    let done = r#"{"type":"tool_call_completed","request_record_id":"c","result":1}"#;
    server.publish_applied("r", &[("u", &user), ("a", &assistant), ("c", request)]);
    let position = |line: &Value| format!("{}:{}", line["position"]["partition"], line["position"]["offset"]);
    let (first, last) = {
        let lines = server.ask(&["show", "r"]).lines();
        (position(&lines[0]), position(&lines[2]))
    };
    let then = export(&server, &["r"]);
    assert_eq!(then.is(0)["steps"].as_array().unwrap().len(), 2);
    server.publish_applied("r", &[("d", done)]);
    assert_eq!(export(&server, &["r", "--at", &last]).stdout, then.stdout);
    assert_ne!(export(&server, &["r"]).stdout, then.stdout);
    assert_eq!(export(&server, &["--at", &first]).is(0)["steps"].as_array().unwrap().len(), 1);
    // An export of all runs omits a run that had not begun. An export of that run is an error.
    let before = first.split(':').next().unwrap().to_owned() + ":0";
    assert_eq!(export(&server, &["--at", &before]).stdout, "");
    assert_eq!(export(&server, &["r", "--at", &before]).error(1), "not_found");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_how_to_get_it() {
    let (folder, server) = server();
    let out = folder.path().join("out");
    let refused = export(&server, &["--format", "parquet", "--out", out.to_str().unwrap()]);
    assert!(refused.stdout.contains("--features parquet"), "{refused:?}");
    assert_eq!((refused.error(2).as_str(), out.exists()), ("usage", false));
}
