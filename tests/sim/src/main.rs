//! `sim [--seeds N] [--from M] [--seed S] [--story]`: runs seeds, counts their faults, and prints the story of each
//! failing seed. With `--first` it ends at the first failure; with `--whole` it does not shrink the plan.

#![allow(clippy::print_stdout, reason = "a command")]

use anyhow::Context;
use runlog_sim::{
    plan::Plan,
    seeds::{self, Limits},
    shrink,
};

/// Otherwise the system's allocator takes a third of a seed's time.
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
        println!("\n{}", shrink::shrunk_story(plan));
    }
    anyhow::ensure!(ran.failures.is_empty(), "{} seeds fail", ran.failures.len());
    Ok(())
}
