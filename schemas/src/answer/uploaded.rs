//! The members of a record that replace an uploaded payload.

use crate::json::Json;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use serde::{Deserialize, Serialize};

/// A payload that was uploaded to the content store. Append its record with these members instead of its own. If the server
/// requires tokens, send the receipt as the header `Runlog-Receipt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Uploaded {
    /// The record's kind.
    pub record_kind: String,
    /// The record's facts, derived from the whole payload.
    pub facts: Json,
    /// The record's payload: a `stored_payload`, which names the content.
    pub payload: Json,
    /// The proof that the caller uploaded this content for this run. Absent from a server without tokens, which needs no receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// The end of the receipt's validity, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}
