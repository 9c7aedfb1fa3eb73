//! Many seeds, or one from the environment.

use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// The number of cores, for one thread each.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many seeds a randomised test runs. The gate gives a test a time, so that a slow machine runs fewer seeds and does not
/// fail. The nightly run gives it a count.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// No seed starts after this many.
    pub seeds: u64,
    /// No seed starts after this time.
    pub time: Duration,
}

impl Budget {
    /// The count in the environment variable, or `time` if the variable is unset. `RUNLOG_SEED` makes the count 1.
    pub fn from_env(variable: &str, time: Duration) -> Self {
        let count = if number("RUNLOG_SEED").is_some() { Some(1) } else { number(variable) };
        count.map_or(Self { seeds: u64::MAX, time }, |seeds| Self { seeds, time: Duration::MAX })
    }
}

/// Runs `check` on seeds in order, starting at `RUNLOG_SEED` or else `RUNLOG_SEEDS_FROM` (0), on this many threads. Returns how
/// many seeds ran: at least one.
///
/// Panics with the failures, and with the history of `RUNLOG_SEED`. Starts no further seed after five failures.
pub fn each_seed(threads: usize, budget: Budget, check: impl Fn(u64) -> Result<(), String> + Sync) -> u64 {
    const FAILURES_MAX: usize = 5;
    let from = number("RUNLOG_SEED").or_else(|| number("RUNLOG_SEEDS_FROM")).unwrap_or(0);
    let (end, start, ran) = (from.saturating_add(budget.seeds), Instant::now(), AtomicU64::new(0));
    let (next, failures) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let over = seed > from && start.elapsed() > budget.time;
        if seed >= end || over || failures.lock().is_ok_and(|failures| failures.len() >= FAILURES_MAX) {
            return;
        }
        ran.fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = check(seed)
            && let Ok(mut failures) = failures.lock()
        {
            failures.push((seed, failure));
        }
    };
    thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort();
    let named_seed = number("RUNLOG_SEED").filter(|_| !failures.is_empty());
    let events = named_seed.map(|seed| super::describe(seed).join("\n")).unwrap_or_default();
    let messages: Vec<String> = failures.into_iter().map(|(_, failure)| failure).collect();
    assert!(messages.is_empty(), "\n{}\n{events}", messages.join("\n"));
    ran.into_inner()
}
