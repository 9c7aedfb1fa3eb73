//! Agent processes that append directly to Kafka are killed at random moments.

use runlog_tests::{claims::killed_producers, deployment::Deployment};

#[test]
fn acknowledgements_to_killed_agents_hold_and_no_effect_happens_twice() -> anyhow::Result<()> {
    killed_producers::acknowledgements_to_killed_agents_hold_and_no_effect_happens_twice(&Deployment::kafka()?)
}
