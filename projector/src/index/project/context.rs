//! The input of every projection, and its outcome.

use crate::index::store::records::Bytes;
use runlog_schemas::{
    codec::Envelope,
    id::{Offset, PartitionId, RunId},
    judge::{FirstJudgement, Reason},
    record::RecordKind,
};

/// A record's position, and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct RecordContext<'a> {
    /// The partition.
    pub partition: PartitionId,
    /// The offset.
    pub offset: Offset,
    /// The index within the batch at that offset; 0 outside a batch.
    pub index: u32,
    /// The log's timestamp, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The record as an Avro single object; for a dead letter, the delivered bytes.
    pub framed: &'a [u8],
    /// The principal that claims the run, if this is a claim whose record names one.
    pub claimant: Option<&'a str>,
}

impl RecordContext<'_> {
    /// A copy of the record's bytes, for a row.
    pub(super) fn row_bytes(&self) -> Bytes {
        Bytes(self.framed.to_vec())
    }
}

/// A record that belongs to a run, and that run.
#[derive(Clone, Copy, Debug)]
pub struct RunRecord<'e, 'd> {
    /// The run.
    pub run_id: RunId<&'d str>,
    record: &'e Envelope<'d>,
}

impl<'e, 'd> RunRecord<'e, 'd> {
    /// `None` for a record of the partition itself.
    pub fn new(record: &'e Envelope<'d>) -> Option<Self> {
        record.run_id.map(|run_id| Self { run_id, record })
    }
}

impl<'d> std::ops::Deref for RunRecord<'_, 'd> {
    type Target = Envelope<'d>;
    fn deref(&self) -> &Envelope<'d> {
        self.record
    }
}

/// The outcome of a run's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It took effect.
    Applied,
    /// It was judged before.
    Repeat {
        /// The first judgement.
        first: FirstJudgement,
        /// Whether the repeat consumed a number.
        numbered: bool,
    },
    /// It has no effect; it is listed as an anomaly.
    Refused(Reason),
}

impl Effect {
    /// The reason for the refusal of the record, or of the record that it repeats.
    pub(super) fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Applied => None,
            Self::Repeat { first, .. } => first.refused,
            Self::Refused(reason) => Some(*reason),
        }
    }

    /// Whether it goes to the `deliveries` index: it had an effect, and is not in `records` as a single applied record.
    pub(super) fn is_kept_apart(&self, kind: RecordKind) -> bool {
        match self {
            Self::Applied => kind == RecordKind::Batch,
            Self::Repeat { first, numbered } => *numbered || first.refused.is_some(),
            Self::Refused(_) => true,
        }
    }
}
