//! The product and the independent model answer alike, over seeded histories.
//!
//! Each test runs for a time ([`TIME`]). `RUNLOG_SEEDS` and `RUNLOG_DISK_SEEDS` set counts of seeds instead, `RUNLOG_SEEDS_FROM`
//! (0) the first one. `RUNLOG_LOOKS` is the number of positions of a history at which all questions are asked (3). `RUNLOG_SEED`
//! runs one seed and prints its events if it fails. `--nocapture` shows the tables.

use runlog_model::Rule;
use runlog_tests::agreement::{
    self, disk,
    seeds::{Budget, cores, each_seed, number},
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Time of each test, unless the environment sets a count.
const TIME: Duration = Duration::from_secs(30);
/// The tests judge how often each rule and each kill occurred only after this many seeds.
const SEEDS_JUDGED: u64 = 10_000;
const DISK_SEEDS_JUDGED: u64 = 300;

/// As in the command: otherwise the system's allocator takes a third of a seed's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    let seeds = each_seed(cores(), Budget::from_env("RUNLOG_SEEDS", TIME), |seed| {
        let checked = agreement::pure(seed, None).map_err(|difference| difference.to_string())?;
        counts.add(checked.model.rules());
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        Ok(())
    });
    println!("{seeds} seeds, {} answers of the pure projection", answers.into_inner());
    // Some rules decide only answers, and thus seldom with few questions.
    let seldom = if number("RUNLOG_LOOKS").is_some() { 1000 } else { 100 };
    let mut rare = Vec::new();
    for (count, rule) in counts.0.iter().zip(Rule::ALL) {
        let count = count.load(Ordering::Relaxed);
        println!("{count:>8} {rule:?}");
        if count * seldom < seeds && !agreement::NOT_IN_THE_PRODUCT.contains(&rule) {
            rare.push(rule);
        }
    }
    assert!(seeds < SEEDS_JUDGED || rare.is_empty(), "in fewer than one of {seldom} seeds: {rare:?}");
}

/// The number of seeds searched for a detection of a missing rule.
const MUTATION_SEEDS: u64 = 2_000;

#[test]
fn a_model_that_lacks_a_rule_disagrees() {
    let mut missing = Rule::ALL.to_vec();
    missing.retain(|rule| !agreement::NOT_IN_THE_PRODUCT.contains(rule));
    for seed in 0..MUTATION_SEEDS {
        let whole = agreement::pure(seed, None).unwrap_or_else(|difference| panic!("{difference}"));
        // A rule that did not fire changes no answer.
        missing.retain(|rule| {
            let broken = if whole.model.rules().fired(*rule) { agreement::pure(seed, Some(*rule)).err() } else { None };
            let Some(found) = broken else { return true };
            let report = found.to_string();
            println!("{:<24} by {}", format!("{rule:?}"), report.lines().next().unwrap_or_default());
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
    let seeds = each_seed(cores(), Budget::from_env("RUNLOG_DISK_SEEDS", TIME), |seed| {
        let (checked, killed) = disk::disk(seed).map_err(|difference| difference.to_string())?;
        answers.fetch_add(checked.answers, Ordering::Relaxed);
        let mut kills = kills.lock().map_err(|_| "a seed panicked")?;
        killed.into_iter().for_each(|(point, count)| *kills.entry(point).or_default() += count);
        Ok(())
    });
    println!("{seeds} seeds, {} answers of the projector", answers.into_inner());
    let kills = kills.into_inner().unwrap_or_default();
    for point in disk::POINTS {
        println!("{:>8} {point}", kills.get(point).copied().unwrap_or(0));
    }
    let rare: Vec<_> =
        disk::POINTS.iter().filter(|point| kills.get(*point).is_none_or(|kills| kills * 100 < seeds)).collect();
    assert!(seeds < DISK_SEEDS_JUDGED || rare.is_empty(), "killed in fewer than one of a hundred seeds at {rare:?}");
}
