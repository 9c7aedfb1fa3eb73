//! Measures the build of the indices from a local log: `test_process rebuild-cost DIR RECORDS live|bulk|verify [OF_A_RUN]`.
//!
//! Makes a journal of RECORDS records in DIR if there is none: a third each of turns, requests and results of 500 bytes of
//! words. 200 runs are written at a time, with OF_A_RUN (300) records each; run ids are UUIDs. `live` and `bulk` delete
//! and rebuild the indices, `verify` compares the present indices with the log. Prints CPU and resident memory of this
//! process.

use anyhow::{Context, ensure};
use runlog_log::{
    Ack, Entry, Log,
    local::{LocalConfig, LocalLog},
};
use runlog_projector::{Config, Consistency, Projector, index::bulk::Limits, open};
use runlog_schemas::{codec, id::PartitionId, partition::partition_of};
use runlog_tests::small_runs::{Shape, SmallRuns};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const PARTITIONS: u32 = 4;
const OF_A_RUN: u64 = 300;
const AT_A_TIME: u64 = 200;
/// Records appended before their acknowledgements are awaited.
const TOGETHER: usize = 4000;
/// Bytes of words that make a record some 500 bytes.
const WORDS_BYTES: usize = 180;
const WAIT: Duration = Duration::from_secs(3600);

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut next = |what: &str| arguments.next().with_context(|| format!("DIR RECORDS live|bulk|verify: no {what}"));
    let (dir, records, how) = (PathBuf::from(next("DIR")?), next("RECORDS")?.parse()?, next("way")?);
    let of_a_run = arguments.next().map_or(Ok(OF_A_RUN), |count| count.parse())?;
    let runtime = Runtime::new()?;
    if !dir.join("log").exists() {
        make(&runtime, &dir, records, of_a_run)?;
    }
    if how != "verify" && dir.join("index").exists() {
        fs::remove_dir_all(dir.join("index"))?;
    }
    let offsets_min = if how == "live" { u64::MAX } else { Limits::default().offsets_min };
    let config = Config { bulk: Limits { offsets_min, ..Limits::default() }, ..config(&dir) };
    let (begun, before) = (Instant::now(), cpu_seconds()?);
    let projector = runtime.block_on(open::local(config))?;
    if how == "verify" {
        ensure!(projector.verify()?.equal, "the indices differ from the log");
    } else {
        for partition in PartitionId::all(PARTITIONS) {
            runtime.block_on(projector.wait(partition, Consistency::Latest, WAIT))?;
        }
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - before);
    let micros = cpu * 1e6 / records as f64;
    #[allow(clippy::print_stdout, reason = "its purpose is to print figures")]
    {
        println!(
            "{how}: {micros:.2} µs of CPU a record, {:.0} records/s, {:.0} MiB resident at most",
            records as f64 / seconds,
            peak_mib()?
        );
    }
    Ok(())
}

fn config(dir: &Path) -> Config {
    Config { partitions: Some(PARTITIONS), ..Config::new(dir, || 0, || "rebuild-cost".to_owned()) }
}

/// Appends the journal.
fn make(runtime: &Runtime, dir: &Path, records: u64, of_a_run: u64) -> anyhow::Result<()> {
    // Starts a projector once, which appends the genesis records.
    drop::<Projector>(runtime.block_on(open::local(config(dir)))?);
    let log = LocalLog::open(LocalConfig::new(dir.join("log")))?;
    let at_a_time = AT_A_TIME.min(records.div_ceil(of_a_run));
    let shape = Shape { of_a_run, at_a_time, text_bytes: WORDS_BYTES };
    let (mut runs, mut acks) = (SmallRuns::new(19, shape), Vec::<Ack>::new());
    for _ in 0..records {
        let record = runs.record();
        let run_id = record.body.run_id.borrow().context("a record of a run")?;
        let partition = partition_of(run_id, PARTITIONS);
        let entry = Entry { value: codec::encode(&record), ..Entry::default() };
        acks.push(log.append(partition, vec![entry]));
        if acks.len() == TOGETHER {
            acks.drain(..).try_for_each(|ack| runtime.block_on(ack).map(drop))?;
        }
    }
    Ok(acks.into_iter().try_for_each(|ack| runtime.block_on(ack).map(drop))?)
}

/// User and system time of this process, seconds. The kernel counts hundredths.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("a name")?.split_whitespace().collect();
    let ticks = |at: usize| anyhow::Ok(fields.get(at).context("a field")?.parse::<f64>()?);
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// The peak resident memory of this process, MiB.
fn peak_mib() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
}
