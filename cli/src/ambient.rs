//! The clock and random ids. Only this module reads them from the system; other code gets them as arguments.

/// The clock: milliseconds since the Unix epoch.
#[allow(clippy::disallowed_methods, reason = "the clock comes in here")]
pub(crate) fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Makes a random id.
pub(crate) fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
