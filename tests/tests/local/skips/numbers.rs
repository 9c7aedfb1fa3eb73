//! A skip of a record that took no number can change the numbers of later records all the same: a decision that becomes stale changes
//! which records are applied. What was applied under the old numbers still leaves a trace.

use super::{RUN, Writer, completed, decide, of_call, outcome, pending, request, skip, turn};
use anyhow::{Context, ensure};
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};

/// A run with a pending call, evidence about it that took no number, and a decision at this evidence. Returns the run's writer and the
/// evidence's offset.
fn decided_at_evidence(server: &Server) -> anyhow::Result<(Writer, u64)> {
    let old = Writer::claim(server)?;
    old.applied(server, "pay", &request("pay"))?;
    let writer = Writer::claim(server)?;
    let (_, evidence) = old.append(server, "late", &completed("pay"))?;
    ensure!(evidence["reason"] == "fenced", "{evidence}");
    ensure!(decide(server, "pay", "adopt")?["outcome"] == "applied");
    Ok((writer, evidence["position"]["offset"].as_u64().context("an offset")?))
}

fn member(id: &str, payload: &Value) -> Value {
    json!({ "run_id": RUN, "record_id": id, "payload": payload })
}

fn batch(members: &[Value]) -> Value {
    json!({ "type": "batch", "records": members })
}

/// A checkpoint with one message: its own or its base's.
fn checkpoint(id: &str, number: u32, base: Option<&str>) -> Value {
    let mut payload = json!({ "type": "loop_checkpoint", "checkpoint_id": id, "checkpoint_seq": number, "covers_journal_seq": 0,
        "schema_version": 1, "messages": [], "state": null });
    match base {
        Some(base) => {
            payload["base"] = json!(base);
            payload["spans"] = json!([{ "from_base": true, "from": 0, "count": 1 }]);
            payload["state_hash"] = json!("0".repeat(64));
        }
        None => payload["messages"] = json!([{ "role": "user", "content": "hi" }]),
    }
    payload
}

/// After the skip, the call `charge` is pending although its request is refused for `reason`.
fn keeps_its_trace(server: &Server, charge: u64, reason: &str) -> anyhow::Result<()> {
    let after = outcome(server, charge)?;
    ensure!(after["reason"] == reason, "{after}");
    let pending = pending(server)?;
    ensure!(of_call(&pending, "charge")?["class"] == "reconcile_required", "{pending}");
    let (_, verified) = server.post("/v1/verify", &json!({}))?;
    ensure!(verified["equal"] == true, "{verified}");
    Ok(())
}

#[test]
fn a_request_whose_number_shifts_because_a_decision_becomes_stale_leaves_a_trace() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let (writer, evidence) = decided_at_evidence(&server)?;
    // The call has ended, so the batch is refused. Without the decision it is applied, and the turn is a repeat without a number.
    let mut other = completed("pay");
    other["result"] = json!({ "booking": "B-2" });
    let both = batch(&[member("say", &turn("hi")), member("paid", &other)]);
    let (_, refused) = writer.append(&server, "both", &both)?;
    ensure!(refused["reason"] == "transition", "{refused}");
    writer.applied(&server, "say", &turn("hi"))?;
    let charge = writer.applied(&server, "charge", &request("charge"))?;
    skip(&server, evidence)?;
    keeps_its_trace(&server, charge, "sequence")?;
    server.terminate()?;
    Ok(())
}

#[test]
fn a_request_beside_a_checkpoint_whose_base_is_no_longer_applied_leaves_a_trace() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).with("--write-schema").with("3").start()?;
    let (writer, evidence) = decided_at_evidence(&server)?;
    // The first batch is refused while a call of an earlier process waits for a decision.
    let mut book = member("book", &request("book"));
    book["facts"] = json!({ "unresolved": "refuse" });
    writer.applied(&server, "first", &batch(&[member("c1", &checkpoint("c1", 1, None)), book]))?;
    let charge = member("charge", &request("charge"));
    let charge =
        writer.applied(&server, "second", &batch(&[member("c2", &checkpoint("c2", 2, Some("c1"))), charge]))?;
    skip(&server, evidence)?;
    keeps_its_trace(&server, charge, "checkpoint")?;
    server.terminate()?;
    Ok(())
}

#[test]
fn a_request_that_a_claim_with_the_id_of_the_skipped_record_fences_leaves_a_trace() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    let victim = writer.applied(&server, "x", &turn("hi"))?;
    let claim = json!({ "run_id": RUN, "record_id": "x", "writer_id": "other", "writer_epoch": 2,
        "payload": { "type": "run_claim", "writer_id": "other", "epoch": 2, "claimed_by": "other" } });
    let (_, refused) = server.post("/v1/runs/r/records", &claim)?;
    ensure!(refused["reason"] == "conflict", "{refused}");
    let charge = writer.applied(&server, "charge", &request("charge"))?;
    skip(&server, victim)?;
    keeps_its_trace(&server, charge, "fenced")?;
    server.terminate()?;
    Ok(())
}

#[test]
fn a_result_that_a_skip_displaces_leaves_its_call_to_no_earlier_decision() -> anyhow::Result<()> {
    let server = Launch::temporary()?.partitions(1).start()?;
    let writer = Writer::claim(&server)?;
    writer.applied(&server, "pay", &request("pay"))?;
    let victim = writer.applied(&server, "say", &turn("hi"))?;
    let failed = json!({ "type": "tool_call_failed", "request_record_id": "pay", "error_kind": "timeout", "error_message": "late" });
    writer.applied(&server, "failed", &failed)?;
    let decision = json!({ "run_id": RUN, "record_id": "d", "writer_id": writer.id, "writer_epoch": writer.epoch,
        "facts": { "epoch": writer.epoch }, "payload": { "type": "effect_resolution", "request_record_id": "pay",
        "decision": "not_done", "who": "agent", "why": "not started" } });
    let (_, refused) = server.post("/v1/runs/r/records", &decision)?;
    ensure!(refused["reason"] == "transition", "{refused}");
    skip(&server, victim)?;
    let decided = outcome(&server, refused["position"]["offset"].as_u64().context("an offset")?)?;
    ensure!(decided["reason"] == "stale_decision", "{decided}");
    let now = of_call(&pending(&server)?, "pay")?;
    ensure!(now["class"] == "reconcile_required", "{now}");
    server.terminate()?;
    Ok(())
}
