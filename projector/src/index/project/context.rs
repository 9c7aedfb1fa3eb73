//! What every projection is given of a record, and what became of the record.

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
    /// The index within the offset.
    pub index: u32,
    /// When the log took it, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The record as an Avro single object; of what cannot be read, the bytes as they are.
    pub framed: &'a [u8],
}

impl RecordContext<'_> {
    /// The record's bytes, to be kept in a row.
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
    /// None for a record that belongs to its partition.
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

/// What became of a run's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It took effect.
    Applied,
    /// It was judged before.
    Repeat {
        /// Where, and what came of it then.
        first: FirstJudgement,
        /// Whether it consumed a number all the same.
        numbered: bool,
    },
    /// It has no effect but an anomaly.
    Refused(Reason),
}

impl Effect {
    /// Why the record, or the one that it repeats, was refused.
    pub(super) fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Applied => None,
            Self::Repeat { first, .. } => first.refused,
            Self::Refused(reason) => Some(*reason),
        }
    }

    /// Whether it did something, and does not stand as one applied record of its own where it is of this kind.
    pub(super) fn is_kept_apart(&self, kind: RecordKind) -> bool {
        match self {
            Self::Applied => kind == RecordKind::Batch,
            Self::Repeat { first, numbered } => *numbered || first.refused.is_some(),
            Self::Refused(_) => true,
        }
    }
}
