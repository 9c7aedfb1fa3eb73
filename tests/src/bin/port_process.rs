//! A process that uses the ports. It does what it is told line by line on stdin, and says line by line on stdout what came of
//! it: `{"done": …}`, or `{"error": …, "taken_over": …}`. It ends with its stdin.
//!
//! ```text
//!   port_process JOURNAL SERVER
//!   {"bob_core": {"append": {entry}}}             {"bob_core": {"lookup": ["session", "fingerprint"]}}
//!   {"codetether": ["session", {"commit": 3}]}    {"observability": ["workspace", {"requested": 1}]}
//! ```
//!
//! A port is opened by its first order, for the session that this names.

use anyhow::Context;
use runlog_producer::{Config, Journal};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

#[path = "port_process/bob_core.rs"]
mod bob_core;
#[path = "port_process/codetether.rs"]
mod codetether;
#[path = "port_process/observability.rs"]
mod observability;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    BobCore(bob_core::Order),
    Codetether(String, codetether::Order),
    Observability(String, observability::Order),
}

/// What an order came to, or why it failed and whether another process has the run.
type Done = Result<Value, (String, bool)>;

/// The ports that are open.
#[derive(Default)]
struct Ports {
    bob_core: Option<bob_core::Desk>,
    codetether: Option<codetether::Desk>,
    observability: Option<observability::Desk>,
}

impl Ports {
    fn obey(&mut self, config: &Config, order: Order) -> anyhow::Result<Done> {
        Ok(match order {
            Order::BobCore(order) => opened(&mut self.bob_core, || bob_core::Desk::open(config.clone()))?.obey(order),
            Order::Codetether(session, order) => {
                opened(&mut self.codetether, || codetether::Desk::open(config.clone(), &session))?.obey(order)
            }
            Order::Observability(workspace, order) => {
                opened(&mut self.observability, || observability::Desk::open(config.clone(), &workspace))?.obey(order)
            }
        })
    }
}

fn opened<T>(port: &mut Option<T>, open: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
    if port.is_none() {
        *port = Some(open()?);
    }
    port.as_ref().context("it was opened")
}

fn main() -> anyhow::Result<()> {
    let [journal, server] = <[String; 2]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .map_err(|arguments| anyhow::anyhow!("{arguments:?} are not JOURNAL SERVER"))?;
    let config = Config::new(Journal::parse(&journal, Some(&server)).context("the journal's URL")?, "agent");
    let mut ports = Ports::default();
    for line in io::stdin().lock().lines() {
        let said = match ports.obey(&config, serde_json::from_str(&line?)?)? {
            Ok(done) => json!({ "done": done }),
            Err((error, taken_over)) => json!({ "error": error, "taken_over": taken_over }),
        };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{said}").and_then(|()| stdout.flush()).context("nobody listens")?;
    }
    Ok(())
}
