//! State machines of effects, tools, deliveries, approvals and the like, in one table. The judge reads the legal transitions from
//! it, and the projection the next states.
//!
//! ```text
//!   none ─▶ open, of growing rank ─▶ ended, final      (except for transitions that a row's `follows` allows)
//! ```
//!
//! A refusal discards the record's content, so only a contradiction of an end state is refused. An open state never returns to a
//! lower rank: a record with a lower-ranked state is applied and changes no state. So is one with an unknown status,
//! which a later version of the contract may add: an unknown status never ends anything.
//!
//! Runlog's own tool calls are not in the table: [`judge`](super::judge) has their requests, attempts and answers.

use super::status::{Reason, RunStatus};
use crate::{
    codec::Envelope,
    datum,
    datum::Sha256,
    id::{Epoch, RecordId},
    or_other::OrOther,
    payload::PayloadType,
    symbols,
};

symbols! {
    /// The kinds of objects with a lifecycle. The order is a stored byte: append only.
    Family {
        Effect = "effect", Tool = "tool", Delivery = "output_delivery", Approval = "approval", Wake = "wake",
        Message = "run_message", WriteBack = "write_back", Proposal = "code_edit_proposal", Pool = "agent_pool",
    }
}

symbols! {
    /// The kind of an effect: a tool call of Runlog's own, or a family of the contract whose open states are effects.
    /// The order is a stored byte: append only.
    EffectKind { ToolCall = "tool_call", Effect = "effect", Tool = "tool", Delivery = "output_delivery" }
}

impl EffectKind {
    /// Returns the kind of effect of a family's open states.
    pub fn from_family(family: Family) -> Option<Self> {
        match family {
            Family::Effect => Some(Self::Effect),
            Family::Tool => Some(Self::Tool),
            Family::Delivery => Some(Self::Delivery),
            _ => None,
        }
    }
}

symbols! {
    /// The states of all families. Stored as text: the order is free.
    LifecycleStatus {
        Accepted = "accepted", Applied = "applied", Approved = "approved", ApprovedForSession = "approved_for_session",
        Cancelled = "cancelled", Committed = "committed", Completed = "completed", Created = "created",
        Deduped = "deduped", Delivered = "delivered", Denied = "denied",
        DeniedBeforeExecution = "denied_before_execution", DispatchIntentRecorded = "dispatch_intent_recorded",
        Dispatched = "dispatched", DispatcherUnavailable = "dispatcher_unavailable", Expired = "expired",
        Failed = "failed", HostConfigurationNeeded = "host_configuration_needed", Intent = "intent",
        IntentRecorded = "intent_recorded", Pending = "pending", PolicyDenied = "policy_denied",
        ReconciliationNeeded = "reconciliation_needed", RecoveryRequired = "recovery_required",
        Registered = "registered", Rejected = "rejected", RequestModified = "request_modified",
        Requested = "requested", Responded = "responded", ResultRewritten = "result_rewritten",
        Reverted = "reverted", RunJoined = "run_joined", RunLeft = "run_left", SkippedOptional = "skipped_optional",
        Staged = "staged", TimedOut = "timed_out", Triggered = "triggered", Unknown = "unknown",
    }
}

symbols! {
    /// The status of an effect: `pending`, or one of the states in which an effect of any kind ends.
    EffectStatus {
        Pending = "pending", Completed = "completed", Failed = "failed", TimedOut = "timed_out",
        Cancelled = "cancelled", DeniedBeforeExecution = "denied_before_execution",
        ResultRewritten = "result_rewritten", Deduped = "deduped",
        HostConfigurationNeeded = "host_configuration_needed", PolicyDenied = "policy_denied",
        SkippedOptional = "skipped_optional",
    }
}

use LifecycleStatus as S;

impl EffectStatus {
    /// Returns whether the effect happened. `deduped` counts, because another delivery was made, and `result_rewritten`, because the
    /// tool ran.
    pub fn happened(self) -> bool {
        matches!(self, Self::Completed | Self::Deduped | Self::ResultRewritten)
    }
}

impl Family {
    /// The families whose open states are effects that may have happened.
    pub const EFFECTS: [Self; 3] = [Self::Effect, Self::Tool, Self::Delivery];

    /// Returns the family of a payload type.
    pub fn from_payload_type(payload_type: PayloadType) -> Option<Self> {
        Some(match payload_type {
            PayloadType::EffectIntent | PayloadType::EffectResult | PayloadType::TerminalResult => Self::Effect,
            PayloadType::Tool => Self::Tool,
            PayloadType::OutputDelivery => Self::Delivery,
            PayloadType::Approval => Self::Approval,
            PayloadType::Wake => Self::Wake,
            PayloadType::RunMessage => Self::Message,
            PayloadType::WriteBackStaged | PayloadType::WriteBackCommitted | PayloadType::WriteBackRejected => {
                Self::WriteBack
            }
            PayloadType::CodeEditProposal => Self::Proposal,
            PayloadType::AgentPool => Self::Pool,
            _ => return None,
        })
    }

    /// Returns whether an effect in the open state `status` may have happened. A requested tool has not started; a tool in an unknown
    /// state may have.
    pub fn may_have_happened(self, status: &OrOther<S>) -> bool {
        match self {
            Self::Effect | Self::Delivery => true,
            Self::Tool => !matches!(status.known(), Some(S::Requested | S::RequestModified)),
            _ => false,
        }
    }

    /// Returns whether `status` marks the start of an effect, or repeated, a restart.
    pub fn starts(self, status: &OrOther<S>) -> bool {
        match self {
            Self::Effect => *status == S::Intent,
            Self::Tool => *status == S::IntentRecorded,
            Self::Delivery => *status == S::Requested,
            _ => false,
        }
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::Effect => EFFECT,
            Self::Tool => TOOL,
            Self::Delivery => DELIVERY,
            Self::Approval => APPROVAL,
            Self::Wake => WAKE,
            Self::Message => MESSAGE,
            Self::WriteBack => WRITE_BACK,
            Self::Proposal => PROPOSAL,
            Self::Pool => POOL,
        }
    }

    fn row(self, status: &OrOther<S>) -> Option<&'static Row> {
        self.rows().iter().find(|row| *status == row.status)
    }
}

/// A state of a family.
struct Row {
    status: S,
    ends: bool,
    /// A record of a lower rank than the current state changes no state.
    rank: u8,
    /// The end states that it may follow. It may follow every open state.
    follows: &'static [S],
}

const fn open(rank: u8, status: S) -> Row {
    Row { status, ends: false, rank, follows: &[] }
}

const fn end(status: S, follows: &'static [S]) -> Row {
    Row { status, ends: true, rank: 8, follows }
}

/// `unknown` is an open state: the effect may have happened.
const EFFECT: &[Row] = &[
    open(0, S::Intent),
    open(1, S::Unknown),
    end(S::Completed, &[]),
    end(S::Failed, &[]),
    end(S::TimedOut, &[]),
    end(S::Cancelled, &[]),
    end(S::DeniedBeforeExecution, &[]),
];

const TOOL: &[Row] = &[
    open(0, S::Requested),
    open(0, S::RequestModified),
    open(1, S::IntentRecorded),
    open(2, S::Unknown),
    open(3, S::RecoveryRequired),
    end(S::Completed, &[]),
    end(S::Failed, &[]),
    end(S::TimedOut, &[]),
    end(S::Cancelled, &[]),
    end(S::DeniedBeforeExecution, &[]),
    end(S::ResultRewritten, &[S::Completed, S::Failed, S::ResultRewritten]),
];

/// `deduped` has a lower rank than `completed`: the repeat of a completed delivery leaves it completed.
const DELIVERY: &[Row] = &[
    open(0, S::Requested),
    open(1, S::ReconciliationNeeded),
    end(S::Completed, &[S::Completed]),
    end(S::Failed, &[S::Failed]),
    Row { rank: 7, ..end(S::Deduped, &[S::Completed, S::Deduped]) },
    end(S::HostConfigurationNeeded, &[S::HostConfigurationNeeded]),
    end(S::PolicyDenied, &[S::PolicyDenied]),
    end(S::SkippedOptional, &[S::SkippedOptional]),
];

/// A decision is recorded as a dispatch result, as a response, or as both, which must agree.
const APPROVAL: &[Row] = &[
    open(0, S::Requested),
    open(1, S::DispatchIntentRecorded),
    open(2, S::Dispatched),
    open(3, S::RecoveryRequired),
    end(S::Approved, &[S::Approved]),
    end(S::ApprovedForSession, &[S::ApprovedForSession]),
    end(S::Denied, &[S::Denied]),
    end(S::TimedOut, &[S::TimedOut]),
    end(S::Cancelled, &[S::Cancelled]),
    end(S::DispatcherUnavailable, &[S::DispatcherUnavailable]),
];

const WAKE: &[Row] = &[
    open(0, S::Registered),
    end(S::Triggered, &[]),
    end(S::TimedOut, &[]),
    end(S::Cancelled, &[]),
    end(S::Failed, &[]),
];

/// A message may have several receivers, and several of them may respond.
const MESSAGE: &[Row] = &[
    open(0, S::Accepted),
    Row { rank: 7, ..end(S::Delivered, &[S::Delivered, S::Responded]) },
    end(S::Responded, &[S::Delivered, S::Responded]),
    end(S::Failed, &[S::Delivered]),
    end(S::TimedOut, &[S::Delivered]),
    end(S::Expired, &[S::Delivered]),
    end(S::Cancelled, &[S::Delivered]),
];

/// `committed` is final: a later rejection is accepted and changes nothing.
const WRITE_BACK: &[Row] =
    &[open(0, S::Staged), end(S::Committed, &[]), Row { rank: 7, ..end(S::Rejected, &[S::Committed, S::Rejected]) }];

const PROPOSAL: &[Row] = &[
    open(0, S::Pending),
    open(1, S::Approved),
    end(S::Denied, &[S::Denied]),
    end(S::Applied, &[S::Applied, S::Reverted]),
    end(S::Reverted, &[S::Applied, S::Reverted]),
];

/// A run may join and leave any number of times.
const POOL: &[Row] = &[
    Row { follows: &[S::RunLeft], ..open(0, S::Created) },
    Row { follows: &[S::RunLeft], ..open(1, S::RunJoined) },
    Row { rank: 1, ..end(S::RunLeft, &[S::RunLeft]) },
];

/// The state of an object with a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct State {
    /// The state.
    pub status: OrOther<LifecycleStatus>,
    /// Whether it is an end state.
    pub ended: bool,
    /// The payload hash of the record that set it.
    pub set_by: Sha256,
    /// Whether it has evidence that a decision without a basis adopts.
    pub has_counted_evidence: bool,
}
datum!(State { status, ended, set_by, has_counted_evidence });

/// The state that a record reports, and its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The family.
    pub family: Family,
    /// The object's key within the run.
    pub key: String,
    /// The reported state. A later version of the contract may have states that this build does not know.
    pub status: OrOther<LifecycleStatus>,
}

/// How a record changes an object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// The record changes no state.
    Unchanged,
    /// To an open state, possibly the same one.
    Open,
    /// To an end state.
    Ended,
}

impl StatusReport {
    /// Returns the state that a record reports, or `None` if its payload type has no lifecycle or its facts have no key or status.
    pub fn from_record(record: &Envelope<'_>) -> Option<Self> {
        let facts = &record.facts;
        let family = Family::from_payload_type(*facts.payload_type.known()?)?;
        let (key, status) = (facts.key.as_deref()?, facts.status.as_deref()?);
        // The key becomes part of row keys and answers, so it has the limits of a record id.
        RecordId::new(key).ok()?;
        // A retracted proposal reports no state. Effects cannot be retracted: they may have happened.
        let evolves = family == Family::Proposal;
        if evolves && record.validity.is_some_and(|validity| !validity.is_valid) {
            return None;
        }
        let key = match family {
            Family::WriteBack => write_back_key(record.writer_epoch, key),
            _ => key.to_owned(),
        };
        Some(Self { family, key, status: OrOther::of(status) })
    }

    /// Returns whether the status is one of the family's states.
    pub fn is_known(&self) -> bool {
        self.family.row(&self.status).is_some()
    }

    /// Returns the state change of a legal record.
    pub fn change_from(&self, before: Option<&OrOther<LifecycleStatus>>) -> StateChange {
        let Some(row) = self.family.row(&self.status) else { return StateChange::Unchanged };
        let before = before.and_then(|before| self.family.row(before));
        match before {
            Some(before) if before.rank > row.rank => StateChange::Unchanged,
            _ if row.ends => StateChange::Ended,
            _ => StateChange::Open,
        }
    }

    /// Returns whether the record could be applied after `end`, the end state of its object.
    pub fn may_follow(&self, record: &Envelope<'_>, end: &State) -> bool {
        self.judge(record, Some(end)).is_ok()
    }

    /// Checks whether the record may follow the current state. Returns `Ok(no_op)` or the reason of the refusal.
    pub(super) fn judge(&self, record: &Envelope<'_>, before: Option<&State>) -> Result<bool, Reason> {
        let commits = self.family == Family::WriteBack && self.status == S::Committed;
        let Some(before) = before else { return if commits { Err(Reason::NotStaged) } else { Ok(false) } };
        if !before.ended {
            return Ok(false);
        }
        if before.status == self.status && before.set_by == record.payload_hash() {
            return Ok(true);
        }
        // The contract writes this marker in addition to the effect's own result.
        let marks = record.facts.payload_type == PayloadType::TerminalResult && before.status == self.status;
        match self.family.row(&self.status) {
            None => Ok(false),
            Some(row) if marks || row.follows.iter().any(|status| before.status == *status) => Ok(false),
            Some(_) if commits => Err(Reason::NotStaged),
            Some(_) => Err(Reason::Transition),
        }
    }
}

/// Returns the key of a write-back: `txn@epoch`, because transactions count from 0 in every epoch. Equal numbers sort by epoch.
pub fn write_back_key(epoch: Epoch, txn: &str) -> String {
    format!("{txn}@{:020}", epoch.get())
}

/// Returns transaction and epoch of a write-back's key.
pub fn write_back_of(key: &str) -> Option<(u64, Epoch)> {
    let (txn, epoch) = key.split_once('@')?;
    Some((txn.parse().ok()?, epoch.parse().ok()?))
}

/// Returns the status with which a record ends its run: by the contract's lifecycle, or by its terminal marker.
pub fn run_ends_as(payload_type: &OrOther<PayloadType>, status: &str) -> Option<RunStatus> {
    if !matches!(payload_type.known(), Some(PayloadType::RunLifecycle | PayloadType::TerminalResult)) {
        return None;
    }
    match status {
        "completed" | "run_completed" => Some(RunStatus::Completed),
        "failed" | "run_failed" => Some(RunStatus::Failed),
        "cancelled" | "run_cancelled" => Some(RunStatus::Cancelled),
        _ => None,
    }
}
