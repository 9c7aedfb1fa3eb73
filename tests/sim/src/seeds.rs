//! Many seeds, on all cores.

use crate::{
    plan::Plan,
    stage::Counts,
    world::{self, Came, Indices},
};
use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One seed in so many is run a second time with the other kind of indices, and must have the same result.
const REPLAYED: u64 = 64;

/// The limits after which no further seed begins.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After this.
    pub time: Duration,
    /// Once so many have failed.
    pub failures: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::MAX, failures: 5 }
    }
}

/// The results of many seeds.
#[derive(Debug, Default)]
pub struct Ran {
    /// How many were run.
    pub seeds: u64,
    /// How often each fault, and some other things, happened in all of them.
    pub counts: Counts,
    /// The failing seeds, each with its first failure.
    pub failures: Vec<(Plan, String)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Ran {
    /// How many seeds in how much time.
    pub fn speed(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        format!("{} seeds in {seconds:.1} s, {:.1} a second", self.seeds, self.seeds as f64 / seconds)
    }
}

/// Runs the plans of `seeds` in their order, as far as the limits allow. `each` receives the result of each.
pub fn run(seeds: Range<u64>, limits: Limits, plan: impl Fn(u64) -> Plan + Sync, each: impl Fn(&Came) + Sync) -> Ran {
    let (next, all, start) = (AtomicU64::new(seeds.start), Mutex::new(Ran::default()), Instant::now());
    let locked = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while locked().failures.len() < limits.failures {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // The first seed always runs.
            if !seeds.contains(&seed) || seed > seeds.start && start.elapsed() > limits.time {
                return;
            }
            let plan = plan(seed);
            let came = catch_unwind(AssertUnwindSafe(|| world::run(&plan)));
            let came = came.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked")));
            let failure = match &came {
                Ok(came) => {
                    each(came);
                    came.failures.first().cloned().or_else(|| differs(&plan, came))
                }
                Err(error) => Some(format!("{error:#}")),
            };
            let mut all = locked();
            all.seeds += 1;
            for (what, count) in came.map(|came| came.counts).unwrap_or_default() {
                *all.counts.entry(what).or_default() += count;
            }
            all.failures.extend(failure.map(|failure| (plan, failure)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ran { elapsed: start.elapsed(), ..all }
}

/// The difference of a second run of a seed, if the seed is selected for a second run.
fn differs(plan: &Plan, first: &Came) -> Option<String> {
    if !plan.seed.is_multiple_of(REPLAYED) {
        return None;
    }
    let indices = Indices::for_seed(plan.seed).other();
    let came = match world::run_on(plan, indices) {
        Ok(again) if again.hash == first.hash => return None,
        Ok(again) => first_difference(&first.story, &again.story),
        Err(error) => format!("{error:#}"),
    };
    Some(format!("it went another way when it was run again, its indices in {indices:?}: {came}"))
}

/// The first line in which two stories of a seed differ.
fn first_difference(first: &[String], again: &[String]) -> String {
    let line = (0..first.len().max(again.len())).find(|line| first.get(*line) != again.get(*line));
    let Some(line) = line else { return "its log's bytes differ".to_owned() };
    let of = |story: &[String]| story.get(line).map_or_else(|| "its end".to_owned(), |told| format!("{told:?}"));
    format!("line {} of its story was {}, then {}", line + 1, of(first), of(again))
}
