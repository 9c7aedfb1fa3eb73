//! A list: a correlation entry of its records.

use runlog_producer::{RecordFilter, record::JournalRecord, refs::CorrelationEntry};
use sha2::{Digest, Sha256};

/// A list of records: the key and value of their correlation entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    name: &'static str,
    value: String,
}

impl List {
    /// The list for `parts`. Its value is the hexadecimal SHA-256 of the parts with 0x00 between them. Readers compare the parts
    /// themselves with the records they find.
    pub(crate) fn new(name: &'static str, parts: &[&str]) -> Self {
        let hash = parts.iter().enumerate().fold(Sha256::new(), |hash, (nth, part)| {
            if nth == 0 { hash.chain_update(part) } else { hash.chain_update([0]).chain_update(part) }
        });
        let value = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name, value }
    }

    /// Matches its records.
    pub(crate) fn filter(self) -> RecordFilter {
        RecordFilter { correlation: Some((self.name.to_owned(), self.value)), ..RecordFilter::default() }
    }

    /// The hash of its parts.
    #[cfg(feature = "observability")]
    pub(crate) fn value(&self) -> &str {
        &self.value
    }
}

/// Adds a record to lists, which replace its correlation entries.
pub(crate) fn add(record: &mut JournalRecord, lists: &[List]) {
    let entry = |list: &List| CorrelationEntry { key: list.name.to_owned(), value: list.value.clone() };
    record.body.correlation_keys = lists.iter().map(entry).collect();
    record.body.event_index.correlation_keys.clone_from(&record.body.correlation_keys);
}
