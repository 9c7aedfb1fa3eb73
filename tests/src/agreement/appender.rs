//! A process that appends to a topic in order and reports acknowledgements. It is killed with appends in flight.

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
    /// By our log client, like agents.
    Log,
    /// By a client that accepts records which ours refuses.
    Foreign,
    /// In a transaction of its own, which ends with a control record.
    Committed,
    /// In an aborted transaction: readers at `read_uncommitted` still get the record.
    Aborted,
}

/// One record to append.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The number of the order, returned with the acknowledgement.
    pub number: usize,
    /// The partition.
    pub partition: u32,
    /// How it is appended.
    pub how: How,
    /// The encoded record, hexadecimal.
    pub value: String,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The number of the order.
    pub number: usize,
    /// The offset of the record.
    pub offset: u64,
}

/// The process. Dropping it kills it.
#[derive(Debug)]
pub struct Appender {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Appender {
    /// Starts the process on a topic.
    pub fn start(config: &KafkaConfig) -> anyhow::Result<Self> {
        let mut command = test_process("topic-appender")?;
        command.args([&config.brokers, &config.topic]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (send, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { child, stdin, lines })
    }

    /// Sends an order.
    pub fn send(&mut self, order: &Order) -> anyhow::Result<()> {
        let line = serde_json::to_string(order)?;
        writeln!(self.stdin, "{line}").context("the appender does not read its stdin")
    }

    /// The next acknowledgement.
    pub fn receive(&self) -> anyhow::Result<Acknowledged> {
        let line =
            self.lines.recv_timeout(ACK_WAIT).map_err(|error| anyhow!("the appender printed no line: {error}"))?;
        serde_json::from_str(&line).context(line)
    }

    /// Sends SIGKILL; returns the acknowledgements that it had written and that were not received.
    pub fn kill(mut self) -> anyhow::Result<Vec<Acknowledged>> {
        self.child.kill()?;
        self.child.wait()?;
        let mut last = Vec::new();
        loop {
            match self.lines.recv_timeout(ACK_WAIT) {
                Ok(line) => last.push(serde_json::from_str(&line).context(line)?),
                Err(RecvTimeoutError::Disconnected) => return Ok(last),
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("the appender's stdout stays open after SIGKILL"),
            }
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
