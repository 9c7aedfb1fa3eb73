//! `tool_calls`: calls by fingerprint and occurrence, by request, and in request order. A lookup is one get for the
//! count, one for the occurrence, one for the call, and one per record whose content is returned.
//!
//! The valid times of a call's request and of its first end are in the call's row. Every other statement about it (the same
//! completion again, a retraction) has its own row, and the call's row has a flag for them.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD, RECORD_INDEX, RUN, RowFamily},
    key::Key,
};
use runlog_schemas::{
    datum,
    datum::Sha256,
    id::{Fingerprint, JournalSeq, Offset, RecordId, RunId},
    judge::{CallState, CallStatus},
    record::Validity,
};

/// The index.
pub const INDEX: Index = Index::new(
    3,
    "tool_calls",
    &[
        RowFamily::new::<RecordId>(
            0,
            "by_fingerprint",
            &[RUN, KeyPart::Text("fingerprint"), KeyPart::U32("occurrence")],
        ),
        RowFamily::new::<CallRow>(1, "calls", &[RUN, RECORD]),
        RowFamily::new::<RecordId>(2, "by_order", &[RUN, KeyPart::U64("journal_seq"), OFFSET, RECORD_INDEX]),
        RowFamily::new::<u32>(3, "counts", &[RUN, KeyPart::Text("fingerprint")]),
        RowFamily::new::<Validity>(4, "stated", &[RUN, RECORD, OFFSET, RECORD_INDEX]),
    ],
);

/// The request record id of occurrence k (from 1) of a fingerprint.
pub fn by_fingerprint(run_id: RunId<&str>, fingerprint: Fingerprint<&str>, occurrence: u32) -> Key {
    Key::new(INDEX, 0).text(run_id).text(fingerprint).u32(occurrence)
}

/// A call by its request's record id.
pub fn key(run_id: RunId<&str>, request_record_id: RecordId<&str>) -> Key {
    Key::new(INDEX, 1).text(run_id).text(request_record_id)
}

/// The request record id by the call's `journal_seq`, and the request's offset and index. Requests that were not applied have
/// no number of their own.
pub fn by_order(run_id: RunId<&str>, call: &CallRow) -> Key {
    from_number(run_id, call.journal_seq).offset(call.request_offset).u32(call.request_index)
}

/// The beginning of a run's calls with this `journal_seq`.
pub fn from_number(run_id: RunId<&str>, journal_seq: JournalSeq) -> Key {
    order_prefix(run_id).u64(journal_seq.get())
}

/// A run's calls in request order.
pub fn order_prefix(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 2).text(run_id)
}

/// The number of requests with a fingerprint in the run.
pub fn count(run_id: RunId<&str>, fingerprint: Fingerprint<&str>) -> Key {
    Key::new(INDEX, 3).text(run_id).text(fingerprint)
}

/// The statement of the record at a position about a call, other than its request and its first end ([`Validity`]).
pub fn stated(run_id: RunId<&str>, request_record_id: RecordId<&str>, offset: Offset, index: u32) -> Key {
    stated_of(run_id, request_record_id).offset(offset).u32(index)
}

/// All such statements, in log order.
pub fn stated_of(run_id: RunId<&str>, request_record_id: RecordId<&str>) -> Key {
    Key::new(INDEX, 4).text(run_id).text(request_record_id)
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CallRow {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// The number of the request among the requests with the fingerprint, from 1.
    pub occurrence: u32,
    /// The tool.
    pub tool_name: String,
    /// Its status.
    pub status: CallStatus,
    /// The request's `journal_seq`; of a request that was not applied, the run's next number at its place.
    pub journal_seq: JournalSeq,
    /// The request's offset.
    pub request_offset: Offset,
    /// The request's index.
    pub request_index: u32,
    /// The offset of the record that set the status.
    pub status_offset: Offset,
    /// Its index.
    pub status_index: u32,
    /// The payload hash of the record that ended it.
    pub outcome_hash: Option<Sha256>,
    /// The idempotency or dedupe key of its request.
    pub idempotency_key: Option<String>,
    /// Whether a refused result is attached as evidence.
    pub has_counted_evidence: bool,
    /// Whether a result that arrived after its end contradicts it.
    pub is_contradicted: bool,
    /// The valid time of the request.
    pub requested: Validity,
    /// The valid time of its end.
    pub ended: Option<Validity>,
    /// Whether it has further statements.
    pub more_stated: bool,
    /// Whether a skip voided or displaced its request. The request is not applied, but the call may have happened.
    pub is_request_void: bool,
}
datum!(CallRow {
    fingerprint,
    occurrence,
    tool_name,
    status,
    journal_seq,
    request_offset,
    request_index,
    status_offset,
    status_index,
    outcome_hash,
    idempotency_key,
    has_counted_evidence,
    is_contradicted,
    requested,
    ended,
    more_stated,
    is_request_void,
});

impl CallRow {
    /// The judge's input.
    pub fn state(&self) -> CallState {
        CallState {
            status: self.status,
            outcome_hash: self.outcome_hash,
            has_counted_evidence: self.has_counted_evidence,
        }
    }
}
