//! Changes of an index.

use super::{OrOther, Position};
use crate::{id::RunId, json::Json, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// What a record did to a row.
    Operation { Insert = "insert", Update = "update", Delete = "delete" }
}

/// A row of an index that a record changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Resumes behind this change.
    pub cursor: String,
    /// The index, as `verify` names it.
    pub index: String,
    /// The record that changed it; of a batch the whole batch's.
    pub position: Position,
    /// What it did to the row.
    pub operation: OrOther<Operation>,
    /// The record's run; none for what is no record of a run.
    pub run_id: Option<RunId>,
    /// The row's key, by its parts; `rows` says of which rows of the index.
    pub key: Json,
    /// The row as it was; none where it was not.
    pub old: Option<Json>,
    /// The row as it is; none where it is not any more.
    pub new: Option<Json>,
}
