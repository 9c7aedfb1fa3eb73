//! Facts that hold at a time.

use super::Position;
use crate::id::{JournalSeq, RecordId, RunId};
use serde::{Deserialize, Serialize};

/// A fact that holds, and the record that states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is about: `tool_call`, `conversation_turn`, `code_edit_proposal`.
    pub family: String,
    /// Its key within the run: the request's record id, the message id, the proposal's request id.
    pub key: String,
    /// From when on it holds, RFC 3339, within the years 1970 to 9999.
    pub at: String,
    /// The same, milliseconds since the Unix epoch, whatever a writer said.
    pub at_millis: i64,
    /// What the record says of it: `requested`, `completed`, `failed`, a decision, a proposal's status; null for turns.
    pub status: Option<String>,
    /// Where the record stands.
    pub position: Position,
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`; 0 where it has none.
    pub journal_seq: JournalSeq,
    /// The type of its payload.
    pub payload_type: String,
}

/// A page of the facts of a run that hold at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The run.
    pub run_id: RunId,
    /// The time that was asked about, RFC 3339, inclusive.
    pub at: String,
    /// The run's last record: what was said behind it is not known here.
    pub position: Position,
    /// The page, by the position of the record. It may have fewer than asked for, and still say where the next one starts.
    pub facts: Vec<Fact>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}
