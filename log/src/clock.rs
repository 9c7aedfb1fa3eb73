//! The clock for the timestamps of the local and the memory log. Kafka's brokers set their own timestamps.

use std::{fmt, sync::Arc, time::SystemTime};

/// A source of milliseconds since the Unix epoch.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock that a test or a simulation drives.
    pub fn new(millis: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(millis))
    }

    /// The machine's clock.
    pub fn system() -> Self {
        // The only place in this crate that reads the system clock. For another time, pass another clock.
        #[allow(clippy::disallowed_methods)]
        Self::new(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// The time now.
    pub fn millis(&self) -> i64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
