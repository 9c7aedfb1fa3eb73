//! Works on several runs at a time, to the end of each, until the parent ends it or kills it. A file per task keeps the
//! number of ended runs for the next process.
//!
//! ```text
//!   {"stop_at": NAME}       {"armed": NAME}; {"at": NAME} where it stopped at this failpoint with appends in flight
//!   {"stop_at": "anywhere"} the same as soon as appends are in flight; it continues
//!   "end"                   ends its runs, and exits with status 0
//! ```

use std::{
    fs, io,
    path::Path,
    process,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use futures_util::future::try_join_all;
use runlog_producer::{Config, Runlog, failpoint as producer};
use runlog_tests::{
    append_counter::Counter,
    chaos::{
        effect_desk::EffectDesk,
        gate_worker::{AckedList, GateWorker},
        kill_fleet::{ANYWHERE, healthy_run},
    },
};
use serde::Deserialize;
use serde_json::json;

use super::Command;
use crate::failpoint::{self, say};

/// How long a failpoint waits for an append in flight. Without one the process continues and waits again at its next
/// arrival.
const IN_FLIGHT_WAIT: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(100);

static BEGUN: AtomicBool = AtomicBool::new(false);
/// Counts the appends.
static COUNTER: OnceLock<Arc<Counter>> = OnceLock::new();
static ENDING: AtomicBool = AtomicBool::new(false);
static LARGE: AtomicBool = AtomicBool::new(false);

/// The work of a process.
#[derive(Debug, Deserialize)]
pub(super) struct Work {
    /// Names its runs and its list of acknowledgements.
    slot: String,
    /// Threads with a producer each. One may be stopped at a failpoint while the others continue.
    threads: usize,
    /// Runs that a thread works on at the same time.
    runs_each: usize,
}

pub(super) fn count(counter: Arc<Counter>) {
    COUNTER.get_or_init(|| counter);
}

pub(super) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// The appends in flight, once there are any.
fn in_flight() -> Option<u64> {
    let started = Instant::now();
    while started.elapsed() < IN_FLIGHT_WAIT {
        match COUNTER.get().map_or(0, |counter| counter.appends().in_flight()) {
            0 => thread::sleep(LOOK),
            count => return Some(count),
        }
    }
    None
}

/// Stops at the armed failpoint. The other threads continue: their appends are in flight.
pub(super) fn reached(name: &'static str) {
    if !failpoint::disarm(name) {
        return;
    }
    let Some(in_flight) = in_flight() else { return failpoint::arm(name) };
    say(&json!({ "at": name, "in_flight": in_flight }));
    failpoint::park();
}

fn listen() {
    for line in io::stdin().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Command::StopAt(name)) => {
                failpoint::arm_and_report(&name);
                LARGE.store(name == producer::CONTENT_STORED, Ordering::Relaxed);
                if name == ANYWHERE {
                    // Calls begin on other threads.
                    let in_flight = std::iter::repeat_with(in_flight).flatten().next();
                    say(&json!({ "at": ANYWHERE, "in_flight": in_flight }));
                }
            }
            _ => ENDING.store(true, Ordering::Relaxed),
        }
    }
    process::exit(0);
}

impl Work {
    pub(super) fn until_ended(&self, config: &Config, server: &str, folder: &Path) -> anyhow::Result<()> {
        BEGUN.store(true, Ordering::Relaxed);
        thread::spawn(listen);
        thread::scope(|scope| {
            let tasks = |thread| scope.spawn(move || self.tasks(thread, config, server, folder));
            let threads: Vec<_> = (0..self.threads).map(tasks).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    }

    fn tasks(&self, thread: usize, config: &Config, server: &str, folder: &Path) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let acked = AckedList::open(folder, &self.slot)?;
        let (desk, http, answered) =
            (EffectDesk::in_folder(folder), runlog_tests::server::client()?, AtomicU64::new(0));
        runtime.block_on(async {
            let runlog = loop {
                // Its server may be down.
                match Runlog::connect(config.clone()).await {
                    Ok(runlog) => break runlog,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let worker = GateWorker {
                runlog: &runlog,
                http,
                server,
                desk: &desk,
                acked: &acked,
                large: &LARGE,
                answered: &answered,
            };
            let first = thread * self.runs_each;
            let tasks =
                (first..first + self.runs_each).map(|task| work(&worker, folder, format!("{}-{task}", self.slot)));
            try_join_all(tasks).await.map(drop)
        })
    }
}

/// Works on one run after the other.
async fn work(worker: &GateWorker<'_>, folder: &Path, task: String) -> anyhow::Result<()> {
    let ended = folder.join(format!("ended-{task}"));
    let mut number: u64 = match fs::read_to_string(&ended) {
        Ok(text) => text.parse().context("a number")?,
        Err(_) => 0,
    };
    // The previous process may have left this run open.
    loop {
        worker.live(&healthy_run(&format!("{task}-{number}"))).await?;
        number += 1;
        let next = ended.with_extension("next");
        fs::write(&next, number.to_string())?;
        fs::rename(&next, &ended)?;
        if ENDING.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}
