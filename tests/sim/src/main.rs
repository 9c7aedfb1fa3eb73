//! `sim [--seeds N] [--from M] [--seed S] [--story]`: runs seeds, counts their faults, and tells the story of those that fail.

#![allow(clippy::print_stdout, reason = "a command")]

use anyhow::Context;
use runlog_sim::{Counts, plan::Plan, shrink::shrink, world};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// A third of a seed's time is the system's allocator otherwise.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// After so many failing seeds it gives up.
const FAILURES_MAX: usize = 5;

/// One seed in so many is run twice, and must go the same way.
const REPLAYED: u64 = 64;

/// How a replay of a seed differs, if it does and the seed is one of those that are replayed.
fn differs(plan: &Plan, hash: &str) -> Option<String> {
    if !plan.seed.is_multiple_of(REPLAYED) {
        return None;
    }
    match world::run(plan) {
        Ok(again) if again.hash == hash => None,
        Ok(again) => Some(format!("it went another way when it was run again: hash {hash}, then {}", again.hash)),
        Err(error) => Some(format!("it went another way when it was run again: {error:#}")),
    }
}

fn main() -> anyhow::Result<()> {
    let (mut seeds, mut from, mut story, mut calm, mut shrunk) = (1_000, 0, false, false, true);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> anyhow::Result<u64> {
            Ok(arguments.next().with_context(|| format!("{argument} takes a number"))?.parse()?)
        };
        match argument.as_str() {
            "--seeds" => seeds = number()?,
            "--from" => from = number()?,
            "--seed" => (from, seeds) = (number()?, 1),
            "--story" => story = true,
            "--calm" => calm = true,
            "--whole" => shrunk = false,
            other => {
                anyhow::bail!("{other}: usage: sim [--seeds N] [--from M] [--seed S] [--story] [--calm] [--whole]")
            }
        }
    }
    let (next, failed, counts) = (AtomicU64::new(from), Mutex::new(Vec::new()), Mutex::new(Counts::new()));
    let begun = Instant::now();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds || failed.lock().is_ok_and(|failed| failed.len() >= FAILURES_MAX) {
                return;
            }
            let plan = if calm { Plan::new(seed).calm() } else { Plan::new(seed) };
            let failure = match world::run(&plan) {
                Ok(came) => {
                    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    came.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
                    if story {
                        println!("{}\nhash {}", came.story.join("\n"), came.hash);
                    }
                    came.failures.first().cloned().or_else(|| differs(&plan, &came.hash))
                }
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(failure) = failure {
                println!("seed {seed} fails: {failure}");
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(plan);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let ran = next.into_inner().min(from + seeds) - from;
    println!("{ran} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    for (what, count) in counts.into_inner().unwrap_or_default() {
        println!("{count:>10}  {what}");
    }
    let failed = failed.into_inner().unwrap_or_default();
    if let Some(plan) = failed.first().filter(|_| shrunk) {
        match shrink(plan) {
            Some((plan, came)) => {
                println!("\nseed {}, shrunk to {} events:", plan.seed, plan.events.len());
                plan.events.iter().for_each(|event| println!("  {event}"));
                println!("\n{}\n\n{}", came.story.join("\n"), came.failures.join("\n"));
            }
            None => println!("seed {} does not fail again", plan.seed),
        }
    }
    anyhow::ensure!(failed.is_empty(), "{} seeds fail", failed.len());
    Ok(())
}
