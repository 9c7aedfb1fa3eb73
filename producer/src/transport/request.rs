//! The requests to a backend, and its answers.

#[cfg(any(feature = "kafka", feature = "embedded"))]
use crate::error::Action;
use crate::error::Error;
#[cfg(any(feature = "kafka", feature = "embedded"))]
use runlog_schemas::{answer::ErrorKind, id::RunId};
use runlog_schemas::{
    answer::{Outcome, Position, Writer},
    record::JournalRecord,
    trace::is_traceparent,
};

/// Selects records of a run. A record must match every field that is set; an empty filter matches all records. The fields are
/// compared with the record's [`EventIndexProjection`](runlog_schemas::record::EventIndexProjection).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// The event family.
    pub family: Option<String>,
    /// The kind within its family.
    pub kind: Option<String>,
    /// A correlation entry, key and value. The read costs one index seek, for any number of records in the run. The key
    /// contains no `=`.
    pub correlation: Option<(String, String)>,
    /// A tag. The read costs one index seek; matching records of other runs are skipped one by one.
    pub tag: Option<String>,
}

/// The largest limit of a page of a recovery.
pub(crate) const RECOVERY_PAGE: usize = 1000;

/// Selects the form of a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryQuery {
    /// Ignores checkpoints.
    pub(crate) from_start: bool,
    /// Resolves content in the content store.
    pub(crate) content: bool,
    /// The maximum number of completed calls and open objects of a page, in all.
    pub(crate) limit: usize,
}

impl RecoveryQuery {
    /// The state to resume from.
    pub(crate) const WHOLE: Self = Self { from_start: false, content: true, limit: RECOVERY_PAGE };
    /// All calls that have ended, whatever the checkpoint covers.
    pub(crate) const ENDED: Self = Self { from_start: true, content: false, limit: RECOVERY_PAGE };
    /// The run's head and its pending effects, which a page lists first and regardless of its limit.
    pub(crate) const PENDING: Self = Self { from_start: true, content: false, limit: 1 };
}

/// The event that a server waits for before it answers an append. Other backends answer at the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendUntil {
    /// The record is in the log, and may still be refused. Only for a record whose outcome is requested later.
    Acknowledged,
    /// The record is judged.
    Judged,
    /// The record is judged, and the index has all records that were in the log after that: the answer is a read-back.
    ReadBack,
}

/// A record to be appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToAppend<'a> {
    pub(crate) record: &'a JournalRecord,
    /// The `traceparent`, which becomes a header of the record.
    pub(crate) trace: Option<&'a str>,
}

impl<'a> ToAppend<'a> {
    /// Ignores a malformed `traceparent`.
    pub(crate) fn new(record: &'a JournalRecord, trace: Option<&'a str>) -> Self {
        Self { record, trace: trace.filter(|text| is_traceparent(text)) }
    }
}

/// The options of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendAsk<'a> {
    pub(crate) until: AppendUntil,
    /// Positions of records of the run whose outcomes the answer must contain too. Only with one record.
    pub(crate) also: &'a [Position],
}

impl AppendAsk<'_> {
    /// Waits until the records are judged.
    pub(crate) const JUDGED: Self = Self { until: AppendUntil::Judged, also: &[] };
}

/// An acknowledged append.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) position: Position,
    /// The record's outcome, if the backend reports it together with the acknowledgement.
    pub(crate) outcome: Option<Outcome>,
    /// The run's writer at `latest` after the acknowledgement, if the backend reports that too.
    pub(crate) writer: Option<Writer>,
    /// As in a [`ReadBack`](runlog_schemas::answer::ReadBack), if the backend reports the writer.
    pub(crate) changed: bool,
    /// The outcomes of the records in `AppendAsk::also`, in that order; empty if the backend does not report them.
    pub(crate) also: Vec<Option<Outcome>>,
}

impl Appended {
    /// Creates an acknowledgement with a position and no outcome.
    #[cfg(any(feature = "kafka", feature = "embedded"))]
    pub(crate) fn with_position(position: Position) -> Self {
        Self { position, outcome: None, writer: None, changed: false, also: Vec::new() }
    }
}

/// A failed append.
#[derive(Clone, Debug)]
pub(crate) struct AppendFailed {
    pub(crate) error: Error,
    /// Whether no record was appended, so that the sequence numbers can be used again. Otherwise each of the records may be in
    /// the log.
    pub(crate) untouched: bool,
}

/// Returns the record's run id; fails for partition-level records, which a producer does not write.
#[cfg(any(feature = "kafka", feature = "embedded"))]
pub(crate) fn run_of(record: &JournalRecord) -> Result<RunId<&str>, AppendFailed> {
    record.body.run_id.borrow().ok_or_else(|| {
        let message = format!("record {} belongs to no run", record.body.record_id);
        let error = Error::new(ErrorKind::Invalid, Action::FixTheInput, message);
        AppendFailed { error, untouched: true }
    })
}

/// The error for records without an acknowledgement within `deadline`; `record` is the first of them.
#[cfg(any(feature = "kafka", feature = "embedded"))]
pub(crate) fn unacknowledged(record: &JournalRecord, deadline: std::time::Duration) -> AppendFailed {
    let message = format!(
        "timed out after {} waiting for the acknowledgement of record {}: it may be in the log; reopen the run",
        humantime::format_duration(deadline),
        record.body.record_id
    );
    AppendFailed { error: Error::new(ErrorKind::Unavailable, Action::Reopen, message), untouched: false }
}
