//! A journal with its server, and the ledger that the effects of agent processes append to.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use runlog_log::kafka::KafkaConfig;
use runlog_producer::{Config, Journal, Runlog};
use runlog_schemas::{partition::partition_of, record::JournalRecord};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    agent::entry,
    agent_process::AgentProcess,
    chaos::effect_desk::EffectDesk,
    foreign::append_kafka,
    kafka::Broker,
    programs::test_process,
    server::{Launch, Server},
};

/// Partitions of each journal.
const PARTITIONS: u32 = 4;

/// A journal, its server and its ledger. Dropping it stops the server and deletes the files.
#[derive(Debug)]
pub struct Deployment {
    /// The server.
    pub server: Server,
    topic: Option<KafkaConfig>,
    folder: TempDir,
}

impl Deployment {
    /// On a server's own log; agents reach it by `http:`.
    pub fn http() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Launch::local(&folder.path().join("data")).partitions(PARTITIONS).start()?;
        Ok(Self { server, topic: None, folder })
    }

    /// As [`Self::http`], with a [token](Launch::with_token) that decides nothing.
    pub fn limited() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Launch::local(&folder.path().join("data")).partitions(PARTITIONS).with_token()?.start()?;
        Ok(Self { server, topic: None, folder })
    }

    /// On a new topic of the shared broker; agents reach it by `kafka:`.
    pub fn kafka() -> anyhow::Result<Self> {
        Self::on(Broker::shared())
    }

    /// On a new topic of the given broker; agents reach it by `kafka:`.
    pub fn on(broker: &Broker) -> anyhow::Result<Self> {
        let (folder, topic) = (tempfile::tempdir()?, broker.unique_topic());
        let server = Launch::kafka(&folder.path().join("data"), &topic).partitions(PARTITIONS).start()?;
        Ok(Self { server, topic: Some(topic), folder })
    }

    /// The topic, if the journal is on Kafka.
    pub fn topic(&self) -> Option<&KafkaConfig> {
        self.topic.as_ref()
    }

    /// The journal's URL, with queries sent to `server`.
    pub(crate) fn journal(&self, server: &str) -> String {
        self.topic.as_ref().map_or(server.to_owned(), |topic| format!("kafka:{}", topic.brokers))
    }

    /// A producer's configuration that sends queries (and over `http:` appends) to `server`.
    pub fn config(&self, server: &str) -> anyhow::Result<Config> {
        let journal = Journal::parse(&self.journal(server), Some(server)).context("a journal's URL")?;
        Ok(Config::new(journal, "test"))
    }

    /// Connects a producer in this process to `server`.
    pub async fn connect_by(&self, server: &str) -> anyhow::Result<Runlog> {
        Ok(Runlog::connect(self.config(server)?).await?)
    }

    /// Connects a producer in this process.
    pub async fn connect(&self) -> anyhow::Result<Runlog> {
        self.connect_by(&self.server.url).await
    }

    /// Starts an agent.
    pub fn agent(&self) -> anyhow::Result<AgentProcess> {
        let url = &self.server.url;
        let mut command = test_process("agent")?;
        command.args([&self.journal(url), url]).arg(self.folder.path());
        AgentProcess::start(command)
    }

    /// The folder of the agents' files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a file in this deployment's temporary folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The lines that effects appended, in order.
    pub fn ledger(&self) -> anyhow::Result<Vec<Value>> {
        EffectDesk::in_folder(self.folder.path()).effects()
    }

    /// The ids of the processes whose effects ran in a run, in order.
    pub fn booked_by(&self, run: &str) -> anyhow::Result<Vec<u64>> {
        let process = |line: &Value| line["process"].as_u64().with_context(|| format!("{line}"));
        self.ledger()?.iter().filter(|line| line["run"] == run).map(process).collect()
    }

    /// Appends a record unchanged, under the writer that it names. A refusal by the projector is not an error here.
    pub fn append(&self, record: &JournalRecord) -> anyhow::Result<()> {
        let run = record.body.run_id.borrow().context("a record of a run")?;
        match &self.topic {
            Some(topic) => {
                append_kafka(topic, &[(partition_of(run, PARTITIONS), entry(record))])?;
            }
            None => {
                let (status, said) =
                    self.server.post(&format!("/v1/runs/{run}/records?force=true"), &serde_json::to_value(record)?)?;
                ensure!(status < 500 && status != 404, "{status}: {said}");
            }
        }
        Ok(())
    }

    /// The reason and the writer of each refused record of a run, in order.
    pub fn anomalies(&self, run: &str) -> anyhow::Result<Vec<(String, String)>> {
        let answer = self.server.runlog().answer(&["anomalies", run, "--consistency", "latest", "--limit", "1000"])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = answer["anomalies"].as_array().with_context(|| format!("{answer}"))?;
        Ok(rows.iter().map(|row| (text(&row["reason"]), text(&row["writer_id"]))).collect())
    }

    /// Fails unless `runlog verify` finds the indices equal to the log.
    pub fn verified(&self) -> anyhow::Result<()> {
        self.server.runlog().verified()
    }
}
