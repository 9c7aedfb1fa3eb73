//! A process that uses the ports. It reads one command per line from stdin and writes one answer per line to stdout:
//! `{"done": …}`, or `{"error": …, "taken_over": …}`. It exits at the end of stdin.
//!
//! ```text
//!   test_process port JOURNAL SERVER
//!   {"bob_core": {"append": {entry}}}             {"bob_core": {"lookup": ["session", "fingerprint"]}}
//!   {"codetether": ["session", {"commit": 3}]}    {"observability": ["workspace", {"requested": 1}]}
//! ```
//!
//! A port is opened by its first command, for the session that the command names.

use anyhow::Context;
use done::Done;
use runlog_producer::{Config, Journal};
use serde::Deserialize;
use serde_json::json;
use std::io::{self, BufRead, Write};

mod bob_core;
mod codetether;
mod done;
mod observability;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    BobCore(bob_core::Command),
    Codetether(String, codetether::Command),
    Observability(String, observability::Command),
}

/// The open ports.
#[derive(Default)]
struct Ports {
    bob_core: Option<bob_core::Port>,
    codetether: Option<codetether::Port>,
    observability: Option<observability::Port>,
}

impl Ports {
    fn run(&mut self, config: &Config, command: Command) -> anyhow::Result<Done> {
        Ok(match command {
            Command::BobCore(command) => {
                open_once(&mut self.bob_core, || bob_core::Port::open(config.clone()))?.run(command)
            }
            Command::Codetether(session, command) => {
                open_once(&mut self.codetether, || codetether::Port::open(config.clone(), &session))?.run(command)
            }
            Command::Observability(workspace, command) => {
                open_once(&mut self.observability, || observability::Port::open(config.clone(), &workspace))?
                    .run(command)
            }
        })
    }
}

fn open_once<T>(port: &mut Option<T>, open: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
    if port.is_none() {
        *port = Some(open()?);
    }
    port.as_ref().context("it was opened")
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let [journal, server] = <[String; 2]>::try_from(arguments.collect::<Vec<_>>())
        .map_err(|arguments| anyhow::anyhow!("{arguments:?} are not JOURNAL SERVER"))?;
    let config = Config::new(Journal::parse(&journal, Some(&server)).context("the journal's URL")?, "agent");
    let mut ports = Ports::default();
    for line in io::stdin().lock().lines() {
        let answer = match ports.run(&config, serde_json::from_str(&line?)?)? {
            Ok(done) => json!({ "done": done }),
            Err((error, taken_over)) => json!({ "error": error, "taken_over": taken_over }),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).context("cannot write to stdout")?;
    }
    Ok(())
}
