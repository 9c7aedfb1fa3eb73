//! The enums of verdicts: reasons to refuse a record, and the statuses of runs and calls.

use crate::symbols;

symbols! {
    /// The reason of a refusal. The order is the stored byte: append only.
    Reason {
        Fenced = "fenced", Gap = "gap", Conflict = "conflict", Sequence = "sequence", Transition = "transition",
        Checkpoint = "checkpoint", Ended = "ended", NotStaged = "not_staged", Batch = "batch",
        WrongPartition = "wrong_partition", StaleDecision = "stale_decision", Unresolved = "unresolved",
        NotStartedHere = "not_started_here",
    }
}
symbols! {
    /// The status of a run.
    RunStatus { Open = "open", Completed = "completed", Failed = "failed", Cancelled = "cancelled" }
}
symbols! {
    /// The status of a tool call.
    CallStatus { Pending = "pending", Completed = "completed", Failed = "failed" }
}

impl Reason {
    /// Returns whether the record consumed no number and may be sent again: it was refused for its epoch, sequence or partition.
    pub fn may_be_resent(self) -> bool {
        matches!(self, Self::Fenced | Self::Gap | Self::WrongPartition)
    }

    /// Returns whether a result that is refused for this reason is kept: as evidence while its effect is pending, and after that if it
    /// contradicts the end. Not in another run's partition.
    pub fn keeps_results(self) -> bool {
        self != Self::WrongPartition
    }

    /// Returns whether decisions without a basis count and read such evidence after a skip in the run. Never a result in a malformed
    /// batch: before version 3 it was no evidence.
    pub fn may_be_counted(self) -> bool {
        self.keeps_results() && self != Self::Batch
    }

    /// Returns whether decisions without a basis count and read such evidence, in a run without a skip.
    pub fn is_counted_evidence(self) -> bool {
        matches!(self, Self::Fenced | Self::Ended | Self::NotStartedHere)
    }

    /// Returns whether a record that is refused for this reason consumes each of its numbers that was the next one. Otherwise it may be
    /// sent again.
    pub fn consumes_numbers(self) -> bool {
        !matches!(self, Self::Fenced | Self::Gap | Self::WrongPartition)
    }

    /// Returns whether the journal needs no other record of a result that is refused alone for this reason: the result is
    /// evidence, or its effect has ended. `Conflict` settles none, because the result's id finds another record.
    pub fn settles_result(self) -> bool {
        self.is_counted_evidence() || self == Self::Transition
    }
}
