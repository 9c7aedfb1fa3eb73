//! Changes of an index.

use super::{OrOther, Position};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{id::RunId, json::Json, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// What a record did to a row.
    Operation { Insert = "insert", Update = "update", Delete = "delete" }
}

/// A row of an index that a record changed.
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
    /// What it did to the row.
    pub operation: OrOther<Operation>,
    /// The record's run; null for a record that belongs to a partition.
    pub run_id: Option<RunId>,
    /// The row's key, by its parts; `rows` names the row family.
    #[cfg_attr(feature = "openapi", schemars(with = "form::RowKey"))]
    pub key: Json,
    /// The row before the change; null if there was none.
    pub old: Option<Json>,
    /// The row after the change; null if it was deleted.
    pub new: Option<Json>,
}
