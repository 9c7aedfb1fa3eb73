//! The producer's metrics. Connect any metrics library by implementing [`Meter`].

use std::fmt;

/// Receives metrics. Called on the hot path: it must not block.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Adds `count` to a counter; see [`metric`] for the names.
    fn count(&self, name: &'static str, count: u64);

    /// Adds one value to a distribution; see [`metric`] for the names.
    fn observe(&self, name: &'static str, value: f64);
}

/// Metric names. Counters end in `_total`; the others are distributions and end in their unit.
pub mod metric {
    /// Acknowledged records.
    pub const APPENDED: &str = "runlog_producer_records_appended_total";
    /// Appends that failed or whose outcome is unknown.
    pub const APPEND_FAILED: &str = "runlog_producer_appends_failed_total";
    /// Time from sending a record to its acknowledgement.
    pub const APPEND_SECONDS: &str = "runlog_producer_append_seconds";
    /// Time to read back an outcome.
    pub const READ_BACK_SECONDS: &str = "runlog_producer_read_back_seconds";
    /// Started effects.
    pub const EFFECTS: &str = "runlog_producer_effects_started_total";
    /// Calls answered from the journal.
    pub const RECORDED: &str = "runlog_producer_calls_recorded_total";
    /// Results that were held because they could not be recorded immediately.
    pub const HELD: &str = "runlog_producer_results_held_total";
    /// Reopened handles.
    pub const REOPENED: &str = "runlog_producer_reopened_total";
    /// Runs lost to another process.
    pub const LOST: &str = "runlog_producer_runs_lost_total";
}
