//! The headers of a log record: kind, schema version and trace.

use crate::{
    record::JournalRecord,
    schema::Version,
    trace::{TRACEPARENT, is_traceparent},
};

/// A header's name and value in the form of a log entry.
pub type Header = (String, Vec<u8>);

/// Returns the headers of a record: its kind and its schema version.
pub fn of(record: &JournalRecord) -> Vec<Header> {
    of_version(record, record.version())
}

/// Returns the headers of a record that is written in this version.
pub fn of_version(record: &JournalRecord, version: &Version) -> Vec<Header> {
    vec![
        ("runlog-record-kind".into(), record.body.record_kind.as_str().into()),
        ("runlog-schema-version".into(), version.number.to_string().into_bytes()),
    ]
}

/// Returns the header with the trace of a record, or `None` if the text is not a `traceparent`.
pub fn trace(traceparent: Option<&str>) -> Option<Header> {
    let traceparent = traceparent.filter(|text| is_traceparent(text))?;
    Some((TRACEPARENT.into(), traceparent.into()))
}
