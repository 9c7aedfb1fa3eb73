//! What a backend is asked, and what it answers.

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

/// Which records of a run to read. A record must match every field that is set; with none set, all records match. The
/// fields are compared with the record's [`EventIndexProjection`](runlog_schemas::record::EventIndexProjection).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// The event family.
    pub family: Option<String>,
    /// The kind within its family.
    pub kind: Option<String>,
    /// A correlation entry, key and value. Costs one index seek, however many records the run has. The key contains no `=`.
    pub correlation: Option<(String, String)>,
    /// A tag. Costs one index seek; matching records of other runs are skipped one by one.
    pub tag: Option<String>,
}

/// Which form of a recovery to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryQuery {
    /// Ignore checkpoints.
    pub(crate) from_start: bool,
    /// Resolve content that is held in the content store.
    pub(crate) content: bool,
}

/// What a server waits for before it answers an append. Other backends answer at the acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendUntil {
    /// The record is in the log, and may be refused. Only for a record whose outcome is asked for later.
    Acknowledged,
    /// It is judged.
    Judged,
    /// It is judged, and the index has all that was in the log after that: the answer is a read-back.
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
    /// Without a `traceparent` that is none.
    pub(crate) fn new(record: &'a JournalRecord, trace: Option<&'a str>) -> Self {
        Self { record, trace: trace.filter(|text| is_traceparent(text)) }
    }
}

/// How records are appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendAsk<'a> {
    pub(crate) until: AppendUntil,
    /// Positions of records of the run whose outcomes the answer is to have too. Goes with one record.
    pub(crate) also: &'a [Position],
}

impl AppendAsk<'_> {
    /// Until they are judged.
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
    /// The outcomes of the records that were asked about too, in that order; empty if the backend does not report them.
    pub(crate) also: Vec<Option<Outcome>>,
}

impl Appended {
    /// Acknowledged at a position; nothing else is known.
    #[cfg(any(feature = "kafka", feature = "embedded"))]
    pub(crate) fn at(position: Position) -> Self {
        Self { position, outcome: None, writer: None, also: Vec::new() }
    }
}

/// A failed append.
#[derive(Clone, Debug)]
pub(crate) struct AppendFailed {
    pub(crate) error: Error,
    /// Nothing was appended: the sequence numbers can be used again. Otherwise each of the records may be in the log.
    pub(crate) untouched: bool,
}

/// The record's run id; fails for partition-level records, which a producer does not write.
#[cfg(any(feature = "kafka", feature = "embedded"))]
pub(crate) fn run_of(record: &JournalRecord) -> Result<RunId<&str>, AppendFailed> {
    record.body.run_id.borrow().ok_or_else(|| {
        let message = format!("record {} belongs to no run", record.body.record_id);
        let error = Error::new(ErrorKind::Invalid, Action::FixTheInput, message);
        AppendFailed { error, untouched: true }
    })
}

/// No acknowledgement arrived within `deadline` of records, the first of which is this one.
#[cfg(any(feature = "kafka", feature = "embedded"))]
pub(crate) fn unacknowledged(record: &JournalRecord, deadline: std::time::Duration) -> AppendFailed {
    let message = format!(
        "timed out after {} waiting for the acknowledgement of record {}: it may be in the log; reopen the run",
        humantime::format_duration(deadline),
        record.body.record_id
    );
    AppendFailed { error: Error::new(ErrorKind::Unavailable, Action::Reopen, message), untouched: false }
}
