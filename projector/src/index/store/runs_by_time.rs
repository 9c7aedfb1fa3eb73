//! `runs_by_time`: one row per run with an applied record, without content, by status and by the time of its last record. Derives from
//! `runs` (`project/runs_by_time.rs`). A page of runs newest first is one seek for each status, and a step and a get per run.

use super::{index::Index, key::Key, runs::RunRow};
use runlog_schemas::{id::RunId, judge::RunStatus};

/// The index. Clients do not follow it, because its rows derive from the rows of `runs`.
pub const INDEX: Index = Index::new(21, "runs_by_time", &[]);

/// The row of a run.
pub fn key(run_id: RunId<&str>, row: &RunRow) -> Key {
    of_time(row.head.status, time(row.updated_at_millis)).text(run_id)
}

/// The runs with a status.
pub fn of_status(status: RunStatus) -> Key {
    Key::new(INDEX, 0).u8(status as u8)
}

/// The runs with a status whose last record has this time, milliseconds since the Unix epoch.
pub fn of_time(status: RunStatus, millis: u64) -> Key {
    of_status(status).u64(millis)
}

/// The time in a key, of a timestamp of the log. The log may have no time for a record: -1.
pub fn time(logged_at_millis: i64) -> u64 {
    logged_at_millis.max(0).cast_unsigned()
}
