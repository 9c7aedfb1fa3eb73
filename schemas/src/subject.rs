//! The run, record or log position that an error is about.

use crate::id::{Offset, PartitionId, RecordId, RunId};

/// The run, record or log position that an error is about, as far as known. The error's message names them too.
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
