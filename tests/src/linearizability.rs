//! Checks whether a sequence of operations, each between its call and its return, explains the observations of clients on
//! one run. The search is by Wing and Gong, with memoised states (Lowe).
//!
//! ```text
//!   Event: [invoked ──── returned]   an operation, and whether it is certain
//!   check: orders of all events that respect real time ─▶ one of them is legal for the sequential Run below
//! ```
//!
//! This is a third model of a run, with three rules. An epoch is claimed once, and epochs grow by one. A record takes
//! effect only in its writer's epoch. A lookup returns the status of its call. It shares no code with the product.

use std::collections::{BTreeMap, HashSet};

/// Events of one history at most: the search keeps a bit for each.
pub const EVENTS_MAX: usize = 128;
/// States that the search visits at most.
const STATES_MAX: usize = 2_000_000;

/// The status of a call in the answer of a lookup at `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// It was never requested.
    Unknown,
    /// It was requested and has no result.
    Pending,
    /// It has a result.
    Completed,
}

/// An operation of a client on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Took the run over; with the epoch if the client got the answer.
    Claim(Option<u64>),
    /// Appended the intent of a call as the writer of an epoch, and read it back as applied.
    Intent {
        /// The writer's epoch.
        epoch: u64,
        /// The call. Each call is requested once.
        call: u32,
    },
    /// Appended the result of a call. It is acknowledged and not read back: it takes effect only in the epoch of its writer.
    Result {
        /// The writer's epoch.
        epoch: u64,
        /// The call.
        call: u32,
    },
    /// Looked a call up at `latest`.
    Lookup {
        /// The call.
        call: u32,
        /// The answer.
        found: Status,
    },
}

/// An operation, with its times.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The operation.
    pub operation: Operation,
    /// The time of its call, on a clock that all clients share.
    pub invoked: u64,
    /// The time of its return. `None` if it may take effect at any later time, or never.
    pub returned: Option<u64>,
    /// False if it may have had no effect.
    pub certain: bool,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A legal order exists.
    Linearizable,
    /// No legal order exists. Contains the events that no order could place after the longest legal prefix.
    Violated(Vec<usize>),
    /// Too many events or states.
    Undecided,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Run {
    epoch: u64,
    calls: BTreeMap<u32, Status>,
}

impl Run {
    /// The run after an operation; `None` if the operation is illegal in this state.
    fn after(&self, operation: Operation) -> Option<Self> {
        let mut next = self.clone();
        match operation {
            Operation::Claim(epoch) => {
                next.epoch += 1;
                epoch.is_none_or(|epoch| epoch == next.epoch).then_some(next)
            }
            Operation::Intent { epoch, call } => {
                next.calls.insert(call, Status::Pending);
                (self.epoch == epoch).then_some(next)
            }
            Operation::Result { epoch, call } if self.epoch == epoch => {
                let previous = next.calls.insert(call, Status::Completed);
                (previous == Some(Status::Pending)).then_some(next)
            }
            // The result is in the log and refused.
            Operation::Result { .. } => Some(next),
            Operation::Lookup { call, found } => {
                (self.calls.get(&call).copied().unwrap_or(Status::Unknown) == found).then_some(next)
            }
        }
    }
}

struct Search<'a> {
    events: &'a [Event],
    seen: HashSet<(u128, Run)>,
    /// The events of the longest legal prefix so far.
    longest: u128,
}

/// Checks whether a legal order explains the events of one run.
pub fn check(events: &[Event]) -> Verdict {
    if events.len() > EVENTS_MAX {
        return Verdict::Undecided;
    }
    let mut search = Search { events, seen: HashSet::new(), longest: 0 };
    let mut open = vec![(0_u128, Run::default())];
    while let Some((placed, run)) = open.pop() {
        if search.must_follow(placed).next().is_none() {
            return Verdict::Linearizable;
        }
        if search.seen.len() > STATES_MAX {
            return Verdict::Undecided;
        }
        search.step(placed, &run, &mut open);
    }
    let longest = search.longest;
    Verdict::Violated(search.must_follow(longest).collect())
}

impl Search<'_> {
    /// Events that returned and are not placed.
    fn must_follow(&self, placed: u128) -> impl Iterator<Item = usize> {
        let open = move |at: usize| placed >> at & 1 == 0;
        let returned = self.events.iter().enumerate().filter(|(_, event)| event.returned.is_some());
        returned.map(|(at, _)| at).filter(move |at| open(*at))
    }

    /// Every way to place one more event.
    fn step(&mut self, placed: u128, run: &Run, open: &mut Vec<(u128, Run)>) {
        if placed.count_ones() > self.longest.count_ones() {
            self.longest = placed;
        }
        // An event that was invoked after another event returned must follow it.
        let until = self.must_follow(placed).filter_map(|at| self.events[at].returned).min().unwrap_or(u64::MAX);
        for (at, event) in self.events.iter().enumerate() {
            if placed >> at & 1 == 1 || event.invoked > until {
                continue;
            }
            let without = (!event.certain && event.returned.is_some()).then(|| run.clone());
            for next in run.after(event.operation).into_iter().chain(without) {
                let next = (placed | 1 << at, next);
                if self.seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
}
