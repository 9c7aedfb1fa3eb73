//! The partitions of a journal that a projector holds. An index that is not here has no answer: neither "not found" nor an empty
//! list, because the partition's records may be on another server.

use super::{error::Error, store::meta::Journal};
use runlog_schemas::id::{LogId, PartitionId};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The partitions that a projector holds from its start to its end.
#[derive(Clone, Debug, Default)]
pub enum Holds {
    /// All partitions of the journal.
    #[default]
    All,
    /// These partitions. The indices of others in the data folder are neither opened nor removed. Partitions that the journal does
    /// not have are ignored. Other servers have the same partitions, so a partition answers no query before it has applied the
    /// records that the log had at the start.
    Chosen(BTreeSet<PartitionId>),
    /// The same, for partitions that are chosen at the start. To choose, the indices of all partitions in the data folder are opened.
    ChosenBy(Choose),
}

/// The state of journal and data folder when the partitions are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// The id of the log, if it has one.
    pub log: Option<&'a LogId>,
    /// The partitions of the journal with an index in the data folder that has applied a record.
    pub indexed: &'a BTreeSet<PartitionId>,
}

type Function = dyn Fn(&Found<'_>) -> BTreeSet<PartitionId> + Send + Sync;

/// Chooses the partitions that a projector holds.
#[derive(Clone)]
pub struct Choose(Arc<Function>);

impl Choose {
    /// Chooses by a function, which is called once. It may block.
    pub fn new(choose: impl Fn(&Found<'_>) -> BTreeSet<PartitionId> + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }

    /// The chosen partitions.
    pub fn partitions(&self, found: &Found<'_>) -> BTreeSet<PartitionId> {
        self.0(found)
    }
}

impl fmt::Debug for Choose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choose(…)")
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
