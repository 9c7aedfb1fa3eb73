//! The same indices with Kafka Streams (`tests/peers/StreamsIndex.java`) and with `runlog serve`. Measures the time from a
//! full topic until all records are applied, and the restore of deleted state. Fails unless both give the same answers.

mod application;
mod questions;

use anyhow::{Context, ensure};
use runlog_tests::{
    kafka::Broker,
    programs::output,
    server::{Launch, Server},
};
use std::{fs, path::Path, process::Command, time::Instant};
use tokio::runtime::Runtime;

use crate::{
    Scale,
    measure::{Cost, alternating, cpu, cpu_micros, peak_mib, rates},
    report::{Figure, Goal, Row, Unit},
    served::{PARTITIONS, ready},
};
use application::{AT_LEAST_ONCE, EXACTLY_ONCE, Guarantee, State, WITHOUT};
use questions::{Answer, Journal};

pub(crate) use application::Streams;

/// The costs of one way in one round.
#[derive(Debug)]
struct Round {
    applied: Cost,
    restored: Option<Cost>,
    peak_mib: f64,
}

pub(crate) fn run(runtime: &Runtime, broker: &Broker, scale: &Scale, streams: &Streams) -> anyhow::Result<Figure> {
    let (topic, dir) = (broker.unique_topic(), tempfile::tempdir()?);
    let genesis_dir = dir.path().join("begun");
    // Appends the genesis, and makes an index that contains only the genesis.
    let server = Launch::kafka(&genesis_dir, &topic).partitions(PARTITIONS).start()?;
    runtime.block_on(ready(&server))?;
    server.terminate()?;
    let journal = runtime.block_on(Journal::fill(topic, scale.records, dir.path()))?;
    let served = dir.path().join("served");
    let (_, server) = serve(runtime, &journal, &dir.path().join("asked"))?;
    let answers = runtime.block_on(journal.answers(&server))?;
    server.terminate()?;
    let rounds: [Vec<Round>; 5] = alternating(scale.rounds.min(3), |way| {
        Ok(match way {
            0 | 1 => {
                if way == 0 {
                    output(Command::new("cp").arg("-a").arg(&genesis_dir).arg(&served))?;
                }
                let (round, server) = serve(runtime, &journal, &served)?;
                server.terminate()?;
                fs::remove_dir_all(&served)?;
                round
            }
            2 => apply(streams, &journal, WITHOUT, &answers)?,
            3 => apply(streams, &journal, AT_LEAST_ONCE, &answers)?,
            _ => apply(streams, &journal, EXACTLY_ONCE, &answers)?,
        })
    })?;
    Ok(figure(&rounds, &journal))
}

/// Runs a server on a folder until all records are applied.
fn serve(runtime: &Runtime, journal: &Journal, dir: &Path) -> anyhow::Result<(Round, Server)> {
    let started = Instant::now();
    let server = Launch::kafka(dir, &journal.topic).start()?;
    runtime.block_on(ready(&server))?;
    let wall = started.elapsed();
    let applied = Cost { records: journal.records, wall, cpu: cpu(&server.pid().to_string())? };
    Ok((Round { applied, restored: None, peak_mib: peak_mib(server.pid())? }, server))
}

/// Runs the application until all records are applied. If it has changelogs, also measures the restore without its folder.
fn apply(streams: &Streams, journal: &Journal, guarantee: Guarantee, answers: &[Answer]) -> anyhow::Result<Round> {
    let state = State::new(guarantee)?;
    let running = streams.start(journal, &state, journal.records)?;
    let from = running.says("running")?;
    let before: u64 = from.rest.parse().context("records that were applied before")?;
    ensure!(
        before < journal.records,
        "{before} records were applied before all threads had partitions: too few remain to measure"
    );
    let applied = from.cost_until(&running.says("applied")?, journal.records - before);
    let peak_mib = running.peak_mib()?;
    journal.compare(&running.answers(answers.len())?, answers)?;
    if !guarantee.changelog {
        return Ok(Round { applied, restored: None, peak_mib });
    }
    fs::remove_dir_all(state.stores())?;
    let running = streams.start(journal, &state, 0)?;
    let restored = running.says("restoring")?.cost_until(&running.says("running")?, journal.records);
    journal.compare(&running.answers(answers.len())?, answers)?;
    Ok(Round { applied, restored: Some(restored), peak_mib })
}

fn figure(rounds: &[Vec<Round>; 5], journal: &Journal) -> Figure {
    let applied = rounds.each_ref().map(|rounds| rounds.iter().map(|round| round.applied).collect::<Vec<_>>());
    let restored = rounds.each_ref().map(|rounds| rounds.iter().filter_map(|round| round.restored).collect::<Vec<_>>());
    let [live, rebuild, without, at_least, exactly] = applied.each_ref().map(|costs| rates(costs));
    let [.., back_at_least, back_exactly] = restored.each_ref().map(|costs| rates(costs));
    let mut rows = vec![
        Row::ratio("live over Streams without changelog", &live, &without).goal(Goal::AtLeast(2.0)),
        Row::ratio("live over Streams, at_least_once", &live, &at_least).goal(Goal::AtLeast(5.0)),
        Row::ratio("live over Streams, exactly_once_v2", &live, &exactly).goal(Goal::AtLeast(5.0)),
        Row::ratio("rebuild over Streams' restore, at_least_once", &rebuild, &back_at_least).goal(Goal::AtLeast(5.0)),
        Row::ratio("rebuild over Streams' restore, exactly_once_v2", &rebuild, &back_exactly).goal(Goal::AtLeast(5.0)),
    ];
    let names = [
        "Runlog, live",
        "Runlog, rebuild",
        "Streams without changelog",
        "Streams, at_least_once",
        "Streams, exactly_once_v2",
    ];
    for (name, costs) in names.iter().zip(&applied) {
        rows.push(Row::new(*name, Unit::RecordsPerSecond, rates(costs)));
    }
    for (name, costs) in names.iter().zip(&restored).filter(|(_, costs)| !costs.is_empty()) {
        rows.push(Row::new(format!("{name}, restored"), Unit::RecordsPerSecond, rates(costs)));
    }
    for (name, costs) in names.iter().zip(&applied) {
        rows.push(Row::new(*name, Unit::CpuMicrosPerRecord, cpu_micros(costs)));
    }
    for (name, costs) in names.iter().zip(&restored).filter(|(_, costs)| !costs.is_empty()) {
        rows.push(Row::new(format!("{name}, restored"), Unit::CpuMicrosPerRecord, cpu_micros(costs)));
    }
    for (name, rounds) in names.iter().zip(rounds) {
        let peaks = rounds.iter().map(|round| round.peak_mib).collect();
        rows.push(Row::new(format!("{name}, resident at the most"), Unit::Mebibytes, peaks));
    }
    Figure {
        title: "Indices beside Kafka Streams".into(),
        method: format!(
            "{} records in {PARTITIONS} partitions of a topic. Runlog: `serve` with its defaults, from the start of the process until \
             /readyz, live behind an index that exists and as a rebuild of an empty folder. Streams: one instance with a thread per \
             core and its defaults, which keeps calls by fingerprint, pending calls and checkpoints, from when all threads have their \
             partitions to the last record; its start does not count, and neither does a commit after the last record. Restore: its \
             folder is deleted, and the time is from the first changelog that is read until it runs. CPU time is measured for the whole \
             process, for Runlog from its start. After each run of Streams, restores included, {} lookups were answered as Runlog \
             answers them.",
            journal.records,
            journal.questions()
        ),
        rows,
    }
}
