//! A record as the log takes it: framed, under its run's key, with its headers.

use crate::index::Error;
use runlog_log::Entry;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, RECORD_BYTES_MAX, Schemas},
    headers,
    record::JournalRecord,
    subject::Subject,
};

/// A framed record with its headers, ready for the log.
///
/// Errors: `TooLarge`; `Unavailable` while the registry has not given the schema its id.
pub fn entry(record: &JournalRecord, schemas: &dyn Schemas) -> Result<Entry, Error> {
    let framing = schemas.framing(record.version()).map_err(|why| {
        let message = format!("nothing is appended before the registry has given the schema its id: {why}; retry");
        Error::new(ErrorKind::Unavailable, message)
    })?;
    let value = codec::encode_as(record, framing);
    let size = codec::size(&value);
    if size > RECORD_BYTES_MAX {
        let record_id = Some(record.body.record_id.clone());
        let error = Error::new(
            ErrorKind::TooLarge,
            format!(
                "record {} of run {} is {size} bytes, more than {RECORD_BYTES_MAX}; with a content store (--content of the server), large content is stored outside the record",
                record.body.record_id, record.body.run_id,
            ),
        );
        return Err(error.about(Subject { record_id, ..Subject::default() }));
    }
    Ok(Entry { key: record.body.run_id.as_str().into(), value, headers: headers::of(record) })
}
