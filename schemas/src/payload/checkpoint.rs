//! Checkpoints of an agent's loop, and their pruning.

use crate::{
    datum,
    datum::{Datum, Sha256},
    id::{JournalSeq, RecordId},
    json::{self, Json},
    messages::{self, MessageSpan},
};
use serde::{Deserialize, Serialize};

/// The state of an agent's loop between two tool rounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopCheckpoint {
    /// Unique within the run.
    pub checkpoint_id: String,
    /// 1, 2, 3 … within the run.
    pub checkpoint_seq: u64,
    /// The last `journal_seq` that this checkpoint covers, inclusive; 0 covers nothing.
    pub covers_journal_seq: JournalSeq,
    /// The checkpoint whose message list `spans` refer to: an applied checkpoint of the same run that is not pruned. It does not have
    /// to be the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Record ids of covered requests whose answer this agent had not received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<RecordId>,
    /// The source's schema version; 0 for a snapshot without a version.
    #[serde(default)]
    pub schema_version: u32,
    /// The session.
    #[serde(default)]
    pub session_id: String,
    /// Completed tool rounds.
    #[serde(default)]
    pub turn: u64,
    /// The source's message objects, unchanged, except messages that an earlier checkpoint of the run contains.
    pub messages: Vec<Json>,
    /// The spans of the message list. If empty, the list is the base's whole list and then all of `messages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<MessageSpan>,
    /// Running token usage.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub total_usage: Option<Json>,
    /// Tool calls so far.
    #[serde(default)]
    pub tool_calls_count: u64,
    /// Verification reports so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verification_reports: Vec<Json>,
    /// Other state of the agent.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub state: Option<Json>,
    /// [`LoopCheckpoint::content_hash`]; filled in if absent.
    #[serde(default)]
    pub state_hash: String,
    /// Milliseconds since the Unix epoch.
    #[serde(default)]
    pub created_at_millis: u64,
}
datum!(LoopCheckpoint {
    checkpoint_id,
    checkpoint_seq,
    covers_journal_seq,
    base,
    unanswered,
    schema_version,
    session_id,
    turn,
    messages,
    spans,
    total_usage,
    tool_calls_count,
    verification_reports,
    state,
    state_hash,
    created_at_millis,
});

/// The newest `schema_version` of a loop checkpoint that this build reads.
pub const LOOP_CHECKPOINT_SCHEMA_VERSION: u32 = 1;

impl LoopCheckpoint {
    /// Computes the `state_hash` for a message list with these hashes ([`messages::hash`]). It is the hexadecimal SHA-256 over these
    /// hashes, in the list's order, and the SHA-256 of the Avro encodings of `total_usage`, `verification_reports` and `state`.
    ///
    /// So an unchanged message is not hashed again at the next checkpoint.
    pub fn hash_with<'a>(&self, list: impl IntoIterator<Item = &'a Sha256>) -> String {
        let mut bytes: Vec<u8> = list.into_iter().flat_map(|hash| hash.0).collect();
        let mut rest = Vec::new();
        self.total_usage.put(&mut rest);
        self.verification_reports.put(&mut rest);
        self.state.put(&mut rest);
        bytes.extend_from_slice(&Sha256::of(&rest).0);
        Sha256::of(&bytes).to_string()
    }

    /// Computes [`LoopCheckpoint::hash_with`] of a checkpoint without a base. Its list consists of its own messages; spans of a base
    /// are ignored.
    pub fn content_hash(&self) -> String {
        let own: Vec<Sha256> = self.messages.iter().map(messages::hash).collect();
        let spans = messages::resolve(0, own.len() as u64, &self.spans).unwrap_or_default();
        self.hash_with(spans.iter().flat_map(|span| span.slice(&own)))
    }
}

/// Hides checkpoints from answers, like the contract's `CheckpointStore::prune`: the checkpoints applied before it that cover less
/// than `prune_covered_before`. Messages to which a later checkpoint refers are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPrune {
    /// Checkpoints that cover less than this `journal_seq` are hidden.
    pub prune_covered_before: JournalSeq,
    /// Whether the latest checkpoint after the run's end is always kept.
    #[serde(default)]
    pub preserve_latest_terminal: bool,
}
datum!(CheckpointPrune { prune_covered_before, preserve_latest_terminal });
