//! The reasons why a schema cannot read the data of another one.

use serde::Serialize;

/// The rule set that a change breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Avro's schema resolution.
    Avro,
    /// Reading older journal records in place.
    InPlace,
}

/// One reason why the new schema cannot read data of the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incompatibility {
    /// The path in the schema: full names of types and names of fields, as in
    /// `runlog.journal.v1.JournalRecord.payload[9].decision`.
    pub path: String,
    /// The rule set.
    pub rule: Rule,
    /// The reason.
    pub reason: String,
}

pub(super) fn broken(rule: Rule, path: &str, reason: impl Into<String>) -> Incompatibility {
    Incompatibility { path: path.to_owned(), rule, reason: reason.into() }
}
