//! A decision on a pending effect, and the answers that the current and the next agent get.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::{agent_process::AgentProcess, deployment::Deployment};

fn call(tool: &str, hold: bool) -> Value {
    json!({ "call": { "tool": tool, "args": { "amount": 7 }, "hold": hold } })
}

/// The result, the failure and `recorded` of an answer.
fn answer(said: &Value) -> (&Value, &Value, &Value) {
    (&said["result"], &said["failure"], &said["recorded"])
}

/// Leaves a run with a pending call whose effect happened: its agent is killed during the call.
fn pending(deployment: &Deployment, run: &str) -> anyhow::Result<(AgentProcess, String)> {
    let mut a = deployment.agent()?;
    a.open(run)?;
    a.run_to_failpoint("effect_happened", &call("charge", true))?;
    a.kill()?;
    taken_over(deployment, run)
}

/// The next agent, whose calls are refused until the pending call is decided.
fn taken_over(deployment: &Deployment, run: &str) -> anyhow::Result<(AgentProcess, String)> {
    let mut b = deployment.agent()?;
    let opened = b.open(run)?;
    let id = opened["pending"][0].as_str().with_context(|| format!("{opened}"))?.to_owned();
    for tool in ["charge", "mail"] {
        let reply = b.request(&call(tool, false))?;
        ensure!(reply["error"] == "reconcile_required", "{tool}: {reply}");
    }
    Ok((b, id))
}

fn resolve(deployment: &Deployment, run: &str, id: &str, decision: &[&str]) -> anyhow::Result<()> {
    let signed = ["--who", "test", "--why", "asked the bank", "--yes"];
    let outcome =
        deployment.server.runlog().answer(&[&["effects", "resolve", run, id], decision, &signed[..]].concat())?;
    ensure!(outcome["outcome"] == "applied", "{outcome}");
    let left = deployment.server.runlog().answer(&["effects", "--pending", "--consistency", "latest"])?;
    ensure!(left["effects"] == json!([]), "{left}");
    Ok(())
}

/// The agent that has the run gets `expected`, and so does the next agent; only a new call runs its effect.
fn both_get(
    deployment: &Deployment,
    run: &str,
    b: &mut AgentProcess,
    expected: (&Value, &Value),
) -> anyhow::Result<()> {
    let before = deployment.ledger()?.len();
    let mut c = deployment.agent()?;
    let recorded = (expected.0, expected.1, &json!(true));
    let reply = b.request(&call("charge", false))?;
    ensure!(answer(&reply) == recorded, "{run}: {reply}");
    let reply = b.request(&call("mail", false))?;
    ensure!(reply["recorded"] == false && reply["result"].is_object(), "{run}: {reply}");
    c.open(run)?;
    let reply = c.request(&call("charge", false))?;
    ensure!(answer(&reply) == recorded, "{run}, the next agent: {reply}");
    ensure!(deployment.ledger()?.len() == before + 1, "only the mail was new: {:?}", deployment.ledger()?);
    Ok(())
}

/// Covers the decisions `done`, `not_done` and `given_up`.
pub fn agents_get_the_decided_result(deployment: &Deployment) -> anyhow::Result<()> {
    let (mut b, id) = pending(deployment, "done")?;
    resolve(deployment, "done", &id, &["--done", r#"{"receipt": 12345678901234567890}"#])?;
    both_get(deployment, "done", &mut b, (&json!({"receipt": 12_345_678_901_234_567_890_u64}), &Value::Null))?;

    let (mut b, id) = pending(deployment, "given-up")?;
    resolve(deployment, "given-up", &id, &["--give-up"])?;
    both_get(deployment, "given-up", &mut b, (&Value::Null, &json!("given_up")))?;

    let (mut b, id) = pending(deployment, "not-done")?;
    let signed = ["--not-done", "--who", "test", "--why", "the bank has nothing", "--yes"];
    deployment.server.runlog().answer(&[&["effects", "resolve", "not-done", &id], &signed[..]].concat())?;
    let reply = b.request(&call("charge", false))?;
    let line = deployment.ledger()?.pop().context("a booking")?;
    ensure!(reply["recorded"] == false && reply["result"] == line["result"], "{reply}");
    ensure!(line["call"] == *id && line["attempt"] == 2 && line["process"] == b.id(), "{line}");
    let mut c = deployment.agent()?;
    c.open("not-done")?;
    let again = c.request(&call("charge", false))?;
    ensure!(answer(&again) == (&reply["result"], &Value::Null, &json!(true)), "{again}");
    deployment.verified()
}

/// An agent that lost its run during its effect leaves the result as evidence.
pub fn the_evidence_of_a_fenced_result_can_be_adopted(deployment: &Deployment) -> anyhow::Result<()> {
    let mut a = deployment.agent()?;
    a.open("adopted")?;
    a.run_to_failpoint("effect_happened", &call("charge", true))?;
    a.pause()?;
    let happened = deployment.ledger()?.pop().context("a booking")?["result"].clone();
    let (mut b, id) = taken_over(deployment, "adopted")?;
    // Without evidence there is no result to adopt.
    let adopt = ["effects", "resolve", "adopted", &id, "--adopt", "--who", "test", "--why", "it says so", "--yes"];
    let early = deployment.server.runlog().json(&adopt)?;
    ensure!(early.code != Some(0), "{}", early.stdout);
    // A backend that reports only the acknowledgement lets the call succeed; the next operation of the handle fails.
    let reply = a.resume()?;
    ensure!(reply["error"] == "fenced" || reply["result"] == happened, "{reply}");
    let reply = a.request(&call("mail", false))?;
    ensure!(reply["error"] == "fenced", "{reply}");
    let recovery = deployment.server.runlog().json(&["recover", "adopted"])?.exits(1)?.json()?;
    let evidence = recovery["pending"][0]["evidence"].as_array().map(Vec::len);
    ensure!(evidence == Some(1) && recovery["resumable"] == false, "{recovery}");
    resolve(deployment, "adopted", &id, &["--adopt"])?;
    both_get(deployment, "adopted", &mut b, (&happened, &Value::Null))?;
    deployment.verified()
}
