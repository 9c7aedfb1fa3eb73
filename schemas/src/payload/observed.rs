//! Facts that other journals observe: proposals, retractions, and whole tool calls. The envelope's `validity` contains
//! the fact's valid time, in clear.

use crate::{datum, json::Json, scalar::Finite, symbols};
use serde::{Deserialize, Serialize};

symbols! {
    /// The status of a proposal.
    open ProposalStatus {
        Pending = "pending", Approved = "approved", Denied = "denied", Applied = "applied", Reverted = "reverted",
    }
}

/// A code edit that an agent proposes. Each state is a separate fact; the fact with the latest valid time counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeEditProposal {
    /// The proposal's identity: the request that it answers.
    pub request_id: String,
    /// The edits as their source has them.
    pub diffs: Json,
    /// From 0 to 1, as its source means it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Finite>,
    /// The status.
    pub status: ProposalStatus,
    /// When it was decided, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at_millis: Option<i64>,
    /// When it was applied, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at_millis: Option<i64>,
    /// The resulting commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_hash: Option<String>,
}
datum!(CodeEditProposal { request_id, diffs, confidence, status, decided_at_millis, applied_at_millis, commit_hash });

/// Retracts a fact from the envelope's valid time on. Needs no claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retraction {
    /// The `record_id` of the fact.
    pub retracted_record_id: String,
    /// The author of the retraction.
    pub who: String,
    /// The reason.
    pub why: String,
}
datum!(Retraction { retracted_record_id, who, why });

/// A tool call and its result in one record, as the tool-call journal writes it: after the effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolJournalEntry {
    /// The session.
    pub session_id: String,
    /// The journal's own fingerprint of the call.
    pub call_fingerprint: String,
    /// The tool.
    pub tool_name: String,
    /// The arguments.
    pub arguments: Json,
    /// The result.
    pub result: Json,
    /// Whether the call failed.
    pub is_error: bool,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: u64,
}
datum!(ToolJournalEntry { session_id, call_fingerprint, tool_name, arguments, result, is_error, timestamp_ms });
