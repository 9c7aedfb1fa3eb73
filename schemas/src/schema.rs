//! The contract: the `.avsc` file, compiled in, and its fingerprint.

use std::sync::LazyLock;

/// The schema as published, `schemas/avsc/v1/JournalRecord.avsc`.
pub const JOURNAL_RECORD: &str = include_str!("../avsc/v1/JournalRecord.avsc");

/// The schema's version, carried in the record header `runlog-schema-version`.
pub const VERSION: &str = "1";

static FINGERPRINT: LazyLock<[u8; 8]> = LazyLock::new(|| {
    let schema = apache_avro::Schema::parse_str(JOURNAL_RECORD).expect("the compiled-in schema parses");
    let bytes = schema.fingerprint::<apache_avro::rabin::Rabin>().bytes;
    <[u8; 8]>::try_from(bytes.as_slice()).expect("a Rabin fingerprint has 8 bytes")
});

/// The Rabin fingerprint of the schema's parsing canonical form, little-endian as on the wire.
pub fn fingerprint() -> [u8; 8] {
    *FINGERPRINT
}
