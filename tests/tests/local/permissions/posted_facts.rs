//! Keys that a client may write wrong: a key without a visible character is refused.

use super::{NONE, Writer, both};
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
