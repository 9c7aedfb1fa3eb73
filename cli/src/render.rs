//! Parts of answers that several commands print for people.

use crate::text::{Cell, Text};
use runlog_schemas::{
    answer::{Appended, Dropped, Evidence, MissingContent, OrOther, Outcome, Position},
    json::Json,
};

/// Formats a position as `PARTITION:OFFSET`, and adds the index within a batch if it is not 0.
pub(crate) fn position(position: &Position) -> Cell {
    let Position { partition, offset, index, .. } = position;
    if *index == 0 { format!("{partition}:{offset}").into() } else { format!("{partition}:{offset}.{index}").into() }
}

/// Formats an age as [`age_text`] does, for a table.
pub(crate) fn age(millis: u64) -> Cell {
    Cell::from(age_text(millis)).right()
}

/// Formats an age in its largest whole unit, such as `4m`.
pub(crate) fn age_text(millis: u64) -> String {
    let seconds = millis / 1000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (seconds_of_unit, unit) = units.into_iter().find(|(of_unit, _)| seconds >= *of_unit).unwrap_or((1, "s"));
    format!("{}{unit}", seconds / seconds_of_unit)
}

/// Prints the list of missing content in the content store, if any.
pub(crate) fn missing(contents: &[MissingContent], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} missing in the content store", contents.len()));
    text.list(contents, "none")
        .column("WHAT", |content| Cell::from(content.payload_type.as_str()))
        .column("POSITION", |content| position(&content.position))
        .column("REASON", |content| Cell::from(content.reason.as_str()).bad())
        .column("BYTES", |content| content.bytes)
        .column("SHA256", |content| &content.sha256)
        .print();
}

/// Prints the list of content that retention deleted, if any.
pub(crate) fn dropped(contents: &[Dropped], text: &mut Text) {
    if contents.is_empty() {
        return;
    }
    text.title(format!("{} deleted by retention", contents.len()));
    text.list(contents, "none")
        .column("WHAT", |content| Cell::from(content.payload_type.as_str()))
        .column("POSITION", |content| position(&content.position))
        .column("HORIZON", |content| position(&content.dropped))
        .column("RECORD", |content| &content.record_id)
        .print();
}

/// Number of characters of evidence's content in the text; `--json` prints all of it.
const EVIDENCE_CHARS_MAX: usize = 4000;

/// Prints the evidence of an effect with its content, oldest first, and the number of replaced results.
pub(crate) fn evidence(all: &[Evidence], dropped: u64, text: &mut Text) {
    refused_results("evidence", all, text);
    replaced_results(dropped, text);
}

/// Prints how many refused results of an effect are no longer kept, if any.
pub(crate) fn replaced_results(dropped: u64, text: &mut Text) {
    if dropped > 0 {
        text.title(format!("{dropped} further refused results were dropped: `runlog anomalies` lists them"));
    }
}

/// Prints refused results of an effect with their content under the name `what`, oldest first.
pub(crate) fn refused_results(what: &str, all: &[Evidence], text: &mut Text) {
    for (number, evidence) in (1..).zip(all) {
        let adopted = if evidence.adoptable { ", which `--adopt` accepts" } else { "" };
        text.title(format!("{what} {number} of {}{adopted}", all.len()));
        let missing = evidence.missing_content.as_ref();
        let missing = missing.map(|content| Cell::from(format!("in the content store: {}", content.reason)).bad());
        let facts = [
            ("record", Cell::from(&evidence.record_id).strong()),
            ("status", Cell::status(evidence.status.as_str())),
            ("refused as", Cell::from(evidence.reason.as_str()).bad()),
            ("position", position(&evidence.position)),
            ("logged at", evidence.logged_at.as_ref().into()),
            ("writer", evidence.writer_id.as_ref().into()),
            ("claimed by", evidence.claimed_by.as_ref().into()),
            ("epoch", evidence.epoch.into()),
            ("content hash", evidence.content_hash.map(|hash| hash.to_string()).into()),
            ("payload", Cell::from(evidence.payload.as_ref().map(Json::as_str)).clip(EVIDENCE_CHARS_MAX)),
        ];
        text.facts(facts.into_iter().chain(missing.map(|missing| ("missing", missing))));
    }
}

/// Prints the answer to one appended record: its outcome, the reason, and its warnings.
pub(crate) fn appended(answer: &Appended, text: &mut Text) {
    outcome(&answer.outcome, text);
    if let Some(detail) = &answer.detail {
        text.line([Cell::from("  "), Cell::from(detail).dim()]);
    }
    for warning in &answer.warnings {
        text.line([Cell::from("  warning:").bad(), Cell::from(&warning.pointer), Cell::from(&warning.message)]);
    }
}

/// Prints the outcome of one appended record.
pub(crate) fn outcome(outcome: &Outcome, text: &mut Text) {
    text.columns([
        (8, Cell::status(outcome.outcome.as_str())),
        (10, position(&outcome.position)),
        (10, Cell::from(outcome.reason.as_ref().map_or("", OrOther::as_str)).bad()),
        (0, Cell::from(&outcome.record_id).dim()),
    ]);
}
