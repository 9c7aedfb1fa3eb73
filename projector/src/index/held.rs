//! The partitions of a journal that a projector holds. An index that is not here has no answer: neither "not found" nor an empty
//! list, because the partition's records may be on another server.

use super::error::Error;
use runlog_schemas::id::PartitionId;
use std::collections::BTreeSet;

/// The partitions that a projector holds from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holds {
    /// All partitions of the journal.
    #[default]
    All,
    /// These partitions. The indices of others in the data folder are neither opened nor removed. Partitions that the journal does
    /// not have are ignored. Other servers have the same partitions, so a partition answers no query before it has applied the
    /// records that the log had at the start.
    Chosen(BTreeSet<PartitionId>),
}

impl Holds {
    /// Whether a partition of the journal is held.
    pub fn contains(&self, partition: PartitionId) -> bool {
        match self {
            Self::All => true,
            Self::Chosen(chosen) => chosen.contains(&partition),
        }
    }
}

/// A partition that this server does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("partition {partition} is not on this server")]
pub struct NotHere {
    /// The partition.
    pub partition: PartitionId,
}

impl From<NotHere> for Error {
    fn from(not_here: NotHere) -> Self {
        Self::not_here(not_here.to_string()).in_partition(not_here.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::answer::{ErrorKind, ProblemReason};

    #[test]
    fn a_partition_that_is_not_here_is_unavailable_and_nothing_happened_unless_a_part_was_done() {
        let error = Error::from(NotHere { partition: 3.into() });
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, Some(ProblemReason::NotHere)));
        assert_eq!(error.subject().partition, Some(3.into()));
        assert_eq!(error.problem().detail, "partition 3 is not on this server");
        let later = error.after_a_part();
        assert_eq!((later.kind(), later.reason()), (ErrorKind::Unavailable, None));
    }
}
