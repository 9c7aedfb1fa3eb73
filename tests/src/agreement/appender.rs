//! A process that appends to a topic in order and reports acknowledgements. It is killed with appends in flight.

use crate::{agent_process::AgentProcess, programs::test_process};
use runlog_log::kafka::KafkaConfig;
use serde::{Deserialize, Serialize};

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
    /// The key of the message, hexadecimal.
    pub key: String,
    /// The encoded record, hexadecimal.
    pub value: String,
    /// The principal of a claim, for its header.
    pub claimant: Option<String>,
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
pub struct Appender(AgentProcess);

impl Appender {
    /// Starts the process on a topic.
    pub fn start(config: &KafkaConfig) -> anyhow::Result<Self> {
        let mut command = test_process("topic-appender")?;
        command.args([&config.brokers, &config.topic]);
        AgentProcess::start(command).map(Self)
    }

    /// Sends an order.
    pub fn send(&mut self, order: &Order) -> anyhow::Result<()> {
        self.0.send(&serde_json::to_value(order)?)
    }

    /// The next acknowledgement.
    pub fn receive(&self) -> anyhow::Result<Acknowledged> {
        Ok(serde_json::from_value(self.0.receive()?)?)
    }

    /// Sends SIGKILL; returns the acknowledgements that it had written and that were not received.
    pub fn kill(self) -> anyhow::Result<Vec<Acknowledged>> {
        self.0.kill_and_drain()?.into_iter().map(|line| Ok(serde_json::from_value(line)?)).collect()
    }
}
