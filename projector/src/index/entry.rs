//! A record as a log entry: framed, keyed by its run id, with its headers.

use crate::index::Error;
use runlog_log::Entry;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, RECORD_BYTES_MAX, Schemas},
    headers,
    record::JournalRecord,
};

/// The log entry of a record.
///
/// Errors: `TooLarge`; `Unavailable` until the registry has registered the schema.
pub fn entry(record: &JournalRecord, schemas: &dyn Schemas) -> Result<Entry, Error> {
    let framing = schemas.framing(record.version()).map_err(|why| {
        let message = format!("the schema is not registered yet, so nothing was appended: {why}; retry");
        Error::new(ErrorKind::Unavailable, message)
    })?;
    let value = codec::encode_as(record, framing);
    let size = codec::size(&value);
    if size > RECORD_BYTES_MAX {
        let error = Error::new(
            ErrorKind::TooLarge,
            format!(
                "record {} of run {} is {size} bytes, more than {RECORD_BYTES_MAX}; with a content store (--content of the server), large content is stored outside the record",
                record.body.record_id, record.body.run_id,
            ),
        );
        return Err(error.about_record(record.body.record_id.borrow()));
    }
    Ok(Entry { key: record.body.run_id.as_str().into(), value, headers: headers::of(record) })
}
