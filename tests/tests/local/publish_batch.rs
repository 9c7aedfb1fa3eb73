//! A batch published by the command and over HTTP, and how it is shown.

use anyhow::{Context, ensure};
use runlog_tests::server::Launch;
use serde_json::{Value, json};

fn turn_record(text: &str) -> Value {
    json!({ "run_id": "run", "record_id": text, "payload": { "type": "conversation_turn", "message_id": text, "kind": "user",
        "content": text } })
}

fn batch(id: &str, records: &[Value]) -> Value {
    json!({ "run_id": "run", "record_id": id, "payload": { "type": "batch", "records": records } })
}

#[test]
fn a_published_batch_applies_atomically_and_is_shown_record_by_record() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let request = json!({ "run_id": "run", "record_id": "q", "payload": { "type": "tool_call_requested",
        "request_id": "r", "call_id": "c", "tool_name": "book", "arguments": { "seat": 1 } } });
    let answer = json!({ "run_id": "run", "record_id": "ok", "payload": { "type": "tool_call_completed", "request_record_id": "q",
        "result": "ok" } });
    let good = batch("good", &[turn_record("a"), request, answer]);
    let outcome = runlog.json_with_input(&["publish"], &good.to_string())?.exits(0)?.json()?;
    ensure!(outcome["outcome"] == "applied" && outcome["position"]["index"] == 0, "{outcome}");
    let again = runlog.json_with_input(&["publish"], &good.to_string())?.exits(0)?.json()?;
    ensure!(again["outcome"] == "repeat" && again["position"] == outcome["position"], "{again}");

    let orphan = json!({ "run_id": "run", "record_id": "o", "payload": { "type": "tool_call_completed",
        "request_record_id": "nobody" } });
    let bad = batch("bad", &[turn_record("b"), orphan, turn_record("c")]);
    let (status, refused) = server.post("/v1/runs/run/records", &bad)?;
    ensure!(status == 200 && refused["outcome"] == "refused" && refused["reason"] == "transition", "{refused}");
    ensure!(refused["position"]["index"] == 1, "the refused record: {refused}");
    let place = format!("{}:{}", refused["position"]["partition"], refused["position"]["offset"]);
    let (_, answer) = server.get(&format!("/v1/runs/run/outcome?position={place}:2&record_id=bad"))?;
    ensure!(answer["outcome"] == "refused" && answer["position"]["index"] == 1, "{answer}");
    let (_, answer) = server.post("/v1/runs/run/records", &batch("empty", &[]))?;
    ensure!(answer["reason"] == "batch", "{answer}");
    runlog.json_with_input(&["publish"], &turn_record("d").to_string())?.exits(0)?;

    let expected = [("a", 0, 1, 1), ("q", 1, 2, 2), ("ok", 2, 3, 3)];
    for command in [&["show", "run"][..], &["tail", "run", "--until-end"]] {
        let lines = runlog.json(command)?.exits(0)?.documents()?;
        ensure!(lines.len() == 4, "{command:?}: {lines:?}");
        for (line, (id, index, writer_seq, journal_seq)) in lines.iter().zip(expected) {
            ensure!(
                line["record_id"] == id
                    && line["position"]["index"] == index
                    && line["position"]["offset"] == outcome["position"]["offset"]
                    && line["writer_seq"] == writer_seq
                    && line["journal_seq"] == journal_seq,
                "{command:?} {id}: {line}"
            );
        }
    }
    let lookup = runlog.json(&["lookup", "run", "--tool", "book", "--args", r#"{"seat":1}"#])?.exits(0)?.json()?;
    ensure!(
        lookup["status"] == "completed" && lookup["result"] == "ok" && lookup["position"]["index"] == 2,
        "{lookup}"
    );
    runlog.verified()?;
    server.terminate()?;
    Ok(())
}

#[test]
fn open_states_and_events_are_answered_over_http() -> anyhow::Result<()> {
    let server = Launch::temporary()?.start()?;
    let runlog = server.runlog();
    let example = |tag: &str| -> anyhow::Result<Value> {
        let file = format!("{}/../schemas/examples/{tag}.json", env!("CARGO_MANIFEST_DIR"));
        Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
    };
    for tag in ["effect_intent", "wake", "run_message", "write_back_staged", "tool", "code_edit_proposal"] {
        runlog.json_with_input(&["publish"], &example(tag)?.to_string())?.exits(0)?;
    }
    let recovery = runlog.json(&["recover", "run-42"])?.json()?;
    let open = |name: &str| recovery[name][0]["id"].clone();
    ensure!(
        (open("wakes"), open("messages"), open("write_backs")) == (json!("wake-1"), json!("m-9"), json!("0")),
        "{recovery}"
    );
    let pending: Vec<_> = recovery["pending"].as_array().context("a list")?.iter().collect();
    ensure!(pending.len() == 2 && pending.iter().all(|effect| effect["class"] == "retry_safe"), "{recovery}");
    ensure!((&pending[0]["kind"], &pending[0]["id"]) == (&json!("effect"), &json!("effect.7")), "{recovery}");
    ensure!((&pending[1]["kind"], &pending[1]["id"]) == (&json!("tool"), &json!("call.7")), "{recovery}");
    ensure!(pending[0]["fingerprint"].is_null() && pending[0]["occurrence"].is_null(), "{recovery}");
    let resolved = ["effects", "resolve", "run-42", "effect.7", "--give-up", "--who", "jo", "--why", "gone", "--yes"];
    runlog.json(&resolved)?.exits(0)?;
    let effects = runlog.answer(&["effects"])?;
    let status = |id: &str| {
        let effects = effects["effects"].as_array()?;
        effects.iter().find(|effect| effect["id"] == id).map(|effect| effect["status"].clone())
    };
    ensure!((status("call.7"), status("effect.7")) == (Some(json!("pending")), Some(json!("failed"))), "{effects}");
    let (_, proposals) = server.get("/v1/runs/run-42/standing/proposals")?;
    ensure!(proposals["standing"][0]["status"] == "pending", "{proposals}");
    let (status, _) = server.get("/v1/runs/run-42/standing/nonsense")?;
    ensure!(status == 404, "{status}");
    let (_, events) = server.get("/v1/events?family=wake&consistency=latest")?;
    ensure!(events["events"][0]["record_id"] == "42-36", "{events}");
    let (_, events) = server.get("/v1/events?subject=run:run-42&run=run-42&limit=2")?;
    ensure!(events["events"].as_array().is_some_and(|events| events.len() == 2), "{events}");
    ensure!(events["next_cursor"].is_string(), "{events}");
    let (status, answer) = server.get("/v1/events")?;
    ensure!(status == 400 && answer["kind"] == "usage", "{answer}");
    server.terminate()?;
    Ok(())
}
