//! A process dies in the middle of a payment. The next process resumes its run, and the customer pays once.
//!
//! ```text
//!   cargo run -p runlog-producer --features embedded --example resume_after_crash
//!
//!   first process:  checkpoint ─▶ quote (recorded) ─▶ pay: intent recorded, money taken ─▶ dies before the result is recorded
//!   second process: resumes at the checkpoint ─▶ quote: from the journal ─▶ pay: attempt 2 with the same key ─▶ ends the run
//! ```
//!
//! The program starts itself again as the first process, so that it is a real crash.

#![allow(clippy::print_stdout, reason = "an example")]

use anyhow::{Context, ensure};
use runlog_producer::{Config, Failure, Journal, Json, LoopState, Outcome, Run, Runlog};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The bank recognises a payment by this.
const KEY: &str = "order-7/payment";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Some(dir) = std::env::args().nth(1) {
        return first_process(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir()?;
    let died = Command::new(std::env::current_exe()?).arg(dir.path()).status()?;
    ensure!(!died.success(), "the first process should have died");
    println!("the first process died: {died}");
    second_process(dir.path()).await
}

async fn open(dir: &Path) -> anyhow::Result<Run> {
    let runlog = Runlog::connect(Config::new(Journal::Local(dir.join("journal")), "shop-agent")).await?;
    Ok(runlog.open("order-7").await?)
}

async fn first_process(dir: &Path) -> anyhow::Result<()> {
    let run = open(dir).await?;
    let messages = vec![Json::of(&json!({ "role": "user", "content": "Buy it." }))?];
    run.checkpoint(&LoopState { messages, ..LoopState::default() }).await?;
    run.tool("quote", &json!({ "order": 7 })).once(|_| async { Ok(json!(19.99).into()) }).await?;
    let payment = run.tool("pay", &json!({ "order": 7, "amount": 19.99 })).idempotency_key(KEY);
    payment
        .once(|call| async move {
            let taken = Bank(dir.to_owned()).pay(call.idempotency_key.as_deref());
            println!("first process: attempt {} took the money: {taken:?}", call.attempt);
            std::process::abort()
        })
        .await?;
    Ok(())
}

async fn second_process(dir: &Path) -> anyhow::Result<()> {
    let run = open(dir).await?;
    let checkpoint = run.recovery().checkpoint.as_ref().context("the checkpoint of the first process")?;
    let pending = &run.recovery().pending;
    println!("second process: resumes at {}, with {} pending call", checkpoint.checkpoint_id, pending.len());

    // The agent asks for the same calls again. This one has ended: its answer is in the journal, and the effect does not run.
    let quote = run
        .tool("quote", &json!({ "order": 7 }))
        .once(|_| async { Err(Failure { kind: "asked_twice".into(), message: "the shop was asked again".into() }) });
    let quote = quote.await?;
    ensure!(quote.recorded && quote.error.is_none(), "the quote comes from the journal");

    // This one is pending. Its key makes it safe to run again, and the bank answers with the payment that it already has.
    let payment = run.tool("pay", &json!({ "order": 7, "amount": 19.99 })).idempotency_key(KEY);
    let paid = payment.once(|call| async move {
        println!("second process: attempt {}", call.attempt);
        Bank(dir.to_owned()).pay(call.idempotency_key.as_deref())
    });
    let receipt = paid.await?.result.context("a receipt")?.to_value();
    run.end(Outcome::Completed).await?;

    let payments = fs::read_to_string(dir.join("bank"))?;
    println!("second process: receipt {receipt}; the bank has:\n{payments}");
    ensure!(payments.lines().count() == 1, "the customer pays once");
    Ok(())
}

/// A receiver that accepts an idempotency key: a file with a line for each payment.
struct Bank(PathBuf);

impl Bank {
    fn pay(&self, key: Option<&str>) -> Result<Json, Failure> {
        let failure = |kind: &str, message: String| Failure { kind: kind.into(), message };
        let key = key.ok_or_else(|| failure("no_key", "the bank wants a key".into()))?;
        let path = self.0.join("bank");
        let payments = fs::read_to_string(&path).unwrap_or_default();
        if !payments.lines().any(|line| line == key) {
            fs::write(&path, format!("{payments}{key}\n")).map_err(|error| failure("bank", error.to_string()))?;
        }
        Ok(json!({ "paid": key }).into())
    }
}
