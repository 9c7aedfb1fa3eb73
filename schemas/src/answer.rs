//! A server's answers as JSON. The server, the client and the command line share these types.
//!
//! Later versions may add fields and never rename a field. An absent value is null.

#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{Epoch, JournalSeq, Offset, OrEmpty, PartitionId, RecordId, RunId, WriterId, WriterSeq},
    json::Json,
    payload::PayloadType,
    subject::Subject,
    symbols,
};
use serde::{Deserialize, Serialize};

pub use crate::judge::{
    CallStatus, Class, Reason, RunStatus,
    lifecycle::{EffectKind, EffectStatus, LifecycleStatus},
};

mod absent;
mod appended;
mod calls;
mod changes;
mod events;
mod facts;
mod health;
mod horizons;
mod journal;
mod overview;
mod plans;
mod problem;
mod refused;
mod runs;
mod standing;
mod uploaded;
mod whoami;

pub use crate::or_other::OrOther;
pub use appended::{Appended, Warning, Writer};
pub use calls::{
    CallError, Done, Effect, EffectRun, EffectState, Effects, Evidence, Lookup, LookupStatus, Pending, PendingState,
};
pub use changes::{Change, Operation};
pub use events::{Event, Events};
pub use facts::{Fact, Facts};
pub use health::{
    Doctor, Finding, IndexDigest, PartitionDigest, PartitionHealth, PartitionState, Severity, Verification,
};
pub use horizons::{Dropped, Horizon, Horizons, Outcomes};
pub use journal::{Feature, Journal};
pub use overview::{Overview, PartitionProgress, PendingByClass, PendingByState};
pub use plans::{RetentionOfPartition, RetentionPlan, SkipPlan, SkipTarget};
pub use problem::{ErrorKind, Problem, ProblemReason, with_causes};
pub use refused::{Anomalies, Anomaly, DeadLetter, DeadLetterReason, DeadLetters};
pub use runs::{Checkpoint, CheckpointSummary, Checkpoints, Claim, Copied, Recovery, Run, Runs};
pub use standing::{Standing, Standings};
pub use uploaded::Uploaded;
pub use whoami::{CredentialKind, WhoAmI};

/// A position in the log. `index` counts within an atomic batch and is 0 otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Position {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionId,
    /// The offset.
    pub offset: Offset,
    /// The index within the offset.
    pub index: u32,
}

impl Position {
    /// Converts the position to the subject of an error.
    pub fn subject(&self) -> Subject {
        let Self { topic, partition, offset, .. } = self;
        Subject { topic: Some(topic.clone()), partition: Some(*partition), offset: Some(*offset), ..Subject::default() }
    }
}

symbols! {
    /// The outcome of an appended record. `repeat`: the record was judged before with the same content, and has no further
    /// effect. `appended`: the record is in the log but not judged yet, and may be refused.
    Disposition { Applied = "applied", Repeat = "repeat", Refused = "refused", Appended = "appended" }
}

/// The outcome of an appended record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The record's position; for a repeat, the position of the first record.
    pub position: Position,
    /// Applied, repeat or refused; appended if the answer did not wait for the judgement.
    pub outcome: OrOther<Disposition>,
    /// The reason of a refusal; for a repeat, the first record's reason.
    pub reason: Option<OrOther<Reason>>,
    /// The record's id.
    #[serde(default)]
    pub record_id: OrEmpty<RecordId>,
    /// For a repeat of an applied record: the number of the record at `position`, 0 if its kind has none. Otherwise
    /// null.
    #[serde(default)]
    pub journal_seq: Option<JournalSeq>,
    /// The writer of the record at `position`; for a repeat, the writer of the first record. Null if the record is not judged
    /// yet, or is about a partition.
    #[serde(default)]
    pub record_writer: Option<Writer>,
}

/// The outcome of an appended record and the run's writer, both read at one log position.
///
/// A record can be applied although its writer has lost the run since, by a later claim. And the applied record with this id can
/// be another writer's: `record_writer` names its writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ReadBack {
    /// The record's outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The run's epoch; 0 if never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty if never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// The outcomes of the run's records at the positions `also`, in that order. Null for a position without an outcome: its
    /// record repeats an applied record, or was skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Option<Outcome>>,
}

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
    /// check, `stored_payload`, unless raw was asked for. If a retention horizon deleted it, it is `{"dropped":
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
    /// The reason why the record cannot be shown: it nests deeper than current writers may nest.
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
