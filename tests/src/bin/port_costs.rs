//! What a port's append and lookup take beside the producer's own, for whoever counts instructions.
//!
//! ```text
//!   port_costs PORT append|lookup TIMES           through the port
//!   port_costs PORT bare-append|bare-lookup TIMES the same records through `Writer` and `Runlog::records`
//! ```
//!
//! Everything is in this process, on a local journal of its own. Both begin with the same first append through the port, and the
//! bare ones make and write records of its payload, and look for them by the entry that the port finds them by.

use std::env;

use anyhow::{Context, bail, ensure};
use bob_core::journal::{JournalEntry, ToolJournalPort};
use runlog_ports::{
    Blocking,
    bob_core::ToolJournal,
    codetether::{Checks, Op, WritebackJournal},
    observability::{self, ObservabilityStore},
};
use runlog_producer::{Config, Journal, JournalRecord, Runlog, Select};
use runlog_tests::ported::{request, row};
use serde_json::json;

const RUN: &str = "counted";
/// Rows that the store's lookups go round.
const ROWS: u8 = 8;

/// A port, opened.
enum Port {
    BobCore(tokio::runtime::Runtime, ToolJournal),
    Codetether(WritebackJournal),
    Observability(observability::Store),
}

fn entry(n: u8) -> JournalEntry {
    let arguments = json!({ "flight": "HAT136", "seats": [n, 2], "passenger": { "name": "Ada", "loyal": true } });
    JournalEntry {
        session_id: RUN.into(),
        call_fingerprint: JournalEntry::fingerprint("book_flight", &arguments),
        tool_name: "book_flight".into(),
        arguments,
        result: json!({ "confirmation": "c-1", "text": "a word, and more. ".repeat(20) }),
        is_error: false,
        timestamp_ms: 1_795_305_600_000,
    }
}

impl Port {
    fn open(name: &str, journal: &Blocking) -> anyhow::Result<Self> {
        let of_its_own = journal.clone();
        Ok(match name {
            "bob-core" => Self::BobCore(runtime()?, ToolJournal::new(journal.runlog().clone())),
            "codetether" => {
                Self::Codetether(WritebackJournal::open(of_its_own, RUN, || 1_795_305_600_000, Checks::default())?)
            }
            "observability" => {
                let told = observability::Config { content: true };
                Self::Observability(observability::Store::open(of_its_own, RUN, told)?)
            }
            _ => bail!("{name:?} is no port"),
        })
    }

    fn append(&self, n: u8) -> anyhow::Result<()> {
        match self {
            Self::BobCore(runtime, journal) => runtime.block_on(journal.append(entry(n)))?,
            Self::Codetether(journal) => drop(journal.stage(Op::Compaction { before: 120, after: 24 })?),
            Self::Observability(store) => store.record_tool_call_requested(request(n, 10))?,
        }
        Ok(())
    }

    fn lookup(&self, n: u8) -> anyhow::Result<()> {
        let n = n % ROWS;
        let found = match self {
            Self::BobCore(runtime, journal) => {
                let found = runtime.block_on(journal.lookup(&RUN.to_owned(), &entry(n).call_fingerprint))?;
                found.is_some()
            }
            Self::Codetether(journal) => !journal.entries()?.is_empty(),
            Self::Observability(store) => store.get_tool_call(row(n), "call")?.is_some(),
        };
        ensure!(found, "it was appended");
        Ok(())
    }
}

fn last(runlog: &Runlog, runtime: &tokio::runtime::Runtime) -> anyhow::Result<JournalRecord> {
    let page = runtime.block_on(runlog.records(RUN, &Select::default(), None, 1000))?;
    page.records.into_iter().next_back().context("a record")?.record.map_err(Into::into)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The same through the producer alone.
fn bare(runlog: &Runlog, what: &str, times: u8) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let record = last(runlog, &runtime)?;
    let key = record.body.correlation_keys.first().context("the port's key")?;
    let which = Select { correlation: Some((key.key.clone(), key.value.clone())), ..Select::default() };
    let writer = runtime.block_on(runlog.writer(RUN))?;
    for _ in 0..times {
        if what == "bare-lookup" {
            let page = runtime.block_on(runlog.records(RUN, &which, None, 1))?;
            ensure!(page.records.len() == 1, "it is found");
            continue;
        }
        // As a host would that finds it by the same key.
        let mut made = writer.draft(None, record.payload.clone())?;
        made.body.correlation_keys.clone_from(&record.body.correlation_keys);
        made.body.event_index.correlation_keys.clone_from(&record.body.correlation_keys);
        runtime.block_on(writer.write(made))?;
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, what, times] = arguments.as_slice() else { bail!("{arguments:?} are not PORT WHAT TIMES") };
    let (times, dir): (u8, _) = (times.parse()?, tempfile::tempdir()?);
    ensure!(times <= u8::MAX - ROWS, "at most {} times", u8::MAX - ROWS);
    let journal = Blocking::connect(Config::new(Journal::Local(dir.path().to_owned()), "agent"))?;
    let opened = Port::open(port, &journal)?;
    (0..ROWS).try_for_each(|n| opened.append(n))?;
    match what.as_str() {
        "append" => (ROWS..ROWS + times).try_for_each(|n| opened.append(n)),
        "lookup" => (0..times).try_for_each(|n| opened.lookup(n)),
        what => bare(journal.runlog(), what, times),
    }
}
