//! Two processes compete for one run: at most one of them runs effects.

use crate::agent::id;
use anyhow::{Context, ensure};
use runlog_schemas::{
    id::{JournalSeq, RunId, WriterId},
    payload::{ConversationTurn, Payload},
    record::{JournalRecord, Sequencing},
};
use serde_json::{Value, json};

use crate::{
    agent_process::{AgentProcess, booking},
    deployment::Deployment,
};

fn book(key: Option<&str>) -> Value {
    booking("1A", key)
}

/// Resumes a zombie: an agent that was paused and lost its run meanwhile. Fails unless it is fenced.
fn resume_fenced(
    deployment: &Deployment,
    run: &str,
    mut zombie: AgentProcess,
    winner: &AgentProcess,
) -> anyhow::Result<()> {
    let answer = zombie.resume()?;
    ensure!(answer["error"] == "fenced", "{answer}");
    let answer = zombie.request(&booking("2B", None))?;
    ensure!(answer["error"] == "fenced", "its next call: {answer}");
    ensure!(deployment.booked_by(run)? == [winner.id()], "the ledger: {:?}", deployment.ledger()?);
    deployment.verified()
}

/// The intent is in the log before the run is taken over. With a key the new agent retries the call; without a key it must
/// be decided first.
pub fn an_agent_paused_after_its_intent_runs_no_effect_once_it_lost_the_run(
    deployment: &Deployment,
) -> anyhow::Result<()> {
    for (run, key) in [("keyed", Some("k")), ("keyless", None)] {
        let (mut a, mut b) = (deployment.agent()?, deployment.agent()?);
        a.open(run)?;
        a.arm_failpoint("intent_acknowledged")?;
        a.run_to_failpoint("intent_acknowledged", &book(key))?;
        a.pause()?;
        let opened = b.open(run)?;
        let pending = opened["pending"].as_array().filter(|pending| pending.len() == 1);
        let pending = pending.and_then(|pending| pending[0].as_str()).with_context(|| format!("{opened}"))?;
        if key.is_none() {
            let answer = b.request(&book(key))?;
            ensure!(answer["error"] == "reconcile_required" && deployment.booked_by(run)?.is_empty(), "{answer}");
            let why = ["--not-done", "--who", "test", "--why", "it is fenced", "--yes"];
            deployment.server.runlog().answer(&[&["effects", "resolve", run, pending], &why[..]].concat())?;
        }
        let answer = b.request(&book(key))?;
        ensure!(answer["result"].is_object() && answer["recorded"] == false, "{answer}");
        let line = deployment.ledger()?.pop().context("a booking")?;
        ensure!(line["call"] == pending && line["attempt"] == 2, "it is the same call: {line}");
        resume_fenced(deployment, run, a, &b)?;
        ensure!(deployment.anomalies(run)?.is_empty(), "its intent was in time: {:?}", deployment.anomalies(run)?);
    }
    Ok(())
}

/// The intent is appended after the run was taken over: it is refused, and the new agent does not see it.
pub fn an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run(
    deployment: &Deployment,
) -> anyhow::Result<()> {
    let (mut a, mut b) = (deployment.agent()?, deployment.agent()?);
    a.open("late")?;
    a.arm_failpoint("record_numbered")?;
    a.run_to_failpoint("record_numbered", &book(None))?;
    a.pause()?;
    let opened = b.open("late")?;
    ensure!(opened["pending"] == json!([]), "{opened}");
    let answer = b.request(&book(None))?;
    ensure!(answer["recorded"] == false && answer["result"].is_object(), "{answer}");
    resume_fenced(deployment, "late", a, &b)?;
    let refused = deployment.anomalies("late")?;
    ensure!(refused.len() == 1 && refused[0].0 == "fenced", "{refused:?}");
    let again = b.request(&booking("2B", None))?;
    ensure!(again["result"].is_object(), "the run is the other's: {again}");
    Ok(())
}

/// All agents have read the same head when the first agent claims.
pub fn one_of_several_concurrent_claims_of_a_run_wins(deployment: &Deployment) -> anyhow::Result<()> {
    for (run, count) in [("two", 2), ("eight", 8)] {
        let mut agents = Vec::new();
        for _ in 0..count {
            let mut agent = deployment.agent()?;
            agent.arm_failpoint("head_read")?;
            agent.run_to_failpoint("head_read", &json!({ "open": { "run": run } }))?;
            agents.push(agent);
        }
        agents.iter_mut().try_for_each(|agent| agent.send(&json!("continue")))?;
        let answers: Vec<Value> = agents.iter().map(AgentProcess::receive).collect::<anyhow::Result<_>>()?;
        let won: Vec<usize> = (0..count).filter(|at| answers[*at]["opened"]["epoch"] == 1).collect();
        let lost = answers.iter().filter(|answer| answer["error"] == "claim_lost").count();
        ensure!(won.len() == 1 && lost == count - 1, "{answers:?}");
        ensure!(deployment.booked_by(run)?.is_empty(), "no agent has booked");
        losers_change_nothing(deployment, run, &mut agents[won[0]], count - 1)?;
    }
    deployment.verified()
}

/// Appends records under the losers' writer ids, as a loser without an answer would. They must not change the run.
fn losers_change_nothing(
    deployment: &Deployment,
    run: &str,
    winner: &mut AgentProcess,
    losers: usize,
) -> anyhow::Result<()> {
    let state = || -> anyhow::Result<(Value, String)> {
        let runlog = deployment.server.runlog();
        Ok((runlog.answer(&["recover", run, "--full"])?, runlog.json(&["show", run])?.exits(0)?.stdout))
    };
    let (before, refused) = (state()?, deployment.anomalies(run)?);
    let writers: Vec<String> = refused.iter().map(|(_, writer)| writer.clone()).collect();
    ensure!(refused.len() == losers && refused.iter().all(|(reason, _)| reason == "fenced"), "{refused:?}");
    let next = before.0["next_journal_seq"].as_u64().context("next_journal_seq")?;
    for (number, writer) in (1..).zip(&writers) {
        let message_id = format!("{run} {number}");
        let content = Value::from("mine").into();
        let turn = ConversationTurn { message_id, parent_id: None, thread_id: None, kind: "user".into(), content };
        let mut record =
            JournalRecord::new(RunId::new(run)?, id(format!("loser-{number}")), "test", Payload::from(turn));
        record.place = Sequencing {
            writer_id: id::<WriterId>(&writer).into(),
            writer_epoch: 1.into(),
            // One has the number of the next record, the others have the first number of a loser.
            writer_seq: if number == 1 { 2.into() } else { 1.into() },
            prev_hash: None,
            journal_seq: if number == 1 { JournalSeq::new(next)? } else { 1.into() },
            timestamp_millis: 1,
        };
        deployment.append(&record)?;
    }
    let now = deployment.anomalies(run)?;
    ensure!(now.len() == refused.len() + losers && now.iter().all(|(reason, _)| reason == "fenced"), "{now:?}");
    ensure!(state()? == before, "a loser's record changed the run: {before:?}");
    let answer = winner.request(&book(None))?;
    ensure!(answer["result"].is_object() && answer["recorded"] == false, "{answer}");
    Ok(())
}
