//! The OpenAPI document describes every member of every answer, and shows a request and its answer for each operation.

use anyhow::{Context, ensure};
use runlog_schemas::payload::Payload;
use runlog_tests::{
    json_schema::violations,
    programs::here,
    sample_journal::{self, CLAIMED, IMPORTED, RUN},
    server::{Launch, Server},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::tempdir;

/// Queries for every operation with a JSON answer: the path in the document, and the path of an existing item.
fn queries(server: &Server) -> anyhow::Result<Vec<(&'static str, String)>> {
    let first = |path: &str, list: &str| -> anyhow::Result<Value> {
        let (_, found) = server.get(path)?;
        found.get(list).and_then(|list| list.get(0)).cloned().with_context(|| format!("{path}: {found}"))
    };
    let letter = first("/v1/dead-letters", "records")?;
    let at = format!("{}:{}", letter["position"]["partition"], letter["position"]["offset"]);
    let line = first(&format!("/v1/runs/{IMPORTED}/records"), "records")?;
    let position = format!("{}:{}", line["position"]["partition"], line["position"]["offset"]);
    let record = line["record_id"].as_str().context("an id")?;
    let checkpoint = first(&format!("/v1/runs/{IMPORTED}/checkpoints"), "checkpoints")?;
    let checkpoint = checkpoint["checkpoint_id"].as_str().context("an id")?;
    let mut queries = vec![
        ("/v1/journal", "/v1/journal".to_owned()),
        ("/v1/whoami", "/v1/whoami".to_owned()),
        ("/v1/overview", "/v1/overview".to_owned()),
        ("/v1/runs", "/v1/runs".to_owned()),
        ("/v1/runs/{run}", format!("/v1/runs/{IMPORTED}")),
        ("/v1/runs/{run}/lookup", format!("/v1/runs/{IMPORTED}/lookup?tool=book&args=%7B%22n%22:1%7D")),
        ("/v1/runs/{run}/lookup", format!("/v1/runs/{IMPORTED}/lookup?tool=find&args=%7B%22to%22:%22LHR%22%7D")),
        ("/v1/runs/{run}/lookup", format!("/v1/runs/{IMPORTED}/lookup?tool=nothing&args=%7B%7D")),
        ("/v1/runs/{run}/calls/{id}", format!("/v1/runs/{CLAIMED}/calls/asked")),
        ("/v1/runs/{run}/checkpoints", format!("/v1/runs/{IMPORTED}/checkpoints?limit=1000")),
        ("/v1/runs/{run}/checkpoints/latest", format!("/v1/runs/{IMPORTED}/checkpoints/latest")),
        ("/v1/runs/{run}/checkpoints/{id}", format!("/v1/runs/{IMPORTED}/checkpoints/{checkpoint}")),
        ("/v1/runs/{run}/outcome", format!("/v1/runs/{IMPORTED}/outcome?position={position}&record_id={record}")),
        ("/v1/runs/{run}/outcome", format!("/v1/runs/{IMPORTED}/outcome?record_id={record}")),
        ("/v1/runs/{run}/facts", format!("/v1/runs/{RUN}/facts?limit=1000")),
        ("/v1/runs/{run}/facts", format!("/v1/runs/{IMPORTED}/facts?at=2100-01-01T00:00:00Z&limit=1")),
        ("/v1/runs/{run}/records", format!("/v1/runs/{RUN}/records?at=2100-01-01T00:00:00Z")),
        ("/v1/events", format!("/v1/events?run={RUN}&limit=1000")),
        ("/v1/effects", "/v1/effects?limit=1000".to_owned()),
        ("/v1/anomalies", "/v1/anomalies".to_owned()),
        ("/v1/horizons", "/v1/horizons".to_owned()),
        ("/v1/dead-letters", "/v1/dead-letters".to_owned()),
        ("/v1/dead-letters/{at}", format!("/v1/dead-letters/{at}")),
        ("/v1/doctor", "/v1/doctor".to_owned()),
        ("/readyz", "/readyz".to_owned()),
        ("/openapi.json", "/openapi.json".to_owned()),
    ];
    for run in [RUN, IMPORTED, CLAIMED] {
        queries.push(("/v1/runs/{run}/records", format!("/v1/runs/{run}/records?limit=1000")));
        queries.push(("/v1/runs/{run}/recovery", format!("/v1/runs/{run}/recovery?full=true")));
        queries.push(("/v1/runs/{run}/recovery", format!("/v1/runs/{run}/recovery?from_start=true")));
        let (_, answer) = server.get(&format!("/v1/runs/{run}"))?;
        let as_of = format!("as_of={}:{}", answer["position"]["partition"], answer["position"]["offset"]);
        queries.push(("/v1/runs/{run}/recovery", format!("/v1/runs/{run}/recovery?full=true&{as_of}")));
        queries.push(("/v1/runs/{run}/records", format!("/v1/runs/{run}/records?{as_of}")));
    }
    for list in ["approvals", "wakes", "messages", "write_backs", "proposals", "pools"] {
        for ended in [false, true] {
            let path = format!("/v1/runs/{RUN}/standing/{list}?ended={ended}");
            queries.push(("/v1/runs/{run}/standing/{list}", path));
        }
    }
    Ok(queries)
}

/// The id of the server's log, which is random.
fn log_id(server: &Server) -> anyhow::Result<String> {
    let (_, journal) = server.get("/v1/journal")?;
    Ok(journal["log_id"].as_str().context("an id of the log")?.to_owned())
}

/// Requests that change the journal: the path in the document, the path to send to, and the body.
fn commands(log_id: &str) -> Vec<(&'static str, String, Value)> {
    let turn = |id: &str| {
        json!({ "run_id": "trip-42", "record_id": id, "payload": { "type": "conversation_turn", "message_id": id,
            "kind": "user", "content": "to London, please" } })
    };
    let call = json!({ "run_id": "trip-42", "record_id": "trip-42-3", "agent_id": "travel-agent",
        "idempotency_key": "booking-42", "payload": { "type": "tool_call_requested", "request_id": "response-1",
            "call_id": "call_1", "tool_name": "book_flight", "arguments": { "to": "LHR", "seats": 2 } } });
    let turns = json!([turn("trip-42-1"), turn("trip-42-2")]);
    let page = json!({ "run_id": "trip-42", "record_id": "trip-42-4", "payload": { "type": "tool_call_completed",
        "request_record_id": "trip-42-3", "result": { "page": "a long one" } } });
    let decision =
        json!({ "decision": "adopt", "revision": 2, "evidence": "late", "who": "jo", "why": "it was booked" });
    let horizon =
        json!({ "family": "tool_call_completed", "until": "2100-01-01T00:00:00Z", "who": "jo", "why": "policy" });
    let skip = json!({ "partition": 0, "offset": 1, "who": "jo", "why": "nobody can read it" });
    let home = json!({ "log_id": log_id, "who": "jo", "why": "agents write here" });
    let accept = json!({ "run_id": "trip-42", "who": "jo", "why": "the airline has one booking" });
    vec![
        ("/v1/runs/{run}/records", "/v1/runs/trip-42/records".to_owned(), turns),
        ("/v1/runs/{run}/records", "/v1/runs/trip-42/records".to_owned(), call),
        ("/v1/runs/{run}/contents", "/v1/runs/trip-42/contents".to_owned(), page),
        ("/v1/runs/{run}/claims", "/v1/runs/trip-42/claims".to_owned(), json!({ "claimed_by": "worker-7" })),
        ("/v1/runs/{run}/copies", "/v1/runs/trip-42-copy/copies".to_owned(), json!({ "from": "trip-42" })),
        ("/v1/runs/{run}/effects/{id}/resolution", format!("/v1/runs/{CLAIMED}/effects/asked/resolution"), decision),
        ("/v1/horizons", "/v1/horizons".to_owned(), horizon),
        ("/v1/skips", "/v1/skips".to_owned(), skip),
        ("/v1/home", "/v1/home".to_owned(), home),
        ("/v1/home/accepts", "/v1/home/accepts".to_owned(), accept),
        ("/v1/verify", "/v1/verify".to_owned(), json!({})),
    ]
}

/// Fails unless the document describes the answer.
fn check_answer(document: &Value, method: &str, path: &str, answer: &Value) -> anyhow::Result<()> {
    let operation = &document["paths"][path][method];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    ensure!(schema.is_object(), "{method} {path} has no answer");
    let violations = violations(document, schema, answer);
    ensure!(violations.is_empty(), "{method} {path}: {violations:#?}");
    Ok(())
}

#[test]
fn the_document_describes_exactly_the_routes_and_has_no_unused_part() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let (_, document) = server.get("/openapi.json")?;
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().context("paths")? {
        let methods = item.as_object().context("an item")?.keys().filter(|name| *name != "parameters");
        described.extend(methods.map(|method| (method.as_str(), path.as_str())));
    }
    let served: BTreeSet<_> = runlog_server::operations().collect();
    ensure!(served == described, "served {served:#?}, described {described:#?}");

    let (mut wanted, mut parts) = (BTreeSet::new(), BTreeSet::new());
    references(&document, &mut wanted);
    for (kind, named) in document["components"].as_object().context("components")? {
        let names = named.as_object().context("parts by name")?.keys();
        parts.extend(names.map(|name| format!("#/components/{kind}/{name}")));
    }
    ensure!(wanted == parts, "the document refers to {wanted:#?} and has {parts:#?}");
    server.terminate()?;
    Ok(())
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            let mapping = members.get("mapping").and_then(Value::as_object).into_iter().flat_map(|of| of.values());
            found.extend(mapping.filter_map(Value::as_str).map(str::to_owned));
            let schemes = members.get("security").and_then(Value::as_array).into_iter().flatten();
            let names = schemes.filter_map(Value::as_object).flat_map(|scheme| scheme.keys());
            found.extend(names.map(|name| format!("#/components/securitySchemes/{name}")));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_payload_type_is_described_and_its_example_is_as_described() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let (_, document) = server.get("/openapi.json")?;
    let mapping = &document["components"]["schemas"]["Payload"]["discriminator"]["mapping"];
    let described: BTreeSet<_> = mapping.as_object().context("a mapping")?.keys().map(String::as_str).collect();
    ensure!(described == Payload::TYPES.iter().copied().collect(), "{described:?}");
    for (tag, example) in Payload::TYPES.iter().zip(Payload::EXAMPLES) {
        let schema = json!({ "$ref": mapping[tag] });
        let example: Value = serde_json::from_str(example)?;
        let violations = violations(&document, &schema, &example["payload"]);
        ensure!(violations.is_empty(), "{tag}: {violations:#?}");
        let missing = json!({ "type": tag });
        ensure!(
            *tag == "terminal_result" || !self::violations(&document, &schema, &missing).is_empty(),
            "{tag} requires nothing"
        );
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn an_extra_a_missing_and_a_mistyped_member_are_found_at_any_depth() -> anyhow::Result<()> {
    let document = json!({ "item": { "type": "object", "required": ["a"], "properties": {
        "a": { "type": "integer" }, "b": { "anyOf": [{ "$ref": "#/item" }, { "type": "null" }] } } } });
    let list = json!({ "allOf": [{ "properties": { "list": { "type": "array", "items": { "$ref": "#/item" } } } },
        { "properties": { "next": { "enum": ["x"] } } }] });
    for (value, expected) in [
        (json!({ "list": [{ "a": 1, "b": { "a": 2, "b": null } }], "next": "x" }), None),
        (json!({ "list": [], "more": 1 }), Some("/more is not described")),
        (json!({ "list": [{ "a": 1, "c": 2 }] }), Some("/list/0/c is not described")),
        (json!({ "list": [{ "a": 1, "b": {} }] }), Some("/list/0/b/a is missing")),
        (json!({ "list": [{ "a": "1" }] }), Some("/list/0/a is \"1\", not \"integer\"")),
        (json!({ "next": "y" }), Some("/next is \"y\", not in [\"x\"]")),
    ] {
        let problems = violations(&document, &list, &value);
        ensure!(problems.first().map(String::as_str) == expected && problems.len() < 2, "{value}: {problems:?}");
    }
    Ok(())
}

#[test]
fn every_answer_has_the_members_that_the_document_describes_and_no_other() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let (_, document) = server.get("/openapi.json")?;
    let mut visited = BTreeSet::new();
    let queries = queries(&server)?;
    for (path, url) in &queries {
        let (status, answer) = server.get(url)?;
        ensure!(status == 200, "{url}: {status} {answer}");
        check_answer(&document, "get", path, &answer).context(url.clone())?;
        visited.insert(("get", (*path).to_owned()));
    }
    for (path, url, body) in commands(&log_id(&server)?) {
        let (status, answer) = server.post(&url, &body)?;
        ensure!(status == 200, "{url}: {status} {answer}");
        check_answer(&document, "post", path, &answer).context(url)?;
        visited.insert(("post", path.to_owned()));
    }
    // The same queries after the commands: content is removed, and the dead letter is skipped.
    for (path, url) in queries.iter().filter(|(path, _)| *path != "/v1/dead-letters/{at}") {
        let (status, answer) = server.get(url)?;
        ensure!(status == 200, "{url}: {status} {answer}");
        check_answer(&document, "get", path, &answer).context(url.clone())?;
    }
    let in_json = |operation: &Value| operation["responses"]["200"]["content"].get("application/json").is_some();
    for (path, item) in document["paths"].as_object().context("paths")? {
        for method in ["get", "post"] {
            let has = item.get(method).is_some_and(in_json);
            ensure!(has == visited.contains(&(method, path.clone())), "no request covers {method} {path}");
        }
    }
    server.terminate()?;
    Ok(())
}

/// The file that the document's examples come from.
const EXAMPLES: &str = "../projector/server/src/openapi/examples.json";

/// The id of the log in that file.
const LOG_ID: &str = "local:5d2c9a7be1f04386a9b0c7d1e2f3a4b5";

/// Records a request and its answer for each operation: the first of the `queries` with a path (all lookups), the paths
/// that answer with a text, and the `commands`.
fn record_examples(server: &Server) -> anyhow::Result<Vec<Value>> {
    let texts = [
        ("/v1/runs/{run}/tail", format!("/v1/runs/{IMPORTED}/tail?until_end=true")),
        ("/v1/tail", "/v1/tail?until_end=true".to_owned()),
        ("/v1/indices/{index}/changes", "/v1/indices/effects/changes?until_end=true".to_owned()),
        ("/healthz", "/healthz".to_owned()),
        ("/metrics", "/metrics".to_owned()),
    ];
    let (mut recorded, mut visited, log_id) = (Vec::new(), BTreeSet::new(), log_id(server)?);
    for (path, url) in queries(server)?.into_iter().chain(texts) {
        if visited.insert(path) || path == "/v1/runs/{run}/lookup" {
            let url = url.replace("limit=1000", "limit=2");
            let (status, answer) = server.get(&url)?;
            ensure!(status == 200, "{url}: {status} {answer}");
            let answer = match path {
                "/openapi.json" => json!({ "openapi": answer["openapi"] }),
                _ if path.ends_with("/tail") || path.ends_with("/changes") => first_event(&answer),
                _ => shorten(answer),
            };
            recorded.push(json!({ "method": "get", "path": path, "url": url, "answer": answer }));
        }
    }
    for (path, url, body) in commands(&log_id) {
        let (status, answer) = server.post(&url, &body)?;
        ensure!(status == 200, "{url}: {status} {answer}");
        let answer = shorten(answer);
        recorded.push(json!({ "method": "post", "path": path, "url": url, "body": body, "answer": answer }));
    }
    // The id of a log is random, and the file keeps one.
    let text = Value::from(recorded).to_string().replace(&log_id, LOG_ID);
    serde_json::from_str(&text).context("the recorded examples")
}

/// The fields of a stream's first event.
fn first_event(stream: &Value) -> Value {
    let lines = stream.as_str().unwrap_or_default().lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// Keeps at most two objects of each list, and the first eight lines of a text.
fn shorten(value: Value) -> Value {
    match value {
        Value::Array(items) if items.iter().any(Value::is_object) => items.into_iter().take(2).map(shorten).collect(),
        Value::Array(items) => items.into(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, shorten(value))).collect(),
        Value::String(text) => text.lines().take(8).collect::<Vec<_>>().join("\n").into(),
        other => other,
    }
}

/// The request, and the names of the answer's members.
fn outline(example: &Value) -> Value {
    let answer = example["answer"].as_object().map(|members| members.keys().collect::<Vec<_>>());
    json!([example["method"], example["path"], example["url"], example["body"], answer])
}

/// After a change of the requests or answers, `RUNLOG_RECORD_EXAMPLES=1` writes the examples again.
#[test]
fn every_operation_shows_a_request_and_the_answer_that_a_server_gives() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let (_, document) = server.get("/openapi.json")?;
    let recorded = record_examples(&server)?;
    server.terminate()?;
    let file = here(EXAMPLES);
    if std::env::var_os("RUNLOG_RECORD_EXAMPLES").is_some() {
        let text = serde_json::to_string_pretty(&recorded)?;
        let data = folder.path().to_str().context("a path")?;
        std::fs::write(&file, text.replace(data, "/var/lib/runlog") + "\n")?;
    }
    let examples: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let outlines = |examples: &[Value]| examples.iter().map(outline).collect::<Vec<_>>();
    let (in_file, current) = (outlines(&examples), outlines(&recorded));
    for (example, current) in in_file.iter().zip(&current) {
        ensure!(example == current, "the file has {example}, the server answers {current}");
    }
    ensure!(in_file.len() == current.len(), "the file has {} examples, not {}", in_file.len(), current.len());
    for (method, path) in runlog_server::operations() {
        let operation = &document["paths"][path][method];
        let answer = &operation["responses"]["200"]["content"];
        for content in [Some(answer), operation["requestBody"].get("content")].into_iter().flatten() {
            for media in content.as_object().with_context(|| format!("{method} {path} has no content"))?.values() {
                let shown = media["examples"].as_object().with_context(|| format!("{method} {path} shows nothing"))?;
                for example in shown.values() {
                    let violations = violations(&document, &media["schema"], &example["value"]);
                    ensure!(violations.is_empty(), "{method} {path}: {violations:#?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_stream_has_lines_as_described_and_errors_are_problems_of_their_own_status() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let (_, document) = server.get("/openapi.json")?;
    for path in [format!("/v1/runs/{RUN}/tail?until_end=true"), "/v1/tail?until_end=true".to_owned()] {
        let (_, stream) = server.get(&path)?;
        let lines: Vec<&str> =
            stream.as_str().context("a stream")?.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        ensure!(lines.len() > 10, "{stream}");
        for line in lines {
            let violations =
                violations(&document, &document["components"]["schemas"]["Line"], &serde_json::from_str(line)?);
            ensure!(violations.is_empty(), "{line}: {violations:?}");
        }
    }
    let (nothing, missing) = (json!({}), "/v1/runs/nobody".to_owned());
    let refused = [
        (400, server.get("/v1/events")?),
        (404, server.get(&missing)?),
        (404, server.get("/v1/nothing")?),
        (405, server.post(&missing, &nothing)?),
        (400, server.post("/v1/skips", &nothing)?),
        (503, server.get(&format!("/v1/runs/{RUN}?consistency=at-least=0:1000000&deadline_ms=0"))?),
    ];
    for (expected, (status, problem)) in refused {
        ensure!(status == expected && problem["status"] == expected, "{status}: {problem}");
        let violations = violations(&document, &document["components"]["schemas"]["Problem"], &problem);
        ensure!(violations.is_empty(), "{problem}: {violations:?}");
    }
    server.terminate()?;
    Ok(())
}
