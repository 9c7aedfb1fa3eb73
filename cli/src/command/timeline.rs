//! `show`: prints the records of a run, one a line. `tail` prints lines in the same way.

use super::pages;
use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
    value::AsOf,
};
use runlog_schemas::{
    answer::{Line, Lines},
    id::JournalSeq,
    payload::PayloadType,
};
use serde_json::Value;

/// Records per request.
const PAGE: u32 = 500;
/// Longest part of a payload that is shown, characters.
const SUMMARY: usize = 120;

/// Prints the records of a run.
pub(super) async fn show(session: &Session, args: args::Show) -> Result<Answer, Error> {
    let (as_of, at) = match &args.as_of {
        None => (None, None),
        Some(AsOf::Position(place)) => (Some(place), None),
        Some(AsOf::Time(time)) => (None, Some(time.as_str())),
    };
    pages::visit_pages(async |cursor| {
        let target = Target::run(&args.run.run)
            .path("/records")
            .with("limit", PAGE)
            .with_some("cursor", cursor)
            .with_some("as_of", as_of)
            .with_some("at", at)
            .with_flag("raw", args.raw);
        let page: Lines = session.read(target, &args.reading).await?;
        for line in &page.records {
            session.output.item(line, human)?;
        }
        Ok(page.next_cursor)
    })
    .await?;
    Ok(Answer::Yes)
}

/// Prints a record in the timeline of one run.
pub(super) fn human(line: &Line, text: &mut Text) {
    let numbered = Some(line.journal_seq).filter(|seq| *seq > JournalSeq::ZERO);
    text.columns([
        (24, Cell::from(&line.timestamp).dim()),
        (8, render::position(&line.position).dim()),
        (5, Cell::from(numbered).right()),
        (19, type_cell(line)),
        (0, Cell::from(summarize_line(line)).clip(SUMMARY)),
    ]);
}

/// Prints a record in the timeline of all runs, with its run id first.
pub(super) fn human_of_all(line: &Line, text: &mut Text) {
    text.columns([
        (24, Cell::from(&line.timestamp).dim()),
        (8, render::position(&line.position).dim()),
        (28, Cell::from(line.run_id.as_str()).strong()),
        (19, type_cell(line)),
        (0, Cell::from(summarize_line(line)).clip(SUMMARY)),
    ]);
}

/// Returns the payload's summary. Marks a decision whose principal was not authenticated by a server with tokens.
fn summarize_line(line: &Line) -> String {
    let summary = summarize_payload(&line.payload.to_value());
    if line.principal_verified == Some(false) { format!("unverified: {summary}") } else { summary }
}

fn type_cell(line: &Line) -> Cell {
    let cell = Cell::from(line.payload_type.as_str());
    match line.payload_type.known() {
        Some(PayloadType::ToolCallCompleted) => cell.good(),
        Some(PayloadType::ToolCallFailed) => cell.bad(),
        Some(PayloadType::ToolCallRequested | PayloadType::ToolCallAttempt | PayloadType::EffectResolution) => {
            cell.warn()
        }
        Some(PayloadType::RunLifecycle | PayloadType::RunClaim) => cell.strong(),
        _ => cell,
    }
}

/// Formats a payload in one line: its main members, in order. Arguments and results are JSON, so that a string that holds JSON looks
/// different from an object.
fn summarize_payload(payload: &Value) -> String {
    let tag = payload.get("type").and_then(Value::as_str).unwrap_or_default();
    let Ok(payload_type) = tag.parse() else { return payload.to_string() };
    let members: &[&str] = match payload_type {
        PayloadType::StoredPayload => &["bytes", "sha256"],
        PayloadType::RunLifecycle => &["status", "reason"],
        PayloadType::ConversationTurn => &["kind", "content"],
        PayloadType::ToolCallRequested => &["tool_name", "arguments"],
        PayloadType::ToolCallAttempt => &["attempt", "reason"],
        PayloadType::ToolCallCompleted => &["result"],
        PayloadType::ToolCallFailed => &["error_kind", "error_message"],
        PayloadType::LoopCheckpoint => &["checkpoint_id", "covers_journal_seq"],
        PayloadType::CheckpointPrune => &["prune_covered_before"],
        PayloadType::RunClaim => &["epoch", "claimed_by"],
        PayloadType::EffectResolution => &["decision", "result", "who", "why"],
        _ => return payload.to_string(),
    };
    let shown = members.iter().filter_map(|name| match payload.get(*name)? {
        Value::String(text) if !matches!(*name, "arguments" | "result") => Some(text.clone()),
        value => Some(value.to_string()),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_summary_shows_the_main_members_of_a_payload() {
        let requested =
            json!({"type": "tool_call_requested", "tool_name": "book", "arguments": {"n": 1}, "call_id": "x"});
        assert_eq!(summarize_payload(&requested), r#"book {"n":1}"#);
        let turn = json!({"type": "conversation_turn", "kind": "user", "content": "hi\nyou"});
        assert_eq!(summarize_payload(&turn), "user hi\nyou");
        let masked = json!({"type": "tool_call_completed", "result": {"masked": "secret"}});
        assert_eq!(summarize_payload(&masked), r#"{"masked":"secret"}"#);
        let stored =
            json!({"type": "stored_payload", "payload_type": "tool_call_completed", "bytes": 7, "sha256": "ab"});
        assert_eq!(summarize_payload(&stored), "7 ab");
        assert_eq!(summarize_payload(&json!({"a": 1})), r#"{"a":1}"#);
    }

    #[test]
    fn string_arguments_look_different_from_object_arguments() {
        let request = |arguments: Value| {
            summarize_payload(&json!({"type": "tool_call_requested", "tool_name": "book", "arguments": arguments}))
        };
        assert_eq!(request(json!({"a": 1})), r#"book {"a":1}"#);
        assert_eq!(request(json!(r#"{"a":1}"#)), r#"book "{\"a\":1}""#);
    }
}
