//! Other tools read the files of an export.

use super::harness::{Server, server};
use serde_json::Value;
#[cfg(feature = "parquet")]
use serde_json::json;
#[cfg(feature = "parquet")]
use std::collections::BTreeMap;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Runs a Python program of the tests with the libraries of `tests/python/requirements.txt`, and returns its output.
fn python(program: &str, arguments: &[PathBuf]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/python");
    let output = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let interpreter = output(&mut Command::new(folder.join("venv.sh")));
    let printed = output(Command::new(interpreter.trim_end()).arg(folder.join(program)).args(arguments));
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The samples, imported.
fn import_samples(server: &Server) -> u64 {
    let samples = std::env::var_os("RUNLOG_SAMPLES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let import = |format: &str| {
        let report = server.ask(&["import", format, samples.join(format).to_str().unwrap()]).is(0);
        report["runs"].as_u64().unwrap()
    };
    import("swe-agent") + import("tau-bench")
}

#[test]
fn recorded_runs_are_trajectories_with_every_message_call_and_result() {
    let (folder, server) = server();
    let runs = import_samples(&server);
    let out = folder.path().join("out");
    let report = server.ask(&["export", "--out", out.to_str().unwrap()]).is(0);
    assert_eq!(report["runs"], runs);
    let trajectories = python("check_atif.py", &files(&out));
    assert_eq!(trajectories.len() as u64, runs);
    let mut calls = 0;
    // Each fifth run, call by call.
    for trajectory in trajectories.iter().step_by(5) {
        let run = trajectory["run"].as_str().unwrap();
        let records = server.ask(&["show", run, "--raw"]).lines();
        let records_of_type = |wanted: &'static str| records.iter().filter(move |line| line["payload_type"] == wanted);
        let contents: Vec<&Value> = records_of_type("conversation_turn")
            .map(|line| &line["payload"])
            .filter(|payload| payload["kind"] != "tool")
            .map(|payload| &payload["content"])
            .collect();
        let messages = trajectory["messages"].as_array().unwrap();
        // The export keeps parts as a list, and content without text as an empty text.
        let matching = messages.iter().filter(|message| contents.contains(message) || **message == "").count();
        assert!(
            matching == messages.len() && messages.len() >= contents.len(),
            "{run}: {matching} of {}",
            messages.len()
        );
        let requests: Vec<&Value> = records_of_type("tool_call_requested").collect();
        let listed = trajectory["calls"].as_array().unwrap();
        assert_eq!(listed.len(), requests.len(), "{run}");
        for (call, request) in listed.iter().zip(requests) {
            let (tool, arguments) = (&request["payload"]["tool_name"], &request["payload"]["arguments"]);
            assert_eq!((&call[0], &call[1]), (tool, arguments), "{run}");
            let answers = |line: &&Value| line["payload"]["request_record_id"] == request["record_id"];
            let done = records_of_type("tool_call_completed").find(answers).map(|line| &line["payload"]["result"]);
            let failed =
                records_of_type("tool_call_failed").find(answers).map(|line| &line["payload"]["error_message"]);
            assert_eq!(Some(&call[2]), done.or(failed).or(Some(&Value::Null)), "{run}");
            calls += 1;
        }
    }
    assert!(calls > 100, "{calls} calls were compared");
}

/// The tables, as DuckDB reads them.
#[cfg(feature = "parquet")]
fn duckdb(folder: &Path) -> Value {
    python("query_tables.py", &[folder.to_owned()]).remove(0)
}

/// The content of each file.
#[cfg(feature = "parquet")]
fn bytes(folder: &Path) -> Vec<Vec<u8>> {
    files(folder).iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[cfg(feature = "parquet")]
#[test]
fn recorded_tables_agree_with_the_server_and_the_same_position_gives_the_same_bytes() {
    let (folder, server) = server();
    let runs = import_samples(&server);
    // A refused record, a hidden one, a pending call, a decided one, and one whose evidence was adopted.
    let record = |id: &str, more: Value| {
        let mut record = json!({"run_id": "r", "record_id": id, "writer_id": "w", "writer_epoch": 1});
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record.to_string() + "\n"
    };
    let request = |id: &str| {
        record(
            id,
            json!({"payload": {"type": "tool_call_requested", "request_id": id, "call_id": id, "tool_name": "pay",
            "arguments": {"of": id}}}),
        )
    };
    let answer = |id: &str, of: &str, epoch: u64| {
        record(
            id,
            json!({"writer_epoch": epoch, "payload": {"type": "tool_call_completed", "request_record_id": of, "result": "paid"}}),
        )
    };
    let claim = |id: &str, epoch: u64| {
        let writer = format!("w{epoch}");
        record(
            id,
            json!({"writer_id": writer, "writer_epoch": epoch, "payload": {"type": "run_claim", "writer_id": writer, "epoch": epoch}}),
        )
    };
    let lines = [claim("k1", 1), request("p1"), request("p2"), request("p3")].concat().replace("\"w\"", "\"w1\"");
    let more = [
        claim("k2", 2),
        answer("late", "p2", 1).replace("\"w\"", "\"w1\""),
        record(
            "s",
            json!({"writer_id": "w2", "writer_epoch": 2, "privacy": "secret",
            "payload": {"type": "conversation_turn", "message_id": "s", "kind": "user", "content": "hush"}}),
        ),
    ];
    server.publish(&[lines, more.concat()].concat());
    let resolve = |id: &str, decision: &[&str]| {
        server
            .ask(&[&["effects", "resolve", "r", id, "--who", "jo", "--why", "asked", "--yes"], decision].concat())
            .is(0)
    };
    resolve("p2", &["--adopt"]);
    resolve("p3", &["--give-up"]);

    // Effects of the run-journal contract: an ended effect, a pending effect, and the effects of the examples.
    let example = |id: &str, text: &str, effect: Option<&str>| {
        let mut record: Value = serde_json::from_str(text).unwrap();
        (record["run_id"], record["record_id"]) = (json!("contract"), json!(id));
        if let Some(effect) = effect {
            record["payload"]["effect_id"] = json!(effect);
        }
        record.to_string() + "\n"
    };
    let intent = include_str!("../../../schemas/examples/effect_intent.json");
    let examples = [
        example("i7", intent, None),
        example("r7", include_str!("../../../schemas/examples/effect_result.json"), None),
        example("i8", intent, Some("effect.8")),
        example("t", include_str!("../../../schemas/examples/tool.json"), None),
        example("d", include_str!("../../../schemas/examples/output_delivery.json"), None),
    ];
    server.publish(&examples.concat());

    let out = |name: &str| folder.path().join(name);
    let export = |name: &str, more: &[&str]| {
        let out = out(name);
        server.ask(&[&["export", "--format", "parquet", "--out", out.to_str().unwrap()], more].concat()).is(0)
    };
    let report = export("a", &[]);
    let tables = duckdb(&out("a"));
    for table in ["runs", "records", "tool_calls", "effects", "checkpoints", "anomalies"] {
        assert_eq!(tables["counts"][table], report[table], "{table}");
    }
    assert_eq!(tables["counts"]["runs"], runs + 2);

    // By the server's own lists.
    let all = server.ask(&["runs", "--limit", "100000"]).is(0)["runs"].clone();
    let listed: Vec<Value> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|run| json!([run["run_id"], run["status"], run["records"], run["records"], true, run["hash"]]))
        .collect();
    assert_eq!(tables["runs"], json!(listed));
    let effects = server.ask(&["effects"]).is(0)["effects"].clone();
    let effects = effects.as_array().unwrap();
    assert_eq!(tables["counts"]["effects"], effects.len());
    let sorted = |rows: &Value| {
        let mut rows: Vec<String> = rows.as_array().unwrap().iter().map(Value::to_string).collect();
        rows.sort();
        rows
    };
    let pending = effects.iter().filter(|effect| effect["status"] == "pending").map(|effect| {
        let evidence = effect["evidence"].as_array().unwrap().len();
        json!([effect["run_id"], effect["id"], effect["class"], evidence, effect["revision"]])
    });
    assert_eq!(sorted(&tables["pending"]), sorted(&pending.collect()));
    let status_of: BTreeMap<String, &Value> =
        effects.iter().map(|effect| (json!([effect["run_id"], effect["id"]]).to_string(), &effect["status"])).collect();
    let calls = tables["calls"].as_array().unwrap();
    assert_eq!(calls.len(), effects.iter().filter(|effect| effect["kind"] == "tool_call").count());
    for call in calls {
        let expected = status_of[&json!([call[0], call[8]]).to_string()];
        assert_eq!((&call[4], &call[7]), (expected, expected), "{call}");
    }
    assert_eq!(tables["answered"], calls.iter().filter(|call| call[4] != "pending").count());
    // Each hundredth call, and all of ours, by a lookup.
    for call in calls.iter().step_by(100).chain(calls.iter().filter(|call| call[0] == "r")) {
        let text = |at: usize| call[at].as_str().unwrap_or_default().to_owned();
        let lookup = server.ask(&[
            "lookup",
            &text(0),
            "--tool",
            &text(1),
            "--args",
            &text(2),
            "--occurrence",
            &call[3].to_string(),
        ]);
        let lookup = lookup.json();
        assert_eq!(lookup["status"], call[4], "{call}");
        if call[0] != "r" {
            let result: Value = call[5].as_str().map_or(Value::Null, |result| serde_json::from_str(result).unwrap());
            assert_eq!((&lookup["result"], &lookup["error"]["message"]), (&result, &call[6]), "{call}");
        }
    }
    let anomalies = server.ask(&["anomalies"]).is(0)["anomalies"].clone();
    let refused: Vec<Value> = anomalies
        .as_array()
        .unwrap()
        .iter()
        .map(|anomaly| {
            json!([
                anomaly["run_id"],
                anomaly["record_id"],
                anomaly["reason"],
                anomaly["position"]["partition"],
                anomaly["position"]["offset"]
            ])
        })
        .collect();
    assert_eq!((tables["anomalies"].clone(), refused.is_empty()), (json!(refused), false));
    assert_eq!(tables["hidden"], json!([["s", "[hidden: secret]", null]]));

    // The same position, after more has happened, and another one.
    let at = report["at"].as_str().unwrap();
    server.publish(&[record("x", json!({"run_id": "new", "writer_id": "", "writer_epoch": 0, "payload": {"type": "run_lifecycle", "status": "started"}}))].concat());
    resolve("p1", &["--done", "1"]);
    export("b", &["--at", at]);
    assert_eq!(bytes(&out("b")), bytes(&out("a")));
    let now = export("c", &[]);
    assert_eq!(now["runs"], runs + 3);
    assert_ne!(bytes(&out("c")), bytes(&out("a")));
}
