//! The simulation over many seeds. `RUNLOG_SIM_SEEDS` is how many (100), `RUNLOG_SIM_FROM` the first one (0); `sim` tells the
//! story of one.

use runlog_sim::{Counts, FAULTS, plan::Plan, world};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

/// As the command has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn no_seed_runs_an_effect_twice_or_loses_a_result() {
    let (from, seeds) = (number("RUNLOG_SIM_FROM", 0), number("RUNLOG_SIM_SEEDS", 100));
    let (next, counts, failed) = (AtomicU64::new(from), Mutex::new(Counts::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds {
                return;
            }
            let came = world::run(&Plan::new(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
            let mut counts = counts.lock().expect("no panic");
            came.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
            if let Some(failure) = came.failures.first() {
                failed.lock().expect("no panic").push(format!("seed {seed}: {failure}"));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let counts = counts.into_inner().expect("no panic");
    for (what, count) in &counts {
        println!("{count:>10}  {what}");
    }
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{}\n`make sim SEEDS=1 FROM=…` tells the story", failed.join("\n"));
    let never: Vec<_> = FAULTS.iter().filter(|fault| !counts.contains_key(*fault)).collect();
    assert!(never.is_empty() || seeds < 100, "never in {seeds} seeds: {never:?}");
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in [3, 42] {
        let [first, second] = [0, 1].map(|_| world::run(&Plan::new(seed)).expect("a seed"));
        assert_eq!(first.story, second.story, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
}
