//! Which facts hold at a time, over HTTP and by the command, from the publication to the display.

use anyhow::{Context, ensure};
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};

const RUN: &str = "run";

/// A time of one day, as typed.
fn time(clock: &str) -> String {
    format!("2026-11-22T{clock}:00Z")
}

/// The same time as recorded: 2026-11-22T00:00:00Z is 1,795,305,600,000.
fn millis(clock: &str) -> i64 {
    let (hours, minutes) = clock.split_once(':').expect("HH:MM");
    let number = |text: &str| text.parse::<i64>().expect("a number");
    1_795_305_600_000 + (number(hours) * 60 + number(minutes)) * 60_000
}

fn run_record(id: &str, valid: Option<&str>, payload: Value) -> Value {
    let mut record = json!({ "run_id": RUN, "record_id": id, "payload": payload });
    if let Some(clock) = valid {
        record["validity"] = json!({ "at": millis(clock), "is_valid": true });
    }
    record
}

fn turn_record(id: &str, message: &str, valid: &str) -> Value {
    let payload = json!({ "type": "conversation_turn", "message_id": message, "kind": "user", "content": id });
    run_record(id, Some(valid), payload)
}

fn request(id: &str, valid: &str) -> Value {
    let payload = json!({ "type": "tool_call_requested", "request_id": id, "call_id": "c", "tool_name": "book",
        "arguments": { "seat": 1 } });
    run_record(id, Some(valid), payload)
}

fn completed(id: &str, request: &str, valid: &str) -> Value {
    let payload = json!({ "type": "tool_call_completed", "request_record_id": request, "result": "ok" });
    run_record(id, Some(valid), payload)
}

fn retraction(id: &str, of: &str, valid: &str) -> Value {
    let payload = json!({ "type": "retraction", "retracted_record_id": of, "who": "jo", "why": "said by mistake" });
    let mut record = run_record(id, Some(valid), payload);
    record["validity"]["is_valid"] = false.into();
    record
}

/// The records that state the facts at a time, by id: as the server lists facts, and as the command shows lines.
fn facts_at(server: &Server, clock: &str) -> anyhow::Result<Vec<String>> {
    let (status, page) = server.get(&format!("/v1/runs/{RUN}/facts?at={}", time(clock)))?;
    ensure!(status == 200 && page["next_cursor"].is_null(), "{status} {page}");
    let ids =
        |items: &[Value]| items.iter().map(|item| item["record_id"].as_str().unwrap_or_default().to_owned()).collect();
    let facts: Vec<String> = ids(page["facts"].as_array().context("facts")?);
    let lines = server.runlog().json(&["show", RUN, "--as-of", &time(clock)])?.exits(0)?.documents()?;
    let shown: Vec<String> = ids(&lines);
    ensure!(facts == shown, "{clock}: facts {facts:?}, shown {shown:?}");
    Ok(facts)
}

#[test]
fn a_call_as_of_a_time_has_the_state_stated_for_it() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    runlog.publish(&[request("q", "10:00"), completed("ok", "q", "10:10")])?;
    for (clock, expected) in [("09:59", None), ("10:00", Some("q")), ("10:09", Some("q")), ("10:10", Some("ok"))] {
        ensure!(facts_at(&server, clock)? == Vec::from_iter(expected), "{clock}");
    }
    // A second request is another call, and states no fact of the first.
    runlog.publish(&[request("again", "10:20")])?;
    ensure!(facts_at(&server, "10:20")? == ["ok", "again"]);
    let (_, page) = server.get(&format!("/v1/runs/{RUN}/facts?at={}&family=tool_call", time("10:20")))?;
    let fact = &page["facts"][0];
    ensure!(fact["family"] == "tool_call" && fact["key"] == "q" && fact["status"] == "completed", "{fact}");
    ensure!(fact["at"] == "2026-11-22T10:10:00.000Z" && fact["at_millis"] == millis("10:10"), "{fact}");
    let arguments = r#"{"seat":1}"#;
    let lookup = ["lookup", RUN, "--tool", "book", "--args", arguments, "--occurrence", "1"];
    ensure!(runlog.json(&lookup)?.exits(0)?.json()?["status"] == "completed");
    // An operator's decision ends a call as well.
    runlog
        .json(&[
            "effects",
            "resolve",
            RUN,
            "again",
            "--give-up",
            "--who",
            "jo",
            "--why",
            "the outcome is unknown",
            "--yes",
        ])?
        .exits(0)?;
    let (_, page) = server.get(&format!("/v1/runs/{RUN}/facts?at=2100-01-01T00:00:00%2B02:00"))?;
    let given_up = &page["facts"][1];
    ensure!(given_up["key"] == "again" && given_up["status"] == "give_up", "{page}");
    runlog.verified()?;
    Ok(())
}

#[test]
fn a_retraction_of_a_batch_or_of_a_record_without_a_fact_has_no_effect() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let inner = [turn_record("a", "m", "10:00"), turn_record("b", "n", "10:00")];
    let batch = json!({ "run_id": RUN, "record_id": "batch", "payload": { "type": "batch", "records": inner } });
    runlog.publish(&[batch, retraction("r", "nobody", "10:10")])?;
    runlog.publish(&[retraction("r1", "r", "10:10"), retraction("r2", "batch", "10:10")])?;
    ensure!(facts_at(&server, "10:10")? == ["a", "b"], "{:?}", facts_at(&server, "10:10")?);
    Ok(())
}

#[test]
fn pages_of_facts_continue_where_the_last_one_ended_despite_writes_in_between() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let turns: Vec<Value> = (0..5).map(|n| turn_record(&format!("t{n}"), &format!("m{n}"), "10:00")).collect();
    runlog.publish(&turns)?;
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for page_number in 0..4 {
        let path = format!("/v1/runs/{RUN}/facts?at={}&limit=2{cursor}", time("10:00"));
        let (_, page) = server.get(&path)?;
        found.extend(page["facts"].as_array().context("facts")?.iter().map(|fact| fact["key"].clone()));
        // One record after the cursor is retracted, one before it is stated again.
        if page_number == 0 {
            runlog.publish(&[
                retraction("r", "t3", "10:00"),
                turn_record("new", "m0", "10:00"),
                turn_record("t5", "m5", "09:00"),
            ])?;
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    // At the tie m3 still holds; m0 is stated by a later record now, so it appears again.
    ensure!(found == ["m0", "m1", "m2", "m3", "m4", "m0", "m5"], "{found:?}");
    Ok(())
}

#[test]
fn queries_that_cannot_be_as_of_a_time_are_refused_and_lines_are_masked() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let (status, problem) = server.get(&format!("/v1/runs/nobody/facts?at={}", time("10:00")))?;
    ensure!(status == 404 && problem["kind"] == "not_found", "{problem}");
    ensure!(runlog.json(&["show", "nobody", "--as-of", &time("10:00")])?.exits(1)?.error_kind()? == "not_found");
    let mut call = request("q", "10:00");
    call["privacy"] = "content_refs_only".into();
    runlog.publish(&[call, turn_record("a", "m", "10:00")])?;
    ensure!(runlog.json(&["show", RUN, "--as-of", "2026-13-01T00:00:00Z"])?.exits(2)?.error_kind()? == "usage");
    for command in ["checkpoint", "recover"] {
        let refused = runlog.json(&[command, RUN, "--as-of", &time("10:00")])?.exits(2)?;
        ensure!(refused.error_kind()? == "usage", "{command}");
    }
    let shown = runlog.json(&["show", RUN, "--as-of", "2026-11-22T12:00:00+02:00"])?.exits(0)?.documents()?;
    let earlier = runlog.json(&["show", RUN, "--as-of", "2026-11-22T11:59:00+02:00"])?.exits(0)?.documents()?;
    ensure!(earlier.is_empty(), "it is a time of another zone: {earlier:?}");
    let masked = json!({ "masked": "content_refs_only" });
    ensure!(shown.len() == 2 && shown[0]["payload"]["arguments"] == masked, "{shown:?}");
    let raw = runlog.json(&["show", RUN, "--raw", "--as-of", &time("10:00")])?.exits(0)?.documents()?;
    ensure!(raw[0]["payload"]["arguments"] == json!({ "seat": 1 }), "{raw:?}");
    Ok(())
}
