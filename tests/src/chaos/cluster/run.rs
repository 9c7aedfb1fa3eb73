//! A run of faults under load, its checks and its table.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{
    Cluster,
    broken_promises::{self, Breach},
    faults::{self, Fault},
    load::{Figures, Load},
};
use crate::random::Random;

/// Calls that must be answered between two faults, so that each fault meets a load.
const CALLS_BETWEEN: u64 = 6;
/// How long these calls may take.
const LOAD_WAIT: Duration = Duration::from_secs(180);
/// One fault in this number breaks Kafka's promise.
const BREACH_EVERY: usize = 20;

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A fault without loss: every acknowledged record must be found.
    Fault(Fault),
    /// A fault with loss: the server must notice it.
    Breach(Breach),
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Fault(fault) => fault.name(),
            Self::Breach(breach) => breach.name(),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    count: u32,
    /// The longest time without an acknowledgement in a partition.
    unavailable: Duration,
    /// The longest time from the fault's beginning until all replicas were in sync.
    recovered: Duration,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    rows: BTreeMap<Event, Row>,
    figures: Figures,
    lasted: Duration,
}

/// `count` events in random order, with about equally many of each kind.
pub fn schedule(count: usize, random: &mut Random) -> Vec<Event> {
    let breaches = broken_promises::ALL;
    let mut events: Vec<Event> =
        (0..count / BREACH_EVERY).map(|at| Event::Breach(breaches[at % breaches.len()])).collect();
    let faults = (0..count - events.len()).map(|at| Event::Fault(faults::ALL[at % faults::ALL.len()]));
    events.extend(faults);
    random.shuffle(&mut events);
    events
}

/// Runs the events one after the other under load, and checks everything at the end. Calls `tell` with each event.
pub fn run(disk: u32, events: &[Event], seed: u64, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let (folder, cluster) = (tempfile::tempdir()?, Cluster::start(disk)?);
    let mut load = Load::start(&cluster, folder.path(), seed)?;
    let (mut random, mut rows, begun) = (Random::new(seed), BTreeMap::<Event, Row>::new(), Instant::now());
    for (number, event) in events.iter().enumerate() {
        await_load(&mut load)?;
        let since = Instant::now();
        let injected = match event {
            Event::Fault(fault) => faults::inject(&cluster, load.topic(), *fault, &mut random),
            Event::Breach(breach) => broken_promises::inject(&cluster, folder.path(), *breach),
        };
        let survived = injected.and_then(|()| {
            cluster.await_in_sync(load.topic())?;
            load.await_appends()
        });
        survived.with_context(|| {
            let logs = super::brokers().map(|broker| cluster.log(broker));
            format!("fault {number}, {}; {}", event.name(), logs.join("\n"))
        })?;
        let (until, row) = (Instant::now(), rows.entry(*event).or_default());
        let unavailable = load.longest_gap(since, until);
        row.count += 1;
        row.unavailable = row.unavailable.max(unavailable);
        row.recovered = row.recovered.max(until - since);
        let (gap, all) = (unavailable.as_secs_f64(), (until - since).as_secs_f64());
        let answered = load.answered();
        tell(&format!(
            "{:>3}/{} {}: {gap:.1} s without an acknowledgement, in sync after {all:.1} s; {answered} calls answered",
            number + 1,
            events.len(),
            event.name()
        ));
    }
    await_load(&mut load)?;
    let figures = load.finish(&cluster)?;
    Ok(Report { rows, figures, lasted: begun.elapsed() })
}

/// Waits until the load has answered [`CALLS_BETWEEN`] more calls.
fn await_load(load: &mut Load) -> anyhow::Result<()> {
    let (before, begun) = (load.answered(), Instant::now());
    while load.answered() < before + CALLS_BETWEEN {
        load.check_alive()?;
        ensure!(begun.elapsed() < LOAD_WAIT, "{} calls in {LOAD_WAIT:?}", load.answered() - before);
        std::thread::sleep(Duration::from_millis(20));
    }
    load.check_alive()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, count) = ("FAULT", "COUNT");
        writeln!(f, "{head:<50} {count:>5}  LONGEST WITHOUT ACK  LONGEST UNTIL IN SYNC")?;
        for (event, row) in &self.rows {
            let (gap, all) = (row.unavailable.as_secs_f64(), row.recovered.as_secs_f64());
            writeln!(f, "{:<50} {:>5} {gap:>18.1} s {all:>20.1} s", event.name(), row.count)?;
        }
        let faults: u32 = self.rows.values().map(|row| row.count).sum();
        let Figures { acknowledged, repeated, effects, calls, contended, imported, histories } = &self.figures;
        writeln!(
            f,
            "{faults} faults in {} s: {acknowledged} acknowledged records, all found, {repeated} of them sent again; \
             {effects} effects of {calls} calls and {contended} of contended runs, none twice; {} records imported, {} \
             imports run again",
            self.lasted.as_secs(),
            imported.0,
            imported.1
        )?;
        write!(
            f,
            "{} histories of {} events, {} of them uncertain: linearizable, {} undecided; both servers verify equal and \
             were never restarted",
            histories.runs, histories.events, histories.uncertain, histories.undecided
        )
    }
}
