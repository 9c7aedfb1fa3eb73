//! Claims about one schema version, or about the newest version that a server may write.

use super::{NONE, Writer, both, decide, not_done, outcome_text, pending, start};
use anyhow::ensure;
use runlog_tests::server::{Launch, Server};
use serde_json::{Value, json};
use tempfile::tempdir;

#[test]
fn a_skip_of_evidence_permits_nothing() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = || start(folder.path(), "3");
    let server = launch()?;
    let first = Writer::claim(&server)?;
    says!(first.intent("pay", &NONE, &NONE), "applied");
    says!(not_done(&server, "pay"), "applied");
    let basis = json!({ "basis": pending(&server, "pay")?["basis"] });
    let second = Writer::claim(&server)?;
    let done = json!({ "type": "tool_call_completed", "request_record_id": "pay", "result": { "booking": "B-1" } });
    let (_, evidence) = first.post(&first.record("pay-result", &done, &NONE))?;
    ensure!(evidence["reason"] == "fenced", "{evidence}");
    let decision = json!({ "type": "effect_resolution", "request_record_id": "pay", "decision": "not_done", "who": "jo",
        "why": "looked" });
    let (_, stale) = second.post(&second.record("d", &decision, &basis))?;
    ensure!(stale["reason"] == "stale_decision", "{stale}");
    says!(second.attempt("a2", "pay", 2, &basis), "refused transition");
    let skip = json!({ "partition": 0, "offset": evidence["position"]["offset"], "who": "jo", "why": "forged" });
    let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
    ensure!(status == 200, "{skipped}");
    // The decision and the attempt from before the evidence stay refused, and the earlier decision stays revoked.
    let holds = |server: &Server| -> anyhow::Result<Value> {
        let now = pending(server, "pay")?;
        ensure!(now["evidence"] == json!([]) && now["class"] == "reconcile_required", "{now}");
        ensure!(now["attempts"] == 1 && now["basis"] != basis["basis"], "{now}");
        let (_, outcome) = server.get(&format!("/v1/runs/r/outcome?position=0:{}", stale["position"]["offset"]))?;
        ensure!(outcome["reason"] == "stale_decision", "{outcome}");
        let (_, then) = server.get(&format!("/v1/runs/r/recovery?as_of=0:{}", skipped["position"]["offset"]))?;
        ensure!(then["pending"][0]["basis"] == now["basis"], "{then}");
        Ok(now)
    };
    let now = holds(&server)?;
    let (_, verified) = server.post("/v1/verify", &json!({}))?;
    ensure!(verified["equal"] == true, "{verified}");
    let (id, epoch) = (second.id, second.epoch);
    server.terminate()?;
    std::fs::remove_dir_all(folder.path().join("index"))?;
    let server = launch()?;
    ensure!(holds(&server)? == now, "an index that was built from the log differs");
    let second = Writer { server: &server, id, epoch };
    says!(second.attempt("b2", "pay", 2, &NONE), "reconcile_required");
    // After a skip a decision needs a basis.
    says!(decide(&server, "pay", "not_done", &json!({ "revision": now["revision"] })), "conflict");
    let seen = json!({ "revision": now["revision"], "basis": now["basis"] });
    says!(decide(&server, "pay", "not_done", &seen), "applied");
    says!(second.attempt("c2", "pay", 2, &NONE), "applied");
    Ok(())
}

#[test]
fn an_attempt_between_skipped_evidence_and_its_skip_is_refused() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = start(folder.path(), "3")?;
    let first = Writer::claim(&server)?;
    says!(first.intent("pay", &json!({ "idempotency_key": "k" }), &NONE), "applied");
    let second = Writer::claim(&server)?;
    let failed = json!({ "type": "tool_call_failed", "request_record_id": "pay", "error_kind": "busy", "error_message": "later" });
    let (_, evidence) = first.post(&first.record("forged", &failed, &NONE))?;
    ensure!(evidence["reason"] == "fenced", "{evidence}");
    // The basis of the attempt is a record that the skip leaves as it is, and its number is the next one.
    says!(first.failed("late", "pay"), "refused fenced");
    let attempt = json!({ "type": "tool_call_attempt", "request_record_id": "pay", "attempt": 2, "reason": "again" });
    let (_, ran) = second.post(&second.record("a2", &attempt, &NONE))?;
    ensure!(ran["outcome"] == "applied", "{ran}");
    let skip = json!({ "partition": 0, "offset": evidence["position"]["offset"], "who": "jo", "why": "forged" });
    let (status, skipped) = server.post("/v1/skips?force=true", &skip)?;
    ensure!(status == 200, "{skipped}");

    let (_, outcome) = server.get(&format!("/v1/runs/r/outcome?position=0:{}", ran["position"]["offset"]))?;
    ensure!(outcome["reason"] == "transition", "{outcome}");
    let now = pending(&server, "pay")?;
    ensure!(now["attempts"] == 1 && now["evidence"][0]["record_id"] == "late", "{now}");
    // The key permits the next attempt after the skip.
    says!(second.attempt("b2", "pay", 2, &NONE), "applied");
    Ok(())
}

#[test]
fn a_server_writes_no_later_version_than_it_may_and_reads_them_all() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let features =
        |server: &Server| -> anyhow::Result<String> { Ok(server.get("/v1/journal")?.1["features"].to_string()) };
    let server = Launch::local(folder.path()).partitions(1).start()?;
    let first = Writer::claim(&server)?;
    ensure!(!features(&server)?.contains("bases"));
    let (status, problem) = first.post(&first.record(
        "look",
        &json!({ "type": "tool_call_requested", "request_id": "q", "call_id": "c", "tool_name": "look", "arguments": 1 }),
        &json!({ "repeatable": true }),
    ))?;
    let (id, epoch) = (first.id.clone(), first.epoch.clone());
    let detail = problem["detail"].as_str().unwrap_or_default();
    ensure!(status == 400 && detail.contains("version 3") && detail.contains("--write-schema"), "{problem}");
    server.terminate()?;
    let server = start(folder.path(), "3")?;
    ensure!(features(&server)?.contains("bases"));
    says!(
        Writer { server: &server, id: id.clone(), epoch: epoch.clone() }.intent(
            "look",
            &NONE,
            &json!({ "repeatable": true })
        ),
        "applied"
    );
    server.terminate()?;
    let server = Launch::local(folder.path()).partitions(1).start()?;
    ensure!(pending(&server, "look")?["class"] == "retry_safe");
    says!(
        Writer { server: &server, id: id.clone(), epoch: epoch.clone() }.attempt("look 2", "look", 2, &NONE),
        "applied"
    );
    Ok(())
}

#[test]
fn a_server_writes_no_later_version_under_a_known_id_either() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = start(folder.path(), "2")?;
    let writer = Writer::claim(&server)?;
    says!(writer.intent("look", &NONE, &NONE), "applied");
    says!(writer.intent("look", &NONE, &json!({ "repeatable": true })), "invalid");
    Ok(())
}

#[test]
fn a_basis_does_not_return_when_known_evidence_counts_again() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let result =
            json!({ "type": "tool_call_completed", "request_record_id": "pay", "result": { "booking": "B-1" } });
        let mut early = first.record("x", &result, &NONE);
        early["writer_seq"] = json!(99);
        says!(outcome_text(first.post(&early)?), "refused gap");
        let seen = pending(server, "pay")?;
        let at_seen = json!({ "basis": seen["basis"], "evidence": "x" });
        says!(decide(server, "pay", "not_done", &at_seen), "applied");
        says!(Writer::claim(server)?.attempt("again", "pay", 2, &NONE), "applied");
        // The same result is fenced now, so decisions without a basis count it.
        says!(outcome_text(first.post(&early)?), "refused fenced");
        says!(decide(server, "pay", "not_done", &at_seen), "conflict");
        ensure!(pending(server, "pay")?["class"] == "reconcile_required");
        Ok(())
    })
}

#[test]
fn a_basis_does_not_return_when_evicted_evidence_arrives_again() -> anyhow::Result<()> {
    both(|server, first| {
        says!(first.intent("pay", &NONE, &NONE), "applied");
        let second = Writer::claim(server)?;
        let fail = |nth: usize| {
            let payload = json!({ "type": "tool_call_failed", "request_record_id": "pay", "error_kind": "busy",
                "error_message": nth.to_string() });
            first.append(&format!("f{nth}"), &payload, &NONE)
        };
        says!(fail(0), "refused fenced");
        let seen = pending(server, "pay")?;
        let (alone, both) =
            (json!({ "basis": seen["basis"] }), json!({ "basis": seen["basis"], "revision": seen["revision"] }));
        says!(decide(server, "pay", "not_done", &both), "applied");
        says!(second.attempt("again", "pay", 2, &NONE), "applied");
        for nth in (1..=16).chain([0]) {
            says!(fail(nth), "refused fenced");
        }
        for late in [&alone, &both] {
            says!(decide(server, "pay", "not_done", late), "conflict");
        }
        ensure!(pending(server, "pay")?["class"] == "reconcile_required");
        Ok(())
    })
}
