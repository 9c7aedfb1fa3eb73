//! The long runs of faults; each prints its progress and what happened as a table. `cluster FAULTS`: faults on a Kafka cluster
//! of three brokers, under load. `kills KILLS`: SIGKILL of agents and servers at every failpoint, with appends in flight.

use std::fmt::Display;

use anyhow::Context;
use runlog_tests::{
    chaos::{
        cluster::{self, run::schedule},
        kill_fleet,
    },
    kafka::Broker,
    random::Random,
};

/// The default numbers of faults and of kills.
const FAULTS: usize = 200;
const KILLS: usize = 1000;
/// The small disk, MiB: it holds all that the load writes meanwhile.
const DISK_MIB: u32 = 1024;

type Tell<'a> = &'a (dyn Fn(&str) + Sync);

pub(crate) fn cluster(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    run(arguments, FAULTS, |count, seed, tell| {
        cluster::run::run(DISK_MIB, &schedule(count, &mut Random::new(seed)), seed, tell)
    })
}

pub(crate) fn kills(arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    run(arguments, KILLS, |count, seed, tell| kill_fleet::run(Broker::shared(), count, seed, tell))
}

#[allow(clippy::print_stdout, reason = "the figures of a command")]
fn run<R: Display>(
    mut arguments: impl Iterator<Item = String>,
    default: usize,
    run: impl FnOnce(usize, u64, Tell<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<()> {
    let count = arguments.next().map_or(Ok(default), |count| count.parse()).context("the argument is a number")?;
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    println!("{}", run(count, seed, &|line| println!("{line}"))?);
    Ok(())
}
