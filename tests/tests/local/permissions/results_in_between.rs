//! A result that its client numbered, sent at the same time as an attempt or a decision about its call.

use super::{NONE, Writer, decide, not_done, pending, start};
use anyhow::{Context, ensure};
use runlog_tests::server::Server;
use serde_json::{Value, json};
use std::{sync::Barrier, thread};
use tempfile::tempdir;

/// Before the server kept results out, they came in between in every third round.
const ROUNDS: u32 = 40;

/// Runs two requests at the same time.
fn at_once<A: Send, B: Send>(
    first: impl FnOnce() -> anyhow::Result<A> + Send,
    second: impl FnOnce() -> anyhow::Result<B> + Send,
) -> anyhow::Result<(A, B)> {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            barrier.wait();
            first()
        });
        barrier.wait();
        let second = second();
        Ok((first.join().ok().context("a request panicked")??, second?))
    })
}

/// A result of a writer that is fenced by now, with the numbers that it had then.
fn result(writer: &Writer<'_>, id: &str, call: &str) -> Value {
    let payload = json!({ "type": "tool_call_completed", "request_record_id": call, "result": { "booking": "B-1" } });
    let mut result = writer.record(id, &payload, &NONE);
    (result["writer_seq"], result["journal_seq"]) = (json!(2), json!(2));
    result
}

fn outcome_at(server: &Server, record: &Value) -> anyhow::Result<(String, u64)> {
    let (_, answer) = server.post("/v1/runs/r/records?force=true", record)?;
    let outcome = answer["outcome"].as_str().or(answer["kind"].as_str()).with_context(|| format!("{answer}"))?;
    Ok((outcome.to_owned(), answer["position"]["offset"].as_u64().unwrap_or_default()))
}

#[test]
fn no_attempt_is_applied_after_a_result_that_its_check_did_not_see() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = start(folder.path(), "2")?;
    for round in 0..ROUNDS {
        let call = format!("pay-{round}");
        let dead = Writer::claim(&server)?;
        ensure!(dead.intent(&call, &NONE, &NONE)? == "applied");
        let next = Writer::claim(&server)?;
        ensure!(not_done(&server, &call)? == "applied");
        let attempt =
            json!({ "type": "tool_call_attempt", "request_record_id": call, "attempt": 2, "reason": "again" });
        let attempt = next.record(&format!("{call}-2"), &attempt, &NONE);
        let result = result(&dead, &format!("{call}-result"), &call);
        let ((tried, attempt_at), (kept, result_at)) =
            at_once(|| outcome_at(&server, &attempt), || outcome_at(&server, &result))?;
        ensure!(kept == "refused", "{kept}: a fenced result is evidence");
        ensure!(
            tried != "applied" || attempt_at < result_at,
            "round {round}: the result is at {result_at}, and then {tried}"
        );
    }
    Ok(())
}

#[test]
fn no_decision_clears_a_call_after_a_result_that_its_check_did_not_see() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let server = start(folder.path(), "2")?;
    for round in 0..ROUNDS {
        let call = format!("pay-{round}");
        let dead = Writer::claim(&server)?;
        ensure!(dead.intent(&call, &NONE, &NONE)? == "applied");
        let _next = Writer::claim(&server)?;
        let id = format!("{call}-result");
        ensure!(dead.failed(&id, &call)? == "refused fenced");
        let seen = pending(&server, &call)?;
        let members = json!({ "revision": seen["revision"], "basis": seen["basis"] });
        // Version 2 does not count evidence again that has the id of earlier evidence.
        let result = result(&dead, &id, &call);
        at_once(|| decide(&server, &call, "not_done", &members), || outcome_at(&server, &result))?;
        let now = pending(&server, &call)?;
        let evidence = now["evidence"].as_array().context("no evidence")?;
        let happened = evidence.iter().any(|evidence| !evidence["result"].is_null());
        ensure!(happened, "round {round}: {now}");
        ensure!(now["class"] != "retry_safe", "round {round}: {now}");
    }
    Ok(())
}
