//! The rows of objects with a lifecycle, as several indices have them: open objects, ended objects, and every statement
//! recorded about one.
//!
//! ```text
//!   0  open    run, key                  ──▶ its state            one seek, a step per row: of a run, or of all runs
//!   1  ended   run, key                  ──▶ its state            one get
//!   2  facts   run, key, offset, index   ──▶ its statement        one seek, a step per row: the state as of a position is
//!                                                                 the last fact up to it
//! ```

use super::{
    index::{Index, KeyPart, OFFSET, RECORD_INDEX, RUN, RUN_ID, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    id::{JournalSeq, Offset, RecordId, RunId},
    judge::lifecycle::{Family, State},
    record::Validity,
};

/// `approvals`: approvals by request id.
pub const APPROVALS: Index = index(9, "approvals", Family::Approval, &[OPEN, ENDED, FACTS]);
/// `wakes`: wake conditions by id.
pub const WAKES: Index = index(10, "wakes", Family::Wake, &[OPEN, ENDED, FACTS]);
/// `messages`: messages to a run by id.
pub const MESSAGES: Index = index(11, "messages", Family::Message, &[OPEN, ENDED, FACTS]);
/// `proposals`: code edit proposals by id.
pub const PROPOSALS: Index = index(16, "proposals", Family::Proposal, &[OPEN, ENDED, FACTS]);

const KEY: KeyPart = KeyPart::Text("key");

/// Open objects, by run and key.
pub const OPEN: RowFamily = RowFamily::new::<StateRow>(0, "open", &[RUN_ID, KEY]);
/// Ended objects, by run and key.
pub const ENDED: RowFamily = RowFamily::new::<StateRow>(1, "ended", &[RUN, KEY]);
/// Each record's statement, by run, key and position.
pub const FACTS: RowFamily = RowFamily::new::<FactRow>(2, "facts", &[RUN, KEY, OFFSET, RECORD_INDEX]);

/// An index of the states of a lifecycle.
pub const fn index(byte: u8, name: &'static str, lifecycle: Family, families: &'static [RowFamily]) -> Index {
    Index { byte, name, families, lifecycle: Some(lifecycle) }
}

/// An open object, by run and key.
pub fn open(index: Index, run_id: RunId<&str>, key: &str) -> Key {
    open_of(index, run_id).text(key)
}

/// A run's open objects.
pub fn open_of(index: Index, run_id: RunId<&str>) -> Key {
    all(index, false).text(run_id)
}

/// An ended object, by run and key.
pub fn ended(index: Index, run_id: RunId<&str>, key: &str) -> Key {
    ended_of(index, run_id).text(key)
}

/// A run's ended objects.
pub fn ended_of(index: Index, run_id: RunId<&str>) -> Key {
    all(index, true).text(run_id)
}

/// Open (`false`) or ended (`true`) objects of all runs.
pub fn all(index: Index, ended: bool) -> Key {
    Key::new(index, u8::from(ended))
}

/// The statement of the record at a position.
pub fn fact(index: Index, run_id: RunId<&str>, key: &str, offset: Offset, at: u32) -> Key {
    facts_of(index, run_id, key).offset(offset).u32(at)
}

/// All statements about a key, in log order.
pub fn facts_of(index: Index, run_id: RunId<&str>, key: &str) -> Key {
    Key::new(index, 2).text(run_id).text(key)
}

/// The current state of an object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StateRow {
    /// The state.
    pub state: State,
    /// The `journal_seq` of its first record; 0 if that is not numbered.
    pub journal_seq: JournalSeq,
    /// The first record's offset.
    pub began_offset: Offset,
    /// Its index.
    pub began_index: u32,
    /// The id of the record that set the state.
    pub record_id: RecordId,
    /// Its offset.
    pub offset: Offset,
    /// Its index.
    pub index: u32,
}
datum!(StateRow { state, journal_seq, began_offset, began_index, record_id, offset, index });

/// A record's statement about an object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FactRow {
    /// The state; `retracted` for a retraction.
    pub status: String,
    /// The valid time from which the state holds, or no longer holds.
    pub validity: Validity,
    /// The record's id.
    pub record_id: RecordId,
}
datum!(FactRow { status, validity, record_id });
