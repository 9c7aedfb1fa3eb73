//! A server shows an operator its metrics, readiness, the doctor's counts and its paths.

use super::harness::{Server, get, server};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const STARTED: &str = r#"{"type":"run_lifecycle","status":"started"}"#;
const COMPLETED: &str = r#"{"type":"run_lifecycle","status":"completed"}"#;
const CALL: &str = r#"{"type":"tool_call_requested","request_id":"q","call_id":"c","tool_name":"pay","arguments":{}}"#;

/// A run with a call that waits for a decision, and one whose second end is refused.
fn call_and_refusal(server: &Server) {
    server.publish_applied("r", &[("s", STARTED), ("c", CALL)]);
    server.publish_applied("e", &[("s", STARTED), ("d", COMPLETED)]);
    let again = server.publish(&format!(r#"{{"run_id":"e","record_id":"again","payload":{COMPLETED}}}"#));
    assert_eq!(again.lines()[0]["outcome"], "refused", "{again:?}");
}

/// Samples by name and labels as they are written. Checks the format: each family has HELP and TYPE before its samples, its
/// samples are together, and their names have the suffixes of its type.
fn parse_metrics(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut lines = text.lines();
    assert_eq!(lines.next_back(), Some("# EOF"));
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(words.len() > 10 && families.insert(name.to_owned()), "{line}");
            family = name.to_owned();
            let declared = lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(declared.0, family, "{line}");
            kind = declared.1.to_owned();
            assert!(matches!(kind.as_str(), "counter" | "gauge" | "histogram"), "{line}");
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name == family && name.ends_with(unit), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let suffixes: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} in {kind} {family}");
            assert!(samples.insert(sample.to_owned(), value.parse().expect(line)).is_none(), "{line} twice");
        }
    }
    samples
}

#[test]
fn metrics_are_in_the_exposition_format_and_count_what_happened() {
    let (_folder, server) = server();
    call_and_refusal(&server);
    assert_eq!(server.ask(&["show", "nobody"]).code, 1);
    assert_eq!(server.publish("{\"run_id\":\"r\"}").code, 3);
    let position = server.ask(&["show", "r"]).lines()[0]["position"].clone();
    let (status, text) = get(&server.url, "/metrics");
    assert_eq!(status, 200, "{text}");
    let samples = parse_metrics(&text);
    let value = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    let partition = position["partition"].as_u64().unwrap();
    let of_partition = |name: &str| value(&format!("{name}{{partition=\"{partition}\"}}"));
    assert!(of_partition("runlog_applied_offset") >= 3.0);
    assert_eq!(of_partition("runlog_applied_offset"), of_partition("runlog_end_offset"));
    assert_eq!((of_partition("runlog_lag_records"), of_partition("runlog_partition_stopped")), (0.0, 0.0));
    assert_eq!(value("runlog_pending_effects{class=\"reconcile_required\",state=\"waiting\"}"), 1.0);
    assert_eq!((value("runlog_anomalies"), value("runlog_dead_letters")), (1.0, 0.0));
    let missing = "method=\"GET\",path=\"/v1/runs/{run}/records\",status=\"404\"";
    assert_eq!(value(&format!("runlog_http_requests_total{{{missing}}}")), 1.0);
    let posts = "method=\"POST\",path=\"/v1/runs/{run}/records\"";
    let count = value(&format!("runlog_http_request_duration_seconds_count{{{posts}}}"));
    assert!(count >= 3.0);
    assert_eq!(value(&format!("runlog_http_request_duration_seconds_bucket{{le=\"+Inf\",{posts}}}")), count);
    assert_eq!(value("runlog_appended_records_total{outcome=\"applied\",reason=\"\"}"), 4.0);
    assert_eq!(value("runlog_appended_records_total{outcome=\"refused\",reason=\"ended\"}"), 1.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("runlog_rocksdb_memory_bytes{part=\"cache\"}") > 0.0);
}

#[test]
fn readiness_distinguishes_catching_up_from_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ready = |server: &Server| -> (u16, Value) {
        let (status, body) = get(&server.url, "/readyz");
        (status, serde_json::from_str(&body).unwrap())
    };
    let server = Server::start(&data, &[]);
    server.publish_applied("r", &[("s", STARTED)]);
    server.ask(&["effects", "--consistency", "latest"]).is(0);
    let expected = json!({ "ready": true, "state": "ready", "stopped": [], "lagging": [], "role": "home" });
    assert_eq!(ready(&server), (200, expected));
    assert_eq!(server.signal("TERM"), 0);
    std::fs::rename(data.join("index"), folder.path().join("index")).unwrap();
    let paused = Server::start(&data, &["--paused"]);
    let (status, body) = ready(&paused);
    assert_eq!((status, &body["state"], &body["lagging"]), (503, &json!("catching_up"), &json!([0, 1, 2, 3])));
    drop(paused);
    // The index of this log beside another log.
    std::fs::remove_dir_all(data.join("log")).unwrap();
    std::fs::remove_dir_all(data.join("index")).unwrap();
    let other = folder.path().join("other");
    drop(Server::start(&other, &[]));
    std::fs::rename(other.join("log"), data.join("log")).unwrap();
    std::fs::rename(folder.path().join("index"), data.join("index")).unwrap();
    let (status, body) = ready(&Server::start(&data, &[]));
    assert_eq!((status, &body["state"], &body["stopped"]), (503, &json!("stopped"), &json!([0, 1, 2, 3])));
}

#[test]
fn an_overview_counts_pending_effects_and_names_partitions_that_it_cannot_count() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let overview = |server: &Server| -> Value {
        let (status, body) = get(&server.url, "/v1/overview");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let server = Server::start(&data, &[]);
    call_and_refusal(&server);
    let key = r#"{"run_id":"k","record_id":"q","idempotency_key":"k-1","payload":{"type":"tool_call_requested","request_id":"m",
        "call_id":"c","tool_name":"book","arguments":{}}}"#;
    assert_eq!(server.publish(&key.replace('\n', "")).is(0)["outcome"], "applied");
    server.ask(&["effects", "--consistency", "latest"]).is(0);
    let answer = overview(&server);
    let waiting = json!({ "running": 0, "waiting": 1 });
    assert_eq!(answer["pending"], json!({ "retry_safe": waiting, "reconcile_required": waiting }));
    assert_eq!((&answer["refused"], &answer["dead_letters"]), (&json!(1), &json!(0)));
    assert_eq!((&answer["version"], &answer["lag"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(0)));
    assert_eq!((&answer["stopped"], &answer["unavailable_partitions"]), (&json!([]), &json!([])));
    let partitions = answer["partitions"].as_array().unwrap();
    assert!(
        partitions.len() == 4 && partitions.iter().all(|one| one["state"] == "running" && one["lag"] == 0),
        "{answer}"
    );
    assert_eq!(server.signal("TERM"), 0);
    // The index of this log beside another log.
    std::fs::remove_dir_all(data.join("log")).unwrap();
    let other = folder.path().join("other");
    drop(Server::start(&other, &[]));
    std::fs::rename(other.join("log"), data.join("log")).unwrap();
    let answer = overview(&Server::start(&data, &[]));
    assert_eq!((&answer["stopped"], &answer["unavailable_partitions"]), (&json!([0, 1, 2, 3]), &json!([0, 1, 2, 3])));
}

#[test]
fn the_doctor_counts_effects_that_wait_and_refused_records() {
    let (_folder, server) = server();
    let before = server.ask(&["doctor"]).is(0);
    assert_eq!((&before["waiting_decisions"], &before["refused_records"]), (&json!(0), &json!(0)));
    call_and_refusal(&server);
    let after = server.ask(&["doctor"]).is(0);
    assert_eq!((&after["waiting_decisions"], &after["refused_records"]), (&json!(1), &json!(1)));
    let findings = after["findings"].to_string();
    for part in ["1 effect waiting for a decision", "effects resolve", "1 record refused", "runlog anomalies"] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
}

#[test]
fn the_root_names_the_paths() {
    let (_folder, server) = server();
    let (status, body) = get(&server.url, "/");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["runlog"]), (200, &json!(env!("CARGO_PKG_VERSION"))));
    for path in ["/v1/runs/{run}/records", "/openapi.json", "/metrics"] {
        assert!(body["paths"].as_array().unwrap().contains(&json!(path)), "{path}: {body}");
    }
    assert!(get(&server.url, "/v1/nonsense").1.contains("GET / lists the paths"));
}
