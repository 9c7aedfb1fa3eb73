//! The run's state before a record, as the judge reads it.

use super::{
    class::Class,
    lifecycle::{Family, State},
    status::{CallStatus, Reason, RunStatus},
};
use crate::{
    datum,
    datum::Sha256,
    id::{ContentHash, Epoch, JournalSeq, Offset, OrEmpty, RecordId, RunHash, WriterId, WriterSeq},
};

/// A run's counters: all state that every judgement needs. Other state is looked up by the ids in the record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Head {
    /// Whether the contract's `started` was applied.
    pub started: bool,
    /// The run's status.
    pub status: RunStatus,
    /// Records applied.
    pub records: u64,
    /// The next `journal_seq`.
    pub next_journal_seq: JournalSeq,
    /// The epoch of the last applied claim; 0 before any.
    pub epoch: Epoch,
    /// The writer of the last applied claim; absent before the first.
    pub writer_id: OrEmpty<WriterId>,
    /// The epoch of the first of this writer's consecutive claims; 0 before any.
    pub writer_since: Epoch,
    /// The epoch of the first of this handle's consecutive claims; 0 before any. A claim is of the same handle as the claim before it
    /// if it shows the secret of that claim.
    pub handle_since: Epoch,
    /// The commitment of the last applied claim, if it has one.
    pub commitment: Option<Sha256>,
    /// The next `writer_seq` of that epoch.
    pub next_writer_seq: WriterSeq,
    /// The run hash.
    pub hash: RunHash,
    /// The greatest `checkpoint_seq` applied.
    pub checkpoint_seq: u64,
    /// Pending tool calls that are [`Class::ReconcileRequired`]. The projection counts them, not the judge.
    pub undecided_calls: u64,
    /// Undecided calls whose last start was in `epoch`.
    pub undecided_calls_of_epoch: u64,
    /// The offset of the last skip that voids an earlier record of the run. The run's records below it may have been applied before
    /// the skip. The projection sets it, not the judge.
    pub displaced_until: Option<Offset>,
    /// The run's epoch at the first record below it that a skip voids.
    pub displaced_epoch: Epoch,
    /// As `displaced_until`, of the skips that can take a number back from the run: the voided record was applied, or consumed a number.
    pub renumbered_until: Option<Offset>,
    /// The offset of the last skip that voids an earlier claim of the run.
    pub unclaimed_until: Option<Offset>,
    /// Whether the judged record is below `unclaimed_until`. Nobody writes the run there: before the skip, the claim's writer did. The
    /// projection sets it, not the judge.
    pub is_unclaimed: bool,
}
datum!(Head {
    started,
    status,
    records,
    next_journal_seq,
    epoch,
    writer_id,
    writer_since,
    handle_since,
    commitment,
    next_writer_seq,
    hash,
    checkpoint_seq,
    undecided_calls,
    undecided_calls_of_epoch,
    displaced_until,
    displaced_epoch,
    renumbered_until,
    unclaimed_until,
    is_unclaimed,
});

impl Default for Head {
    fn default() -> Self {
        Self {
            started: false,
            status: RunStatus::Open,
            records: 0,
            next_journal_seq: JournalSeq::from(1),
            epoch: Epoch::ZERO,
            writer_since: Epoch::ZERO,
            handle_since: Epoch::ZERO,
            commitment: None,
            writer_id: OrEmpty::NONE,
            next_writer_seq: WriterSeq::from(1),
            hash: RunHash::default(),
            checkpoint_seq: 0,
            undecided_calls: 0,
            undecided_calls_of_epoch: 0,
            displaced_until: None,
            displaced_epoch: Epoch::ZERO,
            renumbered_until: None,
            unclaimed_until: None,
            is_unclaimed: false,
        }
    }
}

impl Head {
    /// Returns whether `epoch` is the run's current epoch and `writer` has it. Before the first claim every writer has it; between a voided
    /// claim and its skip none has it.
    pub fn is_writer(&self, epoch: Epoch, writer: Option<WriterId<&str>>) -> bool {
        !self.is_unclaimed && epoch == self.epoch && (self.epoch == Epoch::ZERO || writer == self.writer_id.borrow())
    }
}

/// The first judgement under a `record_id`: applied, or refused for its content.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FirstJudgement {
    /// The content hash of the first record.
    pub content_hash: ContentHash,
    /// The record's offset in the partition.
    pub offset: Offset,
    /// The record's index within the batch at that offset; 0 outside a batch.
    pub index: u32,
    /// The reason of the refusal; `None` if it was applied.
    pub refused: Option<Reason>,
}
datum!(FirstJudgement { content_hash, offset, index, refused });

impl FirstJudgement {
    /// Returns whether the record was refused for its numbers. The id was new, so only a number can conflict, or a record within a
    /// batch.
    pub fn is_for_numbers(&self) -> bool {
        self.refused.is_some_and(|reason| matches!(reason, Reason::Conflict | Reason::Sequence))
    }
}

/// The state of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallState {
    /// Its status.
    pub status: CallStatus,
    /// The payload hash of the record that ended it.
    pub outcome_hash: Option<Sha256>,
    /// Whether it has evidence that a decision without a basis adopts.
    pub has_counted_evidence: bool,
}

/// The state of a pending effect, for judging attempts and decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEffect {
    /// Number of records that were applied to it (request and decisions included) or kept as its evidence (replaced evidence
    /// included). Evidence with the id of other kept evidence does not count. Records that a skip voids or displaces count.
    pub revision: u64,
    /// Its basis: a hash over the records that were applied to it or kept as its evidence, up to the newest.
    pub newest: ContentHash,
    /// Whether a skip voids or displaces its newest record. A decision names its basis or its revision then.
    pub is_newest_void: bool,
    /// Whether the judged record is between a record about the effect that a skip voids or displaces, and the skip. No record permits
    /// anything there: it may have been refused before the skip.
    pub is_before_skip: bool,
    /// Whether it may run again without a decision.
    pub class: Class,
    /// Number of starts.
    pub attempts: u32,
    /// The epoch of the last start.
    pub last_started_in: Epoch,
    /// Whether the claim of that epoch has a commitment, and the call is not observed.
    pub has_committed_start: bool,
    /// Whether a skip voids or displaces the record that started it last. It is no handle's own then.
    pub is_start_void: bool,
    /// The evidence that an `adopt` decision with a basis would adopt, and whether it says that the effect happened.
    pub adoptable: Option<(RecordId, bool)>,
    /// Like `adoptable`, for a decision without a basis, which reads only the first piece of evidence of each record id.
    pub adoptable_by_id: Option<(RecordId, bool)>,
}

/// The state of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// The length of its message list.
    pub messages: u64,
    /// Whether a prune hides it.
    pub pruned: bool,
}

/// The run's state before the record, as the judge reads it.
pub trait View {
    /// A failed read.
    type Error;
    /// Returns the run's head, or the default for a run without records.
    fn head(&mut self) -> Result<Head, Self::Error>;
    /// The first judgement under a `record_id`.
    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<FirstJudgement>, Self::Error>;
    /// Returns the judgement of other content with a known `record_id`, which was refused as a conflict.
    fn seen_conflict(
        &mut self,
        record_id: RecordId<&str>,
        content: ContentHash,
    ) -> Result<Option<FirstJudgement>, Self::Error>;
    /// The tool call of a request.
    fn call(&mut self, request: RecordId<&str>) -> Result<Option<CallState>, Self::Error>;
    /// Returns the state of an object with a lifecycle, or `None` before a record creates it.
    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, Self::Error>;
    /// Returns the pending effect of an attempt or a decision on `id`: by this basis, or the first kind's, in the
    /// order of the kinds.
    fn pending_effect(
        &mut self,
        id: RecordId<&str>,
        basis: Option<ContentHash>,
    ) -> Result<Option<PendingEffect>, Self::Error>;
    /// An applied checkpoint.
    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, Self::Error>;
    /// Returns the bytes of `count` messages from index `from` (inclusive) in an applied checkpoint's list. They must exist.
    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, Self::Error>;
}
