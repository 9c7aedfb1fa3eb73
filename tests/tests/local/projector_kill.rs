//! The server is killed at random moments while many agents write to it: no acknowledged record is lost, and no
//! record is applied twice. The log is the server's own.

use std::{
    env,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::ensure;
use runlog_tests::{
    random::Random,
    server::Launch,
    writers::{RUNS, Story, Writers, compare, http::Http},
};
use tempfile::tempdir;
use tokio::sync::watch;

/// How often, unless `RUNLOG_KILLS` is set.
const KILLS: u32 = 5;

fn leaves_numbers(run_id: &str) -> bool {
    run_id.ends_with(['1', '4', '7'])
}

fn claims(number: usize) -> bool {
    number.is_multiple_of(3) && !leaves_numbers(&number.to_string())
}

#[test]
fn a_server_killed_at_random_moments_loses_no_acknowledged_record_and_applies_none_twice() -> anyhow::Result<()> {
    let seed = Random::seed();
    let kills: u32 = env::var("RUNLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    println!("RUNLOG_SEED={seed} RUNLOG_KILLS={kills}");
    let mut random = Random::new(seed);
    let folder = tempdir()?;
    let launch = Launch::local(folder.path()).partitions(4);
    let mut server = launch.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stories = (0..RUNS).map(|number| Story::new(number, seed, claims(number))).collect();
    let (url, follow) = watch::channel(server.url.clone());
    let sink = Arc::new(Http::new(follow, leaves_numbers)?);
    let writers = runtime.block_on(async { Writers::start(stories, &sink) });
    let mut served = Duration::ZERO;
    for kill in 0..kills {
        let (up, after) = (Instant::now(), Duration::from_millis(random.between(200, 2000)));
        sleep(after);
        served += up.elapsed();
        if writers.failed() {
            break;
        }
        server.kill()?;
        println!("kill {kill} after {after:?}, {} records acknowledged", writers.acknowledged());
        server = launch.start()?;
        url.send_replace(server.url.clone());
    }
    // After the last kill they continue to write for a moment.
    let acknowledged = writers.acknowledged();
    let up = Instant::now();
    while !writers.failed() && writers.acknowledged() < acknowledged + 2000 && up.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(10));
    }
    served += up.elapsed();
    let (rate, repeated) = (writers.acknowledged() as f64 / served.as_secs_f64(), writers.repeated());
    let stories = runtime.block_on(writers.finish())?;
    compare::everything(&server, &stories)?;
    let records: usize = stories.iter().map(|story| story.records.len()).sum();
    println!("{records} records, {rate:.0} a second while it served, {repeated} batches sent again");
    ensure!(repeated > 0, "no kill met an append: that proves nothing");
    Ok(())
}
