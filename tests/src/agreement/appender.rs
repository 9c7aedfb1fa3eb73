//! A process that appends to a topic in order and reports acknowledgements. `kill -9` hits it with appends in flight.

use crate::programs::test_process;
use anyhow::{Context, anyhow};
use runlog_log::kafka::KafkaConfig;
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

/// How long an acknowledgement may take.
const ACK_WAIT: Duration = Duration::from_secs(60);

/// How a record is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// As agents do it.
    Log,
    /// By a client that takes records which ours refuses.
    Foreign,
    /// In a transaction of its own, which leaves a control record behind it.
    Committed,
    /// Likewise; who reads what is not committed gets the record all the same.
    Aborted,
}

/// One record to append.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Comes back with the acknowledgement.
    pub number: usize,
    /// Where.
    pub partition: u32,
    /// How.
    pub how: How,
    /// What, hexadecimal.
    pub value: String,
}

/// What was acknowledged.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// As in the order.
    pub number: usize,
    /// Where it landed.
    pub offset: u64,
}

/// The process. Dropping it kills it.
#[derive(Debug)]
pub struct Appender {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
}

impl Appender {
    /// Starts it on a topic.
    pub fn start(config: &KafkaConfig) -> anyhow::Result<Self> {
        let mut command = test_process("topic-appender")?;
        command.args([&config.brokers, &config.topic]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (send, said) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { child, stdin, said })
    }

    /// Tells it to append.
    pub fn send(&mut self, order: &Order) -> anyhow::Result<()> {
        let line = serde_json::to_string(order)?;
        writeln!(self.stdin, "{line}").context("the appender does not listen")
    }

    /// The next acknowledgement.
    pub fn receive(&self) -> anyhow::Result<Acknowledged> {
        let line = self.said.recv_timeout(ACK_WAIT).map_err(|error| anyhow!("the appender said nothing: {error}"))?;
        serde_json::from_str(&line).context(line)
    }

    /// SIGKILL; what it had said before it was gone.
    pub fn kill(mut self) -> anyhow::Result<Vec<Acknowledged>> {
        self.child.kill()?;
        self.child.wait()?;
        let mut last = Vec::new();
        loop {
            match self.said.recv_timeout(ACK_WAIT) {
                Ok(line) => last.push(serde_json::from_str(&line).context(line)?),
                Err(RecvTimeoutError::Disconnected) => return Ok(last),
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("the appender's pipe does not end"),
            }
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
