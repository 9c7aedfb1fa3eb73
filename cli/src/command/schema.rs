//! `schema`: lists the versions of the record's schema, and checks whether one can read records of another.

use crate::{
    args::{Schema, SchemaAction, SchemaCheck, SchemaShow},
    error::Error,
    exit::Answer,
    output::Output,
    text::{Cell, Text},
};
use runlog_schemas::{
    answer::ErrorKind,
    datum::hex,
    evolution::{self, Incompatibility},
    schema::{self, Version},
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use std::path::Path;

pub(super) fn run(args: Schema, output: &Output) -> Result<Answer, Error> {
    match args.action {
        SchemaAction::List => list(output),
        SchemaAction::Show(args) => show(&args, output),
        SchemaAction::Check(args) => check(&args, output),
    }
}

/// One version.
#[derive(Debug, Serialize)]
struct VersionAnswer {
    name: &'static str,
    version: u16,
    /// The Rabin fingerprint as on the wire, hexadecimal.
    fingerprint: String,
    /// Whether the version is released. A released version never changes.
    released: bool,
    /// Whether this version is the newest version of this build.
    current: bool,
    /// Whether a server writes the version without `--write-schema`.
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Box<RawValue>>,
}

impl VersionAnswer {
    fn new(version: &Version, schema: Option<Box<RawValue>>) -> Self {
        Self {
            name: schema::NAME,
            version: version.number,
            fingerprint: hex(&version.fingerprint),
            released: version.released,
            current: version == schema::current(),
            written: version.number <= schema::WRITTEN_BY_DEFAULT,
            schema,
        }
    }
}

fn list(output: &Output) -> Result<Answer, Error> {
    let schemas: Vec<VersionAnswer> =
        schema::versions().iter().map(|version| VersionAnswer::new(version, None)).collect();
    output.answer(&serde_json::json!({ "schemas": schemas }), |_, text| {
        text.list(&schemas, "none")
            .column("SCHEMA", |row| Cell::from(format!("{}/v{}", row.name, row.version)))
            .column("FINGERPRINT", |row| &row.fingerprint)
            .column("RELEASED", |row| if row.released { Cell::from("yes").good() } else { Cell::from("no").warn() })
            .column("WRITTEN", |row| Cell::from(if row.written { "yes" } else { "no" }))
            .print();
    })?;
    Ok(Answer::Yes)
}

fn show(args: &SchemaShow, output: &Output) -> Result<Answer, Error> {
    let version = match &args.which {
        None => schema::current(),
        Some(which) => find_version(which).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no schema {which}; `runlog schema list` lists the schemas"))
        })?,
    };
    let damaged = |error| Error::new(ErrorKind::Internal, "the schema is not JSON").because(error);
    let compact: Value = serde_json::from_str(version.text).map_err(damaged)?;
    let schema = serde_json::value::to_raw_value(&compact).map_err(damaged)?;
    output.answer(&VersionAnswer::new(version, Some(schema)), |_, text| {
        for line in version.text.lines() {
            text.line([Cell::from(line)]);
        }
    })?;
    Ok(Answer::Yes)
}

/// Reads `JournalRecord/v1`, `JournalRecord`, `v1` or `1`.
fn find_version(which: &str) -> Option<&'static Version> {
    let (name, version) = match which.split_once('/') {
        Some((name, version)) => (name, Some(version)),
        None if which.starts_with(|c: char| c.is_ascii_uppercase()) => (which, None),
        None => (schema::NAME, Some(which)),
    };
    let number = version.map(|version| version.strip_prefix('v').unwrap_or(version));
    if name != schema::NAME {
        return None;
    }
    match number {
        None => Some(schema::current()),
        Some(number) => schema::versions().iter().find(|version| version.number.to_string() == number),
    }
}

#[derive(Debug, Serialize)]
struct CheckAnswer {
    compatible: bool,
    /// The fingerprints of both schemas.
    old: String,
    new: String,
    incompatibilities: Vec<Incompatibility>,
}

fn check(args: &SchemaCheck, output: &Output) -> Result<Answer, Error> {
    let (old, new) = (text(&args.old)?, text(&args.new)?);
    let incompatibilities = evolution::check(&old, &new).map_err(|error| {
        let file = if error.which == "old" { &args.old } else { &args.new };
        Error::new(ErrorKind::Invalid, "the schemas were not compared")
            .with("file", file.display().to_string())
            .because(error)
    })?;
    let fingerprint = |text| schema::fingerprint_of(text).map(|bytes| hex(&bytes)).unwrap_or_default();
    let compatible = incompatibilities.is_empty();
    let checked = CheckAnswer { compatible, old: fingerprint(&old), new: fingerprint(&new), incompatibilities };
    output.answer(&checked, human)?;
    Ok(Answer::from_bool(compatible))
}

fn text(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|error| {
        let name = file.display().to_string();
        Error::new(ErrorKind::Invalid, format!("{name} cannot be read")).with("file", name.as_str()).because(error)
    })
}

fn human(checked: &CheckAnswer, text: &mut Text) {
    if checked.compatible {
        text.line([Cell::from("compatible").good(), Cell::from("the new schema reads every record of the old schema")]);
        return;
    }
    text.line([Cell::from("incompatible").bad()]);
    for incompatibility in &checked.incompatibilities {
        let rule =
            if incompatibility.rule == evolution::Rule::InPlace { " (required by Runlog's readers)" } else { "" };
        text.line([
            Cell::from(format!("  {}:", incompatibility.path)),
            Cell::from(format!("{}{rule}", incompatibility.reason)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_in_several_ways() {
        for which in ["JournalRecord/v1", "JournalRecord/1", "v1", "1"] {
            assert_eq!(find_version(which).map(|version| version.number), Some(1), "{which}");
        }
        assert_eq!(
            find_version("JournalRecord").map(|version| version.number),
            Some(schema::current().number),
            "the newest"
        );
        for which in ["JournalRecord/v99", "Other/v1", "v", ""] {
            assert!(find_version(which).is_none(), "{which}");
        }
    }
}
