//! The settings of a log in memory, and its faults.

#[cfg(doc)]
use super::MemoryLog;
use crate::{LogId, VALUE_BYTES_MAX, clock::Clock, error::Kind};

/// The settings of a [`MemoryLog`] and its faults from the start.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The topic's name. Default `runlog.journal`.
    pub topic: String,
    /// The log's id. Default none.
    pub id: Option<LogId>,
    /// The partition count. Default 4.
    pub partitions: u32,
    /// The largest accepted value, bytes. Default [`VALUE_BYTES_MAX`].
    pub value_bytes_max: usize,
    /// The clock of the records' timestamps. Default the machine's clock.
    pub clock: Clock,
    /// Leaves gaps between offsets. Default none.
    pub gaps: Option<Gaps>,
    /// Delivers records repeatedly. Default never.
    pub repeats: Option<Repeats>,
    /// The maximum number of records of a partition that a reader delivers in turn. Then it continues with the next
    /// partition, and returns to the partition within the same poll. Default all records.
    pub chunk: Option<usize>,
    /// Whether every partition is held (see [`MemoryLog::hold`]) from the start. Default no.
    pub held: bool,
    /// The faults of the first appends, in order. Default none.
    pub append_faults: Vec<AppendFault>,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            topic: "runlog.journal".into(),
            id: None,
            partitions: 4,
            value_bytes_max: VALUE_BYTES_MAX,
            clock: Clock::system(),
            gaps: None,
            repeats: None,
            chunk: None,
            held: false,
            append_faults: Vec::new(),
        }
    }
}

/// After every `every` records of a partition, leaves `width` offsets without a record.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    /// Records between two gaps.
    pub every: u64,
    /// Offsets left out.
    pub width: u64,
}

/// After every `every` records from a partition, a reader delivers the last `back` records again, like a consumer that
/// resumed at an older position. The reader's position does not move backwards.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    /// Records between two repetitions.
    pub every: u64,
    /// Records repeated.
    pub back: usize,
}

/// The fault of one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// The batch does not land, and the error has this kind.
    Refused(Kind),
    /// The batch lands, but the answer is `Kind::Unknown`.
    UnknownLanded,
    /// The batch does not land, and the answer is `Kind::Unknown`.
    UnknownLost,
}
