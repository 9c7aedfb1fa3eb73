//! The answer to an append over HTTP: the outcome, and the data to continue or to correct the record.

use super::position::Position;
use crate::{
    id::{Epoch, JournalSeq, OrEmpty, RecordId, WriterId},
    judge::Reason,
    or_other::OrOther,
    symbols,
};
use serde::{Deserialize, Serialize};

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
/// A record can be applied although its writer has lost the run since, by a later claim. And another writer may have
/// appended the applied record with this id: see `record_writer`.
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
    /// Whether the call that this record requested or attempted has changed since: evidence has arrived, somebody decided about it, or
    /// it was started again or has ended. The record then permits no effect. Left out if the call is unchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub changed: bool,
    /// The outcomes of the run's records at the positions `also`, in that order. Null for a position without an outcome: its
    /// record repeats an applied record, or was skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Option<Outcome>>,
}

/// The outcome of a posted record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Appended {
    /// The outcome. Its `journal_seq` is the number of the record at `position`: 0 if its kind has no number, null if the
    /// record was refused.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether the journal has applied this record, now or before; null if it is not judged yet.
    #[serde(default)]
    pub applied: Option<bool>,
    /// A sentence for people with the reason of a refusal and the remedy. Null if the record was applied now, or is not judged
    /// yet.
    #[serde(default)]
    pub detail: Option<String>,
    /// The run's writer after this record was judged; at `latest`, after all claims that were in the log then. Null if the
    /// record is not judged yet.
    #[cfg_attr(feature = "openapi", schemars(with = "Writer"))]
    #[serde(default)]
    pub writer: Option<Writer>,
    /// As in a read-back, for an append at `latest`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub changed: bool,
    /// Unknown members, statuses and kinds of the record, facts that it cannot have, and empty keys. None has an effect.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// The outcomes of the run's records at the positions `also`, in that order. Null for a position without an outcome: its
    /// record repeats an applied record, or was skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Option<Outcome>>,
}

/// The writer of a run's last claim or of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Writer {
    /// The writer's id; empty if the run was never claimed, or if the record needs no writer.
    pub writer_id: OrEmpty<WriterId>,
    /// The writer's epoch; 0 without a claim.
    pub epoch: Epoch,
}

/// A part of a record that was stored and has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Warning {
    /// JSON pointer into the record.
    pub pointer: String,
    /// The defect of this part.
    pub message: String,
}

impl Appended {
    /// Creates an answer without warnings.
    pub fn new(outcome: Outcome, writer: Option<Writer>) -> Self {
        let refused = outcome.reason.as_ref();
        let applied = (outcome.outcome != Disposition::Appended).then_some(refused.is_none());
        let detail = match refused {
            None if outcome.outcome == Disposition::Repeat => {
                Some("the same record was applied before, at `position`".to_owned())
            }
            None => None,
            Some(reason) if outcome.outcome == Disposition::Repeat => {
                Some(format!("the same record was refused before: {}", why(reason)))
            }
            Some(reason) => Some(why(reason).to_owned()),
        };
        Self { outcome, applied, detail, writer, changed: false, warnings: Vec::new(), also: Vec::new() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the reason of a refusal and the remedy.
fn why(reason: &OrOther<Reason>) -> &'static str {
    let Some(reason) = reason.known() else { return "a rule of a newer version refused it; see `reason`" };
    match reason {
        Reason::Fenced => {
            "writer_id and writer_epoch differ from the run's last claim (`writer` names it; before any claim the \
             epoch is 0); send both as your claim returned them, or claim the run again"
        }
        Reason::Gap => "writer_seq is beyond the writer's next number; send the records before it first",
        Reason::Conflict => {
            "writer_seq was used before, or the record_id is known with other content; use a new record_id"
        }
        Reason::Sequence => {
            "journal_seq is not the run's next number; leave it out, or use next_journal_seq of GET /v1/runs/{run}"
        }
        Reason::Ended => "the run has ended; only checkpoints, recovery markers and unnumbered records may follow",
        Reason::Transition => {
            "the record does not fit the state of its object: a result needs a pending request, an end is final, and \
             a run starts once"
        }
        Reason::Checkpoint => {
            "the checkpoint covers more than the run has, its checkpoint_id was used before, or its base or its spans do \
             not fit"
        }
        Reason::NotStaged => "the write-back was not staged by this writer, or it was committed or rejected before",
        Reason::Batch => "a record of the batch does not fit the batch: see \"Batches\" in docs/spec.md",
        Reason::WrongPartition => "the record is not in the partition of its run; append it through this server",
        Reason::StaleDecision => "the effect changed since; read it again, and decide by its current state",
        Reason::Unresolved => {
            "a call of an earlier epoch may have happened, and must be decided before a new one starts"
        }
        Reason::NotStartedHere => {
            "another handle of the run started this call last, and the credential lacks the scope resolve: the record is \
             kept as evidence, and an operator decides"
        }
    }
}
