//! An index that is built in bulk is the one that the live fold gives.

use runlog_tests::agreement::{
    bulk::{Compared, bulk},
    seeds::number,
};

/// Everything in memory; several segments and runs that are too large for it; each record and row for itself.
const MEMORY_BYTES: [usize; 3] = [256 << 20, 64 << 10, 0];

#[test]
fn an_index_built_in_bulk_has_the_rows_of_the_live_fold() {
    let seeds = number("RUNLOG_BULK_SEEDS").unwrap_or(30);
    let from = number("RUNLOG_SEEDS_FROM").unwrap_or(0);
    let mut all = Compared::default();
    for seed in from..from + seeds {
        let memory_bytes = MEMORY_BYTES[seed as usize % MEMORY_BYTES.len()];
        all += bulk(seed, memory_bytes).unwrap_or_else(|error| panic!("seed {seed}, {memory_bytes} bytes: {error:#}"));
    }
    println!("{all:?}");
    assert!(all.built > 0 && all.skips > 0 && all.stopped > 0, "{all:?}");
}
