//! `turns`: conversation turns by message id, one row each time a turn is recorded or retracted. A turn is one seek:
//! its value as of a position is the last fact up to it. A run's turns in log order are in `records`.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{JournalSeq, Offset, RecordId, RunId},
    record::Validity,
};

/// The index.
pub const INDEX: Index = Index::new(
    15,
    "turns",
    &[RowFamily::new::<TurnRow>(0, "turns", &[RUN, KeyPart::Text("message_id"), OFFSET, RECORD_INDEX])],
);

/// The statement of the record at a position about a message.
pub fn key(run_id: RunId<&str>, message_id: &str, offset: Offset, index: u32) -> Key {
    of_message(run_id, message_id).offset(offset).u32(index)
}

/// All statements about a message, in log order.
pub fn of_message(run_id: RunId<&str>, message_id: &str) -> Key {
    Key::new(INDEX, 0).text(run_id).text(message_id)
}

/// A turn, or its retraction.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TurnRow {
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`; 0 for a retraction.
    pub journal_seq: JournalSeq,
    /// The valid time from which it holds, or no longer holds.
    pub validity: Validity,
}
datum!(TurnRow { record_id, journal_seq, validity });
