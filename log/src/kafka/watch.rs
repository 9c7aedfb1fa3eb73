//! Finds out that a consumer delivers nothing although the brokers have more, so that it must be replaced.
//!
//! ```text
//!   quiet ─▶ awaiting ends (of the bounds client) ──▶ suspect, if a partition is lagging or the consumer has no broker
//!     ▲                                                   │
//!     ├── the partition moved, or a broker was found ◀────┤ after the patience: requested again
//!     └── no broker answers ◀─────────────────────────────┴─▶ a broker answers: replaced, with twice the patience
//! ```
//!
//! The patience doubles with each replacement and halves each time the consumer is found at the end, because a replacement
//! discards fetched data: a consumer on a slow connection must get enough time for one fetch.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use crate::{Offset, PartitionId, error::Error};

/// Time for which a consumer may deliver no records: at first, and at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_MAX: Duration = Duration::from_secs(300);

/// Interval of the check whether brokers answer other clients than a consumer without brokers.
const LOST_PAUSE: Duration = Duration::from_millis(500);

pub(super) type Positions = BTreeMap<PartitionId, Offset>;
pub(super) type End = Receiver<Result<Offset, Error>>;

/// Watches one consumer.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Duration,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Quiet { since: Instant, positions: Positions },
    AwaitingEnds { positions: Positions, ends: Vec<(PartitionId, End)>, known_ends: Positions },
    Suspect { suspicion: Suspicion, ends: Vec<(PartitionId, End)> },
}

/// The defect of a consumer.
#[derive(Debug)]
pub(super) struct Suspicion {
    pub(super) since: Instant,
    /// The consumer has no broker, although brokers answer other clients.
    pub(super) lost: bool,
    /// Position and end of the partitions that it does not deliver from.
    pub(super) lagging: BTreeMap<PartitionId, (Offset, Offset)>,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self { patience: PATIENCE, stage: Stage::Quiet { since: now, positions: Positions::new() } }
    }

    /// Checks a consumer with an empty queue. It is at `positions`, and has no broker if it is `lost`. Returns the defect
    /// when the consumer must be replaced. `request_end` requests a partition's end.
    pub(super) fn check(
        &mut self,
        now: Instant,
        positions: &Positions,
        lost: bool,
        mut request_end: impl FnMut(PartitionId) -> Option<End>,
    ) -> Option<Suspicion> {
        match &mut self.stage {
            Stage::Quiet { since, positions: before } => {
                let wait = if lost { LOST_PAUSE } else { self.patience };
                if now.saturating_duration_since(*since) < wait {
                    return None;
                }
                let same = positions.iter().filter(|(id, next)| lost || before.get(id) == Some(next));
                let ends: Vec<_> = same.filter_map(|(id, _)| Some((*id, request_end(*id)?))).collect();
                self.stage = if ends.is_empty() {
                    Stage::Quiet { since: now, positions: positions.clone() }
                } else {
                    Stage::AwaitingEnds { positions: positions.clone(), ends, known_ends: Positions::new() }
                };
                None
            }
            Stage::AwaitingEnds { positions: before, ends, known_ends } => {
                receive(ends, known_ends);
                if !ends.is_empty() {
                    return None;
                }
                let is_lagging = |(id, end): (&PartitionId, &Offset)| {
                    let next = positions.get(id).filter(|next| before.get(id) == Some(next) && *next < end)?;
                    Some((*id, (*next, *end)))
                };
                let lagging: BTreeMap<_, _> = known_ends.iter().filter_map(is_lagging).collect();
                let lost = lost && !known_ends.is_empty();
                self.stage = if lost || !lagging.is_empty() {
                    Stage::Suspect { suspicion: Suspicion { since: now, lost, lagging }, ends: Vec::new() }
                } else {
                    if !known_ends.is_empty() {
                        self.patience = (self.patience / 2).max(PATIENCE);
                    }
                    Stage::Quiet { since: now, positions: positions.clone() }
                };
                None
            }
            Stage::Suspect { suspicion, ends } => {
                suspicion.lost &= lost;
                suspicion.lagging.retain(|id, (next, _)| positions.get(id) == Some(next));
                let quiet = Stage::Quiet { since: now, positions: positions.clone() };
                if !suspicion.lost && suspicion.lagging.is_empty() {
                    self.stage = quiet;
                    return None;
                }
                if now.saturating_duration_since(suspicion.since) < self.patience {
                    return None;
                }
                // Requests the ends again: if all brokers went down meanwhile, a replacement would not help.
                if ends.is_empty() {
                    *ends = positions.keys().filter_map(|id| Some((*id, request_end(*id)?))).collect();
                    if ends.is_empty() {
                        self.stage = quiet;
                    }
                    return None;
                }
                let mut known_ends = Positions::new();
                receive(ends, &mut known_ends);
                if known_ends.is_empty() {
                    if ends.is_empty() {
                        self.stage = quiet;
                    }
                    return None;
                }
                let Stage::Suspect { suspicion, .. } = std::mem::replace(&mut self.stage, quiet) else { return None };
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
                Some(suspicion)
            }
        }
    }
}

/// Moves received answers to `known_ends` and drops failed requests.
fn receive(ends: &mut Vec<(PartitionId, End)>, known_ends: &mut Positions) {
    ends.retain_mut(|(id, end)| match end.try_recv() {
        Err(TryRecvError::Empty) => true,
        Ok(Ok(end)) => {
            known_ends.insert(*id, end);
            false
        }
        Ok(Err(_)) | Err(TryRecvError::Closed) => false,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use tokio::sync::oneshot;

    const END: u32 = 9;

    fn always(_: Duration) -> bool {
        true
    }

    fn never(_: Duration) -> bool {
        false
    }

    /// Checks every 100 ms a consumer at `position(elapsed)`. Returns the times of its replacements, in elapsed seconds.
    fn replacements(
        seconds: u64,
        lost: bool,
        is_answered: impl Fn(Duration) -> bool,
        position: impl Fn(Duration) -> u32,
    ) -> Vec<u64> {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let mut replaced = Vec::new();
        for tick in 0..seconds * 10 {
            let elapsed = Duration::from_millis(tick * 100);
            let positions = Positions::from([(PartitionId::ZERO, Offset::from(position(elapsed)))]);
            let request_end = |_| {
                let (end, receiver) = oneshot::channel();
                let refused = Error::new(Kind::Retry, "t", "no broker answers");
                end.send(if is_answered(elapsed) { Ok(Offset::from(END)) } else { Err(refused) }).unwrap();
                Some(receiver)
            };
            if watch.check(start + elapsed, &positions, lost, request_end).is_some() {
                replaced.push(elapsed.as_secs());
            }
        }
        replaced
    }

    #[test]
    fn a_consumer_that_lags_is_replaced_with_growing_patience() {
        let replaced = replacements(60, false, always, |_| 3);
        assert_eq!(replaced.len(), 3, "{replaced:?}");
        assert!(
            replaced[0] <= 10 && replaced[1] >= replaced[0] + 12 && replaced[2] >= replaced[1] + 24,
            "{replaced:?}"
        );
    }

    #[test]
    fn a_consumer_without_brokers_is_replaced_only_if_brokers_answer_others() {
        assert_eq!(replacements(5, true, always, |_| END).len(), 1, "it is not lagging yet");
        assert_eq!(replacements(600, true, never, |_| 3), [0; 0], "all brokers are down");
        let gone = |elapsed| elapsed < Duration::from_secs(3);
        assert_eq!(replacements(600, true, gone, |_| 3), [0; 0], "all brokers went down after an answer");
    }

    #[test]
    fn a_consumer_that_moves_or_is_at_the_end_is_kept() {
        assert_eq!(replacements(600, false, always, |_| END), [0; 0], "at the end");
        assert_eq!(replacements(600, false, always, |elapsed| elapsed.as_secs() as u32 % 9), [0; 0], "moving");
        assert_eq!(replacements(600, false, never, |_| 3), [0; 0], "the ends are unknown");
    }
}
