//! An agent process that is killed: several runs at a time on a producer that writes straight to Kafka. Reads one command
//! per line from stdin, and ends when stdin does.
//!
//! ```text
//!   test_process killed-agent BROKERS TOPIC SERVER FOLDER SLOT
//!   "at NAME"    stops when it next reaches this failpoint with appends in flight, and prints {"at": …, "in_flight": 2}
//!   "anywhere"   prints the same when appends are in flight, and continues
//!   "end"        ends its runs, and exits with status 0
//! ```

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use runlog_log::kafka::{KafkaConfig, KafkaLog};
use runlog_producer::{Config, Journal, Runlog, failpoint};
use runlog_tests::{
    append_counter::Counter,
    effect_desk::EffectDesk,
    gate_worker::{AckedList, GateWorker},
    hooked_log::hook,
    kill_fleet::{self, RUNS_AT_ONCE, appends_file, content, healthy_run, process_log},
};
use serde_json::json;

/// How long a failpoint waits for an append in flight. Without one the process continues and waits again at its next
/// arrival.
const IN_FLIGHT_WAIT: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(100);
/// How long a read-back may take: servers are killed meanwhile.
const READ_BACK: Duration = Duration::from_secs(10);

/// The failpoint at which this process stops.
static STOP_AT: Mutex<Option<String>> = Mutex::new(None);
/// Counts the appends.
static COUNTER: OnceLock<Arc<Counter>> = OnceLock::new();
static ENDING: AtomicBool = AtomicBool::new(false);
static LARGE: AtomicBool = AtomicBool::new(false);

fn say(what: &serde_json::Value) {
    let mut stdout = io::stdout().lock();
    // If the parent has ended, stdin ends, too.
    let _ = writeln!(stdout, "{what}").and_then(|()| stdout.flush());
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

fn reached(name: &'static str) {
    let stop_at = || STOP_AT.lock().unwrap_or_else(PoisonError::into_inner);
    // Disarms the point, so that the other threads continue: their appends are in flight.
    if stop_at().take_if(|armed| armed.as_str() == name).is_none() {
        return;
    }
    let Some(in_flight) = in_flight() else {
        *stop_at() = Some(name.to_owned());
        return;
    };
    say(&json!({ "at": name, "in_flight": in_flight }));
    loop {
        thread::park();
    }
}

fn listen() {
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("at", name)) => {
                *STOP_AT.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
                LARGE.store(name == failpoint::CONTENT_STORED, Ordering::Relaxed);
            }
            _ if line == "end" => ENDING.store(true, Ordering::Relaxed),
            _ => loop {
                if let Some(in_flight) = in_flight() {
                    say(&json!({ "at": kill_fleet::ANYWHERE, "in_flight": in_flight }));
                    break;
                }
            },
        }
    }
    process::exit(0);
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    process_log::start();
    let [brokers, topic, server, folder, slot] = <[String; 5]>::try_from(arguments.collect::<Vec<_>>())
        .map_err(|arguments| anyhow!("{arguments:?} are not BROKERS TOPIC SERVER FOLDER SLOT"))?;
    let folder = Path::new(&folder);
    let counter = Arc::new(Counter::in_file(&appends_file(folder, &slot))?);
    let log = hook(KafkaLog::connect(KafkaConfig::new(&brokers, topic))?, &counter);
    COUNTER.get_or_init(|| counter);
    let journal = Journal::Kafka { brokers, server: server.clone() };
    let config = Config {
        read_back: READ_BACK,
        failpoints: reached,
        content: Some(content(folder)?),
        log: Some(log),
        ..Config::new(journal, "kill-agent")
    };
    thread::spawn(listen);
    // A thread for each run: one may be stopped at a failpoint while the others continue.
    let threads: Vec<_> = (0..RUNS_AT_ONCE)
        .map(|task| {
            let (config, server, folder, slot) = (config.clone(), server.clone(), folder.to_owned(), slot.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(work(&config, &server, &folder, &slot, task))
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
}

/// Works on one run after the other. A file keeps the number of ended runs for the next process.
async fn work(config: &Config, server: &str, folder: &Path, slot: &str, task: usize) -> anyhow::Result<()> {
    let (desk, acked) =
        (EffectDesk::new(folder.join("desk"))?, AckedList::open(&folder.join(format!("acked-{slot}")))?);
    let runlog = loop {
        // Its server may be down.
        match Runlog::connect(config.clone()).await {
            Ok(runlog) => break runlog,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let (http, answered) = (runlog_tests::server::client()?, AtomicU64::new(0));
    let (runlog, desk, acked) = (&runlog, &desk, &acked);
    let worker = GateWorker { runlog, http, server, desk, acked, large: &LARGE, answered: &answered };
    let ended = folder.join(format!("ended-{slot}-{task}"));
    let mut number: u64 = match fs::read_to_string(&ended) {
        Ok(text) => text.parse().context("a number")?,
        Err(_) => 0,
    };
    loop {
        worker.live(&healthy_run(&format!("{slot}-{task}-{number}"))).await?;
        number += 1;
        let next = ended.with_extension("next");
        fs::write(&next, number.to_string())?;
        fs::rename(&next, &ended)?;
        if ENDING.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}
