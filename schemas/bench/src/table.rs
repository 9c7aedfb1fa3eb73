//! The table, as Markdown.

use crate::{
    counting,
    paths::{Job, PATHS, Path, Records},
};
use std::{hint::black_box, time::Instant};

/// The median of them counts. In a round every path has its turn, so that what else the machine does meets them all.
const ROUNDS: usize = 1001;
/// Takes of the median record in a round: so few that most are not interrupted.
const TAKES: usize = 20;

pub fn print(records: &Records) {
    let mut by_size: Vec<usize> = (0..records.len()).collect();
    by_size.sort_by_key(|at| records.framed(*at).len());
    let median = by_size[by_size.len() / 2];
    println!(
        "{} records; the median one is a {} of {} bytes. {ROUNDS} rounds.\n",
        records.len(),
        records.payload_type(median),
        records.framed(median).len()
    );
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); PATHS.len()];
    for _ in 0..ROUNDS {
        for (path, times) in PATHS.iter().zip(&mut times) {
            times.push(nanos(TAKES, || (path.take)(records, median)));
        }
    }
    println!("| what | by | ns | × | allocations | bytes |");
    println!("|---|---|---:|---:|---:|---:|");
    for job in Job::ALL {
        let of_job = || PATHS.iter().zip(&times).filter(|(path, _)| path.job == job);
        let own = of_job().next().map_or(f64::NAN, |(_, times)| middle(times));
        for (path, times) in of_job() {
            row(path, middle(times), own, &|| (path.take)(records, median));
        }
    }
}

fn row(path: &Path, nanos: f64, own: f64, take: &dyn Fn() -> usize) {
    let (_, allocated) = counting::during(|| black_box(take()));
    let (what, ratio) = (path.job.title(), nanos / own);
    println!("| {what} | {} | {nanos:.0} | {ratio:.1} | {} | {} |", path.by, allocated.count, allocated.bytes);
}

fn nanos(count: usize, take: impl Fn() -> usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..count {
        black_box(take());
    }
    begun.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn middle(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
