//! The product and the independent model answer alike, over seeded histories.
//!
//! `RUNLOG_SEEDS` is how many seeds (10,000), `RUNLOG_DISK_SEEDS` how many of those on disk (300), `RUNLOG_SEED` the only one, whose events are then shown where it
//! fails. `--nocapture` shows the tables.

use runlog_model::Rule;
use runlog_tests::agreement::{self, disk};
use std::{
    env,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Runs `check` on the seeds from 0, or on the one that is asked for, on as many threads as there are cores. After some
/// failures it gives up, and fails with them.
fn each_seed(seeds: u64, check: impl Fn(u64) -> Result<(), String> + Sync) {
    const FAILURES_MAX: usize = 5;
    let (from, end) = number("RUNLOG_SEED").map_or((0, seeds), |seed| (seed, seed + 1));
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
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort();
    let asked = number("RUNLOG_SEED").filter(|_| !failures.is_empty());
    let events = asked.map(|seed| agreement::told(seed).join("\n")).unwrap_or_default();
    let told: Vec<String> = failures.into_iter().map(|(_, failure)| failure).collect();
    assert!(told.is_empty(), "\n{events}\n{}", told.join("\n"));
}

/// How often each rule decided something.
#[derive(Default)]
struct Counts(Vec<AtomicU64>);

impl Counts {
    fn new() -> Self {
        Self(Rule::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, rules: &runlog_model::Rules) {
        for (count, rule) in self.0.iter().zip(Rule::ALL) {
            count.fetch_add(u64::from(rules.fired(rule)), Ordering::Relaxed);
        }
    }
}

#[test]
fn the_pure_projection_answers_as_the_model_does() {
    let (counts, answers) = (Counts::new(), AtomicU64::new(0));
    let seeds = number("RUNLOG_SEEDS").unwrap_or(10_000);
    each_seed(seeds, |seed| {
        let checked = agreement::pure(seed, None).map_err(|difference| difference.to_string())?;
        counts.add(checked.model.rules());
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        Ok(())
    });
    println!("{} answers of the pure projection", answers.into_inner());
    let mut rare = Vec::new();
    for (count, rule) in counts.0.iter().zip(Rule::ALL) {
        let count = count.load(Ordering::Relaxed);
        println!("{count:>8} {rule:?}");
        if count * 100 < seeds && !agreement::NOT_IN_THE_PRODUCT.contains(&rule) {
            rare.push(rule);
        }
    }
    assert!(number("RUNLOG_SEED").is_some() || rare.is_empty(), "in fewer than one of a hundred seeds: {rare:?}");
}

/// Seeds that are looked at for one that finds a missing rule.
const MUTATION_SEEDS: u64 = 2_000;

#[test]
fn a_model_that_lacks_a_rule_disagrees() {
    let mut missing = Rule::ALL.to_vec();
    missing.retain(|rule| !agreement::NOT_IN_THE_PRODUCT.contains(rule));
    for seed in 0..MUTATION_SEEDS {
        let whole = agreement::pure(seed, None).unwrap_or_else(|difference| panic!("{difference}"));
        // A rule that decided nothing changes nothing.
        missing.retain(|rule| {
            let broken = if whole.model.rules().fired(*rule) { agreement::pure(seed, Some(*rule)).err() } else { None };
            let Some(found) = broken else { return true };
            println!("{seed:>8} {:<24} by {}", format!("{rule:?}"), found.question().unwrap_or("a failure"));
            false
        });
        if missing.is_empty() {
            return;
        }
    }
    panic!("no seed finds that {missing:?} is missing");
}

#[test]
fn killed_at_any_point_the_projector_answers_as_the_model_does() {
    let (kills, answers) = (Mutex::new(disk::Kills::new()), AtomicU64::new(0));
    let seeds = number("RUNLOG_DISK_SEEDS").unwrap_or(300);
    each_seed(seeds, |seed| {
        let (checked, killed) = disk::disk(seed).map_err(|difference| difference.to_string())?;
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        let mut kills = kills.lock().map_err(|_| "a seed panicked")?;
        killed.into_iter().for_each(|(point, count)| *kills.entry(point).or_default() += count);
        Ok(())
    });
    println!("{} answers of the projector", answers.into_inner());
    let kills = kills.into_inner().unwrap_or_default();
    for point in disk::POINTS {
        println!("{:>8} {point}", kills.get(point).copied().unwrap_or(0));
    }
    let rare: Vec<_> =
        disk::POINTS.iter().filter(|point| kills.get(*point).is_none_or(|kills| kills * 100 < seeds)).collect();
    assert!(
        number("RUNLOG_SEED").is_some() || rare.is_empty(),
        "killed in fewer than one of a hundred seeds at {rare:?}"
    );
}
