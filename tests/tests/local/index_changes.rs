//! The changes of an index, followed over HTTP and on the command line.

use anyhow::{Context, ensure};
use runlog_tests::{
    json_schema::violations,
    sample_journal::{self, CLAIMED, RUN},
    server::{self, Launch, Server},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tempfile::tempdir;

/// Content of a masked record.
const SECRET: &str = "the-door-opens-at-five";

/// All indices, as `verify` names them, with their numbers of rows.
fn rows(server: &Server) -> anyhow::Result<BTreeMap<String, u64>> {
    let verification = server.runlog().answer(&["verify"])?;
    let mut rows = BTreeMap::new();
    for partition in verification["partitions"].as_array().context("partitions")? {
        for index in partition["indices"].as_array().context("indices")? {
            let name = index["name"].as_str().context("a name")?.to_owned();
            *rows.entry(name).or_default() += index["rows"].as_u64().context("a count")?;
        }
    }
    Ok(rows)
}

/// The changes up to the end.
fn changes(server: &Server, index: &str, from: &str) -> anyhow::Result<Vec<Value>> {
    let (status, stream) = server.get(&format!("/v1/indices/{index}/changes?until_end=true&from={from}"))?;
    ensure!(status == 200, "{index} from {from}: {status} {stream}");
    let events = stream.as_str().unwrap_or_default();
    ensure!(!events.contains("event: error"), "{index} from {from}: {events}");
    let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
    Ok(data.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Applies changes, by partition and key. Each must fit the row before it.
fn apply_changes(changes: &[Value]) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut rows = BTreeMap::new();
    for change in changes {
        let key = format!("{} {}", change["position"]["partition"], change["key"]);
        let before = match &change["new"] {
            Value::Null => rows.remove(&key),
            row => rows.insert(key, row.clone()),
        };
        let fits = match change["operation"].as_str() {
            Some("insert") => before.is_none() && change["old"].is_null(),
            Some("update") => before.as_ref() == Some(&change["old"]) && !change["new"].is_null(),
            Some("delete") => before.as_ref() == Some(&change["old"]),
            _ => false,
        };
        ensure!(fits, "{change} after {before:?}");
    }
    Ok(rows)
}

/// Changes by partition, without the cursors, which depend on how partitions were interleaved.
fn by_partition(changes: &[Value]) -> BTreeMap<u64, Vec<Value>> {
    let mut by_partition = BTreeMap::<_, Vec<_>>::new();
    for change in changes {
        let mut without_cursor = change.clone();
        without_cursor["cursor"] = Value::Null;
        by_partition
            .entry(change["position"]["partition"].as_u64().unwrap_or(u64::MAX))
            .or_default()
            .push(without_cursor);
    }
    by_partition
}

fn cursor(change: &Value) -> anyhow::Result<&str> {
    change["cursor"].as_str().with_context(|| format!("no cursor: {change}"))
}

#[test]
fn the_changes_of_every_index_from_the_beginning_give_its_rows_and_match_their_description() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let (_, document) = server.get("/openapi.json")?;
    // Content in the content store, and masked content.
    let turn =
        |content: String| json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": content });
    let checkpoint = json!({ "type": "loop_checkpoint", "checkpoint_id": "c", "checkpoint_seq": 1, "covers_journal_seq": 0,
        "messages": [{ "role": "user", "content": SECRET }], "state": { "said": SECRET } });
    for (id, payload) in
        [("large", turn("x".repeat(300 << 10))), ("secret", turn(SECRET.to_owned())), ("checkpoint", checkpoint)]
    {
        let record = json!({ "run_id": "large", "record_id": id, "privacy": "secret", "payload": payload });
        let (_, outcome) = server.post("/v1/runs/large/records", &record)?;
        ensure!(outcome["outcome"] == "applied", "{outcome}");
    }
    let mut rows = rows(&server)?;
    // Rows without a run have no run changes.
    ensure!(rows.remove("horizons").is_some() && rows.remove("runs_by_time").is_some(), "{rows:?}");
    let (status, problem) = server.get("/v1/indices/horizons/changes?until_end=true")?;
    ensure!(status == 404 && problem["kind"] == "not_found", "{problem}");
    let named = &document["components"]["schemas"]["IndexName"]["enum"];
    ensure!(named.as_array().map(Vec::len) == Some(rows.len()), "{named}, {rows:?}");
    for (index, count) in &rows {
        ensure!(named.as_array().is_some_and(|named| named.contains(&json!(index))), "{index}: {named}");
        let changes = changes(&server, index, "beginning")?;
        let come_to = apply_changes(&changes)?;
        ensure!(come_to.len() as u64 == *count && *count > 0, "{index}: {} of {count}: {come_to:?}", come_to.len());
        for change in &changes {
            let violations = violations(&document, &document["components"]["schemas"]["Change"], change);
            ensure!(violations.is_empty(), "{change}: {violations:?}");
            ensure!(!change.to_string().contains(SECRET), "{change}");
        }
    }
    // The evidence of the fenced process was added to an existing pending effect.
    let effects = changes(&server, "effects", "beginning")?;
    let late = effects.iter().find(|change| change["run_id"] == CLAIMED && change["operation"] == "update");
    let late = late.context("evidence")?;
    ensure!(
        late["key"] == json!({ "rows": "pending", "run_id": CLAIMED, "kind": "tool_call", "id": "asked" }),
        "{late}"
    );
    ensure!(late["old"]["evidence"] == json!([]) && late["new"]["evidence"][0]["reason"] == "fenced", "{late}");
    // A change of a record equals the line of `show`.
    let shown = server.runlog().json(&["show", RUN])?.exits(0)?.documents()?;
    let records = changes(&server, "records", "beginning")?;
    for line in shown {
        let here =
            |change: &&Value| change["key"]["rows"] == "records" && change["new"]["record_id"] == line["record_id"];
        let change = records.iter().find(|change| here(change) && change["run_id"] == RUN).context("a record")?;
        ensure!(change["new"]["payload"] == line["payload"], "{change} {line}");
    }
    server.terminate()?;
    Ok(())
}

#[test]
fn a_stream_resumes_at_any_cursor_without_gap_or_repeat_also_after_a_rebuild() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let indices = ["effects", "tool_calls", "approvals"];
    let whole = indices.map(|index| changes(&server, index, "beginning")).into_iter().collect::<Result<Vec<_>, _>>()?;
    let resumes_at_any_cursor = |server: &Server| -> anyhow::Result<()> {
        for (index, whole) in indices.iter().zip(&whole) {
            ensure!(whole.len() > 1, "{index} {whole:?}");
            for (at, change) in whole.iter().enumerate() {
                let rest = changes(server, index, cursor(change)?)?;
                ensure!(by_partition(&rest) == by_partition(&whole[at + 1..]), "{index} after {change}: {rest:?}");
            }
        }
        Ok(())
    };
    resumes_at_any_cursor(&server)?;
    server.terminate()?;
    std::fs::remove_dir_all(folder.path().join("index"))?;
    let server = Launch::local(folder.path()).start()?;
    // After catching up, the index is unchanged.
    let (status, found) = server.get("/v1/runs?consistency=latest")?;
    ensure!(status == 200, "{found}");
    resumes_at_any_cursor(&server)?;
    server.terminate()?;
    Ok(())
}

#[test]
fn changes_are_delivered_as_they_are_applied_and_the_command_follows_them() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let turn = |id: &str| {
        json!({ "run_id": "r", "record_id": id, "payload": { "type": "conversation_turn", "message_id": id,
            "kind": "user", "content": id } })
    };
    let (_, first) = server.post("/v1/runs/r/records", &turn("a"))?;
    ensure!(first["outcome"] == "applied", "{first}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = |from: &str| format!("{}/v1/indices/turns/changes?from={from}", server.url);
    let client = server::client()?;
    let change: anyhow::Result<Value> = runtime.block_on(async {
        let mut stream = client.get(url("end")).send().await?;
        let post = client.post(format!("{}/v1/runs/r/records", server.url)).json(&turn("b")).send();
        ensure!(post.await?.status() == 200);
        let mut text = String::new();
        while let Some(bytes) = stream.chunk().await? {
            text.push_str(std::str::from_utf8(&bytes)?);
            let Some(end) = text.find("\n\n") else { continue };
            let data = text[..end].lines().find_map(|line| line.strip_prefix("data: "));
            let Some(data) = data else { continue };
            ensure!(text.contains("id: turns:"), "{text}");
            return Ok(serde_json::from_str(data)?);
        }
        anyhow::bail!("the stream ended: {text}")
    });
    let change = change?;
    ensure!(
        change["key"]["message_id"] == "b" && change["operation"] == "insert" && change["old"].is_null(),
        "{change}"
    );
    // A browser sends its last event id, which overrides the URL.
    let rest: anyhow::Result<String> = runtime.block_on(async {
        let request = client.get(format!("{}&until_end=true", url("beginning")));
        Ok(request.header("last-event-id", cursor(&change)?).send().await?.text().await?)
    });
    ensure!(rest?.trim().is_empty(), "the stream has no later change");

    let runlog = server.runlog();
    let lines = runlog.json(&["tail", "--index", "turns", "--until-end"])?.exits(0)?.documents()?;
    ensure!(lines == changes(&server, "turns", "beginning")?, "{lines:?}");
    let rest = ["tail", "--index", "turns", "--until-end", "--from", cursor(&lines[0])?];
    ensure!(runlog.json(&rest)?.exits(0)?.documents()? == lines[1..]);
    let text = runlog.plain(&["tail", "--index", "turns", "--until-end"])?.exits(0)?.stdout;
    ensure!(text.lines().count() == 2 && text.contains("insert"), "{text}");
    ensure!(runlog.json(&["tail", "--index", "nothing", "--until-end"])?.exits(1)?.error_kind()? == "not_found");
    ensure!(runlog.json(&["tail", "r", "--index", "turns"])?.exits(2)?.error_kind()? == "usage");
    server.terminate()?;
    Ok(())
}

#[test]
fn an_invalid_cursor_is_refused_and_a_skip_of_a_delivered_change_ends_the_stream() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = sample_journal::start(folder.path())?;
    let whole = changes(&server, "effects", "beginning")?;
    let late = whole.iter().find(|change| change["run_id"] == CLAIMED && change["operation"] == "update");
    let late = late.context("evidence")?;
    let refused = |from: &str, expected: u16, kind: &str| -> anyhow::Result<()> {
        let (status, problem) = server.get(&format!("/v1/indices/effects/changes?until_end=true&from={from}"))?;
        ensure!(status == expected && problem["kind"] == kind, "{from}: {status} {problem}");
        Ok(())
    };
    let (places, _) = cursor(late)?.split_once('@').context("a cursor with its log")?;
    let (name, rest) = places.split_once(':').context("a cursor")?;
    refused("nowhere", 400, "usage")?;
    refused(&format!("tool_calls:{rest}"), 400, "usage")?;
    refused(&format!("{name}:{rest}:0.0.0"), 400, "usage")?;
    refused(&format!("{name}:0:{}", rest.split_once(':').context("a layout")?.1), 409, "conflict")?;

    let skip = json!({ "partition": late["position"]["partition"], "offset": late["position"]["offset"], "who": "jo",
        "why": "it is not to be" });
    let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
    ensure!(status == 200, "{skipped}");
    let (_, stream) = server.get(&format!("/v1/indices/effects/changes?until_end=true&from={}", cursor(late)?))?;
    let stream = stream.as_str().context("a stream")?;
    ensure!(stream.contains("event: error") && stream.contains("from the beginning"), "{stream}");
    let again = changes(&server, "effects", "beginning")?;
    ensure!(apply_changes(&again)?.len() as u64 == rows(&server)?["effects"], "the current rows");
    let mut skipped = again.iter().filter(|change| change["position"] == late["position"]);
    ensure!(
        skipped.all(|change| change["new"]["evidence"] == json!([])),
        "a skipped record only changes the basis: {again:?}"
    );
    server.terminate()?;
    Ok(())
}

#[test]
fn the_number_of_open_streams_is_bounded() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let (runtime, client) = (tokio::runtime::Builder::new_current_thread().enable_all().build()?, server::client()?);
    let url = format!("{}/v1/indices/runs/changes", server.url);
    runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..16 {
            let stream = client.get(&url).send().await?;
            ensure!(stream.status() == 200, "{}", stream.text().await?);
            open.push(stream);
        }
        let refused = client.get(&url).send().await?;
        ensure!(refused.status() == 503, "{}", refused.status());
        ensure!(refused.text().await?.contains("unavailable"));
        Ok(())
    })?;
    server.terminate()?;
    Ok(())
}
