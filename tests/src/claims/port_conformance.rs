//! The ports and `runlog conformance` on one journal.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{anyhow, bail, ensure};
use bob_core::journal::JournalEntry;
use serde_json::{Value, json};

use crate::port_fixture::{PortBackend, PortProcess, done, request};

/// Rounds of writing at most: the rows of a store are numbered by a byte.
const ROUNDS_MAX: u8 = 250;

/// The entry of a round.
fn entry(round: u8) -> Value {
    let arguments = json!({ "order": round });
    json!(JournalEntry {
        session_id: "session".into(),
        call_fingerprint: JournalEntry::fingerprint("pay", &arguments),
        tool_name: "pay".into(),
        arguments,
        result: json!({ "receipt": round }),
        is_error: false,
        timestamp_ms: u64::from(round),
    })
}

fn codetether(order: Value) -> Value {
    json!({ "codetether": ["write-backs", order] })
}

fn observability(order: Value) -> Value {
    json!({ "observability": ["workspace", order] })
}

/// Lets a process write by every port until `over`; returns the number of rounds.
fn write(backend: &PortBackend, over: &AtomicBool) -> anyhow::Result<u8> {
    let mut process = backend.process()?;
    for round in 0..ROUNDS_MAX {
        process.run(&json!({ "bob_core": { "append": entry(round) } }))?;
        let txn = process.run(&codetether(json!({ "stage": { "op": "save" } })))?;
        ensure!(txn == round, "the number {txn} in round {round}");
        process.run(&observability(json!({ "requested": round })))?;
        process.run(&observability(json!({ "done": round })))?;
        process.run(&codetether(json!({ "commit": txn })))?;
        if over.load(Ordering::Relaxed) {
            return Ok(round + 1);
        }
    }
    Ok(ROUNDS_MAX)
}

/// Fails unless a process reads the records of exactly `rounds` rounds.
fn read(process: &mut PortProcess, rounds: u8) -> anyhow::Result<()> {
    let entries: Vec<Value> = (0..rounds).map(entry).collect();
    let answer = process.run(&json!({ "bob_core": { "entries": "session" } }))?;
    ensure!(answer == json!(entries), "{answer}\nand not {}", json!(entries));
    for (round, entry) in (0..).zip(&entries) {
        let lookup = json!({ "bob_core": { "lookup": ["session", entry["call_fingerprint"]] } });
        let answer = process.run(&lookup)?;
        ensure!(answer == *entry, "{lookup}: {answer}");
        let answer = process.run(&observability(json!({ "call": round })))?;
        let call = format!("{:?}", Some((request(round, 10), Some(done(round, 20)))));
        ensure!(answer == call, "call {round}: {answer}");
    }
    let lines = process.run(&codetether(json!("jsonl")))?;
    let lines = lines.as_str().unwrap_or_default().lines().map(serde_json::from_str::<Value>);
    let phases: Vec<Value> =
        lines.map(|line| line.map(|line| json!([line["phase"], line["txn"]]))).collect::<Result<_, _>>()?;
    let expected: Vec<Value> =
        (0..rounds).flat_map(|txn| [json!(["staged", txn]), json!(["committed", txn])]).collect();
    ensure!(phases == expected, "{phases:?}");
    Ok(())
}

/// The claim, without the rules of partitions: they void records while the ports write.
pub fn every_rule_holds_on_a_journal_that_ports_write_to(backend: &PortBackend) -> anyhow::Result<()> {
    let PortBackend::Served(deployment) = backend else { bail!("{backend:?} has no server") };
    let over = AtomicBool::new(false);
    let (ran, rounds) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(backend, &over));
        let ran = deployment.server.runlog().json(&["conformance"]);
        over.store(true, Ordering::Relaxed);
        (ran, writer.join())
    });
    let (ran, rounds) = (ran?, rounds.map_err(|_| anyhow!("the writer panicked"))??);
    let report = ran.json()?;
    let untested = ["the server does not list the feature ", "it changes the data of a whole partition"];
    let is_untested = |line: &&Value| untested.iter().any(|why| line["detail"].to_string().contains(why));
    let others = report["rules"].as_array().into_iter().flatten().filter(|line| line["outcome"] != "pass");
    let (skipped, others): (Vec<_>, Vec<_>) = others.partition(is_untested);
    let all_pass = others.is_empty() && report["skipped"] == skipped.len() && report["passed"].as_u64() > Some(100);
    ensure!(all_pass && ran.code == Some(0), "{others:#?}");
    read(&mut backend.process()?, rounds)
}
