//! Counts replaced clients and keeps the stalls of all consumers of a log.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::clients::{Client, Clients, Replacement, Stall};

/// The health of a log's clients. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    replaced: BTreeMap<Client, u64>,
    last: Option<Replacement>,
    stalls: BTreeMap<u64, Vec<Stall>>,
    consumers: u64,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a replacement. Keeps the reason for operators, except for the bounds client, which is also replaced while all
    /// brokers are down.
    pub(super) fn count_replacement(&self, client: Client, reason: String) {
        let mut state = self.state();
        *state.replaced.entry(client).or_default() += 1;
        if client != Client::Bounds {
            state.last = Some(Replacement { client, reason, at: Instant::now() });
        }
    }

    /// Registers a consumer and returns its health.
    pub(super) fn of_consumer(&self) -> ConsumerHealth {
        let mut state = self.state();
        state.consumers += 1;
        ConsumerHealth { health: self.clone(), id: state.consumers }
    }

    pub(super) fn clients(&self) -> Clients {
        let state = self.state();
        let stalls = state.stalls.values().flatten().cloned().collect();
        Clients { replaced: state.replaced.clone(), last: state.last.clone(), stalls }
    }
}

/// The health of one consumer. Dropping it removes the consumer's stalls.
#[derive(Debug)]
pub(super) struct ConsumerHealth {
    health: Health,
    id: u64,
}

impl ConsumerHealth {
    pub(super) fn count_replacement(&self, reason: String) {
        self.health.count_replacement(Client::Consumer, reason);
    }

    pub(super) fn set_stalls(&self, stalls: Vec<Stall>) {
        self.health.state().stalls.insert(self.id, stalls);
    }
}

impl Drop for ConsumerHealth {
    fn drop(&mut self) {
        self.health.state().stalls.remove(&self.id);
    }
}
