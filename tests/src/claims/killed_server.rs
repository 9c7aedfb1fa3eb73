//! A server is killed at random moments while many agents write. Each acknowledged record is applied once.

use std::{
    env,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::ensure;
use tokio::sync::watch;

use crate::{
    random::Random,
    server::Launch,
    writers::{RUNS, Sink, Story, Writers, compare},
};

/// Kills, unless `RUNLOG_KILLS` is set.
const KILLS: u32 = 5;
/// The time between two kills, ms.
const MOMENTS_MS: std::ops::Range<u64> = 200..2000;
/// Records that are written after the last kill, and how long they may take.
const AFTER_KILLS: u64 = 2000;
const AFTER_WAIT: Duration = Duration::from_secs(60);

/// The claim, for writers to `sink`, which gets the URL of the server. `claims` are the runs whose writers sometimes claim
/// them again.
#[allow(clippy::print_stdout, reason = "the seed and the figures of a test")]
pub fn acknowledged_records_are_applied_once<S: Sink>(
    launch: &Launch,
    claims: fn(usize) -> bool,
    sink: impl FnOnce(watch::Receiver<String>) -> anyhow::Result<S>,
) -> anyhow::Result<()> {
    let seed = Random::seed();
    let kills: u32 = env::var("RUNLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    println!("RUNLOG_SEED={seed} RUNLOG_KILLS={kills}");
    let mut random = Random::new(seed);
    let mut server = launch.start()?;
    let (url, follow) = watch::channel(server.url.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stories = (0..RUNS).map(|number| Story::new(number, seed, claims(number))).collect();
    let sink = Arc::new(sink(follow)?);
    let writers = runtime.block_on(async { Writers::start(stories, &sink) });
    for kill in 0..kills {
        let after = Duration::from_millis(random.between(MOMENTS_MS.start, MOMENTS_MS.end));
        sleep(after);
        if writers.failed() {
            break;
        }
        server.kill()?;
        println!("kill {kill} after {after:?}, {} records acknowledged", writers.acknowledged());
        server = launch.start()?;
        url.send_replace(server.url.clone());
    }
    let (acknowledged, up) = (writers.acknowledged(), Instant::now());
    while !writers.failed() && writers.acknowledged() < acknowledged + AFTER_KILLS && up.elapsed() < AFTER_WAIT {
        sleep(Duration::from_millis(10));
    }
    let (seconds, repeated) = (writers.elapsed().as_secs_f64(), writers.repeated());
    let stories = runtime.block_on(writers.finish())?;
    compare::everything(&server, &stories)?;
    let records: usize = stories.iter().map(|story| story.records.len()).sum();
    println!("{records} records, {:.0} a second, {repeated} batches sent again", records as f64 / seconds);
    ensure!(repeated > 0, "no batch was sent twice, so repeats are untested");
    Ok(())
}
