//! `sim [--seeds N] [--from M] [--seed S] [--story]`: runs seeds, counts their faults, and tells the story of those that fail.
//! With `--first` it ends with the first one that fails; with `--whole` that one is not shrunk.

#![allow(clippy::print_stdout, reason = "a command")]

use anyhow::Context;
use runlog_sim::{
    plan::Plan,
    seeds::{self, Limits},
    shrink,
};

/// A third of a seed's time is the system's allocator otherwise.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let (mut number_of_seeds, mut from, mut story, mut calm, mut shrunk) = (1_000, 0, false, false, true);
    let mut limits = Limits::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> anyhow::Result<u64> {
            Ok(arguments.next().with_context(|| format!("{argument} takes a number"))?.parse()?)
        };
        match argument.as_str() {
            "--seeds" => number_of_seeds = number()?,
            "--from" => from = number()?,
            "--seed" => (from, number_of_seeds) = (number()?, 1),
            "--story" => story = true,
            "--calm" => calm = true,
            "--whole" => shrunk = false,
            "--first" => limits.failures = 1,
            other => anyhow::bail!(
                "{other}: usage: sim [--seeds N] [--from M] [--seed S] [--story] [--calm] [--whole] [--first]"
            ),
        }
    }
    let plan = |seed| if calm { Plan::new(seed).calm() } else { Plan::new(seed) };
    let ran = seeds::run(from..from.saturating_add(number_of_seeds), limits, plan, |came| {
        if story {
            println!("{}\nhash {}", came.story.join("\n"), came.hash);
        }
    });
    println!("{}", ran.speed());
    for (what, count) in &ran.counts {
        println!("{count:>10}  {what}");
    }
    for (plan, failure) in &ran.failures {
        println!("seed {} fails: {failure}", plan.seed);
    }
    if let Some((plan, _)) = ran.failures.first().filter(|_| shrunk) {
        println!("\n{}", shrink::told(plan));
    }
    anyhow::ensure!(ran.failures.is_empty(), "{} seeds fail", ran.failures.len());
    Ok(())
}
