//! Two processes, one run: at most one of them acts.

use crate::agent::id;
use anyhow::{Context, ensure};
use runlog_schemas::{
    id::{JournalSeq, RunId, WriterId},
    payload::{ConversationTurn, Payload},
    record::{JournalRecord, Place},
};
use serde_json::{Value, json};

use crate::site::{Agent, Site};

fn book(key: Option<&str>) -> Value {
    json!({ "call": { "tool": "book", "args": { "seat": "1A" }, "key": key } })
}

/// A zombie is an agent that was stopped, lost its run meanwhile, and goes on.
fn wakes_up_fenced(site: &Site, mut zombie: Agent, booked_by: &[u64]) -> anyhow::Result<()> {
    let said = zombie.goes_on()?;
    ensure!(said["error"] == "fenced", "{said}");
    let said = zombie.ask(&json!({ "call": { "tool": "book", "args": { "seat": "2B" } } }))?;
    ensure!(said["error"] == "fenced", "and whatever it does next: {said}");
    ensure!(site.booked_by()? == booked_by, "the ledger: {:?}", site.ledger()?);
    site.verified()
}

/// Its intent is in the log before the run is taken over: with a key the new agent does it, without one nobody does
/// before somebody has decided.
pub fn an_agent_stopped_behind_its_intent_runs_no_effect_when_it_lost_the_run(site: &Site) -> anyhow::Result<()> {
    for (run, key) in [("keyed", Some("k")), ("keyless", None)] {
        let (mut a, mut b) = (site.agent()?, site.agent()?);
        a.opened(run)?;
        a.will_stop_at("intent_acknowledged")?;
        a.held("intent_acknowledged", &book(key))?;
        a.stop()?;
        let before = site.booked_by()?;
        let opened = b.opened(run)?;
        let pending = opened["pending"].as_array().filter(|pending| pending.len() == 1);
        let pending = pending.and_then(|pending| pending[0].as_str()).with_context(|| format!("{opened}"))?;
        if key.is_none() {
            let said = b.ask(&book(key))?;
            ensure!(said["error"] == "reconcile_required" && site.booked_by()? == before, "{said}");
            let why = ["--not-done", "--who", "test", "--why", "it is fenced", "--yes"];
            site.server.runlog().answer(&[&["effects", "resolve", run, pending], &why[..]].concat())?;
        }
        let said = b.ask(&book(key))?;
        ensure!(said["result"].is_object() && said["recorded"] == false, "{said}");
        let line = site.ledger()?.pop().context("a booking")?;
        ensure!(line["call"] == pending && line["attempt"] == 2, "it is the same call: {line}");
        wakes_up_fenced(site, a, &[before, vec![b.id()]].concat())?;
        ensure!(site.anomalies(run)?.is_empty(), "its intent was in time: {:?}", site.anomalies(run)?);
    }
    Ok(())
}

/// Its intent is appended after the run was taken over: for the new agent it is not there.
pub fn an_agent_stopped_before_its_intent_runs_no_effect_when_it_lost_the_run(site: &Site) -> anyhow::Result<()> {
    let (mut a, mut b) = (site.agent()?, site.agent()?);
    a.opened("late")?;
    a.will_stop_at("record_numbered")?;
    a.held("record_numbered", &book(None))?;
    a.stop()?;
    let opened = b.opened("late")?;
    ensure!(opened["pending"] == json!([]), "{opened}");
    let said = b.ask(&book(None))?;
    ensure!(said["recorded"] == false && said["result"].is_object(), "{said}");
    wakes_up_fenced(site, a, &[b.id()])?;
    let refused = site.anomalies("late")?;
    ensure!(refused.len() == 1 && refused[0].0 == "fenced", "{refused:?}");
    let again = b.ask(&json!({ "call": { "tool": "book", "args": { "seat": "2B" } } }))?;
    ensure!(again["result"].is_object(), "the run is the other's: {again}");
    Ok(())
}

/// All of them have read the same head when the first one claims.
pub fn of_agents_that_claim_a_run_at_once_one_gets_it(site: &Site) -> anyhow::Result<()> {
    for (run, count) in [("two", 2), ("eight", 8)] {
        let mut agents = Vec::new();
        for _ in 0..count {
            let mut agent = site.agent()?;
            agent.will_stop_at("head_read")?;
            agent.held("head_read", &json!({ "open": { "run": run } }))?;
            agents.push(agent);
        }
        agents.iter_mut().try_for_each(|agent| agent.tell(&json!("go on")))?;
        let said: Vec<Value> = agents.iter().map(Agent::hear).collect::<anyhow::Result<_>>()?;
        let won: Vec<usize> = (0..count).filter(|at| said[*at]["opened"]["epoch"] == 1).collect();
        let lost = said.iter().filter(|said| said["error"] == "claim_lost").count();
        ensure!(won.len() == 1 && lost == count - 1, "{said:?}");
        ensure!(site.ledger()?.iter().all(|line| line["run"] != run), "nobody booked");
        losers_change_nothing(site, run, &mut agents[won[0]], count - 1)?;
    }
    site.verified()
}

/// What a loser would append, had it not been told.
fn losers_change_nothing(site: &Site, run: &str, winner: &mut Agent, losers: usize) -> anyhow::Result<()> {
    let state = || -> anyhow::Result<(Value, String)> {
        let runlog = site.server.runlog();
        Ok((runlog.answer(&["recover", run, "--full"])?, runlog.json(&["show", run])?.exits(0)?.stdout))
    };
    let (before, refused) = (state()?, site.anomalies(run)?);
    let writers: Vec<String> = refused.iter().map(|(_, writer)| writer.clone()).collect();
    ensure!(refused.len() == losers && refused.iter().all(|(reason, _)| reason == "fenced"), "{refused:?}");
    let next = before.0["next_journal_seq"].as_u64().context("next_journal_seq")?;
    for (number, writer) in (1..).zip(&writers) {
        let message_id = format!("{run} {number}");
        let content = Value::from("mine").into();
        let turn = ConversationTurn { message_id, parent_id: None, thread_id: None, kind: "user".into(), content };
        let mut record =
            JournalRecord::new(RunId::new(run)?, id(format!("loser-{number}")), "test", Payload::from(turn));
        record.place = Place {
            writer_id: id::<WriterId>(&writer).into(),
            writer_epoch: 1.into(),
            // One in the place of the next record, the others where a loser would begin.
            writer_seq: if number == 1 { 2.into() } else { 1.into() },
            prev_hash: None,
            journal_seq: if number == 1 { JournalSeq::new(next)? } else { 1.into() },
            timestamp_millis: 1,
        };
        site.append(&record)?;
    }
    let now = site.anomalies(run)?;
    ensure!(now.len() == refused.len() + losers && now.iter().all(|(reason, _)| reason == "fenced"), "{now:?}");
    ensure!(state()? == before, "a loser's record changed the run: {before:?}");
    let said = winner.ask(&book(None))?;
    ensure!(said["result"].is_object() && said["recorded"] == false, "{said}");
    Ok(())
}
