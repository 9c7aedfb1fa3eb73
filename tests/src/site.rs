//! A journal with a server, agents as processes of their own, and the ledger that their effects write to.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail, ensure};
use runlog_log::kafka::KafkaConfig;
use runlog_producer::{Config, Journal, Runlog};
use runlog_schemas::{partition::partition_of, record::JournalRecord};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    agent::entry,
    foreign::append_kafka,
    kafka::Broker,
    server::{Launch, Server},
};

/// Partitions of each journal.
const PARTITIONS: u32 = 4;
/// How long an agent may take to say something.
const SAY_WAIT: Duration = Duration::from_secs(60);
/// How long an agent may take to be stopped, and how often that is looked at.
const STOP_WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);

/// A journal, its server and its ledger. Gone with this value.
#[derive(Debug)]
pub struct Site {
    /// The server.
    pub server: Server,
    topic: Option<KafkaConfig>,
    folder: TempDir,
}

impl Site {
    /// On a server's own log; agents reach it by `http:`.
    pub fn http() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Launch::local(&folder.path().join("data")).partitions(PARTITIONS).start()?;
        Ok(Self { server, topic: None, folder })
    }

    /// On a new topic of the shared broker; agents reach it by `kafka:`.
    pub fn kafka() -> anyhow::Result<Self> {
        Self::on(Broker::shared())
    }

    /// The same on another broker.
    pub fn on(broker: &Broker) -> anyhow::Result<Self> {
        let (folder, topic) = (tempfile::tempdir()?, broker.unique_topic());
        let server = Launch::kafka(&folder.path().join("data"), &topic).partitions(PARTITIONS).start()?;
        Ok(Self { server, topic: Some(topic), folder })
    }

    /// The topic, where it is on one.
    pub fn topic(&self) -> Option<&KafkaConfig> {
        self.topic.as_ref()
    }

    /// The journal's URL, where queries go to `server`.
    pub(crate) fn journal(&self, server: &str) -> String {
        self.topic.as_ref().map_or(server.to_owned(), |topic| format!("kafka:{}", topic.brokers))
    }

    /// A library's configuration, its questions (and over `http:` its appends) going to `server`.
    pub fn config(&self, server: &str) -> anyhow::Result<Config> {
        let journal = Journal::parse(&self.journal(server), Some(server)).context("a journal's URL")?;
        Ok(Config::new(journal, "test"))
    }

    /// The library in this process, likewise.
    pub async fn connect_by(&self, server: &str) -> anyhow::Result<Runlog> {
        Ok(Runlog::connect(self.config(server)?).await?)
    }

    /// The library in this process.
    pub async fn connect(&self) -> anyhow::Result<Runlog> {
        self.connect_by(&self.server.url).await
    }

    /// Starts an agent.
    pub fn agent(&self) -> anyhow::Result<Agent> {
        let url = &self.server.url;
        Agent::start("agent_process", &[self.journal(url), url.clone(), self.path("ledger").display().to_string()])
    }

    /// A file of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What effects wrote, in order.
    pub fn ledger(&self) -> anyhow::Result<Vec<Value>> {
        lines(&self.path("ledger"))
    }

    /// The processes whose effects happened, in order.
    pub fn booked_by(&self) -> anyhow::Result<Vec<u64>> {
        let process = |line: &Value| line["process"].as_u64().with_context(|| format!("{line}"));
        self.ledger()?.iter().map(process).collect()
    }

    /// Appends a record as it is, in whoever's name it says. Whether it is refused is not this one's to judge.
    pub fn append(&self, record: &JournalRecord) -> anyhow::Result<()> {
        let run = record.body.run_id.borrow().context("a record of a run")?;
        match &self.topic {
            Some(topic) => {
                append_kafka(topic, &[(partition_of(run, PARTITIONS), entry(record))])?;
            }
            None => {
                let (status, said) =
                    self.server.post(&format!("/v1/runs/{run}/records"), &serde_json::to_value(record)?)?;
                ensure!(status < 500 && status != 404, "{status}: {said}");
            }
        }
        Ok(())
    }

    /// Reasons and writers of what was refused in a run, in order.
    pub fn anomalies(&self, run: &str) -> anyhow::Result<Vec<(String, String)>> {
        let found = self.server.runlog().answer(&["anomalies", run, "--consistency", "latest", "--limit", "1000"])?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = found["anomalies"].as_array().with_context(|| format!("{found}"))?;
        Ok(rows.iter().map(|row| (text(&row["reason"]), text(&row["writer_id"]))).collect())
    }

    /// Whether the indices are what the log says.
    pub fn verified(&self) -> anyhow::Result<()> {
        let verification = self.server.runlog().json(&["verify"])?.exits(0)?;
        ensure!(verification.json()?["equal"] == true, "verify: {}", verification.stdout);
        Ok(())
    }
}

/// The documents of a file, one a line; a file that is not there has none. Others may be writing to it: what stands
/// behind the last line's end is a line on its way.
pub fn lines(path: &std::path::Path) -> anyhow::Result<Vec<Value>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path)?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// An agent process. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Agent {
    /// Starts a program that cargo made beside the test's folder.
    pub(crate) fn start(program: &str, arguments: &[String]) -> anyhow::Result<Self> {
        // A test is in TARGET/debug/deps.
        let test = std::env::current_exe()?;
        let program = test.ancestors().nth(2).context("a target folder")?.join(program);
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{} does not start", program.display()))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let (send, said) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { child, stdin, said })
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.child.id().into()
    }

    /// Tells it to do something.
    pub fn tell(&mut self, order: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("its stdin is open")?;
        writeln!(stdin, "{order}").context("an agent that is told something")
    }

    /// What it says next.
    pub fn hear(&self) -> anyhow::Result<Value> {
        let line = self.said.recv_timeout(SAY_WAIT).map_err(|error| anyhow!("an agent said nothing: {error}"))?;
        serde_json::from_str(&line).with_context(|| line)
    }

    /// Tells it to do something, and what it says of it.
    pub fn ask(&mut self, order: &Value) -> anyhow::Result<Value> {
        self.tell(order)?;
        self.hear()
    }

    /// Opens a run: what it says of that.
    pub fn opens(&mut self, run: &str) -> anyhow::Result<Value> {
        self.ask(&json!({ "open": { "run": run } }))
    }

    /// Opens a run that it gets.
    pub fn opened(&mut self, run: &str) -> anyhow::Result<Value> {
        let said = self.opens(run)?;
        ensure!(said["opened"].is_object(), "{said}");
        Ok(said["opened"].clone())
    }

    /// Tells it to do something, and waits until it is held up where `at` says.
    pub fn held(&mut self, at: &str, order: &Value) -> anyhow::Result<()> {
        let said = self.ask(order)?;
        ensure!(said == json!({ "at": at }), "{at}: {said}");
        Ok(())
    }

    /// Holds it up at a failpoint that it will come by.
    pub fn will_stop_at(&mut self, failpoint: &str) -> anyhow::Result<()> {
        let said = self.ask(&json!({ "stop_at": failpoint }))?;
        ensure!(said == json!({ "armed": failpoint }), "{said}");
        Ok(())
    }

    /// SIGSTOP; returns when it is stopped.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        let begun = Instant::now();
        let path = format!("/proc/{}/stat", self.child.id());
        // The state stands behind the name, which is in parentheses.
        while !std::fs::read_to_string(&path)?.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')) {
            ensure!(begun.elapsed() < STOP_WAIT, "it is not stopped within {STOP_WAIT:?}");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets it go on where it was held up, without waiting for what it says then.
    pub fn let_go(&mut self) -> anyhow::Result<()> {
        self.tell(&json!("go on"))
    }

    /// SIGCONT, and lets go of where it was held up: what it says then.
    pub fn goes_on(&mut self) -> anyhow::Result<Value> {
        self.signal("CONT")?;
        self.ask(&json!("go on"))
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(sent.success(), "SIG{name} was not sent: {sent}");
        Ok(())
    }

    /// SIGKILL; returns when it is gone. An error where it had ended by itself.
    pub fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended by itself: {status}");
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it ends by itself, with 0.
    pub fn ends(mut self, wait: Duration) -> anyhow::Result<()> {
        let code = crate::command::ended(&mut self.child, wait)?;
        ensure!(code == Some(0), "it ended with {code:?}");
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may be gone already. A stopped one is killed as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
