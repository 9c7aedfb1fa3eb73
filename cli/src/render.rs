//! Parts of answers that several commands print for people.

use crate::text::{Cell, Text};
use runlog_schemas::{
    answer::{Appended, Dropped, MissingContent, OrOther, Outcome, Position},
    id::PartitionId,
};

/// A position as `PARTITION:OFFSET`, with the index within a batch where that is not 0.
pub(crate) fn position(position: &Position) -> Cell {
    let Position { partition, offset, index, .. } = position;
    if *index == 0 { format!("{partition}:{offset}").into() } else { format!("{partition}:{offset}.{index}").into() }
}

/// Warns that a list lacks what stopped partitions did not apply.
pub(crate) fn unavailable(partitions: &[PartitionId], text: &mut Text) {
    if !partitions.is_empty() {
        let partitions: Vec<String> = partitions.iter().map(PartitionId::to_string).collect();
        let missing = format!("incomplete: partitions {} are stopped; `runlog doctor` says why", partitions.join(", "));
        text.line([Cell::from(missing).warn()]);
    }
}

/// Names the flag that continues a list.
pub(crate) fn more(cursor: Option<&str>, text: &mut Text) {
    if let Some(cursor) = cursor {
        text.line([Cell::from(format!("more: --cursor {cursor}")).dim()]);
    }
}

/// Content that could not be read from the content store; prints nothing where there is none.
pub(crate) fn missing(contents: &[MissingContent], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} missing in the content store", contents.len()));
    let row = |content: &MissingContent| {
        [
            Cell::from(content.payload_type.as_str()),
            position(&content.position),
            Cell::from(content.reason.as_str()).bad(),
            content.bytes.into(),
            Cell::from(&content.sha256),
        ]
    };
    text.table(["WHAT", "POSITION", "REASON", "BYTES", "SHA256"], contents.iter().map(row).collect(), "none");
}

/// Content that retention deleted; prints nothing where there is none.
pub(crate) fn dropped(contents: &[Dropped], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} deleted by retention", contents.len()));
    let row = |content: &Dropped| {
        [
            Cell::from(content.payload_type.as_str()),
            position(&content.position),
            position(&content.dropped),
            (&content.record_id).into(),
        ]
    };
    text.table(["WHAT", "POSITION", "HORIZON", "RECORD"], contents.iter().map(row).collect(), "none");
}

/// The answer to one record that was posted: its outcome, why, and its warnings.
pub(crate) fn appended(answer: &Appended, text: &mut Text) {
    outcome(&answer.outcome, text);
    if let Some(detail) = &answer.detail {
        text.line([Cell::from("  "), Cell::from(detail).dim()]);
    }
    for warning in &answer.warnings {
        text.line([Cell::from("  warning:").bad(), Cell::from(&warning.pointer), Cell::from(&warning.message)]);
    }
}

/// The outcome of one appended record.
pub(crate) fn outcome(outcome: &Outcome, text: &mut Text) {
    text.columns([
        (8, Cell::word(outcome.outcome.as_str())),
        (10, position(&outcome.position)),
        (10, Cell::from(outcome.reason.as_ref().map_or("", OrOther::as_str)).bad()),
        (0, Cell::from(&outcome.record_id).dim()),
    ]);
}
