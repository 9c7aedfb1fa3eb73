//! `recovery_markers`: the contract's recovery markers of a run, in log order. A page is one seek, and a step per
//! marker; a marker's content is one more get.

use super::{
    index::{Index, OFFSET, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{JournalSeq, Offset, RecordId, RunId},
};

/// The index.
pub const INDEX: Index =
    Index::new(13, "recovery_markers", &[RowFamily::new::<MarkerRow>(0, "markers", &[RUN, OFFSET, RECORD_INDEX])]);

/// The marker at a position.
pub fn key(run_id: RunId<&str>, offset: Offset, index: u32) -> Key {
    prefix(run_id).offset(offset).u32(index)
}

/// A run's markers.
pub fn prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// A recovery marker.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MarkerRow {
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`.
    pub journal_seq: JournalSeq,
}
datum!(MarkerRow { record_id, journal_seq });
