//! The SDK's own contract tests on Runlog's journal and checkpoint store: all on a local log, some over `http:`. The port's
//! further guarantees are tested beside them.

mod agreement;
mod example;
mod guarantees;
mod theirs_run;

use anyhow::Context;
use runlog_tests::{command::Runlog, deployment::Deployment, server::Launch};
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

/// The server writes schema version 3, in which the results of such a credential are limited to its own calls.
#[test]
fn the_sdks_journal_tests_pass_with_a_token_that_decides_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let tokens = folder.path().join("tokens.json").display().to_string();
    let flags = ["--principal", "agent", "--scope", "append,read_meta,read_content", "--runs", "*"];
    let create = [&["token", "create", "--tokens", tokens.as_str()], &flags[..]].concat();
    let created = Runlog::without_server().answer(&create)?;
    let token = created["token"].as_str().context("a token")?;
    let launch = Launch::local(&folder.path().join("data")).with("--tokens").with(&tokens);
    let started = launch.with("--write-schema").with("3").start()?;
    let server = &started.url;
    run("http with a token", server, Access { server, token: Some(token) }, &REDUCED, theirs::REDUCED)
}
