//! Each partition's end offset for its readers: after the last acknowledged record. Readers wait here for more.

use std::{
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use crate::{Offset, PartitionId};

pub(super) struct Ends {
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) struct State {
    pub(super) ends: Vec<Offset>,
    pub(super) closed: bool,
}

impl Ends {
    pub(super) fn new(ends: Vec<Offset>) -> Self {
        Self { state: Mutex::new(State { ends, closed: false }), changed: Condvar::new() }
    }

    pub(super) fn end(&self, partition: PartitionId) -> Offset {
        self.lock().ends[partition.index()]
    }

    /// Makes durable records visible to readers.
    pub(super) fn publish(&self, ends: impl Iterator<Item = Offset>) {
        let mut state = self.lock();
        for (current, end) in state.ends.iter_mut().zip(ends) {
            *current = end.max(*current);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder of the ends' lock panicked")
    }

    /// Waits until something changes, or `timeout`.
    pub(super) fn wait<'a>(&'a self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, timeout).expect("a holder of the ends' lock panicked").0
    }
}
