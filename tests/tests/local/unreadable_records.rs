//! Unreadable records in the local log: a foreign client appends them while no server is running.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use runlog_log::{Entry, Offset, PartitionId};
use runlog_tests::{
    agent::{Agent, entry, run_in},
    foreign::append_local,
    server::Launch,
    unreadable::{self, Journal, PARTITIONS},
};
use tempfile::tempdir;

fn with_journal(story: impl Fn(&Journal<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let folder = tempdir()?;
    let append =
        |records: &[(PartitionId, Entry)]| -> anyhow::Result<Vec<Offset>> { append_local(folder.path(), records) };
    story(&Journal { launch: Launch::local(folder.path()).partitions(PARTITIONS), append: &append, shared: false })
}

#[test]
fn an_unreadable_record_is_a_dead_letter_and_its_partition_continues() -> anyhow::Result<()> {
    // This log accepts neither a record over the limit nor one without a value.
    with_journal(|journal| unreadable::dead_letters(journal, false, false))
}

#[test]
fn an_unknown_schema_stops_its_partition_alone_until_the_record_is_skipped() -> anyhow::Result<()> {
    with_journal(unreadable::stops)
}

#[test]
fn a_rebuild_that_stops_at_a_record_is_installed_up_to_there() -> anyhow::Result<()> {
    with_journal(unreadable::voids_and_stops)
}

#[test]
fn a_skip_of_an_applied_record_voids_it_for_good() -> anyhow::Result<()> {
    with_journal(unreadable::voids)
}

/// Enough that rebuilding the partition takes longer than noticing its start.
const RECORDS: usize = 60_000;

#[test]
fn a_skip_is_not_lost_when_the_server_is_killed_while_it_rebuilds() -> anyhow::Result<()> {
    let folder = tempdir()?;
    let launch = Launch::local(folder.path());
    launch.start()?.kill()?;
    let mut agent = Agent::new(&run_in(2, PARTITIONS, "run"));
    let mut records: Vec<_> = std::iter::repeat_with(|| agent.turn("hello")).take(RECORDS).collect();
    let mut other = Agent::new(&run_in(2, PARTITIONS, "other"));
    records.extend([other.lifecycle("started"), other.turn("to be voided")]);
    let entries: Vec<_> = records.iter().map(|record| (2.into(), entry(record))).collect();
    let last = append_local(folder.path(), &entries)?[RECORDS + 1];
    let show = |server: &runlog_tests::server::Server| -> anyhow::Result<usize> {
        let shown = server.runlog().json(&["show", &other.run_id, "--deadline", "60s"])?;
        Ok(shown.exits(0)?.documents()?.len())
    };
    let server = launch.start()?;
    ensure!(show(&server)? == 2, "both are applied");
    let (runlog, place) = (server.runlog(), format!("2:{last}"));
    let skipping = thread::spawn(move || {
        runlog.json(&["dead-letter", "skip", &place, "--who", "w", "--why", "y", "--force", "--yes"])
    });
    let start = Instant::now();
    let rebuilding = folder.path().join("index/2/2");
    while !rebuilding.exists() {
        ensure!(start.elapsed() < Duration::from_secs(60), "the rebuild does not begin");
        thread::sleep(Duration::from_millis(1));
    }
    server.kill()?;
    ensure!(fs::exists(folder.path().join("index/1/2"))?, "killed before the rebuilt index took over");
    drop(skipping.join());

    let server = launch.start()?;
    ensure!(show(&server)? == 1, "the skipped record is gone");
    server.runlog().verified()?;
    Ok(())
}
