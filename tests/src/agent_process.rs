//! A separate process (`bin/test_process/main.rs`), driven by JSON lines over stdin and stdout.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};

/// Timeout of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of SIGSTOP, and the interval at which the process state is polled.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The command to book a seat.
pub fn booking(seat: &str, key: Option<&str>) -> Value {
    json!({ "call": { "tool": "book", "args": { "seat": seat }, "key": key } })
}

/// An agent process. Dropping it kills it.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl AgentProcess {
    /// Starts a command.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (send, answers) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { child, stdin, answers })
    }

    /// The process id.
    pub fn id(&self) -> u64 {
        self.child.id().into()
    }

    /// Sends a command.
    pub fn send(&mut self, command: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("its stdin is open")?;
        writeln!(stdin, "{command}").context("cannot write to the agent process")
    }

    /// Receives the next answer.
    pub fn receive(&self) -> anyhow::Result<Value> {
        self.receive_within(ANSWER_TIMEOUT)
    }

    /// Receives the next answer; fails after `wait`.
    pub(crate) fn receive_within(&self, wait: Duration) -> anyhow::Result<Value> {
        let line = self.answers.recv_timeout(wait).map_err(|error| anyhow!("no answer from the process: {error}"))?;
        serde_json::from_str(&line).with_context(|| line)
    }

    /// Sends a command and receives its answer.
    pub fn request(&mut self, command: &Value) -> anyhow::Result<Value> {
        self.send(command)?;
        self.receive()
    }

    /// Opens a run. Returns the answer, which may be an error.
    pub fn try_open(&mut self, run: &str) -> anyhow::Result<Value> {
        self.request(&json!({ "open": { "run": run } }))
    }

    /// Opens a run. Fails unless the process gets it.
    pub fn open(&mut self, run: &str) -> anyhow::Result<Value> {
        let answer = self.try_open(run)?;
        ensure!(answer["opened"].is_object(), "{answer}");
        Ok(answer["opened"].clone())
    }

    /// Sends a command and waits until the process stops at failpoint `at`.
    pub fn run_to_failpoint(&mut self, at: &str, command: &Value) -> anyhow::Result<()> {
        let answer = self.request(command)?;
        ensure!(answer == json!({ "at": at }), "{at}: {answer}");
        Ok(())
    }

    /// Makes the process stop at a failpoint when it next reaches it.
    pub fn arm_failpoint(&mut self, failpoint: &str) -> anyhow::Result<()> {
        let answer = self.request(&json!({ "stop_at": failpoint }))?;
        ensure!(answer == json!({ "armed": failpoint }), "{answer}");
        Ok(())
    }

    /// Sends SIGSTOP; returns when the process is stopped.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        let started = Instant::now();
        let path = format!("/proc/{}/stat", self.child.id());
        // The state follows the name, which is in parentheses.
        while !std::fs::read_to_string(&path)?.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')) {
            ensure!(started.elapsed() < PAUSE_TIMEOUT, "the process is not stopped within {PAUSE_TIMEOUT:?}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Continues from the failpoint without waiting for the answer.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.send(&json!("continue"))
    }

    /// Sends SIGCONT, continues from the failpoint, and receives the next answer.
    pub fn resume(&mut self) -> anyhow::Result<Value> {
        self.signal("CONT")?;
        self.request(&json!("continue"))
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(sent.success(), "SIG{name} was not sent: {sent}");
        Ok(())
    }

    /// Sends SIGKILL; returns when the process has ended. Fails if it had already exited.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.kill_then(|| ())
    }

    /// Like [`Self::kill`]; calls `sent` as soon as the signal is sent.
    pub(crate) fn kill_then(&mut self, sent: impl FnOnce()) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the process had already exited: {status}");
        }
        self.child.kill()?;
        sent();
        self.child.wait()?;
        Ok(())
    }

    /// The lines that a killed process had written and that were not received.
    pub(crate) fn kill_and_drain(mut self) -> anyhow::Result<Vec<Value>> {
        self.child.kill()?;
        self.child.wait()?;
        let mut left = Vec::new();
        loop {
            match self.answers.recv_timeout(ANSWER_TIMEOUT) {
                Ok(line) => left.push(serde_json::from_str(&line).with_context(|| line)?),
                Err(RecvTimeoutError::Disconnected) => return Ok(left),
                Err(RecvTimeoutError::Timeout) => bail!("stdout of the process stays open after SIGKILL"),
            }
        }
    }

    /// Waits until the process exits with status 0.
    pub fn wait_for_exit(mut self, wait: Duration) -> anyhow::Result<()> {
        let code = crate::command::wait_for_exit(&mut self.child, wait)?;
        ensure!(code == Some(0), "the process exited with {code:?}");
        Ok(())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // It may have exited already. SIGKILL also ends a paused process.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
