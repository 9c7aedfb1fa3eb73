//! What a record has to have in place of a payload that was uploaded.

use crate::json::Json;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use serde::{Deserialize, Serialize};

/// A payload that was uploaded to the content store. Its record is appended with these members in place of its own, and where
/// the server asks for tokens with the receipt as the header `Runlog-Receipt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Uploaded {
    /// The record's kind.
    pub record_kind: String,
    /// The record's facts, which are those of the whole payload.
    pub facts: Json,
    /// The record's payload: a `stored_payload`, which names the content.
    pub payload: Json,
    /// Says that the caller uploaded this content for this run. Absent where the server asks for no tokens: it needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// Until when the receipt is taken, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}
