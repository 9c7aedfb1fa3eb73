//! A journal on each backend for the ports, processes that use a port, and rows of the observability store.

use anyhow::{Context, ensure};
use runlog_ports::observability::{ConversationTurn, ToolCallDone, ToolCallReq, ToolStatus, Validity};
use runlog_producer::{Config, Journal, Token, failpoint};
use serde_json::Value;
use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    agent_process::AgentProcess,
    deployment::Deployment,
    programs::{built, test_process},
};

/// Timeout of an operation that the failpoint delays.
const OPERATION: Duration = Duration::from_secs(3);

static DELAY_NEXT: AtomicBool = AtomicBool::new(false);

/// Delays the next append of a [`PortBackend::delaying_config`].
pub fn delay_next_append() {
    DELAY_NEXT.store(true, Ordering::Relaxed);
}

fn delay_append(name: &'static str) {
    if name == failpoint::RECORD_NUMBERED && DELAY_NEXT.swap(false, Ordering::Relaxed) {
        sleep(OPERATION + OPERATION / 4);
    }
}

/// Whether the delayed append has reached the failpoint.
pub fn append_was_delayed() -> bool {
    !DELAY_NEXT.load(Ordering::Relaxed)
}

/// A journal for one test. Dropping it deletes the files.
#[derive(Debug)]
pub enum PortBackend {
    /// `local:`, of one process at a time.
    Local(TempDir),
    /// `http:` or `kafka:`.
    Served(Box<Deployment>),
}

impl PortBackend {
    /// A log in the process that uses it.
    pub fn local() -> anyhow::Result<Self> {
        Ok(Self::Local(tempfile::tempdir()?))
    }

    /// A server on its own log.
    pub fn http() -> anyhow::Result<Self> {
        Ok(Self::Served(Box::new(Deployment::http()?)))
    }

    /// A server on its own log, and a token that decides nothing.
    pub fn limited() -> anyhow::Result<Self> {
        Ok(Self::Served(Box::new(Deployment::limited()?)))
    }

    /// A topic of the shared broker.
    pub fn kafka() -> anyhow::Result<Self> {
        Ok(Self::Served(Box::new(Deployment::kafka()?)))
    }

    /// The URLs of the journal and of the server that answers queries; the latter is empty for `local:`.
    pub fn urls(&self) -> [String; 2] {
        match self {
            Self::Local(folder) => [format!("local:{}", folder.path().display()), String::new()],
            Self::Served(deployment) => [deployment.journal(&deployment.server.url), deployment.server.url.clone()],
        }
    }

    fn token(&self) -> Option<&str> {
        match self {
            Self::Local(_) => None,
            Self::Served(deployment) => deployment.server.token.as_deref(),
        }
    }

    /// A producer's configuration.
    pub fn config(&self) -> anyhow::Result<Config> {
        let [journal, server] = self.urls();
        let config = Config::new(Journal::parse(&journal, Some(&server)).context("a journal's URL")?, "test");
        Ok(Config { token: self.token().map(Token::new).transpose()?, ..config })
    }

    /// A producer's configuration with a failpoint. After [`delay_next_append`], the next append takes longer than the
    /// operation timeout, so its outcome is unknown.
    pub fn delaying_config(&self) -> anyhow::Result<Config> {
        Ok(Config { operation: OPERATION, failpoints: delay_append, ..self.config()? })
    }

    /// Starts a process that uses the ports.
    pub fn process(&self) -> anyhow::Result<PortProcess> {
        let mut command = test_process("port")?;
        command.args(self.urls()).envs(self.token().map(|token| ("RUNLOG_TOKEN", token)));
        AgentProcess::start(command).map(PortProcess)
    }

    /// Starts an example of the ports on this journal.
    pub fn example(&self, name: &str, arguments: &[&str]) -> anyhow::Result<AgentProcess> {
        let mut command = Command::new(built(&format!("examples/{name}"))?);
        command.args(self.urls()).args(arguments);
        AgentProcess::start(command)
    }
}

/// A process that uses ports on command. Dropping it kills it.
#[derive(Debug)]
pub struct PortProcess(AgentProcess);

impl PortProcess {
    /// Sends a command and receives its answer, which may be an error.
    pub fn request(&mut self, command: &Value) -> anyhow::Result<Value> {
        self.0.request(command)
    }

    /// Runs a command and returns its result. Fails if the command fails.
    pub fn run(&mut self, command: &Value) -> anyhow::Result<Value> {
        let answer = self.request(command)?;
        ensure!(answer.get("done").is_some(), "{command}: {answer}");
        Ok(answer["done"].clone())
    }

    /// Runs a command that must fail because another process took the run over.
    pub fn expect_taken_over(&mut self, command: &Value) -> anyhow::Result<()> {
        let answer = self.request(command)?;
        ensure!(answer["error"].is_string() && answer["taken_over"] == true, "{command}: {answer}");
        Ok(())
    }

    /// Sends SIGKILL; returns when the process has ended.
    pub fn kill(self) -> anyhow::Result<()> {
        self.0.kill()
    }
}

/// The id of a row.
pub fn row(n: u8) -> Uuid {
    Uuid::from_u128(u128::from(n) + 1)
}

/// A turn that is valid from a time on.
pub fn turn(n: u8, at: i64) -> ConversationTurn {
    ConversationTurn {
        id: row(n),
        parent_id: n.checked_sub(1).map(row),
        message_id: Uuid::from_u128(u128::from(n) << 64),
        kind: "user".into(),
        content: format!("\"turn\" {n}\n"),
        created_at: Validity { at, is_valid: true },
        thread_id: None,
    }
}

/// A request that is valid from a time on, of the message of `row(n / 4)`.
pub fn request(n: u8, at: i64) -> ToolCallReq {
    ToolCallReq {
        request_id: row(n),
        call_id: "call".into(),
        parent_id: row(n / 4),
        vendor: "openai".into(),
        tool_name: "apply_code_edit".into(),
        args_sha256: format!("the host's own {n}"),
        arguments_json: Some(format!("{{\"n\":{n}}}")),
        started_at: Validity { at, is_valid: true },
    }
}

/// The result of [`request`], at a time.
pub fn done(n: u8, at: i64) -> ToolCallDone {
    ToolCallDone {
        request_id: row(n),
        call_id: "call".into(),
        ended_at: Validity { at, is_valid: true },
        latency_ms: 7,
        outcome_json: Some(format!("[{n}]")),
        error_kind: None,
        error_msg: None,
        status: ToolStatus::Completed,
    }
}
