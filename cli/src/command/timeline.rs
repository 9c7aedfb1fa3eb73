//! `show` and `tail`: a run's records, or the changes of an index, one a line, as they come.

use super::{Answer, Session};
use crate::{
    Error, args,
    client::{Event, Events, Target},
    text::{Cell, Text},
    value::AsOf,
};
use runlog_schemas::{
    answer::{Change, ErrorKind, Line, Lines, Problem},
    id::JournalSeq,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Records asked for at once.
const PAGE: u32 = 500;
/// How much of a payload is shown to people, characters.
const SUMMARY: usize = 120;
/// How much of a row, behind its key.
const CHANGE: usize = 240;

/// Prints the run as far as it is there.
pub(super) async fn show(session: &Session, args: args::Show) -> Result<Answer, Error> {
    let (as_of, at) = match &args.as_of {
        None => (None, None),
        Some(AsOf::Position(place)) => (Some(*place), None),
        Some(AsOf::Time(time)) => (None, Some(time.as_str())),
    };
    let mut cursor: Option<String> = None;
    loop {
        let target = Target::run(&args.of.run)
            .path("/records")
            .with("limit", PAGE)
            .with_some("cursor", cursor.as_deref())
            .with_some("as_of", as_of)
            .with_some("at", at)
            .with_flag("raw", args.raw);
        let page: Lines = session.read(target, &args.reading).await?;
        for line in &page.records {
            session.output.answer(line, human)?;
        }
        // A cursor that stands still would be asked for again for ever.
        if page.next_cursor.is_none() || page.next_cursor == cursor {
            return Ok(Answer::Yes);
        }
        cursor = page.next_cursor;
    }
}

/// Prints a run as it goes on, all of them, or an index.
pub(super) async fn tail(session: &Session, args: args::Tail) -> Result<Answer, Error> {
    let from = args.from.as_deref().unwrap_or(if args.until_end { "beginning" } else { "end" });
    let target = match &args.index {
        Some(index) => Target::new("/v1/indices").segment(index).path("/changes"),
        None => args.run.as_ref().map_or_else(|| Target::new("/v1"), Target::run).path("/tail"),
    };
    let target = target.with("from", from).with_flag("until_end", args.until_end).with_flag("raw", args.raw);
    let mut events = session.client.events(target).await?;
    if args.index.is_some() {
        follow(&mut events, args.until_end, |change: Change| {
            session.output.answer(&change, changed)?;
            Ok(change.cursor)
        })
        .await
    } else {
        follow(&mut events, args.until_end, |line: Line| {
            session.output.answer(&line, if args.run.is_some() { human } else { human_of_all })?;
            Ok(line.cursor)
        })
        .await
    }
}

/// Prints what a stream brings, until it ends. `print` says the cursor behind each item.
async fn follow<T: DeserializeOwned>(
    events: &mut Events,
    until_end: bool,
    mut print: impl FnMut(T) -> Result<String, Error>,
) -> Result<Answer, Error> {
    let mut last: Option<String> = None;
    let resumable = |error: Error, last: Option<String>| error.with("cursor", last);
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) if until_end => return Ok(Answer::Yes),
            Ok(None) => {
                let how = last.as_deref().map_or(String::new(), |cursor| format!(" with --from {cursor}"));
                let what = format!("the server ended the stream; go on{how} when it is there again");
                return Err(resumable(Error::new(ErrorKind::Unavailable, what), last));
            }
            Err(error) => return Err(resumable(error, last)),
        };
        match received(&event)? {
            Some(item) => last = Some(print(item)?),
            None => return Ok(Answer::Yes),
        }
    }
}

/// What an event brings; none where it says that the end is reached.
fn received<T: DeserializeOwned>(event: &Event) -> Result<Option<T>, Error> {
    let unfit = |error| Error::new(ErrorKind::Internal, "an event does not fit this version of runlog").because(error);
    match event.name.as_str() {
        "end" => Ok(None),
        "error" | "problem" => Err(serde_json::from_str::<Problem>(&event.data).map_err(unfit)?.into()),
        _ => serde_json::from_str(&event.data).map(Some).map_err(unfit),
    }
}

fn changed(change: &Change, text: &mut Text) {
    let operation = Cell::from(&change.operation);
    let operation = match change.operation.as_str() {
        "insert" => operation.good(),
        "delete" => operation.bad(),
        _ => operation.warn(),
    };
    let row = change.new.as_ref().or(change.old.as_ref()).map_or("", |row| row.as_str());
    text.columns([
        (8, super::place(&change.position).dim()),
        (7, operation),
        (0, Cell::from(format!("{} {row}", change.key.as_str())).clip(CHANGE)),
    ]);
}

fn human(line: &Line, text: &mut Text) {
    let numbered = Some(line.journal_seq).filter(|seq| *seq > JournalSeq::ZERO);
    text.columns([
        (24, Cell::from(&line.timestamp).dim()),
        (8, super::place(&line.position).dim()),
        (5, Cell::from(numbered).right()),
        (19, tone(line)),
        (0, Cell::from(summary(&line.payload.to_value())).clip(SUMMARY)),
    ]);
}

/// Of all runs: which one it is comes first.
fn human_of_all(line: &Line, text: &mut Text) {
    text.columns([
        (24, Cell::from(&line.timestamp).dim()),
        (8, super::place(&line.position).dim()),
        (28, Cell::from(line.run_id.as_str()).strong()),
        (19, tone(line)),
        (0, Cell::from(summary(&line.payload.to_value())).clip(SUMMARY)),
    ]);
}

fn tone(line: &Line) -> Cell {
    let cell = Cell::from(&line.payload_type);
    match line.payload_type.as_str() {
        "tool_call_completed" => cell.good(),
        "tool_call_failed" => cell.bad(),
        "tool_call_requested" | "tool_call_attempt" | "effect_resolution" => cell.warn(),
        "run_lifecycle" | "run_claim" => cell.strong(),
        _ => cell,
    }
}

/// What a record says, in a line: the members that matter of its payload, in order.
fn summary(payload: &Value) -> String {
    let payload_type = payload.get("type").and_then(Value::as_str).unwrap_or_default();
    let members: &[&str] = match payload_type {
        "stored_payload" => &["bytes", "sha256"],
        "run_lifecycle" => &["status", "reason"],
        "conversation_turn" => &["kind", "content"],
        "tool_call_requested" => &["tool_name", "arguments"],
        "tool_call_attempt" => &["attempt", "reason"],
        "tool_call_completed" => &["result"],
        "tool_call_failed" => &["error_kind", "error_message"],
        "loop_checkpoint" => &["checkpoint_id", "covers_journal_seq"],
        "checkpoint_prune" => &["prune_covered_before"],
        "run_claim" => &["epoch", "claimed_by"],
        "effect_resolution" => &["decision", "result", "who", "why"],
        _ => return payload.to_string(),
    };
    let shown = members.iter().filter_map(|name| match payload.get(*name)? {
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_summary_tells_what_matters_of_a_payload() {
        let requested =
            json!({"type": "tool_call_requested", "tool_name": "book", "arguments": {"n": 1}, "call_id": "x"});
        assert_eq!(summary(&requested), r#"book {"n":1}"#);
        let turn = json!({"type": "conversation_turn", "kind": "user", "content": "hi\nyou"});
        assert_eq!(summary(&turn), "user hi\nyou");
        let masked = json!({"type": "tool_call_completed", "result": {"masked": "secret"}});
        assert_eq!(summary(&masked), r#"{"masked":"secret"}"#);
        let stored =
            json!({"type": "stored_payload", "payload_type": "tool_call_completed", "bytes": 7, "sha256": "ab"});
        assert_eq!(summary(&stored), "7 ab");
        assert_eq!(summary(&json!({"a": 1})), r#"{"a":1}"#);
    }

    #[test]
    fn a_problem_in_a_stream_is_an_error_of_its_kind() {
        let data = r#"{"type":"about:blank#partition_stopped","title":"","status":503,"detail":"stopped","kind":"partition_stopped"}"#;
        let event = |name: &str, data: &str| Event { name: name.into(), data: data.into() };
        assert_eq!(received::<Line>(&event("error", data)).unwrap_err().kind(), ErrorKind::PartitionStopped);
        assert_eq!(received::<Line>(&event("end", "")).unwrap(), None);
        assert_eq!(received::<Line>(&event("", "nonsense")).unwrap_err().kind(), ErrorKind::Internal);
    }
}
