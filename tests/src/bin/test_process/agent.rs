//! An agent process on the producer library. It reads one command per line from stdin, writes one answer per line to
//! stdout, and exits at the end of stdin.
//!
//! ```text
//!   test_process agent JOURNAL SERVER FOLDER [SLOT TOPIC CONTENT]
//!   {"open": {"run": "r"}}                          {"opened": {"epoch": 1, "pending": ["…"]}} or {"error": "claim_lost"}
//!   {"call": {"tool": "book", "args": {}}}          {"result": …, "recorded": false} or {"error": …, "message": …}
//!   "reopen"                                        {"reopened": {"landed": 1, "appended": 0}} or {"error": …, "message": …}
//!   {"stop_at": "head_read"}                        {"armed": "head_read"}; later {"at": "head_read"}, until it reads a line
//!   {"work": {"slot": "0", "threads": 1, "runs_each": 4}}      no answer; see `work`
//! ```
//!
//! Effects write a line to the ledger in FOLDER, which is independent of the journal: tests read there which effects
//! happened. With SLOT, TOPIC and CONTENT the process counts its appends to the topic in a file, and stores large payloads
//! in the content store.

use std::{io, path::Path, process, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use runlog_log::kafka::{KafkaConfig, KafkaLog};
use runlog_producer::{Answer, Call, Config, Error, Failure, Journal, Json, LoopState, Run, Runlog, content};
use runlog_tests::{
    append_counter::Counter,
    chaos::{
        effect_desk::EffectDesk,
        gate_worker::answer_json,
        kill_fleet::{appends_file, process_log},
    },
    hooked_log::hook,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failpoint::{self, say};

mod work;

/// Longer than tests hold an agent at a failpoint, so that no read-back times out.
const READ_BACK: Duration = Duration::from_secs(60);
/// The same while servers are killed.
const READ_BACK_AMID_KILLS: Duration = Duration::from_secs(10);
/// The exit code of a process that lost its parent.
const ORPHANED: i32 = 4;

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
    Work(work::Work),
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let arguments: Vec<String> = arguments.collect();
    let [journal, server, folder, counted @ ..] = &arguments[..] else {
        bail!("{arguments:?} are not JOURNAL SERVER FOLDER [SLOT TOPIC CONTENT]")
    };
    let (folder, named) = (Path::new(folder), Journal::parse(journal, Some(server)).context("the journal's URL")?);
    let mut config = Config { read_back: READ_BACK, failpoints: reached, ..Config::new(named, "agent") };
    if let [slot, topic, content] = counted {
        process_log::start();
        let counter = Arc::new(Counter::in_file(&appends_file(folder, slot))?);
        let brokers = journal.strip_prefix("kafka:").context("a journal in Kafka")?;
        config.log = Some(hook(KafkaLog::connect(KafkaConfig::new(brokers, topic))?, &counter));
        config.content = Some(content::Config::new(content.clone()));
        config.read_back = READ_BACK_AMID_KILLS;
        work::count(counter);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let desk = EffectDesk::in_folder(folder);
    let Some(work) = runtime.block_on(serve(&config, &desk))? else { return Ok(()) };
    work.until_ended(&config, server, folder)
}

/// The next line; exits the process at the end of stdin.
fn next_line() -> String {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(bytes) if bytes > 0 => line,
        _ => process::exit(ORPHANED),
    }
}

fn reached(name: &'static str) {
    if work::has_begun() {
        work::reached(name);
    } else if failpoint::disarm(name) {
        say(&json!({ "at": name }));
        next_line();
    }
}

/// Obeys commands until the process is to work.
async fn serve(config: &Config, desk: &EffectDesk) -> anyhow::Result<Option<work::Work>> {
    let (mut runlog, mut run) = (None, None);
    loop {
        let command = serde_json::from_str(&next_line())?;
        let reply = match (command, &run) {
            (Command::StopAt(name), _) => {
                failpoint::arm_and_report(&name);
                continue;
            }
            (Command::Open { run: id }, _) => {
                let runlog = match &mut runlog {
                    Some(runlog) => runlog,
                    None => runlog.insert(Runlog::connect(config.clone()).await?),
                };
                match runlog.open(&id).await {
                    Ok(opened) => {
                        let recovery = opened.recovery();
                        let pending: Vec<_> = recovery.pending.iter().map(|pending| pending.id.clone()).collect();
                        let reply = json!({ "opened": { "epoch": recovery.epoch, "pending": pending } });
                        run = Some(opened);
                        reply
                    }
                    Err(failed) => error(&failed),
                }
            }
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
            (Command::Work(work), _) => return Ok(Some(work)),
            (command, None) => bail!("{command:?} before a run was opened"),
        };
        say(&reply);
    }
}

fn error(error: &Error) -> Value {
    json!({ "error": error.kind(), "message": error.to_string() })
}

/// Makes a call whose effect is a booking at the desk.
async fn book(
    run: &Run,
    desk: &EffectDesk,
    tool: &str,
    args: &Value,
    key: Option<&str>,
    hold: bool,
) -> Result<Answer, Error> {
    let call = run.tool(tool, args);
    let call = if let Some(key) = key { call.idempotency_key(key) } else { call };
    let effect = async |call: Call| {
        let booked = desk
            .book(run.id().as_str(), tool, args, &call)
            .map_err(|failed| Failure { kind: "desk".into(), message: failed.to_string() })?;
        if hold {
            say(&json!({ "at": "effect_happened" }));
            next_line();
        }
        Ok(Json::from(booked))
    };
    call.once(effect).await
}
