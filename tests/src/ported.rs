//! A journal as ports reach it, on each way, and processes that use a port.

use anyhow::{Context, ensure};
use runlog_ports::observability::{ConversationTurn, ToolCallDone, ToolCallReq, ToolStatus, Validity};
use runlog_producer::{Config, Journal, failpoint};
use serde_json::Value;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::site::{Agent, Site};

/// How long an operation may take that is to be late.
const OPERATION: Duration = Duration::from_secs(3);

static LATE: AtomicBool = AtomicBool::new(false);

/// Makes the next append of a [`Way::late_config`] late.
pub fn be_late() {
    LATE.store(true, Ordering::Relaxed);
}

fn late(name: &'static str) {
    if name == failpoint::RECORD_NUMBERED && LATE.swap(false, Ordering::Relaxed) {
        sleep(OPERATION + OPERATION / 4);
    }
}

/// Whether the late append has come by.
pub fn was_late() -> bool {
    !LATE.load(Ordering::Relaxed)
}

/// A way to a journal of its own. Gone with this value.
#[derive(Debug)]
pub enum Way {
    /// `local:`, of one process at a time.
    Local(TempDir),
    /// `http:` or `kafka:`.
    Served(Box<Site>),
}

impl Way {
    /// Inside the process.
    pub fn local() -> anyhow::Result<Self> {
        Ok(Self::Local(tempfile::tempdir()?))
    }

    /// Through a server on its own log.
    pub fn http() -> anyhow::Result<Self> {
        Ok(Self::Served(Box::new(Site::http()?)))
    }

    /// On a topic of the shared broker.
    pub fn kafka() -> anyhow::Result<Self> {
        Ok(Self::Served(Box::new(Site::kafka()?)))
    }

    /// The journal's URL, and that of the server that is asked; empty where there is none.
    pub fn urls(&self) -> [String; 2] {
        match self {
            Self::Local(folder) => [format!("local:{}", folder.path().display()), String::new()],
            Self::Served(site) => [site.journal(&site.server.url), site.server.url.clone()],
        }
    }

    /// A library's configuration.
    pub fn config(&self) -> anyhow::Result<Config> {
        let [journal, server] = self.urls();
        Ok(Config::new(Journal::parse(&journal, Some(&server)).context("a journal's URL")?, "test"))
    }

    /// The same for a library whose next append after [`be_late`] takes longer than an operation may: nobody tells it whether that
    /// landed.
    pub fn late_config(&self) -> anyhow::Result<Config> {
        Ok(Config { operation: OPERATION, failpoints: late, ..self.config()? })
    }

    /// Starts a process that obeys: `port_process`.
    pub fn process(&self) -> anyhow::Result<Ported> {
        Agent::start("port_process", &self.urls()).map(Ported)
    }

    /// Starts an example of the ports, told how to reach the journal.
    pub fn example(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Agent> {
        let arguments: Vec<String> =
            self.urls().into_iter().chain(arguments.iter().map(|argument| (*argument).to_owned())).collect();
        Agent::start(&format!("examples/{name}"), &arguments)
            .context("`cargo build --workspace --examples` makes the examples")
    }
}

/// A process that uses ports as it is told. Dropping it kills it.
#[derive(Debug)]
pub struct Ported(Agent);

impl Ported {
    /// What it says of an order.
    pub fn asked(&mut self, order: &Value) -> anyhow::Result<Value> {
        self.0.ask(order)
    }

    /// What an order comes to that does not fail.
    pub fn does(&mut self, order: &Value) -> anyhow::Result<Value> {
        let said = self.asked(order)?;
        ensure!(said.get("done").is_some(), "{order}: {said}");
        Ok(said["done"].clone())
    }

    /// Gives it an order for which another process has the run.
    pub fn is_told(&mut self, order: &Value) -> anyhow::Result<()> {
        let said = self.asked(order)?;
        ensure!(said["error"].is_string() && said["taken_over"] == true, "{order}: {said}");
        Ok(())
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(self) -> anyhow::Result<()> {
        self.0.kill()
    }
}

/// The id of a row.
pub fn row(n: u8) -> Uuid {
    Uuid::from_u128(u128::from(n) + 1)
}

/// A turn from a time on.
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

/// A request from a time on, of the message of `row(n / 4)`.
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

/// How it ends, at a time.
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
