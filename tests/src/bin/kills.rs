//! Kills agents and servers with SIGKILL at every named failpoint while appends are in flight, on Kafka; then compares what
//! was acknowledged, the ledger of effects and the journal. `kills KILLS`, 1000 by default.

#![allow(clippy::print_stdout, reason = "the figures of a command")]

use anyhow::Context;
use runlog_tests::{kafka::Broker, kill_fleet::run, random::Random};

/// Kills, unless the command line says otherwise.
const KILLS: usize = 1000;

fn main() -> anyhow::Result<()> {
    let kills = std::env::args().nth(1).map_or(Ok(KILLS), |count| count.parse()).context("kills KILLS")?;
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let report = run(Broker::shared(), kills, seed, &|line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
