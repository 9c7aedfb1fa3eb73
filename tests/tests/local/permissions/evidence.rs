//! Results that are refused with their batch, or among many others, are evidence too.

use super::{NONE, Writer, both, decide, not_done, pending, says_bases};
use anyhow::{Context, ensure};
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

/// Appends so many results of somebody who started nothing.
fn flood(server: &runlog_tests::server::Server, call: &str, results: usize) -> anyhow::Result<()> {
    let stranger = Writer { server, id: json!("nobody"), epoch: json!(0) };
    for nth in 0..results {
        let answer = stranger.append(&format!("{call} fake {nth}"), &result_of(call, &format!("fake {nth}")), &NONE)?;
        ensure!(answer == "refused fenced" || answer == "refused transition", "{answer}");
    }
    Ok(())
}

#[test]
fn results_of_others_do_not_push_out_that_of_the_process_that_started_the_call() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        Writer::claim(server)?;
        says!(first.failed("busy", "pay"), "refused fenced");
        says!(first.append("booked", &result_of("pay", "B-1"), &NONE), "refused fenced");
        flood(server, "pay", 40)?;
        let now = pending(server, "pay")?;
        let adoptable: Vec<_> =
            now["evidence"].as_array().into_iter().flatten().filter(|one| one["adoptable"] == true).collect();
        ensure!(adoptable.len() == 1 && adoptable[0]["record_id"] == "booked", "{now}");
        // The call was started once, so its process has one result that stays.
        ensure!(evidence(&now).len() == 17 && now["evidence_dropped"] == 25, "{now}");
        let evidence = json!({ "basis": now["basis"], "revision": now["revision"], "evidence": "booked" });
        let adopted = decide(server, "pay", "adopt", &evidence)?;
        if says_bases(server)? {
            ensure!(adopted == "applied", "{adopted}");
            let (_, call) = server.get("/v1/runs/r/calls/pay")?;
            ensure!(call["result"]["booking"] == "B-1", "{call}");
        } else {
            // A decision of version 2 reads other results, so the server refuses it.
            ensure!(adopted == "conflict", "{adopted}");
        }
        Ok(())
    })
}

#[test]
fn results_of_others_do_not_push_out_a_contradiction() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        Writer::claim(server)?;
        let now = pending(server, "pay")?;
        let done = json!({ "basis": now["basis"], "revision": now["revision"], "result": { "booking": "B-0" } });
        says!(decide(server, "pay", "done", &done), "applied");
        says!(first.append("booked", &result_of("pay", "B-1"), &NONE), "refused fenced");
        flood(server, "pay", 20)?;
        let (_, listed) = server.get("/v1/effects?contradicted=true&consistency=latest")?;
        let effect = listed["effects"].as_array().and_then(|all| all.first()).context("an effect")?;
        let ids = effect["contradicting"].as_array().into_iter().flatten().map(|one| &one["record_id"]);
        let ids: Vec<_> = ids.collect();
        ensure!(ids.len() == 17 && ids[0] == "booked" && effect["contradictions"] == 21, "{effect}");
        Ok(())
    })
}
