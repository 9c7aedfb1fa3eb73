//! The port's guarantees, and the SDK's tests of journals and checkpoint stores, on Kafka.

use anyhow::Context;
use runlog_tests::deployment::Deployment;

#[path = "../local/guarantees.rs"]
mod guarantees;
#[path = "../local/theirs_run.rs"]
mod theirs_run;

#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "theirs")]
mod theirs {
    include!(concat!(env!("OUT_DIR"), "/reduced.rs"));
}

#[test]
fn the_sdks_journal_tests_pass_on_kafka() -> anyhow::Result<()> {
    let deployment = Deployment::kafka()?;
    let brokers = &deployment.topic().context("a topic")?.brokers;
    let access = theirs_run::Access { server: &deployment.server.url, token: None };
    theirs_run::run("kafka", &format!("kafka:{brokers}"), access, &["theirs::"], theirs::REDUCED)
}
