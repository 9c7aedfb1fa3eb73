//! What the product asks for by plain functions: the time and ids. Both follow from the seed.
//!
//! A seed runs on one thread, so that they are the thread's.

use std::cell::Cell;
use tokio::time::Instant;

/// The virtual clock begins here, milliseconds since the Unix epoch.
const BEGIN_MILLIS: u64 = 1_700_000_000_000;

thread_local! {
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    static IDS: Cell<u64> = const { Cell::new(0) };
}

/// Begins a seed on this thread, inside its runtime.
pub(crate) fn begin() {
    BEGUN.set(Some(Instant::now()));
    IDS.set(0);
}

/// Milliseconds since the seed began.
pub(crate) fn elapsed_millis() -> u64 {
    let elapsed = BEGUN.get().map(|begun| begun.elapsed()).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since the Unix epoch.
pub(crate) fn millis() -> u64 {
    BEGIN_MILLIS + elapsed_millis()
}

/// The milliseconds since the seed began at a time in milliseconds since the Unix epoch.
pub(crate) fn since_begin(millis: u64) -> u64 {
    millis.saturating_sub(BEGIN_MILLIS)
}

/// An id that was not given before in this seed.
pub(crate) fn id() -> String {
    IDS.set(IDS.get() + 1);
    format!("id-{}", IDS.get())
}
