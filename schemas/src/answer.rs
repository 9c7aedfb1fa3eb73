//! What a projector answers, as JSON: shared by the server, the client and the command line.
//!
//! Fields may be added, none is renamed; what is absent is null.

use crate::{
    id::{Epoch, Fingerprint, JournalSeq, Offset, OrEmpty, PartitionId, RecordId, RunHash, RunId, WriterId, WriterSeq},
    json::Json,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod absent;
mod changes;
mod events;
mod facts;
mod horizons;
mod standing;

pub use changes::Change;
pub use events::{Event, Events};
pub use facts::{Fact, Facts};
pub use horizons::{Dropped, Horizon, Horizons, Outcomes};
pub use standing::{Standing, Standings};

/// A place in the log. `index` counts within an atomic batch and is 0 otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

/// What became of an appended record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Where it stands; for a repeat, where the first one stands.
    pub position: Position,
    /// `applied`, `repeat` or `refused`.
    pub outcome: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// The record.
    #[serde(default)]
    pub record_id: OrEmpty<RecordId>,
    /// On a repeat of what was applied: the number of the record at `position`, 0 where its kind has none. Otherwise null.
    #[serde(default)]
    pub journal_seq: Option<JournalSeq>,
}

/// What became of an appended record, and who writes the run: both from one view of one log position.
///
/// A record can be applied and its writer be none any more: whoever claimed the run behind it writes it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBack {
    /// What became of the record.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The run's epoch; 0 when never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty when never claimed.
    pub writer_id: OrEmpty<WriterId>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// `open`, `completed`, `failed`, `cancelled`.
    pub status: String,
    /// Records applied.
    pub records: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The next `writer_seq` of the epoch.
    pub next_writer_seq: WriterSeq,
    /// The next `checkpoint_seq` of the run's loop checkpoints.
    #[serde(default)]
    pub next_checkpoint_seq: u64,
    /// The epoch; 0 when never claimed.
    pub epoch: Epoch,
    /// The epoch's writer; empty when never claimed.
    pub writer_id: OrEmpty<WriterId>,
    /// When the log took its last record, RFC 3339.
    pub updated_at: String,
    /// How long ago that was when this was answered: by the clock that stamps the log, where who answers has it, otherwise
    /// by its own.
    #[serde(default)]
    pub age_millis: Option<u64>,
    /// Its last applied record.
    pub position: Position,
    /// The run hash.
    pub hash: RunHash,
}

/// A page of runs, ordered by run id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The page.
    pub runs: Vec<Run>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// One line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Resumes a tail behind this line.
    pub cursor: String,
    /// Where it stands.
    pub position: Position,
    /// The run.
    pub run_id: RunId,
    /// The run's number; 0 for unnumbered kinds.
    pub journal_seq: JournalSeq,
    /// The writer's number.
    pub writer_seq: WriterSeq,
    /// The record.
    pub record_id: RecordId,
    /// The envelope's kind.
    pub record_kind: String,
    /// The payload's type.
    pub payload_type: String,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// The writer's clock, RFC 3339.
    pub timestamp: String,
    /// The payload; content is masked by privacy class unless raw was asked for. One in the content store is shown as its
    /// claim check, `stored_payload`, unless raw was asked for. Where a retention horizon took it away it is
    /// `{"dropped": POSITION}` alone, the horizon's; where it nests too deep to be shown, `{"unreadable": WHY}` alone.
    pub payload: Json,
    /// Raw was asked for, and the payload could not be had: its claim check is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_content: Option<MissingContent>,
    /// Why the record cannot be shown: it nests deeper than its writer would be let today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// The whole record was asked for: as whoever wrote it gave it, with its place, in the form in which it is appended. Absent
    /// where its content could not be had, was taken away or cannot be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Json>,
}

/// A page of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// The page, in log order.
    pub records: Vec<Line>,
    /// Where the next page starts; none at the end.
    pub next_cursor: Option<String>,
}

/// Content that a record names and that could not be had. What the record did is known all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingContent {
    /// The record.
    pub record_id: RecordId,
    /// The type of the payload that is missing.
    pub payload_type: String,
    /// The content's SHA-256, hexadecimal: its name in the content store.
    pub sha256: String,
    /// How long it is, bytes.
    pub bytes: u64,
    /// `missing`, `corrupt` (there is something else under its name), or `unavailable` (the store did not say; retry).
    pub reason: String,
    /// Where the record stands.
    pub position: Position,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// A name for the kind.
    pub kind: String,
    /// What it said.
    pub message: String,
}

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// `completed`, `failed`, `pending`, `unknown`.
    pub status: String,
    /// The fingerprint asked for.
    pub fingerprint: Fingerprint,
    /// Which request of the fingerprint, from 1.
    pub occurrence: Option<u32>,
    /// How many requests of the fingerprint the run has.
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
    /// Arguments, result or failure that could not be had. The status holds: what is completed stays completed.
    #[serde(default)]
    pub missing_content: Vec<MissingContent>,
    /// Records whose arguments, result or failure a retention horizon took away: those are null. The status holds here, too.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its id.
    pub checkpoint_id: String,
    /// The last `journal_seq` covered, inclusive.
    pub covers_journal_seq: JournalSeq,
    /// Its number within the run.
    pub checkpoint_seq: u64,
    /// The source's schema version.
    pub schema_version: u32,
    /// The source's messages; absent from a recovery that was not asked for in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Json>>,
    /// Whatever else the agent kept.
    pub state: Option<Json>,
    /// Record ids of covered requests that were unanswered.
    #[serde(default)]
    pub unanswered: Vec<RecordId>,
    /// Where it stands.
    pub position: Position,
}

/// A completed or failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The tool.
    pub tool_name: String,
    /// The fingerprint.
    pub fingerprint: Fingerprint,
    /// Which request of the fingerprint, from 1.
    pub occurrence: u32,
    /// `completed` or `failed`.
    pub status: String,
    /// The record that set the status.
    pub position: Position,
    /// The request's record id.
    pub id: RecordId,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The key that it was made with.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// A refused result, kept for whoever reconciles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The refused record.
    pub record_id: RecordId,
    /// `completed` or `failed`.
    pub status: String,
    /// Why it was refused.
    pub reason: String,
    /// Where it stands.
    pub position: Position,
}

/// An effect whose end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// `tool_call`; of the contract's own: `effect`, `tool`, `output_delivery`.
    pub kind: String,
    /// The request's record id; the contract's effect id, tool call id, delivery id.
    pub id: RecordId,
    /// The tool; of a contract's `effect` the kind of effect, empty for a delivery.
    pub tool_name: String,
    /// The fingerprint; null for what is no call of Runlog's.
    pub fingerprint: Option<Fingerprint>,
    /// Which request of the fingerprint, from 1; null (0 here) for what is no call of Runlog's.
    #[serde(with = "absent")]
    pub occurrence: u32,
    /// `retry_safe` or `reconcile_required`.
    pub class: String,
    /// Why that class.
    pub reason: String,
    /// Refused results, oldest first.
    pub evidence: Vec<Evidence>,
    /// How often it was started.
    pub attempts: u32,
    /// The request's `journal_seq`.
    pub journal_seq: JournalSeq,
    /// The key that it was made with.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

/// One snapshot of one run at one log position: all that a process needs to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The run.
    pub run_id: RunId,
    /// `open`, `completed`, `failed`, `cancelled`.
    pub status: String,
    /// The last applied record of the run.
    pub position: Position,
    /// The latest valid checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Records behind it (all records where there is none).
    pub records_after: u64,
    /// Calls that ended and that the checkpoint does not cover, in request order.
    pub completed: Vec<Done>,
    /// Calls that did not end, in request order, wherever they were requested.
    pub pending: Vec<Pending>,
    /// Approvals that are not decided, by id.
    pub approvals: Vec<Standing>,
    /// Wake conditions that the run waits for, by id.
    pub wakes: Vec<Standing>,
    /// Messages that are not delivered, by id.
    pub messages: Vec<Standing>,
    /// Write-backs that are staged and neither committed nor rejected, by transaction.
    pub write_backs: Vec<Standing>,
    /// Content of the run that is missing, as far as this page looked. Checkpoints older than the one above are not
    /// looked at: nobody needs them to go on.
    pub missing_content: Vec<MissingContent>,
    /// Completed calls behind the checkpoint that nobody asked for again, as far as the log tells.
    pub unclaimed: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The next `writer_seq` of the epoch.
    pub next_writer_seq: WriterSeq,
    /// The next `checkpoint_seq`.
    pub next_checkpoint_seq: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// The epoch's writer.
    pub writer_id: OrEmpty<WriterId>,
    /// The run hash.
    pub hash: RunHash,
    /// Whether an agent can go on without anybody's decision, as far as this page looked.
    pub resumable: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Where the next page starts: of `completed`, of the four lists of what stands open, then of `missing_content`.
    pub next_cursor: Option<String>,
}

/// One effect, across all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The run.
    pub run_id: RunId,
    /// The effect; class and reason are null once it ended.
    #[serde(flatten)]
    pub pending: EffectState,
    /// The request.
    pub position: Position,
}

/// As in [`Pending`], for effects that may have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectState {
    /// `tool_call`; of the contract's own: `effect`, `tool`, `output_delivery`.
    pub kind: String,
    /// The request's record id; the contract's effect id, tool call id, delivery id.
    pub id: RecordId,
    /// The tool; of a contract's `effect` the kind of effect, empty for a delivery.
    pub tool_name: String,
    /// The fingerprint; null for what is no call of Runlog's.
    pub fingerprint: Option<Fingerprint>,
    /// Which request of the fingerprint, from 1; null (0 here) for what is no call of Runlog's.
    #[serde(with = "absent")]
    pub occurrence: u32,
    /// `pending`, `completed`, `failed`; of the contract's own also its other terminal statuses.
    pub status: String,
    /// `retry_safe` or `reconcile_required`, while pending.
    pub class: Option<String>,
    /// Why that class.
    pub reason: Option<String>,
    /// Refused results, oldest first.
    pub evidence: Vec<Evidence>,
}

/// A page of effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effects {
    /// The page.
    pub effects: Vec<Effect>,
    /// Partitions that could not be asked.
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// A refused record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anomaly {
    /// Where it stands.
    pub position: Position,
    /// Its run.
    pub run_id: RunId,
    /// The record.
    pub record_id: RecordId,
    /// Why it was refused.
    pub reason: String,
    /// Its writer.
    pub writer_id: OrEmpty<WriterId>,
    /// Its writer's epoch.
    pub epoch: Epoch,
}

/// A page of anomalies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anomalies {
    /// The page.
    pub anomalies: Vec<Anomaly>,
    /// Partitions that are stopped: of them this is what was known before.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Where they stand.
    pub position: Position,
    /// `not_framed`, `undecodable`, `too_large`.
    pub reason: String,
    /// Their SHA-256, hexadecimal.
    pub sha256: String,
    /// How many.
    pub bytes: u64,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetters {
    /// The page.
    pub records: Vec<DeadLetter>,
    /// Partitions that are stopped: of them this is what was known before.
    #[serde(default)]
    pub unavailable_partitions: Vec<PartitionId>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// One partition's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionHealth {
    /// The partition.
    pub partition: PartitionId,
    /// The next offset to apply.
    pub applied: Offset,
    /// The high watermark; none where the log could not be asked.
    pub end: Option<Offset>,
    /// `running` or `stopped`.
    pub state: String,
    /// Why it stopped.
    pub error: Option<String>,
}

/// Something wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// `error` or `warning`.
    pub severity: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// The doctor's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doctor {
    /// Whether there is no finding of severity `error`.
    pub healthy: bool,
    /// Every partition.
    pub partitions: Vec<PartitionHealth>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// One index in a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDigest {
    /// The index.
    pub name: String,
    /// Rows in the live index.
    pub rows: u64,
    /// `sha256:…` over the live rows in key order.
    pub live_digest: String,
    /// The same, rebuilt from the log.
    pub rebuilt_digest: String,
}

/// One partition in a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionDigest {
    /// The partition.
    pub partition: PartitionId,
    /// Both were built from the records below this offset.
    pub offset: Offset,
    /// Every index.
    pub indices: Vec<IndexDigest>,
}

/// Whether the indices equal what the log says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Whether every digest is equal.
    pub equal: bool,
    /// Log records read.
    pub records: u64,
    /// Every partition.
    pub partitions: Vec<PartitionDigest>,
    /// How long it took.
    pub seconds: f64,
}

/// What a producer needs to know of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The topic.
    pub topic: String,
    /// The journal.
    pub journal_id: String,
    /// Its partition count.
    pub partitions: u32,
    /// Fingerprints of the schemas that this server reads, hexadecimal as on the wire.
    pub schemas: Vec<String>,
    /// The ids that the journal's schema registry gave, by fingerprint; empty without a registry. A producer whose schema
    /// is among them frames its records with the id.
    #[serde(default)]
    pub schema_ids: BTreeMap<String, u32>,
    /// The longest payload that is taken, bytes of its Avro encoding: what a record holds, or where there is a content
    /// store what that holds.
    #[serde(default = "inline_only")]
    pub payload_bytes_max: u64,
}

/// What a server takes that does not say.
fn inline_only() -> u64 {
    crate::codec::RECORD_BYTES_MAX as u64
}

/// A claim that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The writer.
    pub writer_id: WriterId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Where the claim stands.
    pub position: Position,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The run hash behind the claim.
    pub hash: RunHash,
}

/// An error, in the command's form and as RFC 9457 problem details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `about:blank#KIND`.
    #[serde(rename = "type")]
    pub problem_type: String,
    /// The kind's name.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What, where, and what to do.
    pub detail: String,
    /// What callers act on.
    pub kind: ErrorKind,
    /// On `stale`: records not yet applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

crate::symbols! {
    /// What callers act on.
    ErrorKind {
        Usage = "usage", Invalid = "invalid", Stale = "stale", PartitionStopped = "partition_stopped",
        ClaimLost = "claim_lost", Fenced = "fenced", ReconcileRequired = "reconcile_required", TooLarge = "too_large",
        NotFound = "not_found", Unavailable = "unavailable", Internal = "internal", Conflict = "conflict",
        MissingContent = "missing_content",
    }
}

impl ErrorKind {
    /// The HTTP status that carries it.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Usage | Self::Invalid => 400,
            Self::NotFound => 404,
            Self::ClaimLost | Self::Fenced | Self::Conflict | Self::ReconcileRequired | Self::MissingContent => 409,
            Self::TooLarge => 413,
            Self::Internal => 500,
            Self::Stale | Self::PartitionStopped | Self::Unavailable => 503,
        }
    }

    /// The exit code of a command that ends with it.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::NotFound => 1,
            Self::Usage => 2,
            Self::Invalid
            | Self::TooLarge
            | Self::Conflict
            | Self::Fenced
            | Self::ClaimLost
            | Self::ReconcileRequired
            | Self::MissingContent => 3,
            Self::Stale | Self::PartitionStopped | Self::Unavailable => 4,
            Self::Internal => 5,
        }
    }
}
