//! The bounded queue between appenders and the writer thread. Its order is the log's order.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use crate::{BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, Entry, Offset, PartitionId, error::Error};

/// Limits of the queue; appends above them are refused. The largest batch fits into an empty queue.
const ENTRIES_MAX: usize = 100_000;
const BYTES_MAX: usize = 32 << 20;
const _: () = assert!(ENTRIES_MAX >= BATCH_ENTRIES_MAX && BYTES_MAX >= BATCH_BYTES_MAX);

/// Size at which a group of appends is complete.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// One append in progress.
pub(super) struct Pending {
    pub(super) partition: PartitionId,
    pub(super) entries: Vec<Entry>,
    pub(super) bytes: usize,
    pub(super) ack: oneshot::Sender<Result<Vec<Offset>, Error>>,
}

pub(super) enum Refused {
    Full,
    Closed,
}

pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Pending>,
    entries: usize,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), filled: Condvar::new() }
    }

    pub(super) fn push(&self, pending: Pending) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        let (entries, bytes) = (state.entries + pending.entries.len(), state.bytes + pending.bytes);
        if entries > ENTRIES_MAX || bytes > BYTES_MAX {
            return Err(Refused::Full);
        }
        (state.entries, state.bytes) = (entries, bytes);
        state.waiting.push_back(pending);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for appends and takes a group of them for one write. Returns `None` when the queue is closed and empty.
    pub(super) fn take_group(&self) -> Option<Vec<Pending>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).expect("a holder of the queue's lock panicked");
        }
        let (mut count, mut bytes) = (0, 0);
        while bytes < GROUP_BYTES_MAX
            && let Some(pending) = state.waiting.get(count)
        {
            bytes += pending.bytes;
            count += 1;
        }
        let group: Vec<Pending> = state.waiting.drain(..count).collect();
        state.entries -= group.iter().map(|pending| pending.entries.len()).sum::<usize>();
        state.bytes -= bytes;
        Some(group)
    }

    /// Refuses further appends. The writer still writes the enqueued appends.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a holder of the queue's lock panicked")
    }
}
