//! A session that writes its state back through a journal. After a crash the state file decides the outcome of a staged
//! operation.
//!
//! ```text
//!   codetether JOURNAL SERVER STATE     local:DIR with an empty SERVER, http://HOST:PORT twice, or kafka:BROKERS and a server
//! ```
//!
//! The state is a file with a number. Each step stages a compaction from n to n + 1 messages, writes the file, and commits. It
//! prints a line after each action and waits for one: kill it anywhere, and start it again.

use runlog_ports::{
    Blocking,
    codetether::{Checks, Op, Phase, RejectReason, WritebackJournal},
    producer::{Config, Journal},
};
use serde_json::json;
use std::{
    error::Error,
    fs::{read_to_string, rename, write},
    io::{BufRead, Write, stdin, stdout},
};

const STEPS: usize = 5;
const SESSION: &str = "codetether-example";

fn main() -> Result<(), Box<dyn Error>> {
    let [journal, server, state] = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
        .map_err(|_| "usage: codetether JOURNAL SERVER STATE")?;
    let config = Config::new(Journal::parse(&journal, Some(&server)).ok_or("no journal's URL")?, "codetether-example");
    let clock = config.clock;
    let checks = Checks::default().with(Phase::Schema, |op| match op {
        Op::Compaction { before, after } if *after != before + 1 => Err("a step is of one message".into()),
        _ => Ok(()),
    });
    let journal = WritebackJournal::open(Blocking::connect(config)?, SESSION, clock, checks)?;
    let now = || read_to_string(&state).ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    for open in journal.left_open() {
        // The state file shows whether it happened.
        let happened = matches!(open.op, Op::Compaction { after, .. } if now() >= after);
        if happened {
            journal.reconcile(open.txn).map_err(|reason| format!("{reason:?}"))?;
            journal.commit(open.txn)?;
        } else {
            journal.abandon(open.txn, RejectReason::InvariantViolation { detail: "its process died".into() })?;
        }
        print_and_wait(&json!({ "left_open": open.txn, "happened": happened }))?;
    }
    while now() < STEPS {
        let before = now();
        let txn = journal.stage(Op::Compaction { before, after: before + 1 })?;
        print_and_wait(&json!({ "staged": txn }))?;
        write(format!("{state}.new"), (before + 1).to_string())?;
        rename(format!("{state}.new"), &state)?;
        print_and_wait(&json!({ "written": before + 1 }))?;
        journal.commit(txn)?;
        print_and_wait(&json!({ "committed": txn }))?;
    }
    print_and_wait(&json!({ "jsonl": journal.to_jsonl()? }))
}

/// Prints a line, then waits for one on standard input.
fn print_and_wait(what: &serde_json::Value) -> Result<(), Box<dyn Error>> {
    writeln!(stdout(), "{what}")?;
    stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
