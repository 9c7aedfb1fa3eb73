//! A contract's effect and a call of Runlog may have one id. A decision is about the one whose basis it names.

use super::{NONE, both, decide, says_bases};
use anyhow::{Context, ensure};
use runlog_tests::server::Server;
use serde_json::{Value, json};

fn mail() -> Value {
    let (source, destination) = (
        json!({ "kind": "sdk", "id": "sdk", "trust": "host_provided", "privacy": "content_refs_only" }),
        json!({ "kind": "tool", "id": "mail", "privacy": "content_refs_only", "retention": "host_policy" }),
    );
    json!({ "type": "effect_intent", "effect_id": "pay", "kind": "tool_execution", "source": source,
        "subject_ref": { "kind": "tool_call", "id": "call", "privacy": "content_refs_only" },
        "destination": destination, "redacted_summary": "a mail" })
}

/// The effect of a kind with the id "pay".
fn effect(server: &Server, kind: &str) -> anyhow::Result<Value> {
    let (_, listed) = server.get("/v1/effects?consistency=latest")?;
    let all = listed["effects"].as_array().with_context(|| format!("{listed}"))?;
    all.iter().find(|effect| effect["kind"] == kind).cloned().with_context(|| format!("{listed}"))
}

#[test]
fn a_decision_is_about_the_effect_whose_basis_it_names() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.append("mail", &mail(), &NONE), "applied");
        says!(writer.intent("pay", &NONE, &NONE), "applied");
        let (call, effect_of) = (effect(server, "tool_call")?, |kind| effect(server, kind));
        let seen = effect_of("effect")?;
        let decided = decide(server, "pay", "give_up", &json!({ "basis": seen["basis"] }))?;
        if !says_bases(server)? {
            // In a record of version 2 a decision can name only the first effect.
            ensure!(decided == "conflict", "{decided}");
            return Ok(());
        }
        ensure!(decided == "applied", "{decided}");
        ensure!(effect_of("effect")?["status"] == "failed", "{}", effect_of("effect")?);
        ensure!(effect_of("tool_call")?["basis"] == call["basis"], "the call is as before");
        let (_, facts) = server.get("/v1/runs/r/facts?at=2100-01-01T00:00:00Z")?;
        ensure!(
            !facts.to_string().contains("effect_resolution"),
            "the decision states nothing about the call: {facts}"
        );
        says!(decide(server, "pay", "done", &json!({ "basis": call["basis"], "result": 7 })), "applied");
        ensure!(effect_of("tool_call")?["status"] == "completed", "{}", effect_of("tool_call")?);
        Ok(())
    })
}

#[test]
fn an_effect_that_has_the_id_of_an_ended_call_is_decided_by_its_basis() -> anyhow::Result<()> {
    both(|server, writer| {
        says!(writer.intent("pay", &NONE, &NONE), "applied");
        says!(writer.completed("paid", "pay", "B-1"), "applied");
        says!(writer.append("mail", &mail(), &NONE), "applied");
        let seen = effect(server, "effect")?;
        let decided = decide(server, "pay", "not_done", &json!({ "basis": seen["basis"] }))?;
        ensure!(decided == if says_bases(server)? { "applied" } else { "conflict" }, "{decided}");
        ensure!(effect(server, "tool_call")?["status"] == "completed");
        Ok(())
    })
}
