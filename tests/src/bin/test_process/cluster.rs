//! Faults on a Kafka cluster of three brokers, under load; prints what happened as a table. `test_process cluster FAULTS`, 200 by default.

use anyhow::Context;
use runlog_tests::{cluster::run as faults_run, random::Random};

/// The default number of faults.
const FAULTS: usize = 200;
/// The small disk, MiB: it holds all that the load writes meanwhile.
const DISK_MIB: u32 = 1024;

#[allow(clippy::print_stdout, reason = "the figures of a command")]
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let faults = arguments.next().map_or(Ok(FAULTS), |count| count.parse()).context("cluster FAULTS")?;
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let events = faults_run::schedule(faults, &mut Random::new(seed));
    let report = faults_run::run(DISK_MIB, &events, seed, &|line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
