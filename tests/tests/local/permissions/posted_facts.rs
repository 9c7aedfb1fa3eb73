//! Keys and facts that a client may write wrong: a key without a visible character is refused, and a fact that the record cannot
//! have is warned of.

use super::{NONE, Writer, both, outcome_text};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const BLANK: [&str; 6] = [" ", "\t", "\u{a0}", "\u{200b}", "\u{feff}", " \u{2800} "];

#[test]
fn a_blank_key_is_invalid() -> anyhow::Result<()> {
    both(|server, writer| {
        for (nth, blank) in BLANK.iter().enumerate() {
            for member in ["idempotency_key", "dedupe_key"] {
                says!(writer.intent(&format!("{member}-{nth}"), &json!({ member: blank }), &NONE), "invalid");
            }
            let (_, answer) = writer.post(&blank_author(writer, blank))?;
            ensure!(answer["kind"] == "invalid", "{answer}");
        }
        says!(writer.intent("keyed", &json!({ "idempotency_key": " k " }), &NONE), "applied");
        let (_, recovery) = server.get("/v1/runs/r/recovery?from_start=true")?;
        ensure!(recovery["pending"].as_array().context("no calls")?.len() == 1, "{recovery}");
        Ok(())
    })
}

fn blank_author(writer: &Writer<'_>, blank: &str) -> Value {
    let payload = json!({ "type": "effect_resolution", "request_record_id": "pay", "decision": "give_up", "who": blank,
        "why": "w" });
    writer.record("without an author", &payload, &json!({ "revision": 1 }))
}

#[test]
fn a_fact_without_effect_is_warned_of_and_refused_with_strict() -> anyhow::Result<()> {
    both(|server, writer| {
        let call = |id: &str, facts: &Value| {
            let payload = json!({ "type": "tool_call_requested", "request_id": "q", "call_id": id, "tool_name": "pay",
                "arguments": {} });
            writer.record(id, &payload, facts)
        };
        let wrong = [json!({ "unresolve": "refuse" }), json!({ "Repeatable": true }), json!({ "revision": 1 })];
        for (nth, facts) in wrong.iter().enumerate() {
            let (name, _) = facts.as_object().and_then(|facts| facts.iter().next()).context("a fact")?;
            let record = call(&format!("call-{nth}"), facts);
            let strict = server.post("/v1/runs/r/records?strict=true", &record)?;
            ensure!(strict.1["detail"].as_str().is_some_and(|detail| detail.contains(name)), "{strict:?}");
            ensure!(outcome_text(strict)? == "invalid");
            let (_, answer) = writer.post(&record)?;
            ensure!(answer["outcome"] == "applied", "{answer}");
            ensure!(answer["warnings"][0]["pointer"] == format!("/facts/{name}"), "{answer}");
        }
        let batch = json!({ "type": "batch", "records": [call("member", &wrong[0])] });
        let (_, answer) = writer.post(&writer.record("batch", &batch, &NONE))?;
        ensure!(answer["warnings"][0]["pointer"] == "/payload/records/0/facts/unresolve", "{answer}");
        let (_, answer) = writer.post(&call("right", &NONE))?;
        ensure!(answer["warnings"] == json!([]), "{answer}");
        Ok(())
    })
}
