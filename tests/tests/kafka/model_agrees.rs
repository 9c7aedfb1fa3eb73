//! A server on a real topic answers as the model does, over seeded histories that a process appends, while both are killed
//! with SIGKILL.
//!
//! The test runs for a time ([`TIME`]). `RUNLOG_TRIALS` sets a count of seeds instead. `RUNLOG_SEED` runs one seed and prints its
//! events if it fails. `--nocapture` shows the figures.

use runlog_tests::{
    agreement::{
        kafka::{Figures, kafka},
        seeds::{Budget, each_seed},
    },
    kafka::Broker,
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// More than there are cores: a seed mostly waits for the broker, or for a process that starts.
const THREADS: usize = 4;
/// Time of the test, unless the environment sets a count.
const TIME: Duration = Duration::from_secs(30);
/// The test judges whether each fault occurred only after this many seeds.
const SEEDS_JUDGED: u64 = 100;

#[test]
fn a_server_killed_while_it_reads_a_topic_answers_as_the_model_does() {
    let (figures, answers) = (Mutex::new(Figures::default()), AtomicU64::new(0));
    let broker = Broker::shared();
    let seeds = each_seed(THREADS, Budget::from_env("RUNLOG_TRIALS", TIME), |seed| {
        let (checked, lived) = kafka(seed, broker).map_err(|difference| difference.to_string())?;
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        *figures.lock().map_err(|_| "a seed panicked")? += lived;
        Ok(())
    });
    let figures = figures.into_inner().unwrap_or_default();
    println!("{seeds} seeds, {} answers over HTTP; {figures:?}", answers.into_inner());
    let Figures { servers, deleted, appenders, again, torn_off, repeated, gaps, .. } = figures;
    let each = [servers, deleted, appenders, again, torn_off, repeated, gaps];
    assert!(seeds < SEEDS_JUDGED || !each.contains(&0), "something never happened: {figures:?}");
}
