//! Effects and answers, as an agent sees them.

use runlog_schemas::{
    answer::{CallError, Position},
    id::RecordId,
    json::Json,
};

/// The argument of an effect.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's record id: unique, and the same for all attempts.
    pub id: RecordId,
    /// 1 for the first attempt; higher if an earlier attempt may have run.
    pub attempt: u32,
    /// The key to pass to the receiver.
    pub idempotency_key: Option<String>,
}

/// A failed effect, which is recorded as the call's final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure, as `error_kind` of the record.
    pub kind: String,
    /// The receiver's message, as `error_message` of the record.
    pub message: String,
}

/// The outcome of an effect that may not know its own outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The effect happened.
    Done(Json),
    /// The effect did not happen and will not.
    Failed(Failure),
    /// The effect may have happened. The text is the reason for the doubt, for example a lost answer of the receiver.
    Unknown(String),
}

impl From<Result<Json, Failure>> for Ended {
    fn from(ended: Result<Json, Failure>) -> Self {
        ended.map_or_else(Self::Failed, Self::Done)
    }
}

/// A call's recorded answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The record id of the call's request.
    pub call: RecordId,
    /// The result. `None` for a failure, or if it is redacted.
    pub result: Option<Json>,
    /// The failure.
    pub error: Option<CallError>,
    /// Whether the answer came from the journal, and the effect did not run now.
    pub recorded: bool,
    /// The position of the record that ended the call.
    pub position: Option<Position>,
}
