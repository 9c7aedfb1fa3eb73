//! Copies of the contract's types and of its trait with six methods, and the types that the store adds.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// The time from which a statement holds, and whether it asserts or retracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Milliseconds since the Unix epoch, inclusive.
    pub at: i64,
    /// `true` asserts, `false` retracts.
    pub is_valid: bool,
}

/// A turn of the conversation. Its key is `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationTurn {
    /// The row's key.
    pub id: Uuid,
    /// The message that it answers.
    pub parent_id: Option<Uuid>,
    /// The message.
    pub message_id: Uuid,
    /// `user`, `assistant`, `system`, `sysinfo`, `tool`.
    pub kind: String,
    /// The text. It is kept under every configuration of the store.
    pub content: String,
    /// When it was created.
    pub created_at: Validity,
    /// Its thread.
    pub thread_id: Option<Uuid>,
}

/// A requested tool call. Its key is (`request_id`, `call_id`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallReq {
    /// The request.
    pub request_id: Uuid,
    /// The provider's id of the call.
    pub call_id: String,
    /// The message that triggered it.
    pub parent_id: Uuid,
    /// The model's vendor.
    pub vendor: String,
    /// The tool.
    pub tool_name: String,
    /// The host's hash of the arguments, kept unchanged.
    pub args_sha256: String,
    /// The arguments as JSON, without insignificant white space. Kept if the store keeps content.
    pub arguments_json: Option<String>,
    /// When it started.
    pub started_at: Validity,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// With an outcome.
    Completed,
    /// With an error.
    Failed,
}

impl fmt::Display for ToolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        })
    }
}

/// A tool call's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallDone {
    /// The request.
    pub request_id: Uuid,
    /// The provider's id of the call.
    pub call_id: String,
    /// When it ended.
    pub ended_at: Validity,
    /// How long it took.
    pub latency_ms: i64,
    /// The outcome of a completed call as JSON. Kept if the store keeps content; otherwise only its hash is.
    pub outcome_json: Option<String>,
    /// Only for a failed call. An empty text counts as `None`.
    pub error_kind: Option<String>,
    /// Only for a failed call. An empty text counts as `None`.
    pub error_msg: Option<String>,
    /// How it ended.
    pub status: ToolStatus,
}

/// A call: its request and its end.
pub type ToolCall = (ToolCallReq, Option<ToolCallDone>);

/// The contract's store. Each write returns once it is applied.
pub trait ObservabilityStore {
    /// Inserts a turn, or updates the fields of an existing turn. Writes nothing if nothing changes at any time.
    fn upsert_conversation_turn(&self, turn: ConversationTurn) -> Result<(), DbError>;
    /// The turns created at or after a time, oldest first.
    fn list_conversation_since(&self, since_ms: i64, limit: usize) -> Result<Vec<ConversationTurn>, DbError>;
    /// Inserts a request, or updates the non-key fields of an existing request. A call that has ended stays ended, and
    /// does not start after its end. Writes nothing if nothing changes at any time.
    fn record_tool_call_requested(&self, req: ToolCallReq) -> Result<(), DbError>;
    /// Ends a call, which must be there at the time of its end. The same end again writes nothing; a different end is
    /// refused.
    fn record_tool_call_done(&self, done: ToolCallDone) -> Result<(), DbError>;
    /// A call.
    fn get_tool_call(&self, request_id: Uuid, call_id: &str) -> Result<Option<ToolCall>, DbError>;
    /// The calls that a message triggered, latest first.
    fn list_tool_calls_by_parent(&self, parent_id: Uuid, limit: usize) -> Result<Vec<ToolCall>, DbError>;
}

/// A write of a group that is applied together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// [`ObservabilityStore::upsert_conversation_turn`].
    Turn(ConversationTurn),
    /// [`ObservabilityStore::record_tool_call_requested`].
    Requested(ToolCallReq),
    /// [`ObservabilityStore::record_tool_call_done`].
    Done(ToolCallDone),
}

/// The form in which a store keeps content. By default only hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Keep arguments and outcomes, and not only their hashes.
    pub content: bool,
}

/// Why an operation of the store failed. Nothing was written, unless a [`DbError::Journal`] says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// The journal failed; the error's kind and action say what to do.
    #[error(transparent)]
    Journal(#[from] runlog_producer::Error),
    /// A value that no record can hold.
    #[error("{0}")]
    Invalid(String),
    /// The end of a call that was never requested.
    #[error("call {call_id} of request {request_id} was never requested: record its request first")]
    NotRequested {
        /// The request.
        request_id: Uuid,
        /// The call.
        call_id: String,
    },
    /// The end of a call that is retracted at the time of the end.
    #[error(
        "call {call_id} of request {request_id} is retracted at its end, {at} ms since the Unix epoch: record its request again first"
    )]
    Retracted {
        /// The request.
        request_id: Uuid,
        /// The call.
        call_id: String,
        /// When it ended, milliseconds since the Unix epoch.
        at: i64,
    },
    /// A different end of a call that has ended.
    #[error("call {call_id} of request {request_id} has already ended, as {status}: its end cannot change")]
    Ended {
        /// The request.
        request_id: Uuid,
        /// The call.
        call_id: String,
        /// How it ended.
        status: ToolStatus,
    },
    /// The row to retract does not exist at that time.
    #[error("nothing to retract: the row does not exist at that time")]
    NotThere,
    /// A record of the store that this version cannot read.
    #[error("record {record_id} of the store cannot be read: {what}")]
    Unreadable {
        /// The record.
        record_id: String,
        /// Why.
        what: String,
    },
}
