//! The subject of an error: a run, record or log position.

use crate::id::{Offset, PartitionId, RecordId, RunId};

/// The known parts of an error's subject: run, record or log position. The error's message contains them too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The run.
    pub run_id: Option<RunId>,
    /// The topic.
    pub topic: Option<String>,
    /// The partition.
    pub partition: Option<PartitionId>,
    /// The offset in the partition.
    pub offset: Option<Offset>,
    /// The record's id. For an error about a call, the id of its request.
    pub record_id: Option<RecordId>,
}
