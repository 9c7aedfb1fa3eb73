//! Counts what is in flight on a handle, so that a checkpoint knows which answers its message list may lack.
//!
//! ```text
//!   call a     ────answered
//!   call b       ──────────────────answered
//!   checkpoint         ──────             ──────
//!   period     0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1
//! ```
//!
//! The first checkpoint lists `a` as unanswered: its list may be older than the answer. The second one covers both. A checkpoint in
//! flight extends a period as a call does, since calls may be answered before it is numbered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls and checkpoints of a handle that are in flight. Its lock is never held across an await.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    in_flight: usize,
    /// How often the last call or checkpoint in flight has ended.
    period: u64,
}

impl Activity {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call or a checkpoint begins. It ends when the returned value is dropped.
    pub(crate) fn begin(&self) -> InFlight {
        self.lock().in_flight += 1;
        InFlight(self.clone())
    }
}

/// A call or a checkpoint in flight.
#[derive(Debug)]
pub(crate) struct InFlight(Activity);

impl InFlight {
    /// The busy period, which lasts as long as this does.
    pub(crate) fn period(&self) -> u64 {
        self.0.lock().period
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.in_flight -= 1;
        counts.period += u64::from(counts.in_flight == 0);
    }
}
