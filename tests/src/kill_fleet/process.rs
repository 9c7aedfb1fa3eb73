//! A process that is driven by lines and killed.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use crate::programs::test_process;

/// The process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Starts one of the processes of `bin/test_process/main.rs`.
    pub(super) fn start(name: &str, arguments: &[String], stderr: std::fs::File) -> anyhow::Result<Self> {
        let mut command = test_process(name)?;
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (send, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { child, stdin, lines })
    }

    pub(super) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).context("the process has ended")
    }

    /// Sends the next point to stop at; returns when the process has armed it.
    pub(super) fn arm(&mut self, point: &str, wait: Duration) -> anyhow::Result<()> {
        self.send(point)?;
        let report = self.receive(wait)?;
        ensure!(report["armed"] == point, "{report}, not armed at {point}");
        Ok(())
    }

    /// The next line of its stdout; fails after `wait`.
    pub(super) fn receive(&self, wait: Duration) -> anyhow::Result<Value> {
        let line = self.lines.recv_timeout(wait).map_err(|error| anyhow!("the process prints no line: {error}"))?;
        serde_json::from_str(&line).with_context(|| line)
    }

    /// Sends SIGKILL; returns when the process has ended. Fails if it had ended before.
    pub(super) fn kill(self) -> anyhow::Result<()> {
        self.kill_then(|| ())
    }

    /// Like [`Self::kill`]; calls `sent` as soon as the signal is sent.
    pub(super) fn kill_then(mut self, sent: impl FnOnce()) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the process had ended before: {status}");
        }
        self.child.kill()?;
        sent();
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it exits with status 0.
    pub(super) fn wait_for_exit(mut self, wait: Duration) -> anyhow::Result<()> {
        let code = crate::command::wait_for_exit(&mut self.child, wait)?;
        ensure!(code == Some(0), "the process exited with {code:?}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
