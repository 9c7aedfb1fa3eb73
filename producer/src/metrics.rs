//! What a producer counts. No metrics library is chosen for its user: these few calls are what one is connected by.

use std::fmt;

/// Takes what is counted. It is called where the thing happens, and must not block.
pub trait Meter: fmt::Debug + Send + Sync {
    /// `count` more of what [`metric`] names.
    fn count(&self, name: &'static str, count: u64);

    /// One value of a distribution that [`metric`] names.
    fn observe(&self, name: &'static str, value: f64);
}

/// The names. Counters end in `_total`; the others are distributions, with their unit last.
pub mod metric {
    /// Records that were acknowledged.
    pub const APPENDED: &str = "runlog_producer_records_appended_total";
    /// Appends that failed or whose outcome is unknown.
    pub const APPEND_FAILED: &str = "runlog_producer_appends_failed_total";
    /// From sending a record to its acknowledgement.
    pub const APPEND_SECONDS: &str = "runlog_producer_append_seconds";
    /// From asking for an intent's outcome to its answer.
    pub const READ_BACK_SECONDS: &str = "runlog_producer_read_back_seconds";
    /// Effects that were started.
    pub const EFFECTS: &str = "runlog_producer_effects_started_total";
    /// Calls that were answered from the journal.
    pub const RECORDED: &str = "runlog_producer_calls_recorded_total";
    /// Results that were held because they could not be recorded at once.
    pub const HELD: &str = "runlog_producer_results_held_total";
    /// Handles that were reopened.
    pub const REOPENED: &str = "runlog_producer_reopened_total";
    /// Runs that were lost to another process.
    pub const LOST: &str = "runlog_producer_runs_lost_total";
}
