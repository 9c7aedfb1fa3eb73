//! AgentProcess processes that write straight to Kafka are killed at random moments.

use runlog_tests::{claims::killed_producers, deployment::Deployment};

#[test]
fn what_killed_agents_were_told_is_kept_and_no_effect_happens_twice() -> anyhow::Result<()> {
    killed_producers::what_killed_agents_were_told_is_kept_and_no_effect_happens_twice(&Deployment::kafka()?)
}
