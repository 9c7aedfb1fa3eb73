//! Kills agents and servers with SIGKILL at every named failpoint while appends are in flight, on Kafka. Then compares the
//! acknowledgements, the ledger of effects and the journal. `test_process kills KILLS`, 1000 by default.

use anyhow::Context;
use runlog_tests::{kafka::Broker, kill_fleet, random::Random};

/// The default number of kills.
const KILLS: usize = 1000;

#[allow(clippy::print_stdout, reason = "the figures of a command")]
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let kills = arguments.next().map_or(Ok(KILLS), |count| count.parse()).context("kills KILLS")?;
    let seed = Random::seed();
    println!("RUNLOG_SEED={seed}");
    let report = kill_fleet::run(Broker::shared(), kills, seed, &|line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
