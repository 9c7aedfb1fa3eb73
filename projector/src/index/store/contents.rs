//! `contents`: the content store objects that a run's records name, in log order per run. A page is one seek, and a
//! step per row. The index does not contain whether an object exists.

use super::{
    index::{Index, OFFSET, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{Offset, RecordId, RunId},
    payload::StoredPayload,
};

/// The index.
pub const INDEX: Index =
    Index::new(8, "contents", &[RowFamily::new::<ContentRow>(0, "contents", &[RUN, OFFSET, RECORD_INDEX])]);

/// The content named by the record at a position.
pub fn key(run_id: RunId<&str>, offset: Offset, index: u32) -> Key {
    prefix(run_id).offset(offset).u32(index)
}

/// All contents of a run.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// A content store object that a record names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ContentRow {
    /// The record.
    pub record_id: RecordId,
    /// The object that it names.
    pub stored: StoredPayload,
    /// The log's timestamp of the record, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
}
datum!(ContentRow { record_id, stored, logged_at_millis });
