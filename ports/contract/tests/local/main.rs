//! The SDK's own contract tests on Runlog's journal and checkpoint store: all on a local log, some over `http:`. The port's
//! further guarantees are tested beside them.

mod agreement;
mod example;
mod guarantees;
mod theirs_run;

use runlog_tests::deployment::Deployment;
use theirs_run::run;

#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "theirs")]
mod theirs {
    include!(concat!(env!("OUT_DIR"), "/theirs.rs"));
}

#[test]
fn all_tests_of_the_sdk_pass_on_a_local_log() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let journal = format!("local:{}", folder.path().display());
    run("local", &journal, "", &["theirs::"], theirs::TESTS)
}

#[test]
fn the_sdks_journal_tests_pass_over_http() -> anyhow::Result<()> {
    let deployment = Deployment::http()?;
    let which = ["records_journal_contract", "replay_recovery", "runtime_runtime_contract", "p0_p0_text_run"];
    run("http", &deployment.server.url, &deployment.server.url, &which, theirs::REDUCED)
}
