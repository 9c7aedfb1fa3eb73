//! Timelines: records in log order, and content that could not be read.

use super::position::Position;
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{Epoch, JournalSeq, RecordId, RunId, WriterSeq},
    json::Json,
    or_other::OrOther,
    payload::PayloadType,
    symbols,
};
use serde::{Deserialize, Serialize};

/// One line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Line {
    /// Resumes a tail after this line (exclusive).
    #[cfg_attr(feature = "openapi", schemars(with = "form::LineCursor"))]
    pub cursor: String,
    /// The record's position.
    pub position: Position,
    /// The run's id.
    pub run_id: RunId,
    /// The record's number in the run, from 1; 0 for kinds without a number.
    pub journal_seq: JournalSeq,
    /// The record's number in its writer's epoch.
    pub writer_seq: WriterSeq,
    /// The record's id.
    pub record_id: RecordId,
    /// The envelope's kind.
    pub record_kind: String,
    /// The payload's type.
    pub payload_type: OrOther<PayloadType>,
    /// The payload's status or decision, also if the payload is stored elsewhere, encrypted or deleted. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// On requests: the tool, also if the payload is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// On attempts and ends of a call and on decisions: the `record_id` of its request, also if the payload is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<RecordId>,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The writer's clock, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "form::Time"))]
    pub timestamp: String,
    /// The log's timestamp of the record, RFC 3339; absent if the log has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    pub logged_at: Option<String>,
    /// The payload. Its content is masked by privacy class, and a payload in the content store is shown as its claim
    /// check, `stored_payload`, unless the query has `raw=true`. If a retention horizon deleted it, it is `{"dropped":
    /// POSITION}` alone, the horizon's position. If it nests too deeply to be shown, it is `{"unreadable": WHY}` alone.
    #[cfg_attr(feature = "openapi", schemars(with = "form::LinePayload"))]
    pub payload: Json,
    /// On decisions, if the server has tokens and their file a `receipt_key`: the principal that the record names. Absent
    /// if it names none, or if the content was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// On decisions, if the server has tokens and their file a `receipt_key`: whether a server with that key authenticated
    /// the principal. If false, any client that can write to the topic may have decided. Absent if the content was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_verified: Option<bool>,
    /// Set if the query has `raw=true` and the payload could not be read. `payload` is then its claim check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_content: Option<MissingContent>,
    /// The reason why the record cannot be shown: its nesting exceeds the current limit for writers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// If the query asks for whole records: the record as its writer sent it, with its sequence numbers, in the form for an
    /// append. Absent if its content could not be read, was deleted or cannot be shown.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Record>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Json>,
}

/// A page of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Lines {
    /// The page, in log order by default.
    pub records: Vec<Line>,
    /// The cursor of the next page; null at the end.
    pub next_cursor: Option<String>,
}

symbols! {
    /// The reason why content could not be read: the store does not have it, has other content under its name, or did not
    /// answer (retry).
    ContentLoss { Missing = "missing", Corrupt = "corrupt", Unavailable = "unavailable" }
}

/// Content of a record that could not be read. The record's effect does not depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MissingContent {
    /// The record's id.
    pub record_id: RecordId,
    /// The type of the missing payload.
    pub payload_type: OrOther<PayloadType>,
    /// The content's SHA-256, hexadecimal: its name in the content store.
    #[cfg_attr(feature = "openapi", schemars(with = "crate::datum::Sha256"))]
    pub sha256: String,
    /// The content's length, bytes.
    pub bytes: u64,
    /// The reason why it could not be read.
    pub reason: OrOther<ContentLoss>,
    /// The record's position.
    pub position: Position,
}
