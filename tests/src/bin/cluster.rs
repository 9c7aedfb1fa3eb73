//! Faults on a Kafka cluster of three brokers, under load; prints what happened as a table. `cluster FAULTS`, 200 by default.

#![allow(clippy::print_stdout, reason = "the figures of a command")]

use anyhow::Context;
use runlog_tests::{
    cluster::run::{run, schedule},
    random::Random,
};

/// Faults, unless the command line says otherwise.
const FAULTS: usize = 200;
/// The small disk, MiB: it holds all that the load writes meanwhile.
const DISK_MIB: u32 = 1024;

fn main() -> anyhow::Result<()> {
    let faults = std::env::args().nth(1).map_or(Ok(FAULTS), |count| count.parse()).context("cluster FAULTS")?;
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let events = schedule(faults, &mut Random::new(seed));
    let report = run(DISK_MIB, &events, seed, &|line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
