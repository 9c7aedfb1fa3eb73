//! Many seeds, or one from the environment.

use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// As many threads as there are cores.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `check` on so many seeds from `RUNLOG_SEEDS_FROM` (0) on, or on the one that is asked for, on so many threads.
///
/// Panics with the failures, and the history of the one that is asked for; after some it gives up.
pub fn each_seed(threads: usize, seeds: u64, check: impl Fn(u64) -> Result<(), String> + Sync) {
    const FAILURES_MAX: usize = 5;
    let first = number("RUNLOG_SEEDS_FROM").unwrap_or(0);
    let (from, end) = number("RUNLOG_SEED").map_or((first, first + seeds), |seed| (seed, seed + 1));
    let (next, failures) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || failures.lock().is_ok_and(|failures| failures.len() >= FAILURES_MAX) {
            return;
        }
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
    let asked = number("RUNLOG_SEED").filter(|_| !failures.is_empty());
    let events = asked.map(|seed| super::describe(seed).join("\n")).unwrap_or_default();
    let told: Vec<String> = failures.into_iter().map(|(_, failure)| failure).collect();
    assert!(told.is_empty(), "\n{events}\n{}", told.join("\n"));
}
