//! `bench soak`: the memory of a server that projects at full speed for a given time.
//!
//! An appender appends small records as fast as the server projects them, with a bounded lag. Prints a line per minute. The
//! peaks of resident memory in the first and in the last third show whether it grows.

use anyhow::{Context, ensure};
use runlog_log::kafka::{KafkaConfig, KafkaLog};
use runlog_tests::{
    kafka::Broker,
    server::{Launch, Server, client},
    small_runs::{Shape, SmallRuns},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

use crate::{
    append::Writer,
    measure::{cpu, peak_mib, resident_mib},
    records,
    served::{PARTITIONS, mebibytes, ready},
};

/// Appended records that are not projected yet, at most.
const LAG_MAX: u64 = 300_000;
/// Small records, so that the index of an hour fits on a small disk.
const SHAPE: Shape = Shape { of_a_run: 300, at_a_time: 200, text_bytes: 0 };
const SAMPLE: Duration = Duration::from_secs(1);

/// The state that the sampler shares with the appender.
#[derive(Debug, Default)]
struct Shared {
    applied: AtomicU64,
    ending: AtomicBool,
}

/// Prints a line a minute. The indices are in `data`.
pub(crate) fn run(runtime: &Runtime, minutes: u64, data: &Path) -> anyhow::Result<()> {
    let broker = Broker::start()?;
    let topic = broker.unique_topic();
    let server = Launch::kafka(&data.join("soak"), &topic).partitions(PARTITIONS).start()?;
    runtime.block_on(ready(&server))?;
    let shared = Arc::new(Shared::default());
    let appender = thread::spawn({
        let shared = shared.clone();
        move || append(&topic, &shared)
    });
    let sampled = runtime.block_on(sample(&server, minutes, data, &shared));
    shared.ending.store(true, Ordering::Relaxed);
    appender.join().ok().context("the appender panicked")??;
    let residents = sampled?;
    let third = residents.len().div_ceil(3);
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    println!(
        "the most resident memory: {:.0} MiB in the first third, {:.0} MiB in the last, {:.0} MiB ever",
        most(&residents[..third]),
        most(&residents[residents.len() - third..]),
        peak_mib(server.pid())?
    );
    server.terminate().map(drop)
}

/// Resident memory, MiB, each second.
async fn sample(server: &Server, minutes: u64, data: &Path, shared: &Shared) -> anyhow::Result<Vec<f64>> {
    let (client, pid) = (client()?, server.pid());
    let mut residents = Vec::new();
    let (mut applied, mut used) = (0, cpu(&pid.to_string())?);
    println!(
        "| minute | records | records/s | CPU µs/record | resident, MiB | index, MiB |\n|---|---|---|---|---|---|"
    );
    for minute in 1..=minutes {
        let (begun, first) = (Instant::now(), residents.len());
        while begun.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(SAMPLE).await;
            let metrics = client.get(format!("{}/metrics", server.url)).send().await?.text().await?;
            shared.applied.store(sum(&metrics, "runlog_applied_offset{")?, Ordering::Relaxed);
            residents.push(resident_mib(pid)?);
        }
        let (before, used_before) = (applied, used);
        (applied, used) = (shared.applied.load(Ordering::Relaxed), cpu(&pid.to_string())?);
        ensure!(applied > before, "no record was projected for a minute: {}", server.stderr());
        println!(
            "| {minute} | {applied} | {:.0} | {:.1} | {:.0} | {:.0} |",
            (applied - before) as f64 / begun.elapsed().as_secs_f64(),
            (used - used_before).as_secs_f64() * 1e6 / (applied - before) as f64,
            residents[first..].iter().copied().fold(0.0, f64::max),
            mebibytes(data)?
        );
    }
    Ok(residents)
}

/// The sum of a metric's samples.
fn sum(metrics: &str, sample: &str) -> anyhow::Result<u64> {
    let of = metrics.lines().filter(|line| line.starts_with(sample));
    let values = of.filter_map(|line| line.rsplit(' ').next()).map(|value| Ok(value.parse::<f64>()? as u64));
    values.sum()
}

/// Appends until `shared.ending`, at most [`LAG_MAX`] records ahead of the server.
fn append(topic: &KafkaConfig, shared: &Shared) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let log = KafkaLog::connect(topic.clone())?;
    let (mut writer, mut runs) = (Writer::new(&log), SmallRuns::new(20, SHAPE));
    let mut appended = 0_u64;
    while !shared.ending.load(Ordering::Relaxed) {
        if appended.saturating_sub(shared.applied.load(Ordering::Relaxed)) > LAG_MAX {
            thread::sleep(Duration::from_millis(50));
            continue;
        }
        let (partition, entry) = records::entry(&runs.record(), PARTITIONS)?;
        runtime.block_on(writer.append(partition, entry))?;
        appended += 1;
    }
    runtime.block_on(writer.finish())
}
