//! The simulation over many seeds: for a time ([`TIME`]), or for the count in `RUNLOG_SIM_SEEDS`. `RUNLOG_SIM_FROM` is the first
//! seed (0). The program `sim` prints the story of one seed.

use runlog_sim::{
    FAULTS,
    plan::Plan,
    seeds::{self, Limits},
    shrink,
    world::{self, Indices},
};
use std::time::Duration;

/// As the command has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time of the test, unless the environment sets a count. `make sim` runs more.
const TIME: Duration = Duration::from_secs(40);
/// The test judges whether each fault occurred only after this many seeds.
const SEEDS_JUDGED: u64 = 100;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn no_interleaving_runs_an_effect_twice_or_loses_a_result() {
    let from = number("RUNLOG_SIM_FROM").unwrap_or(0);
    let (seeds, time) = number("RUNLOG_SIM_SEEDS").map_or((u64::MAX, TIME), |seeds| (seeds, Duration::MAX));
    let limits = Limits { time, ..Limits::default() };
    let ran = seeds::run(from..from.saturating_add(seeds), limits, Plan::new, |_| {});
    println!("{}", ran.speed());
    for (what, count) in &ran.counts {
        println!("{count:>10}  {what}");
    }
    let failed: Vec<_> = ran.failures.iter().map(|(plan, failure)| format!("seed {}: {failure}", plan.seed)).collect();
    if let Some((plan, _)) = ran.failures.first() {
        panic!(
            "{}\n\n{}\n`target/debug/sim --seed {}` runs it again",
            failed.join("\n"),
            shrink::shrunk_story(plan),
            plan.seed
        );
    }
    let never: Vec<_> = FAULTS.iter().filter(|fault| !ran.counts.contains_key(*fault)).collect();
    assert!(never.is_empty() || ran.seeds < SEEDS_JUDGED, "never in {} seeds: {never:?}", ran.seeds);
}

#[test]
fn a_seed_replays_to_the_byte_on_disk_and_in_memory() {
    for seed in [3, 42] {
        let first = world::run_on(&Plan::new(seed), Indices::Memory).expect("a seed");
        for indices in [Indices::Memory, Indices::Disk] {
            let again = world::run_on(&Plan::new(seed), indices).expect("a seed");
            assert_eq!(first.story, again.story, "seed {seed}, indices in {indices:?}");
            assert_eq!(first.hash, again.hash, "seed {seed}, indices in {indices:?}");
        }
    }
}
