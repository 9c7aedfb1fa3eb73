//! Tool calls and other effects: their status, and which of them may have happened.

use super::{Dropped, MissingContent, OrOther, Position, absent};
#[cfg(feature = "openapi")]
use crate::openapi::form;
use crate::{
    id::{ContentHash, Epoch, Fingerprint, JournalSeq, OrEmpty, PartitionId, RecordId, RunId, WriterId},
    json::Json,
    judge::{
        CallStatus, Class, Reason, RunStatus,
        lifecycle::{EffectKind, EffectStatus},
    },
    symbols,
};
use serde::{Deserialize, Serialize};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CallError {
    /// The kind of failure, as the tool named it.
    pub kind: String,
    /// The failure's message.
    pub message: String,
}

symbols! {
    /// The status of a call that was asked for. `unknown`: the run has no such call.
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
    /// Its status.
    pub status: OrOther<LookupStatus>,
    /// The fingerprint asked for.
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
    /// Arguments, result or failure that could not be read. The status does not depend on them.
    #[serde(default)]
    pub missing_content: Vec<MissingContent>,
    /// Records whose arguments, result or failure retention has deleted: those are null. The status does not depend on
    /// them.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    /// Whether a result that arrived after the call had ended contradicts its end: the effect may have happened twice, or
    /// although the call failed. `contradicting` of `/v1/effects?contradicted=true` has such results. False from a server without
    /// the feature `contradictions`.
    #[serde(default)]
    pub contradicted: bool,
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

/// A refused result, kept as evidence for a decision, or because it contradicts the end of its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// The refused record.
    pub record_id: RecordId,
    /// The status that it reports, which is one of an ended effect.
    #[cfg_attr(feature = "openapi", schemars(with = "String"))]
    pub status: OrOther<EffectStatus>,
    /// Why it was refused.
    pub reason: OrOther<Reason>,
    /// The refused record's position.
    pub position: Position,
    /// Its content hash, by which results under one record id differ. Null, like the members below, from a server that does not
    /// know them.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<crate::datum::Sha256>"))]
    #[serde(default)]
    pub content_hash: Option<ContentHash>,
    /// When the log received it, RFC 3339.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default)]
    pub logged_at: Option<String>,
    /// Its writer's epoch.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// Its writer; empty on a record of a run that was never claimed.
    #[serde(default)]
    pub writer_id: Option<OrEmpty<WriterId>>,
    /// Whether a decision with the effect's `basis` to adopt the evidence adopts this piece. At most one piece of an effect is
    /// adoptable, and none once the effect ended.
    #[serde(default)]
    pub adoptable: bool,
    /// The payload, which has the result or the error, in the form that a timeline's line has. `recovery` shows it unmasked, and
    /// reads it from the content store unless `content=false` was asked for.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::LinePayload>"))]
    #[serde(default)]
    pub payload: Option<Json>,
    /// Set if the payload could not be read from the content store: its claim check is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_content: Option<MissingContent>,
}

/// An effect without a recorded end: it may have happened.
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
    /// Whether a process is running it. Null as of a position, and from a server that does not know it.
    #[serde(default)]
    pub state: Option<OrOther<PendingState>>,
    /// Whether it may run again without a decision. If that is unknown, it may not.
    pub class: OrOther<Class>,
    /// Why it has that class.
    pub reason: String,
    /// Refused results, oldest first.
    pub evidence: Vec<Evidence>,
    /// Number of records applied to it or stored as its evidence: a decision names it. 0 from a server that does not
    /// know revisions.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default)]
    pub revision: u64,
    /// Its state, to be sent back with an attempt or a decision, which is refused if the state changed since. Opaque; absent
    /// from a server that does not know it.
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
    /// The evidence that a decision to adopt adopts, and must name. A decision that the effect did not happen must name
    /// it too, if it says that the effect happened.
    pub fn adoptable(&self) -> Option<&Evidence> {
        let happened = |evidence: &&Evidence| evidence.happened();
        self.evidence.iter().rfind(happened).or_else(|| self.evidence.last())
    }
}

impl Evidence {
    /// Whether it says that the effect happened.
    pub fn happened(&self) -> bool {
        self.status.known().is_some_and(|status| status.happened())
    }
}

symbols! {
    /// What a pending effect is doing. `running`: the process that started it last claimed the run, still has it and wrote to it
    /// within 30 s. `waiting`: for a decision, or for a process that runs it again.
    PendingState { Running = "running", Waiting = "waiting" }
}

/// One effect, across all runs. The members after `contradictions` are null from a server without the feature `effect_facts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Effect {
    /// The run.
    pub run_id: RunId,
    /// The effect; class and reason are null once it ended.
    #[serde(flatten)]
    pub pending: EffectState,
    /// The request.
    pub position: Position,
    /// Refused results that arrived while it was pending, oldest first.
    pub evidence: Vec<Evidence>,
    /// Refused results that arrived after it had ended and contradict its end, oldest first; 16 at most. Empty from a server
    /// without the feature `contradictions`.
    #[serde(default)]
    pub contradicting: Vec<Evidence>,
    /// Number of such results, with those that are no longer kept.
    #[serde(default)]
    pub contradictions: u64,
    /// When the log received the record that started it last, RFC 3339: the request or an attempt, of a contract's effect the last
    /// step. Null if that is unknown.
    #[cfg_attr(feature = "openapi", schemars(with = "Option<form::Time>"))]
    #[serde(default)]
    pub since: Option<String>,
    /// The age of that record when this was answered, milliseconds; null if that is unknown. By the clock that timestamps the log
    /// if the server has it, otherwise by the server's own.
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
    /// The idempotency key that the effect was requested with.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The dedupe key of a contract's effect.
    #[serde(default)]
    pub dedupe_key: Option<String>,
    /// The arguments of a tool call; null if its request has none. In their place stand `{"masked": CLASS}`, `{"dropped": POSITION}`
    /// if retention deleted them, `{"unreadable": REASON}` if they nest too deep, and the claim check of arguments in the content
    /// store, which `lookup` reads.
    #[serde(default)]
    pub arguments: Option<Json>,
    /// The run, as far as it says whether a process still runs the effect.
    #[serde(default)]
    pub run: Option<EffectRun>,
}

/// The run of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EffectRun {
    /// Its status.
    pub status: OrOther<RunStatus>,
    /// Its epoch; 0 if it was never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty if it was never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// The age of the last applied record of the run's writer, milliseconds; null if that is unknown. An operator's records do not
    /// count.
    pub age_millis: Option<u64>,
}

/// As in [`Pending`], for effects that may have ended. No member holds [`Json`], which a flattened struct cannot be read with.
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
    /// While pending: whether a process is running it. Absent from a server that does not know it.
    #[serde(default)]
    pub state: Option<OrOther<PendingState>>,
    /// While pending: whether it may run again without a decision.
    pub class: Option<OrOther<Class>>,
    /// Why it has that class.
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
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}
