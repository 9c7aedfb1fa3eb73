//! `events`: applied records by their summary for event streams. A row contains only the record's run. A page is a seek for
//! each million offsets, then a step and a get per record.
//!
//! A record has one row for its family and kind, and one for its subject, unless that is its own run, whose records are in
//! `records`. It has one row for each related reference, correlation entry and tag, at most [`EACH_MAX`] of each. Texts
//! longer than [`TEXT_BYTES_MAX`] are not indexed.

use super::{
    index::{Index, KeyPart, OFFSET, RECORD_INDEX, RowFamily},
    key::Key,
};
use runlog_schemas::{
    id::{Offset, RunId},
    refs::EntityKind,
};

/// The index.
pub const INDEX: Index = Index::new(
    17,
    "events",
    &[
        RowFamily::new::<RunId>(0, "by_kind", &[KeyPart::Text("family"), KeyPart::Text("kind"), OFFSET, RECORD_INDEX]),
        RowFamily::new::<RunId>(1, "by_subject", &[KeyPart::Text("kind"), KeyPart::Text("id"), OFFSET, RECORD_INDEX]),
        RowFamily::new::<RunId>(2, "by_related", &[KeyPart::Text("kind"), KeyPart::Text("id"), OFFSET, RECORD_INDEX]),
        RowFamily::new::<RunId>(
            3,
            "by_correlation",
            &[KeyPart::Text("key"), KeyPart::Text("value"), OFFSET, RECORD_INDEX],
        ),
        RowFamily::new::<RunId>(4, "by_tag", &[KeyPart::Text("tag"), OFFSET, RECORD_INDEX]),
    ],
);

/// The maximum number of rows of a record for its related references. Correlation entries and tags have the same limit.
pub const EACH_MAX: usize = 64;

/// The longest text that is indexed, bytes.
pub const TEXT_BYTES_MAX: usize = 512;

/// Events of a family, by kind and then in log order.
pub fn of_family(family: &str) -> Key {
    Key::new(INDEX, 0).text(family)
}

/// Events of a kind within its family, in log order.
pub fn of_kind(family: &str, kind: &str) -> Key {
    of_family(family).text(kind)
}

/// Events about a subject, in log order.
pub fn of_subject(kind: EntityKind, id: &str) -> Key {
    Key::new(INDEX, 1).text(kind.as_str()).text(id)
}

/// Events with a related reference, in log order.
pub fn of_related(kind: EntityKind, id: &str) -> Key {
    Key::new(INDEX, 2).text(kind.as_str()).text(id)
}

/// Events with a correlation entry, in log order.
pub fn of_correlation(key: &str, value: &str) -> Key {
    Key::new(INDEX, 3).text(key).text(value)
}

/// Events with a tag, in log order.
pub fn of_tag(tag: &str) -> Key {
    Key::new(INDEX, 4).text(tag)
}

/// The row of the record at a position, under one of the prefixes above; it holds the run's id.
pub fn key(prefix: Key, offset: Offset, index: u32) -> Key {
    prefix.offset(offset).u32(index)
}
