//! The write-back journal's entries: staged operations and their outcomes. Transactions count from 0 per session, which
//! is the envelope's `session_id`.

use crate::{contract, variants};

contract! {
    /// A proposed operation has a transaction.
    WriteBackStaged {
        txn: u64,
        at: String,
        op: WriteBackOp,
    }
}
contract! {
    /// A staged operation was refused: nothing changed, and the reason is evidence.
    WriteBackRejected {
        txn: u64,
        at: String,
        reason: WriteBackReason,
    }
}
contract! {
    /// A staged operation took effect.
    WriteBackCommitted {
        txn: u64,
        at: String,
    }
}
contract! {
    /// The context window was rewritten; sizes before and after.
    WriteBackCompaction {
        before: u64,
        after: u64,
    }
}
contract! {
    /// The transcript was saved.
    WriteBackSave {}
}
contract! {
    /// The session was reset.
    WriteBackReset {}
}
contract! {
    /// The context was reset to prompt and summary.
    WriteBackContextReset {}
}
contract! {
    /// A delta of the history was uploaded.
    WriteBackHistorySinkUpload {
        bucket: String,
        key: String,
        bytes: u64,
    }
}
variants! {
    /// The operation.
    WriteBackOp: internal("op") {
        1 Compaction(WriteBackCompaction) = "compaction",
        2 Save(WriteBackSave) = "save",
        3 Reset(WriteBackReset) = "reset",
        4 ContextReset(WriteBackContextReset) = "context_reset",
        5 HistorySinkUpload(WriteBackHistorySinkUpload) = "history_sink_upload",
    }
}
contract! {
    /// Something would have been overwritten without leave.
    WriteBackDestructiveOp {}
}
contract! {
    /// The schema does not fit.
    WriteBackSchemaMismatch {
        detail: String,
    }
}
contract! {
    /// The origin could not be established.
    WriteBackProvenanceFail {
        detail: String,
    }
}
contract! {
    /// An invariant of a page would have been broken.
    WriteBackInvariantViolation {
        detail: String,
    }
}
variants! {
    /// Why a staged operation was refused.
    WriteBackReason: internal("reason") {
        1 DestructiveOp(WriteBackDestructiveOp) = "destructive_op",
        2 SchemaMismatch(WriteBackSchemaMismatch) = "schema_mismatch",
        3 ProvenanceFail(WriteBackProvenanceFail) = "provenance_fail",
        4 InvariantViolation(WriteBackInvariantViolation) = "invariant_violation",
    }
}
