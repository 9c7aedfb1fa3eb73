//! Two agent processes want one run over HTTP: at most one of them acts.

use runlog_tests::{claims::takeover, deployment::Deployment};

#[test]
fn an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run() -> anyhow::Result<()> {
    takeover::an_agent_paused_before_its_intent_runs_no_effect_once_it_lost_the_run(&Deployment::http()?)
}

#[test]
fn one_of_several_concurrent_claims_of_a_run_wins() -> anyhow::Result<()> {
    takeover::one_of_several_concurrent_claims_of_a_run_wins(&Deployment::http()?)
}
