//! State machines of effects, tools, deliveries, approvals and the like: one table. The judge asks it which transitions
//! are legal, the projection which state follows.
//!
//! ```text
//!   none ─▶ open, of growing rank ─▶ ended, final      (except for transitions that a row's `follows` allows)
//! ```
//!
//! A refusal discards the record's content, so only a contradiction of an end state is refused. An open state never
//! goes back: a record with a lower-ranked state is applied and changes no state. So is one with an unknown status,
//! which a later version of the contract may add: an unknown status never ends anything.
//!
//! Runlog's own tool calls are not in the table: [`judge`](super::judge) has their requests, attempts and answers.

use super::status::{Reason, RunStatus};
use crate::{
    codec::Envelope,
    datum,
    datum::Sha256,
    id::{Epoch, RecordId},
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
    /// The kind of effect that a family's open states are.
    pub fn of(family: Family) -> Option<Self> {
        match family {
            Family::Effect => Some(Self::Effect),
            Family::Tool => Some(Self::Tool),
            Family::Delivery => Some(Self::Delivery),
            _ => None,
        }
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

impl EffectStatus {
    /// Whether the effect happened. `deduped` counts: another delivery was made. So does `result_rewritten`: the tool
    /// ran.
    pub fn happened(self) -> bool {
        matches!(self, Self::Completed | Self::Deduped | Self::ResultRewritten)
    }
}

impl Family {
    /// The families whose open states are effects that may have happened.
    pub const EFFECTS: [Self; 3] = [Self::Effect, Self::Tool, Self::Delivery];

    /// The family of a payload type.
    pub fn of(payload_type: &str) -> Option<Self> {
        Some(match payload_type {
            "effect_intent" | "effect_result" | "terminal_result" => Self::Effect,
            "tool" => Self::Tool,
            "output_delivery" => Self::Delivery,
            "approval" => Self::Approval,
            "wake" => Self::Wake,
            "run_message" => Self::Message,
            "write_back_staged" | "write_back_committed" | "write_back_rejected" => Self::WriteBack,
            "code_edit_proposal" => Self::Proposal,
            "agent_pool" => Self::Pool,
            _ => return None,
        })
    }

    /// Whether an effect in the open state `status` may have happened. A tool that is only requested has not started.
    pub fn may_have_happened(self, status: &str) -> bool {
        match self {
            Self::Effect | Self::Delivery => true,
            Self::Tool => !matches!(status, "requested" | "request_modified"),
            _ => false,
        }
    }

    /// Whether `status` marks the start of an effect; once more, it marks a restart.
    pub fn starts(self, status: &str) -> bool {
        match self {
            Self::Effect => status == "intent",
            Self::Tool => status == "intent_recorded",
            Self::Delivery => status == "requested",
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

    fn row(self, status: &str) -> Option<&'static Row> {
        self.rows().iter().find(|row| row.status == status)
    }
}

/// A state of a family.
struct Row {
    status: &'static str,
    ends: bool,
    /// A record of a lower rank than the current state changes no state.
    rank: u8,
    /// The end states that it may follow. It may follow every open state.
    follows: &'static [&'static str],
}

const fn open(rank: u8, status: &'static str) -> Row {
    Row { status, ends: false, rank, follows: &[] }
}

const fn end(status: &'static str, follows: &'static [&'static str]) -> Row {
    Row { status, ends: true, rank: 8, follows }
}

/// `unknown` is an open state: the effect may have happened.
const EFFECT: &[Row] = &[
    open(0, "intent"),
    open(1, "unknown"),
    end("completed", &[]),
    end("failed", &[]),
    end("timed_out", &[]),
    end("cancelled", &[]),
    end("denied_before_execution", &[]),
];

const TOOL: &[Row] = &[
    open(0, "requested"),
    open(0, "request_modified"),
    open(1, "intent_recorded"),
    open(2, "unknown"),
    open(3, "recovery_required"),
    end("completed", &[]),
    end("failed", &[]),
    end("timed_out", &[]),
    end("cancelled", &[]),
    end("denied_before_execution", &[]),
    end("result_rewritten", &["completed", "failed", "result_rewritten"]),
];

/// `deduped` has a lower rank than `completed`: the repeat of a completed delivery leaves it completed.
const DELIVERY: &[Row] = &[
    open(0, "requested"),
    open(1, "reconciliation_needed"),
    end("completed", &["completed"]),
    end("failed", &["failed"]),
    Row { rank: 7, ..end("deduped", &["completed", "deduped"]) },
    end("host_configuration_needed", &["host_configuration_needed"]),
    end("policy_denied", &["policy_denied"]),
    end("skipped_optional", &["skipped_optional"]),
];

/// A decision is recorded as a dispatch result, as a response, or as both, which must agree.
const APPROVAL: &[Row] = &[
    open(0, "requested"),
    open(1, "dispatch_intent_recorded"),
    open(2, "dispatched"),
    open(3, "recovery_required"),
    end("approved", &["approved"]),
    end("approved_for_session", &["approved_for_session"]),
    end("denied", &["denied"]),
    end("timed_out", &["timed_out"]),
    end("cancelled", &["cancelled"]),
    end("dispatcher_unavailable", &["dispatcher_unavailable"]),
];

const WAKE: &[Row] =
    &[open(0, "registered"), end("triggered", &[]), end("timed_out", &[]), end("cancelled", &[]), end("failed", &[])];

/// A message may have several receivers, and several of them may respond.
const MESSAGE: &[Row] = &[
    open(0, "accepted"),
    Row { rank: 7, ..end("delivered", &["delivered", "responded"]) },
    end("responded", &["delivered", "responded"]),
    end("failed", &["delivered"]),
    end("timed_out", &["delivered"]),
    end("expired", &["delivered"]),
    end("cancelled", &["delivered"]),
];

/// `committed` is final: a later rejection is accepted and changes nothing.
const WRITE_BACK: &[Row] =
    &[open(0, "staged"), end("committed", &[]), Row { rank: 7, ..end("rejected", &["committed", "rejected"]) }];

const PROPOSAL: &[Row] = &[
    open(0, "pending"),
    open(1, "approved"),
    end("denied", &["denied"]),
    end("applied", &["applied", "reverted"]),
    end("reverted", &["applied", "reverted"]),
];

/// A run may join and leave any number of times.
const POOL: &[Row] = &[
    Row { follows: &["run_left"], ..open(0, "created") },
    Row { follows: &["run_left"], ..open(1, "run_joined") },
    Row { rank: 1, ..end("run_left", &["run_left"]) },
];

/// The state of an object with a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct State {
    /// The state's name.
    pub status: String,
    /// Whether it is an end state.
    pub ended: bool,
    /// The payload hash of the record that set it.
    pub set_by: Sha256,
    /// Whether a refused result is attached as evidence.
    pub has_evidence: bool,
}
datum!(State { status, ended, set_by, has_evidence });

/// The state that a record reports, and of which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport<'a> {
    /// The family.
    pub family: Family,
    /// The object's key within the run.
    pub key: String,
    /// The reported state.
    pub status: &'a str,
}

/// How a record changes an object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// Not at all.
    Unchanged,
    /// To an open state, possibly the same one.
    Open,
    /// To an end state.
    Ended,
}

impl<'a> StatusReport<'a> {
    /// The state that a record reports; none if its payload type has no lifecycle or its facts have no key or status.
    pub fn of(record: &'a Envelope<'_>) -> Option<Self> {
        let facts = &record.facts;
        let family = Family::of(&facts.payload_type)?;
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
        Some(Self { family, key, status })
    }

    /// Whether the status is one of the family's states.
    pub fn known(&self) -> bool {
        self.family.row(self.status).is_some()
    }

    /// The state change that a legal record makes.
    pub fn change_from(&self, before: Option<&str>) -> StateChange {
        let Some(row) = self.family.row(self.status) else { return StateChange::Unchanged };
        let before = before.and_then(|before| self.family.row(before));
        match before {
            Some(before) if before.rank > row.rank => StateChange::Unchanged,
            _ if row.ends => StateChange::Ended,
            _ => StateChange::Open,
        }
    }

    /// Whether the record may follow the current state: `Ok(no_op)`, or the reason for refusal.
    pub(super) fn judge(&self, record: &Envelope<'_>, before: Option<&State>) -> Result<bool, Reason> {
        let commits = self.family == Family::WriteBack && self.status == "committed";
        let Some(before) = before else { return if commits { Err(Reason::NotStaged) } else { Ok(false) } };
        if !before.ended {
            return Ok(false);
        }
        if before.status == self.status && before.set_by == record.payload_hash() {
            return Ok(true);
        }
        // The contract writes this marker in addition to the effect's own result.
        let marks = record.facts.payload_type == "terminal_result" && before.status == self.status;
        match self.family.row(self.status) {
            None => Ok(false),
            Some(row) if marks || row.follows.contains(&before.status.as_str()) => Ok(false),
            Some(_) if commits => Err(Reason::NotStaged),
            Some(_) => Err(Reason::Transition),
        }
    }
}

/// The key of a write-back: `txn@epoch`, since transactions count from 0 in every epoch. Equal numbers sort by epoch.
pub fn write_back_key(epoch: Epoch, txn: &str) -> String {
    format!("{txn}@{:020}", epoch.get())
}

/// Transaction and epoch of a write-back's key.
pub fn write_back_of(key: &str) -> Option<(u64, Epoch)> {
    let (txn, epoch) = key.split_once('@')?;
    Some((txn.parse().ok()?, epoch.parse().ok()?))
}

/// The run's status that a record ends it with: the contract's lifecycle, or its terminal marker.
pub fn run_ends_as(payload_type: &str, status: &str) -> Option<RunStatus> {
    if !matches!(payload_type, "run_lifecycle" | "terminal_result") {
        return None;
    }
    match status {
        "completed" | "run_completed" => Some(RunStatus::Completed),
        "failed" | "run_failed" => Some(RunStatus::Failed),
        "cancelled" | "run_cancelled" => Some(RunStatus::Cancelled),
        _ => None,
    }
}
