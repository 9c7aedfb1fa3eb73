//! The coverage of the seeds: every rule fires often, and without a rule the answers of some seed differ.
//!
//! `RUNLOG_SEEDS` is the number of seeds (10,000). `--nocapture` shows the tables.

use runlog_model::{Model, Rule, history};
use serde_json::Value;
use std::{env, thread};

fn seeds() -> u64 {
    env::var("RUNLOG_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10_000)
}

/// A model after a seed's events, with its answers.
fn answers(seed: u64, broken: Option<Rule>) -> (Model, Value) {
    let history = history(seed);
    let mut model = Model::new(history.journal.clone());
    if let Some(rule) = broken {
        model = model.breaking(&[rule]);
    }
    for event in history.events() {
        event.to(&mut model);
    }
    let everything = model.everything();
    (model, everything)
}

/// In how many of every `step`-th seed from `from` on each rule decided something.
fn count(from: u64, step: u64) -> Vec<u64> {
    let mut counts = vec![0; Rule::ALL.len()];
    for seed in (from..seeds()).step_by(usize::try_from(step).unwrap_or(1)) {
        let (model, _) = answers(seed, None);
        for (count, rule) in counts.iter_mut().zip(Rule::ALL) {
            *count += u64::from(model.rules().fired(rule));
        }
    }
    counts
}

#[test]
fn every_rule_fires_in_one_of_a_hundred_seeds() {
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let counts = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|from| scope.spawn(move || count(from, threads))).collect();
        let counts = all.into_iter().map(|thread| thread.join().expect("a seed panicked"));
        counts.reduce(|one, other| one.iter().zip(&other).map(|(one, other)| one + other).collect())
    });
    let counts = counts.unwrap_or_default();
    for (count, rule) in counts.iter().zip(Rule::ALL) {
        println!("{count:>8} {rule:?}");
    }
    let rare: Vec<_> = counts.iter().zip(Rule::ALL).filter(|(count, _)| **count * 100 < seeds()).collect();
    assert!(rare.is_empty(), "in fewer than one of a hundred seeds: {rare:?}");
}

#[test]
fn every_rule_broken_is_found_by_a_seed() {
    let mut missing = Rule::ALL.to_vec();
    for seed in 0..seeds().min(2_000) {
        let (model, whole) = answers(seed, None);
        // A rule that did not fire changes no answer.
        let mut detected = missing.clone();
        detected.retain(|rule| model.rules().fired(*rule) && answers(seed, Some(*rule)).1 != whole);
        for rule in &detected {
            println!("{seed:>8} {rule:?}");
        }
        missing.retain(|rule| !detected.contains(rule));
        if missing.is_empty() {
            return;
        }
    }
    panic!("no seed has other answers without {missing:?}");
}

#[test]
fn a_seed_reproduces_exactly() {
    for seed in [0, 1, 42, u64::MAX] {
        assert_eq!(history(seed), history(seed), "seed {seed}");
        assert_eq!(answers(seed, None).1, answers(seed, None).1, "seed {seed}");
    }
    assert_ne!(history(1).steps, history(2).steps);
}
