//! The headers of a log record: kind, schema version, and trace.

use crate::{
    record::JournalRecord,
    schema::Version,
    trace::{TRACEPARENT, is_traceparent},
};

/// A header's name and value, as a log entry holds them.
pub type Header = (String, Vec<u8>);

/// The headers of every record: its kind and its schema's version.
pub fn of(record: &JournalRecord) -> Vec<Header> {
    of_version(record, record.version())
}

/// The same of a record that is written in a certain version.
pub fn of_version(record: &JournalRecord, version: &Version) -> Vec<Header> {
    vec![
        ("runlog-record-kind".into(), record.body.record_kind.as_str().into()),
        ("runlog-schema-version".into(), version.number.to_string().into_bytes()),
    ]
}

/// The header that names the trace of a record; `None` if the text is not a `traceparent`.
pub fn trace(traceparent: Option<&str>) -> Option<Header> {
    let traceparent = traceparent.filter(|text| is_traceparent(text))?;
    Some((TRACEPARENT.into(), traceparent.into()))
}
