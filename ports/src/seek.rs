//! What a port's records are found by: correlation entries, each a list of its own in the journal's index of events.

use runlog_producer::{RecordFilter, record::JournalRecord, refs::CorrelationEntry};
use sha2::{Digest, Sha256};

// agent-sdk-core's port asks for pages of its own.
#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
mod reader;

#[cfg(any(feature = "bob-core", feature = "codetether", feature = "observability"))]
pub(crate) use reader::Reader;

/// Hexadecimal, lower case.
const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// A list of records: its name, and the value of what stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    name: &'static str,
    value: String,
}

impl List {
    /// The one of these `parts`, however long they are: hexadecimal SHA-256 of them with 0x00 between. A reader compares the
    /// parts themselves with what it finds.
    pub(crate) fn of(name: &'static str, parts: &[&str]) -> Self {
        let hash = parts.iter().enumerate().fold(Sha256::new(), |hash, (nth, part)| {
            if nth == 0 { hash.chain_update(part) } else { hash.chain_update([0]).chain_update(part) }
        });
        let mut value = String::with_capacity(2 * Sha256::output_size());
        for byte in hash.finalize() {
            value.extend([byte >> 4, byte & 0xf].map(|digit| char::from(DIGITS[usize::from(digit)])));
        }
        Self { name, value }
    }

    /// What finds its records.
    pub(crate) fn select(self) -> RecordFilter {
        RecordFilter { correlation: Some((self.name.to_owned(), self.value)), ..RecordFilter::default() }
    }

    /// The hash of its parts.
    #[cfg(feature = "observability")]
    pub(crate) fn value(&self) -> &str {
        &self.value
    }
}

/// Puts a record into lists, whose names are the port's own.
pub(crate) fn put(record: &mut JournalRecord, lists: &[List]) {
    let entry = |list: &List| CorrelationEntry { key: list.name.to_owned(), value: list.value.clone() };
    record.body.correlation_keys = lists.iter().map(entry).collect();
    record.body.event_index.correlation_keys.clone_from(&record.body.correlation_keys);
}
