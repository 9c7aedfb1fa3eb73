//! An index that is built in bulk equals the index of the live fold.

use runlog_tests::agreement::{
    bulk::{Compared, bulk},
    seeds::{Budget, cores, each_seed},
};
use std::{sync::Mutex, time::Duration};

/// Time of the test, unless `RUNLOG_BULK_SEEDS` sets a count.
const TIME: Duration = Duration::from_secs(20);
/// The test judges whether each case occurred only after this many seeds.
const SEEDS_JUDGED: u64 = 30;

/// Builds with everything in memory, with several segments and spilled runs, and with each record and row separately.
const MEMORY_BYTES: [usize; 3] = [256 << 20, 64 << 10, 0];

#[test]
fn an_index_built_in_bulk_has_the_rows_of_the_live_fold() {
    let all = Mutex::new(Compared::default());
    let seeds = each_seed(cores(), Budget::from_env("RUNLOG_BULK_SEEDS", TIME), |seed| {
        let memory_bytes = MEMORY_BYTES[seed as usize % MEMORY_BYTES.len()];
        let compared =
            bulk(seed, memory_bytes).map_err(|error| format!("seed {seed}, {memory_bytes} bytes: {error:#}"))?;
        *all.lock().map_err(|_| "a seed panicked")? += compared;
        Ok(())
    });
    let all = all.into_inner().unwrap_or_default();
    println!("{seeds} seeds: {all:?}");
    assert!(seeds < SEEDS_JUDGED || all.built > 0 && all.skips > 0 && all.stopped > 0, "{all:?}");
}
