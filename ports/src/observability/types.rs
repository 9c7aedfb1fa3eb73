//! The contract's types and its six methods, restated; and what the store adds to them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// From when on a statement holds, and whether it asserts or retracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Milliseconds since the Unix epoch, inclusive.
    pub at: i64,
    /// Asserted; otherwise retracted.
    pub is_valid: bool,
}

/// A turn of the conversation. Its key is `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationTurn {
    /// The row.
    pub id: Uuid,
    /// The message that it answers.
    pub parent_id: Option<Uuid>,
    /// The message.
    pub message_id: Uuid,
    /// `user`, `assistant`, `system`, `sysinfo`, `tool`.
    pub kind: String,
    /// What was said. Kept whatever the store's configuration says.
    pub content: String,
    /// When it was created.
    pub created_at: Validity,
    /// The thread that it belongs to.
    pub thread_id: Option<Uuid>,
}

/// A tool call that is asked for. Its key is (`request_id`, `call_id`).
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
    /// The host's hash of the arguments, kept as it is.
    pub args_sha256: String,
    /// JSON; kept where the store keeps content, without insignificant white space.
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
    /// JSON, of a completed call; kept where the store keeps content, otherwise its hash is.
    pub outcome_json: Option<String>,
    /// Of a failed call. An empty text is none.
    pub error_kind: Option<String>,
    /// Of a failed call. An empty text is none.
    pub error_msg: Option<String>,
    /// How it ended.
    pub status: ToolStatus,
}

/// A call as it stands.
pub type ToolCall = (ToolCallReq, Option<ToolCallDone>);

/// The contract's store. Each write returns when it is in the log and applied.
pub trait ObservabilityStore {
    /// Writes a turn, or other fields of one that is there; nothing where it is there as it is.
    fn upsert_conversation_turn(&self, turn: ConversationTurn) -> Result<(), DbError>;
    /// The turns created at or after a time, the oldest first.
    fn list_conversation_since(&self, since_ms: i64, limit: usize) -> Result<Vec<ConversationTurn>, DbError>;
    /// Writes a request, or other non-key fields of one that is there, whose end stands; nothing where it is there as it is.
    fn record_tool_call_requested(&self, req: ToolCallReq) -> Result<(), DbError>;
    /// Ends a call. The same end again is nothing, another one is refused.
    fn record_tool_call_done(&self, done: ToolCallDone) -> Result<(), DbError>;
    /// A call.
    fn get_tool_call(&self, request_id: Uuid, call_id: &str) -> Result<Option<ToolCall>, DbError>;
    /// The calls that a message triggered, the latest first.
    fn list_tool_calls_by_parent(&self, parent_id: Uuid, limit: usize) -> Result<Vec<ToolCall>, DbError>;
}

/// A write, for those that take effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// [`ObservabilityStore::upsert_conversation_turn`].
    Turn(ConversationTurn),
    /// [`ObservabilityStore::record_tool_call_requested`].
    Requested(ToolCallReq),
    /// [`ObservabilityStore::record_tool_call_done`].
    Done(ToolCallDone),
}

/// What a store keeps. The default is hashes only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Whether arguments and outcomes are kept, and not only their hashes.
    pub content: bool,
}

/// Why a store did not do what it was asked. Nothing was written but where [`DbError::Journal`] says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// Its kind and action tell what to do.
    #[error(transparent)]
    Journal(#[from] runlog_producer::Error),
    /// What no record holds.
    #[error("{0}")]
    Invalid(String),
    /// An end of a call that nobody asked for.
    #[error("call {call_id:?} of request {request_id} was never requested")]
    NotRequested {
        /// The request.
        request_id: Uuid,
        /// The call.
        call_id: String,
    },
    /// Another end of a call that has one.
    #[error("call {call_id:?} of request {request_id} has ended otherwise, as {status:?}")]
    Ended {
        /// The request.
        request_id: Uuid,
        /// The call.
        call_id: String,
        /// How it has ended.
        status: ToolStatus,
    },
    /// What is to be retracted is not there.
    #[error("there is nothing to retract")]
    NotThere,
    /// A record of the store that this version does not understand.
    #[error("record {record_id} cannot be read: {what}")]
    Unreadable {
        /// The record.
        record_id: String,
        /// Why.
        what: String,
    },
}
