//! Content deleted by retention: the operator's command, and the answers to agents and people afterwards.

use anyhow::{Context, ensure};
use runlog_producer::{Answer, Config, Error, Journal, Json, Run, Runlog};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};
use tempfile::tempdir;

const RUN: &str = "run";
const FAR: &str = "2100-01-01T00:00:00Z";

fn run_record(id: &str, payload: Value) -> Value {
    json!({ "run_id": RUN, "record_id": id, "payload": payload })
}

fn turn_record(id: &str) -> Value {
    run_record(id, json!({ "type": "conversation_turn", "message_id": id, "kind": "user", "content": "secret" }))
}

fn request(id: &str) -> Value {
    let arguments = json!({ "call": id });
    run_record(
        id,
        json!({ "type": "tool_call_requested", "request_id": id, "call_id": "c", "tool_name": "book", "arguments": arguments }),
    )
}

fn completed(id: &str, request: &str) -> Value {
    run_record(id, json!({ "type": "tool_call_completed", "request_record_id": request, "result": { "secret": 1 } }))
}

fn failed(id: &str, request: &str) -> Value {
    let payload = json!({ "type": "tool_call_failed", "request_record_id": request, "error_kind": "full",
        "error_message": "secret" });
    run_record(id, payload)
}

/// Removes the content of a family. Returns the horizon's position in the run's partition.
fn drop_content(server: &Server, family: &str, until: &str) -> anyhow::Result<Value> {
    let typed = ["retention", family, "--until", until, "--who", "jo", "--why", "policy", "--yes"];
    let outcomes = server.runlog().json(&typed)?.exits(0)?.json()?;
    let outcomes = outcomes["outcomes"].as_array().context("outcomes")?;
    ensure!(outcomes.len() == server.partitions as usize, "one for each partition: {outcomes:?}");
    let (_, run) = server.get(&format!("/v1/runs/{RUN}"))?;
    let own = |outcome: &&Value| outcome["position"]["partition"] == run["position"]["partition"];
    Ok(outcomes.iter().find(own).context("the run's partition")?["position"].clone())
}

fn lookup(server: &Server, request: &str) -> anyhow::Result<Value> {
    let arguments = json!({ "call": request }).to_string();
    server.runlog().json(&["lookup", RUN, "--tool", "book", "--args", &arguments])?.exits(0)?.json()
}

/// All answers about the run.
fn answers(server: &Server) -> anyhow::Result<Value> {
    let mut answers = Vec::new();
    for command in [
        &["show", RUN][..],
        &["show", RUN, "--raw"],
        &["tail", RUN, "--until-end", "--raw"],
        &["show", RUN, "--raw", "--as-of", FAR],
    ] {
        answers.push(server.runlog().json(command)?.exits(0)?.documents()?.into());
    }
    for path in ["recovery?full=true", "calls/q", "calls/f", "facts"] {
        let (status, mut answer) = server.get(&format!("/v1/runs/{RUN}/{path}"))?;
        ensure!(status == 200, "{path}: {answer}");
        if let Some(answer) = answer.as_object_mut() {
            answer.remove("at");
        }
        answers.push(answer);
    }
    answers.push(server.get(&format!("/v1/events?run={RUN}"))?.1);
    Ok(answers.into())
}

#[test]
fn only_content_before_a_horizon_is_absent_from_answers() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path());
    let server = launch.start()?;
    let runlog = server.runlog();
    runlog.publish(&[
        turn_record("t"),
        request("q"),
        completed("ok", "q"),
        request("f"),
        failed("no", "f"),
        request("p"),
    ])?;
    let before = runlog.json(&["show", RUN, "--raw"])?.exits(0)?.documents()?;
    let mut horizons = Vec::new();
    for family in ["conversation_turn", "tool_call_completed", "tool_call_failed"] {
        horizons.push(drop_content(&server, family, FAR)?);
    }
    // After the horizon, though appended before its time.
    runlog.publish(&[turn_record("later")])?;

    for command in [&["show", RUN][..], &["show", RUN, "--raw"], &["tail", RUN, "--until-end", "--raw"]] {
        let lines = runlog.json(command)?.exits(0)?.documents()?;
        ensure!(lines.len() == 7, "{command:?}: {lines:?}");
        for (at, horizon) in [(0, 0), (2, 1), (4, 2)] {
            ensure!(lines[at]["payload"] == json!({ "dropped": horizons[horizon] }), "{command:?}: {}", lines[at]);
            for name in ["position", "record_id", "payload_type", "journal_seq", "writer_seq", "cursor", "timestamp"] {
                ensure!(lines[at][name] == before[at][name], "{name} stays: {}", lines[at]);
            }
        }
        ensure!(lines[1]["payload"]["arguments"] == json!({ "call": "q" }), "another family: {}", lines[1]);
        ensure!(lines[6]["payload"]["content"] == "secret", "after the horizon: {}", lines[6]);
    }
    let done = lookup(&server, "q")?;
    ensure!(
        done["status"] == "completed" && done["result"].is_null() && done["missing_content"] == json!([]),
        "{done}"
    );
    ensure!(done["arguments"] == json!({ "call": "q" }) && done["dropped"][0]["dropped"] == horizons[1], "{done}");
    ensure!(done["dropped"][0]["record_id"] == "ok" && done["dropped"][0]["position"] == done["position"], "{done}");
    let not = lookup(&server, "f")?;
    ensure!(
        not["status"] == "failed" && not["error"].is_null() && not["dropped"][0]["dropped"] == horizons[2],
        "{not}"
    );
    let recovery = runlog.json(&["recover", RUN])?.exits(1)?.json()?;
    ensure!(
        recovery["missing_content"] == json!([]) && recovery["completed"][0]["status"] == "completed",
        "{recovery}"
    );
    let all_answers = answers(&server)?;
    ensure!(all_answers.to_string().matches("secret").count() == 4, "the later turn, in each query: {all_answers}");

    runlog.verified()?;
    server.terminate()?;
    std::fs::remove_dir_all(folder.path().join("index"))?;
    let server = launch.start()?;
    ensure!(answers(&server)? == all_answers, "built again from the log the answers are the same");
    Ok(())
}

#[test]
fn a_repeated_horizon_is_harmless_and_the_furthest_one_is_listed_and_named() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    runlog.publish(&[turn_record("t")])?;
    let mut listed = runlog.json(&["retention"])?.exits(0)?.json()?;
    ensure!(listed["horizons"] == json!([]), "{listed}");
    let old = drop_content(&server, "conversation_turn", "2001-01-01T01:00:00+01:00")?;
    let shown = || runlog.json(&["show", RUN])?.exits(0)?.json();
    ensure!(shown()?["payload"]["content"] == "secret", "the log took it later than that");
    drop_content(&server, "conversation_turn", FAR)?;
    let again = drop_content(&server, "conversation_turn", FAR)?;
    ensure!(shown()?["payload"] == json!({ "dropped": again }), "{again}");
    drop_content(&server, "wake", "2001-01-01T00:00:00Z")?;
    listed = runlog.json(&["retention", "--limit", "100"])?.exits(0)?.json()?;
    let listed = listed["horizons"].as_array().context("a list")?;
    ensure!(listed.len() == 2 * server.partitions as usize, "{listed:?}");
    let turns = listed.iter().find(|horizon| horizon["position"] == again).context("the last one")?;
    ensure!(turns["until"] == "2100-01-01T00:00:00.000Z" && turns["who"] == "jo", "{turns}");
    ensure!(!listed.iter().any(|horizon| horizon["position"] == old), "a covered horizon is listed");
    // In one partition only, over HTTP.
    let body = json!({ "partition": 0, "family": "tool", "until": FAR, "who": "jo", "why": "policy" });
    let (status, appended) = server.post("/v1/horizons", &body)?;
    ensure!(status == 200 && appended["outcomes"].as_array().is_some_and(|all| all.len() == 1), "{appended}");
    let (mut found, mut cursor) = (0, String::new());
    for _ in 0..20 {
        let (_, page) = server.get(&format!("/v1/horizons?limit=2{cursor}"))?;
        found += page["horizons"].as_array().context("a list")?.len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    ensure!(found == 2 * server.partitions as usize + 1, "page by page as many: {found}");
    Ok(())
}

#[test]
fn only_a_family_with_content_has_a_horizon_and_a_horizon_names_its_author() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    for family in ["run_claim", "genesis", "skip", "retention_horizon", "batch", "stored_payload", "nonsense", ""] {
        let body = json!({ "family": family, "until": FAR, "who": "jo", "why": "policy" });
        let (status, problem) = server.post("/v1/horizons", &body)?;
        ensure!(status == 400 && problem["kind"] == "invalid", "{family}: {problem}");
    }
    let typed = ["retention", "run_claim", "--until", FAR, "--who", "jo", "--why", "policy", "--yes"];
    ensure!(server.runlog().json(&typed)?.exits(3)?.error_kind()? == "invalid");
    for body in [
        json!({ "family": "wake", "until": FAR, "who": "", "why": "policy" }),
        json!({ "family": "wake", "until": "tomorrow", "who": "jo", "why": "policy" }),
        json!({ "family": "wake", "until": FAR, "who": "jo", "why": "policy", "partition": 99 }),
    ] {
        let (status, problem) = server.post("/v1/horizons", &body)?;
        ensure!(status == 400 && problem["kind"] == "usage", "{problem}");
    }
    server.runlog().json(&["retention", "wake", "--until", FAR])?.exits(2)?;
    ensure!(server.get("/v1/horizons")?.1["horizons"] == json!([]), "no horizon was appended");
    Ok(())
}

/// Calls the tool; an effect that must not run has no result.
async fn book(run: &Run, result: Option<Json>) -> Result<Answer, Error> {
    let tool = run.tool("book", &json!({ "call": "q" }));
    tool.once(|_| async { Ok(result.expect("the effect does not run")) }).await
}

#[test]
fn a_call_whose_result_was_dropped_is_not_run_again() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let config = || Config::new(Journal::Http(server.url.clone()), "test");
    runtime.block_on(async {
        let run = Runlog::connect(config()).await?.open(RUN).await?;
        let answer = book(&run, Some(Json::from(json!("ok")))).await?;
        ensure!(!answer.recorded);
        Ok(())
    })?;
    drop_content(&server, "tool_call_completed", FAR)?;
    drop_content(&server, "tool_call_requested", FAR)?;
    let done = lookup(&server, "q")?;
    ensure!(done["status"] == "completed" && done["arguments"].is_null(), "{done}");
    ensure!(done["dropped"].as_array().is_some_and(|dropped| dropped.len() == 2), "{done}");
    runtime.block_on(async {
        let run = Runlog::connect(config()).await?.open(RUN).await?;
        let error = book(&run, None).await.err().context("an answer that is not there")?;
        ensure!(error.kind() == ErrorKind::MissingContent && error.to_string().contains("horizon"), "{error}");
        Ok(())
    })
}
