//! The projector is killed at random moments while many agents write to its topic on a real broker. Afterwards every
//! acknowledged record is found, and applied only once.

use std::{env, sync::Arc, thread::sleep, time::Duration};

use anyhow::ensure;
use runlog_log::kafka::KafkaLog;
use runlog_tests::{
    kafka::Broker,
    random::Random,
    server::Launch,
    writers::{RUNS, Story, Writers, compare, kafka::Kafka},
};
use tempfile::tempdir;

/// Kills, unless `RUNLOG_KILLS` is set.
const KILLS: u32 = 5;

#[test]
fn a_projector_killed_at_random_moments_loses_no_acknowledged_record_and_applies_none_twice() -> anyhow::Result<()> {
    let seed = Random::seed();
    let kills: u32 = env::var("RUNLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    println!("RUNLOG_SEED={seed} RUNLOG_KILLS={kills}");
    let mut random = Random::new(seed);
    let folder = tempdir()?;
    let config = Broker::shared().unique_topic();
    let launch = Launch::kafka(folder.path(), &config).partitions(4);
    let mut server = launch.start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stories = (0..RUNS).map(|number| Story::new(number, seed, number.is_multiple_of(3))).collect();
    let sink = Arc::new(Kafka(KafkaLog::connect(config)?));
    let writers = runtime.block_on(async { Writers::start(stories, &sink) });
    for kill in 0..kills {
        let after = Duration::from_millis(random.between(200, 2000));
        sleep(after);
        if writers.failed() {
            break;
        }
        server.kill()?;
        println!("kill {kill} after {after:?}, {} records acknowledged", writers.acknowledged());
        server = launch.start()?;
    }
    let (rate, repeated) = (writers.acknowledged() as f64 / writers.elapsed().as_secs_f64(), writers.repeated());
    let stories = runtime.block_on(writers.finish())?;
    compare::everything(&server, &stories)?;
    let records: usize = stories.iter().map(|story| story.records.len()).sum();
    println!("{records} records, {rate:.0} a second, {repeated} batches sent again");
    ensure!(repeated > 0, "no batch was sent twice, so repeats are untested");
    Ok(())
}
