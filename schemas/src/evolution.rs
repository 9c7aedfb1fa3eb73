//! Checks schema changes: can readers with the new schema read all data of the old one?
//!
//! ```text
//!   old ─┐                      ┌─▶ resolution   Avro's schema resolution: can *an* Avro reader read it?
//!        ├─▶ model (parsed) ────┼─▶ defaults     are the new schema's defaults values of their types?
//!   new ─┘                      └─▶ in_place     for journal records: can *our* reader read it?
//! ```
//!
//! Our reader does not resolve schemas. It reads the bytes of every released version in place, and `datum!` names the version that
//! added each field. So old records keep their hashes without a conversion, but the rules are stricter than Avro's: see
//! [`in_place`]. Compatibility with *every* released version is what registries call `BACKWARD_TRANSITIVE`.
//!
//! Implemented here, because `SchemaCompatibility` of `apache-avro` 0.22 deviates from the specification in seven rows of
//! `tests/claims/evolution.json`. It compares references to named types by name only, and so misses a changed
//! type; it treats a definition and a reference to the same type as different; it ignores type aliases; it accepts
//! defaults that most readers refuse; and it reports only the first error.

use crate::{
    datum::{Sha256, hex},
    schema,
};
use model::Schema;

mod defaults;
pub mod in_place;
mod incompatibility;
mod model;
mod resolution;

pub use incompatibility::{Incompatibility, Rule};

/// The error for a text that is not a schema.
#[derive(Debug, thiserror::Error)]
#[error("the {which} schema is not an Avro schema: {reason}")]
pub struct Unparsable {
    /// `old` or `new`.
    pub which: &'static str,
    /// The problem of the text.
    pub reason: String,
}

/// Checks that `new` can read all data of `old`. Returns an empty list if the schemas are compatible.
///
/// If `old` is a version of the journal's record, also checks the rules of [`in_place`].
pub fn check(old: &str, new: &str) -> Result<Vec<Incompatibility>, Unparsable> {
    let parse = |which, text| Schema::parse(text).map_err(|reason| Unparsable { which, reason });
    let (old, new) = (parse("old", old)?, parse("new", new)?);
    let mut incompatibilities = resolution::check(&old, &new);
    incompatibilities.extend(defaults::check(&new));
    if old.root_name() == Some(in_place::JOURNAL_RECORD) {
        incompatibilities.extend(in_place::check(&old, &new));
    }
    Ok(incompatibilities)
}

/// Returns reasons to fail the build: a released version was changed, is not compiled in, or cannot be read by the last of
/// `versions` (number and schema, oldest first). `list` is `avsc/RELEASED`.
pub fn gate(list: &'static str, versions: &[(u16, &str)]) -> Vec<String> {
    let Some((_, current)) = versions.last() else { return vec!["there is no version".to_owned()] };
    let mut wrong = Vec::new();
    for line in schema::lines(list) {
        let folder = line.folder;
        let Some((_, text)) = versions.iter().find(|(number, _)| format!("v{number}") == folder) else {
            wrong.push(format!("{folder} is released and not compiled in"));
            continue;
        };
        let fingerprint = schema::fingerprint_of(text).map(|bytes| hex(&bytes)).unwrap_or_default();
        if (fingerprint.as_str(), Sha256::of(text.as_bytes()).to_string().as_str()) != (line.fingerprint, line.sha256) {
            wrong.push(format!("{folder} is released and was changed; a change is a new version"));
        }
        match check(text, current) {
            Ok(found) => {
                wrong.extend(found.iter().map(|problem| format!("{folder}: {}: {}", problem.path, problem.reason)))
            }
            Err(error) => wrong.push(format!("{folder}: {error}")),
        }
    }
    for (number, _) in versions.iter().rev().skip(1) {
        if !schema::lines(list).any(|line| line.folder == format!("v{number}")) {
            wrong.push(format!("v{number} is not released although there is a later version"));
        }
    }
    wrong
}
