//! The agent under test books a flight and pays for it. It runs as a task, or as a process of its own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use anyhow::{Context, ensure};
use runlog_testing::producer::{Config, Error, Failure, Journal, Json, Outcome, Runlog};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::Notify,
};

/// Books and pays once, however often it is called for one trip. Returns the booking.
pub(crate) async fn travel(runlog: &Runlog, airline: &Airline, trip: &str) -> Result<Value, Error> {
    let run = runlog.open(trip).await?;
    let flight = json!({ "flight": "HAT136" });
    let booked = run.tool("book_flight", &flight).idempotency_key(format!("{trip}-HAT136"));
    let booked = booked.once(|call| async move { airline.book(call.idempotency_key.as_deref()).await }).await?;
    let booking = booked.result.map_or(Value::Null, |result| result.to_value());
    run.tool("pay", &json!({ "booking": booking })).once(|_| airline.pay()).await?;
    run.end(Outcome::Completed).await?;
    Ok(booking)
}

/// Records its requests in a ledger. A test can configure it not to answer, and kill its customer meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Airline {
    ledger: PathBuf,
    /// The kind of request that it executes without an answer.
    silent: String,
    /// Notified when it has executed such a request.
    pub(crate) done: Arc<Notify>,
}

impl Airline {
    pub(crate) fn new(ledger: &Path) -> Self {
        Self { ledger: ledger.to_owned(), silent: String::new(), done: Arc::default() }
    }

    pub(crate) fn silent_about(mut self, what: &str) -> Self {
        self.silent = what.to_owned();
        self
    }

    /// The requests, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        fs::read_to_string(&self.ledger).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Books. The same key again returns the same booking.
    async fn book(&self, key: Option<&str>) -> Result<Json, Failure> {
        let key = key.unwrap_or_default();
        self.serve("book", &format!("book {key}")).await?;
        Ok(json!(format!("B-{key}")).into())
    }

    async fn pay(&self) -> Result<Json, Failure> {
        self.serve("pay", "pay").await?;
        Ok(json!("paid").into())
    }

    async fn serve(&self, what: &str, line: &str) -> Result<(), Failure> {
        let requests: String = self.requests().into_iter().chain([line.to_owned()]).map(|line| line + "\n").collect();
        let failure = |error: std::io::Error| Failure { kind: "ledger".into(), message: error.to_string() };
        fs::write(&self.ledger, requests).map_err(failure)?;
        if what == self.silent {
            self.done.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

const JOURNAL: &str = "SUITE_JOURNAL";
const SERVER: &str = "SUITE_SERVER";
const LEDGER: &str = "SUITE_LEDGER";
const SILENT: &str = "SUITE_SILENT";

/// The agent as a process of its own: this program again. It is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it, on a [`Journal`]'s URL and its query server.
    pub(crate) fn start(journal: &str, server: &str, airline: &Airline) -> anyhow::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--exact", "agent::agent_process", "--ignored", "--nocapture", "--test-threads=1"])
            .envs([(JOURNAL, journal), (SERVER, server), (SILENT, &airline.silent)])
            .env(LEDGER, &airline.ledger)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        Ok(Self { child, stdout })
    }

    /// Waits until it prints a text, and returns the rest of the line.
    pub(crate) async fn wait_for_text(&mut self, text: &str) -> anyhow::Result<String> {
        while let Some(line) = self.stdout.next_line().await? {
            if let Some((_, rest)) = line.split_once(text) {
                return Ok(rest.to_owned());
            }
        }
        anyhow::bail!("the agent ended before it printed {text:?}")
    }

    /// Kills it, as `kill -9` does.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.start_kill()?;
        let status = self.child.wait().await?;
        ensure!(!status.success(), "it ended before it was killed");
        Ok(())
    }
}

#[tokio::test]
#[ignore = "the agent's process, which other tests start"]
async fn agent_process() -> anyhow::Result<()> {
    let of = |name: &str| env::var(name).with_context(|| format!("{name} is not set"));
    let journal = Journal::parse(&of(JOURNAL)?, Some(&of(SERVER)?)).context("not a journal")?;
    let airline = Airline::new(Path::new(&of(LEDGER)?)).silent_about(&of(SILENT)?);
    let runlog = Runlog::connect(Config::new(journal, "travel-agent")).await?;
    tokio::select! {
        traveled = travel(&runlog, &airline, "trip-1") => println!("traveled: {}", traveled?),
        () = airline.done.notified() => {
            println!("done, and no answer");
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}
