//! The states of approvals, wake conditions, messages and write-backs.

use super::position::Position;
use crate::{
    id::{Epoch, JournalSeq, RecordId},
    judge::lifecycle::LifecycleStatus,
    or_other::OrOther,
};
use serde::{Deserialize, Serialize};

/// An approval, wake condition, message or write-back of a run, and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Standing {
    /// The id within the run; for a write-back, the transaction.
    pub id: String,
    /// The epoch that staged a write-back.
    pub epoch: Option<Epoch>,
    /// The state, as the record that set it reports it.
    pub status: OrOther<LifecycleStatus>,
    /// The first record's `journal_seq`; 0 if it is not numbered.
    pub journal_seq: JournalSeq,
    /// The position of the first record.
    pub since: Position,
    /// The record that set the state.
    pub record_id: RecordId,
    /// The position of the record that set the state.
    pub position: Position,
}

/// A page of the approvals, wake conditions, messages or write-backs of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Standings {
    /// The page, by id.
    pub standing: Vec<Standing>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}
