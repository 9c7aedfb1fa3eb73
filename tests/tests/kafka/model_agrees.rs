//! A server on a real topic answers as the model does, over seeded histories which a process appends, while both are
//! killed with `kill -9`.
//!
//! `RUNLOG_TRIALS` is how many seeds (100), `RUNLOG_SEED` the only one, whose events are then shown where it fails.
//! `--nocapture` shows the figures.

use runlog_tests::{
    agreement::{
        kafka::{Figures, kafka},
        seeds::{each_seed, number},
    },
    kafka::Broker,
};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

/// More than there are cores: a seed mostly waits for the broker, or for a process that starts.
const THREADS: usize = 4;

#[test]
fn killed_while_it_reads_a_topic_the_server_answers_as_the_model_does() {
    let (figures, answers) = (Mutex::new(Figures::default()), AtomicU64::new(0));
    let seeds = number("RUNLOG_TRIALS").unwrap_or(100);
    let broker = Broker::shared();
    each_seed(THREADS, seeds, |seed| {
        let (checked, lived) = kafka(seed, broker).map_err(|difference| difference.to_string())?;
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        *figures.lock().map_err(|_| "a seed panicked")? += lived;
        Ok(())
    });
    let figures = figures.into_inner().unwrap_or_default();
    println!("{} answers over HTTP; {figures:?}", answers.into_inner());
    let Figures { servers, deleted, appenders, again, torn_off, repeated, gaps, .. } = figures;
    let each = [servers, deleted, appenders, again, torn_off, repeated, gaps];
    assert!(number("RUNLOG_SEED").is_some() || !each.contains(&0), "something never happened: {figures:?}");
}
