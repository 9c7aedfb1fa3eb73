//! Tool calls and other effects: their status, and whether they may have happened.

use super::{absent, horizons::Dropped, lines::MissingContent, position::Position};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{ContentHash, Epoch, Fingerprint, JournalSeq, OrEmpty, PartitionId, RecordId, RunId, WriterId},
    json::Json,
    judge::{
        CallStatus, Class, Reason, RunStatus,
        lifecycle::{EffectKind, EffectStatus},
    },
    or_other::OrOther,
    symbols,
};
use serde::{Deserialize, Serialize};

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CallError {
    /// The kind of failure, as the tool named it.
    pub kind: String,
    /// The failure's message.
    pub message: String,
}

symbols! {
    /// The status of the looked-up call. `unknown`: the run has no such call.
    LookupStatus { Completed = "completed", Failed = "failed", Pending = "pending", Unknown = "unknown" }
}

impl From<CallStatus> for LookupStatus {
    fn from(status: CallStatus) -> Self {
        match status {
            CallStatus::Pending => Self::Pending,
            CallStatus::Completed => Self::Completed,
            CallStatus::Failed => Self::Failed,
        }
    }
}

/// The recorded state of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Lookup {
    /// The call's status.
    pub status: OrOther<LookupStatus>,
    /// The looked-up fingerprint.
    pub fingerprint: Fingerprint,
    /// Which request of the fingerprint, from 1.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<std::num::NonZeroU32>"))]
    pub occurrence: Option<u32>,
    /// The number of requests of the fingerprint that the run has.
    pub occurrences: u32,
    /// The tool.
    pub tool_name: Option<String>,
    /// The recorded arguments.
    pub arguments: Option<Json>,
    /// The recorded result.
    pub result: Option<Json>,
    /// The recorded failure.
    pub error: Option<CallError>,
    /// The record that set the status.
    pub position: Option<Position>,
    /// Arguments, result or failure that could not be read. The status is valid without them.
    #[serde(default)]
    pub missing_content: Vec<MissingContent>,
    /// Records whose arguments, result or failure retention has deleted; these are null. The status is valid without them.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    /// Whether a result that arrived after the call had ended contradicts its end: the effect may have happened twice, or
    /// although the call failed. `contradicting` of `/v1/effects?contradicted=true` has such results. False from a server without
    /// the feature `contradictions`.
    #[serde(default)]
    pub contradicted: bool,
    /// The request's record id, if the call was looked up by its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_record_id: Option<RecordId>,
}

/// A completed or failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Done {
    /// The tool.
    pub tool_name: String,
    /// The fingerprint.
    pub fingerprint: Fingerprint,
    /// Which request of the fingerprint, from 1.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub occurrence: u32,
    /// `completed` or `failed`.
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["completed", "failed"])))]
    pub status: OrOther<CallStatus>,
    /// The record that set the status.
    pub position: Position,
    /// The request's record id.
    pub id: RecordId,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The idempotency key that the call was made with.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// A refused result, which is kept as evidence for a decision or because it contradicts the end of its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// The refused record.
    pub record_id: RecordId,
    /// The reported status: a status of an ended effect.
    #[cfg_attr(feature = "openapi", schemars(with = "String"))]
    pub status: OrOther<EffectStatus>,
    /// Why it was refused.
    pub reason: OrOther<Reason>,
    /// The refused record's position.
    pub position: Position,
    /// The record's content hash, by which results with one record id differ. Null, like the members below, from an older server.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<crate::datum::Sha256>"))]
    #[serde(default)]
    pub content_hash: Option<ContentHash>,
    /// The time at which the log received the record, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default)]
    pub logged_at: Option<String>,
    /// The writer's epoch.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// The writer; empty if the run was never claimed.
    #[serde(default)]
    pub writer_id: Option<OrEmpty<WriterId>>,
    /// Who claimed the run in that epoch for that writer, as the claim says it. Null if that claim was not applied.
    #[serde(default)]
    pub claimed_by: Option<String>,
    /// Whether an `adopt` decision with the effect's `basis` adopts this piece of evidence. At most one piece of a pending effect is
    /// adoptable, and no piece of an ended effect.
    #[serde(default)]
    pub adoptable: bool,
    /// The payload with the result or the error, in the form of a timeline's line. `recovery` returns it unmasked, and reads it
    /// from the content store unless the query has `content=false`.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::LinePayload>"))]
    #[serde(default)]
    pub payload: Option<Json>,
    /// The result in a `tool_call_completed` payload; `{"masked": CLASS}` if it is masked there. Null if the payload has none.
    #[serde(default)]
    pub result: Option<Json>,
    /// The failure in a `tool_call_failed` payload. Null if the payload has none.
    #[serde(default)]
    pub error: Option<EvidenceError>,
    /// Set if the payload could not be read from the content store. `payload` is then its claim check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_content: Option<MissingContent>,
}

/// The failure that a piece of evidence reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EvidenceError {
    /// The kind of failure, as the tool named it.
    pub kind: String,
    /// The failure's message; `{"masked": CLASS}` if it is masked.
    pub message: Json,
}

/// An effect without a recorded end. It may have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Pending {
    /// `tool_call` for Runlog's own calls; `effect`, `tool` or `output_delivery` for the contract's.
    pub kind: OrOther<EffectKind>,
    /// The request's record id; or the contract's effect id, tool call id or delivery id.
    pub id: RecordId,
    /// The tool; the kind of a contract's `effect`; empty for a delivery.
    pub tool_name: String,
    /// The fingerprint; null unless it is one of Runlog's own tool calls.
    pub fingerprint: Option<Fingerprint>,
    /// Which request of the fingerprint, from 1; null (0 here) unless it is one of Runlog's own tool calls.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<std::num::NonZeroU32>"))]
    #[serde(with = "absent")]
    pub occurrence: u32,
    /// Whether a process is running it. Null as of a position, and from an older server.
    #[serde(default)]
    pub state: Option<OrOther<PendingState>>,
    /// Whether it may run again without a decision. With an unknown class it may not.
    pub class: OrOther<Class>,
    /// The reason for the class.
    pub reason: String,
    /// Refused results, oldest first.
    pub evidence: Vec<Evidence>,
    /// Number of further refused results that were replaced. 0 from an older server.
    #[serde(default)]
    pub evidence_dropped: u64,
    /// Number of records that were applied to it or kept as its evidence. A decision names this number. 0 from an older server.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default)]
    pub revision: u64,
    /// Its state, which an attempt or a decision must repeat. The journal refuses them if the state has changed since.
    /// Opaque; absent from an older server.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    #[serde(default)]
    pub basis: Option<ContentHash>,
    /// How many times the effect was started.
    pub attempts: u32,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The idempotency key that the call was made with.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The dedupe key of a contract's effect.
    #[serde(default)]
    pub dedupe_key: Option<String>,
}

impl Pending {
    /// Returns the evidence that an `adopt` decision adopts and must name. A `not_done` decision must name it too, if it says that
    /// the effect happened.
    pub fn adoptable(&self) -> Option<&Evidence> {
        let happened = |evidence: &&Evidence| evidence.happened();
        // An older server marks none.
        let marked = self.evidence.iter().find(|evidence| evidence.adoptable);
        marked.or_else(|| self.evidence.iter().rfind(happened)).or_else(|| self.evidence.last())
    }
}

impl Evidence {
    /// Returns whether the evidence says that the effect happened.
    pub fn happened(&self) -> bool {
        self.status.known().is_some_and(|status| status.happened())
    }
}

symbols! {
    /// The state of a pending effect. `running`: the process that started it last claimed the run, still has it and wrote to it
    /// within 30 s. `waiting`: it waits for a decision, or for a process that runs it again.
    PendingState { Running = "running", Waiting = "waiting" }
}

/// An effect in the list of all runs' effects. The members after `contradictions` are null from a server without the feature `effect_facts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Effect {
    /// The run.
    pub run_id: RunId,
    /// The effect. Class and reason are null after its end.
    #[serde(flatten)]
    pub pending: EffectState,
    /// The position of the request.
    pub position: Position,
    /// Refused results that arrived while the effect was pending, oldest first.
    pub evidence: Vec<Evidence>,
    /// Number of further such results that were replaced. 0 from an older server.
    #[serde(default)]
    pub evidence_dropped: u64,
    /// Refused results that contradict the effect's end, oldest first; at most 32. Empty from a server without
    /// the feature `contradictions`.
    #[serde(default)]
    pub contradicting: Vec<Evidence>,
    /// Number of all such results, including results that are no longer kept.
    #[serde(default)]
    pub contradictions: u64,
    /// The time at which the log received the record that started the effect last, RFC 3339: the request or an attempt, or the
    /// last step of a contract's effect. Null if unknown.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default)]
    pub since: Option<String>,
    /// The age of that record at the time of this answer, milliseconds; null if unknown. Measured by the clock that timestamps the
    /// log, or by the server's own if the server does not have that clock.
    #[serde(default)]
    pub age_millis: Option<u64>,
    /// The agent of that record.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// The writer of that record; empty for a run that was never claimed.
    #[serde(default)]
    pub writer_id: Option<OrEmpty<WriterId>>,
    /// The epoch of that record; 0 for a run that was never claimed.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// How many times the effect was started.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// The idempotency key of the request.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The dedupe key of a contract's effect.
    #[serde(default)]
    pub dedupe_key: Option<String>,
    /// The arguments of a tool call; null if its request has none. Masked arguments are `{"masked": CLASS}`, deleted
    /// arguments `{"dropped": POSITION}`, and too deeply nested arguments `{"unreadable": REASON}`. Arguments in the
    /// content store are replaced by their claim check; `lookup` reads them.
    #[serde(default)]
    pub arguments: Option<Json>,
    /// The data of the run that shows whether a process still runs the effect.
    #[serde(default)]
    pub run: Option<EffectRun>,
}

/// The run of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EffectRun {
    /// The run's status.
    pub status: OrOther<RunStatus>,
    /// The run's epoch; 0 if it was never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty if it was never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// Who claimed the run in that epoch, as the claim says it. Null if it was never claimed, and from an older server.
    #[serde(default)]
    pub claimed_by: Option<String>,
    /// The age of the last applied record of the run's writer, milliseconds; null if unknown. Operators' records do not count.
    pub age_millis: Option<u64>,
}

/// Like [`Pending`], for effects that may have ended. No member has the type [`Json`], because serde cannot read it in a flattened
/// struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EffectState {
    /// `tool_call` for Runlog's own calls; `effect`, `tool` or `output_delivery` for the contract's.
    pub kind: OrOther<EffectKind>,
    /// The request's record id; or the contract's effect id, tool call id or delivery id.
    pub id: RecordId,
    /// The tool; the kind of a contract's `effect`; empty for a delivery.
    pub tool_name: String,
    /// The fingerprint; null unless it is one of Runlog's own tool calls.
    pub fingerprint: Option<Fingerprint>,
    /// Which request of the fingerprint, from 1; null (0 here) unless it is one of Runlog's own tool calls.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<std::num::NonZeroU32>"))]
    #[serde(with = "absent")]
    pub occurrence: u32,
    /// `pending`, `completed`, `failed`; for the contract's effects also its other terminal statuses.
    #[cfg_attr(feature = "openapi", schemars(with = "String"))]
    pub status: OrOther<EffectStatus>,
    /// While pending: whether a process is running it. Absent from an older server.
    #[serde(default)]
    pub state: Option<OrOther<PendingState>>,
    /// While pending: whether it may run again without a decision.
    pub class: Option<OrOther<Class>>,
    /// The reason for the class.
    pub reason: Option<String>,
    /// While pending: as in [`Pending`].
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default)]
    pub revision: Option<u64>,
    /// While pending: as in [`Pending`].
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    #[serde(default)]
    pub basis: Option<ContentHash>,
}

/// A page of effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Effects {
    /// The page.
    pub effects: Vec<Effect>,
    /// Partitions that did not answer.
    pub unavailable_partitions: Vec<PartitionId>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}
