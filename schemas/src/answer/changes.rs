//! Changes of an index.

use super::position::Position;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{id::RunId, json::Json, or_other::OrOther, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// The change of a row by a record.
    Operation { Insert = "insert", Update = "update", Delete = "delete" }
}

/// A change of a row of an index by a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Change {
    /// Resumes after this change (exclusive).
    pub cursor: String,
    /// The index, as `verify` names it.
    #[cfg_attr(feature = "openapi", schemars(with = "form::IndexName"))]
    pub index: String,
    /// The position of the record that changed the row; for a record of a batch, the batch's position.
    pub position: Position,
    /// The type of the change.
    pub operation: OrOther<Operation>,
    /// The record's run; null for a record about a partition.
    pub run_id: Option<RunId>,
    /// The row's key, by its parts; `rows` names the row family.
    #[cfg_attr(feature = "openapi", schemars(with = "form::RowKey"))]
    pub key: Json,
    /// The row before the change; null if it was inserted.
    pub old: Option<Json>,
    /// The row after the change; null if it was deleted.
    pub new: Option<Json>,
}
