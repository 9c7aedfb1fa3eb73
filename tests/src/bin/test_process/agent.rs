//! An agent process on the producer library. It reads one command per line from stdin, writes one answer per line to
//! stdout, and exits at the end of stdin.
//!
//! ```text
//!   test_process agent JOURNAL SERVER LEDGER
//!   {"open": {"run": "r"}}                          {"opened": {"epoch": 1, "pending": ["…"]}} or {"error": "claim_lost"}
//!   {"call": {"tool": "book", "args": {}}}          {"result": …, "recorded": false} or {"error": …, "message": …}
//!   "reopen"                                        {"reopened": {"landed": 1, "appended": 0}} or {"error": …, "message": …}
//!   {"stop_at": "head_read"}                        {"armed": "head_read"}; later {"at": "head_read"}, until it reads a line
//!   {"work": {"runs": ["r"], "acknowledged": "F"}}  works on all runs until it reads a line, then ends them
//! ```
//!
//! Effects write a line to the ledger, which is independent of the journal: tests read there which effects happened.

use std::{
    fs::File,
    io::{self, BufRead, Write},
    path::PathBuf,
    process, sync,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use runlog_producer::{Call, Config, Error, Failure, Journal, Json, LoopState, Outcome, Run, Runlog, Tool, answer};
use runlog_schemas::answer::ErrorKind;
use runlog_tests::deployment::lines;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longer than tests hold an agent at a failpoint, so that no read-back times out.
const READ_BACK: Duration = Duration::from_secs(60);
/// The exit code of a process that lost its parent.
const ORPHANED: i32 = 4;
/// Attempts to claim a run, if other agents claim it first.
const CLAIMS: usize = 5;

/// Steps between two checkpoints.
const CHECKPOINT_EVERY: u64 = 3;

/// The failpoint at which this process stops next.
static STOP_AT: sync::Mutex<Option<String>> = sync::Mutex::new(None);
/// Whether the work must end at the next checkpoint.
static ENDING: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    StopAt(String),
    Open {
        run: String,
    },
    Call {
        tool: String,
        args: Value,
        key: Option<String>,
        /// Stops the process after the effect has happened.
        #[serde(default)]
        hold: bool,
    },
    Checkpoint,
    Reopen,
    Work {
        runs: Vec<String>,
        acknowledged: PathBuf,
    },
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let [journal, server, ledger] = <[String; 3]>::try_from(arguments.collect::<Vec<_>>())
        .map_err(|arguments| anyhow::anyhow!("{arguments:?} are not JOURNAL SERVER LEDGER"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let named = Journal::parse(&journal, Some(&server)).context("the journal's URL")?;
        let config = Config { read_back: READ_BACK, failpoints: failpoint, ..Config::new(named, "agent") };
        let runlog = Runlog::connect(config).await?;
        let desk = Desk { ledger: ledger.into() };
        serve(&runlog, &desk, &server).await
    })
}

fn answer_with(what: &Value) {
    // If the parent has ended, the next read of stdin ends this process.
    let _ = writeln!(io::stdout().lock(), "{what}");
    let _ = io::stdout().lock().flush();
}

/// The next line; exits the process at the end of stdin.
fn next_line() -> String {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(bytes) if bytes > 0 => line,
        _ => process::exit(ORPHANED),
    }
}

fn failpoint(name: &'static str) {
    let mut stop_at = STOP_AT.lock().unwrap_or_else(sync::PoisonError::into_inner);
    if stop_at.as_deref() == Some(name) {
        *stop_at = None;
        answer_with(&json!({ "at": name }));
        next_line();
    }
}

async fn serve(runlog: &Runlog, desk: &Desk, server: &str) -> anyhow::Result<()> {
    let mut run = None;
    loop {
        let command = serde_json::from_str(&next_line())?;
        let reply = match (command, &run) {
            (Command::StopAt(name), _) => {
                let armed = json!({ "armed": name });
                *STOP_AT.lock().unwrap_or_else(sync::PoisonError::into_inner) = Some(name);
                armed
            }
            (Command::Open { run: id }, _) => match runlog.open(&id).await {
                Ok(opened) => {
                    let recovery = opened.recovery();
                    let pending: Vec<_> = recovery.pending.iter().map(|pending| pending.id.clone()).collect();
                    let reply = json!({ "opened": { "epoch": recovery.epoch, "pending": pending } });
                    run = Some(opened);
                    reply
                }
                Err(failed) => error(&failed),
            },
            (Command::Call { tool, args, key, hold }, Some(run)) => {
                match book(run, desk, &tool, &args, key.as_deref(), hold).await {
                    Ok(answer) => answer_json(&answer),
                    Err(failed) => error(&failed),
                }
            }
            (Command::Checkpoint, Some(run)) => match run.checkpoint(&LoopState::default()).await {
                Ok(position) => json!({ "position": position }),
                Err(failed) => error(&failed),
            },
            (Command::Reopen, Some(run)) => match run.reopen().await {
                Ok(done) => json!({ "reopened": { "landed": done.landed, "appended": done.appended } }),
                Err(failed) => error(&failed),
            },
            (Command::Work { runs, acknowledged }, _) => {
                std::thread::spawn(|| {
                    next_line();
                    ENDING.store(true, Ordering::Relaxed);
                });
                let list = List(File::options().create(true).append(true).open(acknowledged)?);
                let worker = Worker { runlog, desk, server, http: runlog_tests::server::client()?, list: &list };
                futures_util::future::try_join_all(runs.iter().map(|run| worker.live(run))).await?;
                return Ok(());
            }
            (command, None) => bail!("{command:?} before a run was opened"),
        };
        answer_with(&reply);
    }
}

fn error(error: &Error) -> Value {
    json!({ "error": error.kind(), "message": error.to_string() })
}

fn answer_json(answer: &runlog_producer::Answer) -> Value {
    let result = answer.result.as_ref().map(Json::to_value);
    let failure = answer.error.as_ref().map(|error| error.kind.clone());
    json!({ "result": result, "failure": failure, "recorded": answer.recorded, "position": answer.position })
}

/// Makes a call whose effect is a booking at the desk.
async fn book(
    run: &Run,
    desk: &Desk,
    tool: &str,
    args: &Value,
    key: Option<&str>,
    hold: bool,
) -> Result<runlog_producer::Answer, Error> {
    let call: Tool<'_> = run.tool(tool, args);
    let call = if let Some(key) = key { call.idempotency_key(key) } else { call };
    let effect = async |call: Call| {
        let booked = desk
            .book(run.id().as_str(), tool, args, &call)
            .map_err(|failed| Failure { kind: "desk".into(), message: failed.to_string() })?;
        if hold {
            answer_with(&json!({ "at": "effect_happened" }));
            next_line();
        }
        Ok(Json::from(booked))
    };
    call.once(effect).await
}

/// The ledger: a file with a line for each effect.
struct Desk {
    ledger: PathBuf,
}

impl Desk {
    /// A booking with a new number, or the earlier number if the key is known.
    fn book(&self, run: &str, tool: &str, args: &Value, call: &Call) -> anyhow::Result<Value> {
        let key = call.idempotency_key.as_deref();
        let booked = if key.is_some() && call.attempt > 1 { self.booked(call.id.as_str())? } else { None };
        let result = booked.unwrap_or_else(|| json!({ "booking": uuid::Uuid::new_v4().to_string() }));
        let line = json!({
            "run": run, "tool": tool, "args": args, "key": key, "call": call.id, "attempt": call.attempt,
            "process": process::id(), "result": result,
        });
        append(&File::options().create(true).append(true).open(&self.ledger)?, &line)?;
        Ok(result)
    }

    /// The booking of a call.
    fn booked(&self, call: &str) -> anyhow::Result<Option<Value>> {
        let booking = lines(&self.ledger)?.into_iter().find(|line| line["call"] == call);
        Ok(booking.map(|line| line["result"].clone()))
    }
}

/// Appends a line in one write, so that a killed process leaves the whole line or no part of it.
fn append(mut file: &File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

/// The acknowledgements of this process.
struct List(File);

impl List {
    fn note(&self, run: &str, what: &str, mut line: Value) -> anyhow::Result<()> {
        line["run"] = run.into();
        line["what"] = what.into();
        Ok(append(&self.0, &line)?)
    }
}

struct Worker<'a> {
    runlog: &'a Runlog,
    desk: &'a Desk,
    server: &'a str,
    http: reqwest::Client,
    list: &'a List,
}

impl Worker<'_> {
    /// Takes a run over, decides the calls that the previous process left open, and works on it.
    async fn live(&self, id: &str) -> anyhow::Result<()> {
        let run = self.open(id).await?;
        for pending in &run.recovery().pending {
            self.list.note(id, "met", json!({ "class": pending.class }))?;
            if pending.class == answer::Class::ReconcileRequired {
                self.reconcile(id, pending).await?;
            }
        }
        let state = run.recovery().checkpoint.as_ref().and_then(|checkpoint| checkpoint.state.as_ref());
        let mut step = state.and_then(|state| state.to_value()["step"].as_u64()).unwrap_or(0);
        loop {
            let content = format!("step {step} of process {}", process::id());
            let position = run.turn("assistant", &content).await?;
            self.list.note(id, "turn", json!({ "position": position, "content": content }))?;
            let key = format!("key {step}");
            tokio::try_join!(self.call(&run, "reserve", step, Some(&key)), self.call(&run, "charge", step, None))?;
            step += 1;
            if !step.is_multiple_of(CHECKPOINT_EVERY) {
                continue;
            }
            let state = LoopState { state: Some(json!({ "step": step }).into()), ..LoopState::default() };
            self.list.note(id, "checkpoint", json!({ "position": run.checkpoint(&state).await? }))?;
            // Only here has it repeated all calls that the previous process may have left open.
            if ENDING.load(Ordering::Relaxed) {
                self.list.note(id, "end", json!({ "position": run.end(Outcome::Completed).await? }))?;
                return Ok(());
            }
        }
    }

    /// Opens a run. Retries, because a claim of the previous process may be appended between the read of the head and the new
    /// claim.
    async fn open(&self, id: &str) -> anyhow::Result<Run> {
        for _ in 1..CLAIMS {
            match self.runlog.open(id).await {
                Err(failed) if failed.kind() == ErrorKind::ClaimLost => {}
                opened => return Ok(opened?),
            }
        }
        Ok(self.runlog.open(id).await?)
    }

    async fn call(&self, run: &Run, tool: &str, step: u64, key: Option<&str>) -> anyhow::Result<()> {
        let args = json!({ "step": step });
        let call = run.tool(tool, &args);
        let call = if let Some(key) = key { call.idempotency_key(key) } else { call };
        let effect = async |call: Call| {
            let noted = self.list.note(run.id().as_str(), "intent", json!({ "id": call.id }));
            let booked = noted.and_then(|()| self.desk.book(run.id().as_str(), tool, &args, &call));
            // A failed write at the desk is recorded as a failure of the call.
            booked.map(Json::from).map_err(|failed| Failure { kind: "desk".into(), message: failed.to_string() })
        };
        let answer = call.once(effect).await?;
        ensure!(answer.error.is_none(), "{tool} of step {step} in {}: {:?}", run.id().as_str(), answer.error);
        self.list.note(run.id().as_str(), "answer", answer_json(&answer))
    }

    /// Decides a pending call by the desk's ledger, as an operator would: the process that made the call is dead.
    async fn reconcile(&self, run: &str, pending: &answer::Pending) -> anyhow::Result<()> {
        let body = match self.desk.booked(pending.id.as_str())? {
            Some(result) => json!({ "decision": "done", "result": result }),
            None => json!({ "decision": "not_done" }),
        };
        self.list.note(run, "decided", json!({ "decision": body["decision"] }))?;
        let mut body = body;
        // The call may belong to this process.
        (body["revision"], body["force"]) = (pending.revision.into(), true.into());
        (body["who"], body["why"]) = ("the worker".into(), "by the desk's ledger".into());
        let url = format!("{}/v1/runs/{run}/effects/{}/resolution", self.server, pending.id);
        let response = self.http.post(url).json(&body).send().await?;
        ensure!(response.status().is_success(), "{}: {}", pending.id, response.text().await?);
        Ok(())
    }
}
