//! A record as a log entry: framed, keyed by its run id, with its headers.

use super::error::Error;
use runlog_log::Entry;
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Framing, RECORD_BYTES_MAX, Schemas},
    datum::Datum,
    headers,
    record::JournalRecord,
    schema::Version,
};

/// The log entry of a record.
///
/// Errors: `TooLarge`; `Unavailable` until the registry has registered the schema.
pub fn entry(record: &JournalRecord, schemas: &dyn Schemas) -> Result<Entry, Error> {
    let version = record.version();
    framed(record, version, codec::encode_as(record, framing(version, schemas)?))
}

/// The log entry of a record that is numbered again after it was refused for its numbers.
///
/// Errors: as [`entry`].
pub fn renumbered(record: &JournalRecord, schemas: &dyn Schemas) -> Result<Entry, Error> {
    let version = record.renumbered_version();
    framed(record, version, codec::encode_renumbered(record, framing(version, schemas)?))
}

fn framing(version: &'static Version, schemas: &dyn Schemas) -> Result<Framing, Error> {
    schemas.framing(version).map_err(|why| {
        let message = format!("the schema is not registered yet: {why}; retry");
        Error::new(ErrorKind::Unavailable, message)
    })
}

fn framed(record: &JournalRecord, version: &Version, value: Vec<u8>) -> Result<Entry, Error> {
    let size = codec::size(&value);
    if size > RECORD_BYTES_MAX {
        let without_payload = size.saturating_sub(record.payload.to_bytes().len());
        let advice = if record.may_detach() && without_payload <= RECORD_BYTES_MAX {
            "with a content store (--content of the server), large content is stored outside the record"
        } else {
            "no part of it can be stored outside the record: shorten it"
        };
        let (record_id, run_id) = (&record.body.record_id, &record.body.run_id);
        let message =
            format!("record {record_id} of run {run_id} is {size} bytes, more than {RECORD_BYTES_MAX}; {advice}");
        let error = Error::new(ErrorKind::TooLarge, message);
        return Err(error.about_record(record.body.record_id.borrow()));
    }
    Ok(Entry { key: record.body.run_id.as_str().into(), value, headers: headers::of_version(record, version) })
}
