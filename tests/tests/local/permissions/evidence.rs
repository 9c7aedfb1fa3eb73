//! Results that are refused with their batch, or among many others, are evidence too.

use super::{NONE, Writer, both, decide, not_done, pending};
use anyhow::ensure;
use serde_json::{Value, json};

fn result_of(call: &str, booking: &str) -> Value {
    json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": booking } })
}

fn numbered(record: Value, number: u64) -> Value {
    let mut record = record;
    (record["writer_seq"], record["journal_seq"]) = (json!(number), json!(number));
    record
}

/// The record ids of a call's evidence.
fn evidence(call: &Value) -> Vec<&str> {
    call["evidence"].as_array().into_iter().flatten().filter_map(|one| one["record_id"].as_str()).collect()
}

#[test]
fn a_result_in_a_malformed_batch_is_evidence() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let seen = pending(server, "pay")?;
        says!(not_done(server, "pay"), "applied");
        let result = numbered(first.record("booked", &result_of("pay", "B-1"), &NONE), 2);
        let turn = json!({ "type": "conversation_turn", "message_id": "m", "kind": "user", "content": "hello" });
        let records = [result, numbered(first.record("turn", &turn, &NONE), 9)];
        says!(first.append("batch", &json!({ "type": "batch", "records": records }), &NONE), "refused batch");

        let now = pending(server, "pay")?;
        ensure!(evidence(&now) == ["booked"] && now["evidence"][0]["reason"] == "batch", "{now}");
        ensure!(now["class"] == "reconcile_required", "the result revokes the decision: {now}");
        says!(first.attempt("again", "pay", 2, &NONE), "reconcile_required");
        says!(decide(server, "pay", "not_done", &json!({ "basis": seen["basis"] })), "conflict");
        says!(decide(server, "pay", "not_done", &json!({ "revision": now["revision"] })), "conflict");
        // A decision at version 2 is judged as before.
        ensure!(now["revision"] == 2, "{now}");
        says!(decide(server, "pay", "not_done", &json!({ "basis": now["basis"], "evidence": "booked" })), "applied");
        Ok(())
    })
}

#[test]
fn a_result_of_another_epoch_in_a_batch_is_evidence() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let second = Writer::claim(server)?;
        let records = [first.record("booked", &result_of("pay", "B-1"), &NONE)];
        says!(second.append("batch", &json!({ "type": "batch", "records": records }), &NONE), "refused batch");
        let now = pending(server, "pay")?;
        ensure!(evidence(&now) == ["booked"] && now["evidence"][0]["epoch"] == first.epoch, "{now}");
        Ok(())
    })
}
