//! Two agent processes want one run over HTTP: at most one of them acts.

use runlog_tests::{claims::takeover, deployment::Deployment};

#[test]
fn an_agent_stopped_behind_its_intent_runs_no_effect_when_it_lost_the_run() -> anyhow::Result<()> {
    takeover::an_agent_stopped_behind_its_intent_runs_no_effect_when_it_lost_the_run(&Deployment::http()?)
}

#[test]
fn an_agent_stopped_before_its_intent_runs_no_effect_when_it_lost_the_run() -> anyhow::Result<()> {
    takeover::an_agent_stopped_before_its_intent_runs_no_effect_when_it_lost_the_run(&Deployment::http()?)
}

#[test]
fn of_agents_that_claim_a_run_at_once_one_gets_it() -> anyhow::Result<()> {
    takeover::of_agents_that_claim_a_run_at_once_one_gets_it(&Deployment::http()?)
}
