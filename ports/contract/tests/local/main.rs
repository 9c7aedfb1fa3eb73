//! The SDK's own contract tests on Runlog's journal and checkpoint store: all on a local log, some over `http:`. The port's
//! further guarantees are tested beside them.

mod agreement;
mod example;
mod guarantees;
mod theirs_run;

use runlog_tests::{deployment::Deployment, server::Launch};
use theirs_run::{Access, run};

#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "theirs")]
mod theirs {
    include!(concat!(env!("OUT_DIR"), "/theirs.rs"));
}

#[test]
fn all_tests_of_the_sdk_pass_on_a_local_log() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let journal = format!("local:{}", folder.path().display());
    run("local", &journal, Access::default(), &["theirs::"], theirs::TESTS)
}

const REDUCED: [&str; 4] =
    ["records_journal_contract", "replay_recovery", "runtime_runtime_contract", "p0_p0_text_run"];

#[test]
fn the_sdks_journal_tests_pass_over_http() -> anyhow::Result<()> {
    let deployment = Deployment::http()?;
    let server = &deployment.server.url;
    run("http", server, Access { server, token: None }, &REDUCED, theirs::REDUCED)
}

#[test]
fn the_sdks_journal_tests_pass_with_a_token_that_decides_nothing() -> anyhow::Result<()> {
    let started = Launch::temporary()?.with_token()?.start()?;
    let (server, token) = (&started.url, started.token.as_deref());
    run("http with a token", server, Access { server, token }, &REDUCED, theirs::REDUCED)
}
