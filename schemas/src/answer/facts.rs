//! Facts that hold at a time.

use super::position::Position;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{JournalSeq, RecordId, RunId},
    or_other::OrOther,
    payload::PayloadType,
};
use serde::{Deserialize, Serialize};

/// A fact that holds, with the record that states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Fact {
    /// The family: `tool_call`, `conversation_turn` or `code_edit_proposal`.
    #[cfg_attr(feature = "openapi", schemars(with = "form::FactFamily"))]
    pub family: String,
    /// The fact's key within the run: the request's record id, the message id, or the proposal's request id.
    pub key: String,
    /// The time from which it holds, inclusive: RFC 3339, within the years 1970 to 9999.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub at: String,
    /// The same time in milliseconds since the Unix epoch, as in the record.
    pub at_millis: i64,
    /// The stated status: `requested`, `completed`, `failed`, a decision, or a proposal's status; null for turns.
    pub status: Option<String>,
    /// The record's position.
    pub position: Position,
    /// The record.
    pub record_id: RecordId,
    /// Its `journal_seq`; 0 if its kind has none.
    pub journal_seq: JournalSeq,
    /// The type of its payload.
    pub payload_type: OrOther<PayloadType>,
}

/// A page of the facts of a run that hold at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Facts {
    /// The run.
    pub run_id: RunId,
    /// The time of the query, RFC 3339, inclusive.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub at: String,
    /// The position of the run's last record that this answer covers (inclusive).
    pub position: Position,
    /// The page, in log order. It may contain fewer facts than the limit although there is a next page.
    pub facts: Vec<Fact>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}
