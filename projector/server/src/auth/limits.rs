//! The limits of principals, from the token file, and their remaining amounts.
//!
//! ```json
//! {"limits": {"*": {"requests_per_second": 500}, "importer": {"body_bytes_per_second": 134217728}}, "tokens": [...]}
//! ```
//!
//! `*` is every principal without an entry in `limits`. A limit that an entry omits comes from `*`, and otherwise
//! from the default.

use runlog_schemas::symbols;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU64, time::Duration};
use tokio::time::Instant;

/// The entry in `limits` for all principals that it does not name.
const OTHERS: &str = "*";
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest time that a principal is refused for taking too much.
const DEBT_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

symbols! {
    /// The limits of a principal, with all its tokens together.
    Limit {
        RequestsPerSecond = "requests_per_second", BodyBytesPerSecond = "body_bytes_per_second",
        ContentBytesPerDay = "content_bytes_per_day", RequestsInProgress = "requests_in_progress", Streams = "streams",
        StreamsOfAllRuns = "streams_of_all_runs", Connections = "connections",
    }
}

impl Limit {
    /// The limit of a principal if the file sets none.
    pub const fn default_value(self) -> u64 {
        match self {
            Self::RequestsPerSecond => 5_000,
            Self::BodyBytesPerSecond => 32 << 20,
            Self::ContentBytesPerDay => 64 << 30,
            Self::RequestsInProgress => 256,
            Self::Streams => 64,
            // The server's limit is 16.
            Self::StreamsOfAllRuns => 4,
            // The server's limit is 4096.
            Self::Connections => 1024,
        }
    }

    /// The unit of the limit, in words.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests a second",
            Self::BodyBytesPerSecond => "bytes of request bodies a second",
            Self::ContentBytesPerDay => "bytes in the content store a day",
            Self::RequestsInProgress => "requests in progress",
            Self::Streams => "open streams",
            Self::StreamsOfAllRuns => "open streams of all runs",
            Self::Connections => "connections",
        }
    }

    /// The time in which the limit may be used up once; absent for limits of concurrent use.
    const fn window(self) -> Option<Duration> {
        match self {
            Self::RequestsPerSecond | Self::BodyBytesPerSecond => Some(SECOND),
            Self::ContentBytesPerDay => Some(DAY),
            Self::RequestsInProgress | Self::Streams | Self::StreamsOfAllRuns | Self::Connections => None,
        }
    }
}

/// The limits that a file of tokens sets, by principal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Limits(BTreeMap<String, BTreeMap<Limit, NonZeroU64>>);

impl Limits {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of principals that have limits of their own.
    pub(super) fn principals(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(|name| *name != OTHERS)
    }

    /// The limits of a principal.
    pub(super) fn allowance(&self, principal: &str) -> Allowance {
        let set = |limit| [principal, OTHERS].iter().find_map(|name| self.0.get(*name)?.get(&limit).copied());
        Allowance(
            Limit::ALL
                .iter()
                .map(|limit| (*limit, set(*limit)))
                .filter_map(|(limit, set)| Some((limit, set?)))
                .collect(),
        )
    }
}

/// The limits of one principal, without defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance(BTreeMap<Limit, NonZeroU64>);

impl Allowance {
    pub(super) fn get(&self, limit: Limit) -> u64 {
        self.0.get(&limit).map_or(limit.default_value(), |set| set.get())
    }
}

/// The use of a limit per time. The whole limit can be used at once, and is restored at a steady rate. While at least
/// one unit is left, a larger amount may be used; the next request then waits until that amount is restored.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// When the whole limit is available again; absent if it is now.
    full_at: Option<Instant>,
}

impl Bucket {
    /// The use, as the time until it is restored.
    fn used(&self, now: Instant) -> Duration {
        self.full_at.map_or(Duration::ZERO, |full_at| full_at.saturating_duration_since(now))
    }

    /// How long to wait until one unit of the limit `allowed` is left; absent if one is left.
    pub(super) fn wait(&self, limit: Limit, allowed: u64, now: Instant) -> Option<Duration> {
        let one_used = self.used(now).saturating_add(cost(limit.window()?, allowed, 1));
        one_used.checked_sub(limit.window()?).filter(|wait| !wait.is_zero())
    }

    /// Takes an amount, even beyond the remainder. `allowed` is the limit.
    pub(super) fn take(&mut self, limit: Limit, allowed: u64, amount: u64, now: Instant) {
        let Some(window) = limit.window() else { return };
        let cost = cost(window, allowed, amount);
        self.full_at = Some(now + self.used(now).saturating_add(cost).min(window + DEBT_MAX));
    }
}

/// How long it takes to restore an amount, at `allowed` per window.
fn cost(window: Duration, allowed: u64, amount: u64) -> Duration {
    let nanos = window.as_nanos().saturating_mul(amount.into()) / u128::from(allowed.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_comes_from_the_principal_then_from_all_then_from_the_default() {
        let limits: Limits =
            serde_json::from_str(r#"{"*": {"streams": 2, "requests_per_second": 3}, "agent": {"streams": 1}}"#)
                .unwrap();
        let allowance = |principal, limit| limits.allowance(principal).get(limit);
        assert_eq!((allowance("agent", Limit::Streams), allowance("other", Limit::Streams)), (1, 2));
        assert_eq!(
            (allowance("agent", Limit::RequestsPerSecond), allowance("agent", Limit::RequestsInProgress)),
            (3, 256)
        );
        for wrong in [r#"{"*": {"stream": 1}}"#, r#"{"*": {"streams": 0}}"#] {
            assert!(serde_json::from_str::<Limits>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_used_up_and_restored_steadily_and_a_large_amount_delays_the_next() {
        let (limit, start) = (Limit::RequestsPerSecond, Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::default();
        for _ in 0..4 {
            assert_eq!(bucket.wait(limit, 4, at(0)), None);
            bucket.take(limit, 4, 1, at(0));
        }
        // One is restored in a fourth of a second.
        let waits = [0, 1, 250].map(|millis| bucket.wait(limit, 4, at(millis)));
        assert_eq!(waits, [Some(Duration::from_millis(250)), Some(Duration::from_millis(249)), None]);
        bucket.take(limit, 4, 40, at(10_000));
        assert_eq!(bucket.wait(limit, 4, at(10_000)), Some(Duration::from_millis(9_250)));
        let mut bucket = Bucket::default();
        bucket.take(Limit::ContentBytesPerDay, 1, u64::MAX, at(0));
        let wait = bucket.wait(Limit::ContentBytesPerDay, 1, at(0));
        assert!(wait.is_some_and(|wait| wait <= DEBT_MAX + DAY), "it ends some time: {wait:?}");
    }
}
