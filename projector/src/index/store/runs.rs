//! `runs`: one row per run, by run id. Reading a run is one get; a page of runs is one seek and a step per run.

use super::{Index, Key, RowFamily, index::RUN_ID};
use runlog_schemas::{
    datum,
    id::{Offset, RunId},
    judge::Head,
};

/// The index.
pub const INDEX: Index = Index::new(1, "runs", &[RowFamily::of::<RunRow>(0, "runs", &[RUN_ID])]);

/// A run's row.
pub fn key(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// The start of the rows of runs whose id starts with `prefix`.
pub fn prefix(prefix: &str) -> Key {
    Key::new(INDEX, 0).text_prefix(prefix)
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunRow {
    /// What the judge needs.
    pub head: Head,
    /// The last applied record.
    pub offset: Offset,
    /// Its index within the offset.
    pub index: u32,
    /// The log's timestamp of it, milliseconds since the Unix epoch.
    pub updated_at_millis: i64,
}
datum!(RunRow { head, offset, index, updated_at_millis });
