//! Runs the SDK's tests in a process of their own, because a process shares one journal, and checks that all ran and passed.

use agent_sdk_core::contract::{JOURNAL, SERVER, TOKEN};
use anyhow::ensure;
use std::{env, process::Command};

/// The server and the token of a journal, if it has them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access<'a> {
    pub(crate) server: &'a str,
    pub(crate) token: Option<&'a str>,
}

pub(crate) fn run(log: &str, journal: &str, access: Access<'_>, which: &[&str], tests: usize) -> anyhow::Result<()> {
    let mut theirs = Command::new(env::current_exe()?);
    theirs.args(["--ignored", "--color", "never"]).args(which).env(JOURNAL, journal).env(SERVER, access.server);
    theirs.envs(access.token.map(|token| (TOKEN, token)));
    let output = theirs.output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("test theirs::")?.split_once(" ... "));
    let mut passed = 0;
    for (test, result) in lines {
        passed += usize::from(result == "ok");
        eprintln!("{test}\trunlog_ports::agent_sdk_core::Journal\t{log}\t{result}");
    }
    ensure!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    ensure!(passed == tests, "{passed} of {tests} tests passed on {log}");
    Ok(())
}
