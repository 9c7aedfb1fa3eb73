//! Positions in the log.

use crate::{
    id::{LogId, Offset, PartitionId},
    subject::Subject,
};
use serde::{Deserialize, Serialize};

/// A position in the log. `index` counts within an atomic batch and is 0 otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Position {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: PartitionId,
    /// The offset.
    pub offset: Offset,
    /// The index within the offset.
    pub index: u32,
    /// The log, if the journal has a home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogId>,
}

impl Position {
    /// Converts the position to the subject of an error.
    pub fn subject(&self) -> Subject {
        let Self { topic, partition, offset, .. } = self;
        Subject { topic: Some(topic.clone()), partition: Some(*partition), offset: Some(*offset), ..Subject::default() }
    }
}
