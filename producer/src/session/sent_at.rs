//! Measures how long ago a request was sent, even if the machine was suspended.

use crate::config::Config;
use std::time::Duration;
use tokio::time::Instant;

/// An effect starts at most this long after the first send of its intent or attempt.
///
/// A server lets an operator decide about a call once its run's writer has written nothing for 30 s (docs/protocol.md,
/// "Start the effect at once"). A later answer to the intent shows that it was applied, but not that the call was
/// decided since.
pub(crate) const START_WITHIN: Duration = Duration::from_secs(20);

/// The time at which a request was first sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) instant: Instant,
    millis: u64,
    clock: fn() -> u64,
}

impl SentAt {
    pub(crate) fn now(config: &Config) -> Self {
        Self { instant: Instant::now(), millis: (config.clock)(), clock: config.clock }
    }

    /// The time since then: the larger of the monotonic clock, which stops while the machine is suspended, and the
    /// system clock.
    pub(crate) fn age(&self) -> Duration {
        let by_clock = Duration::from_millis((self.clock)().saturating_sub(self.millis));
        self.instant.elapsed().max(by_clock)
    }
}
