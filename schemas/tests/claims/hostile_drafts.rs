//! JSON of clients: the memory to parse a text is a small multiple of its length, also if the text is refused.

use crate::counting;
use runlog_schemas::{datum::ITEMS_MAX, draft::Draft, json};

/// Memory per byte of text. An honest record is held a few times: its members, compact, parsed, encoded and printed.
const FACTOR: usize = 12;
/// Memory that does not depend on the text: lists up to their limits, and values outside of the payload up to theirs.
const FIXED: usize = 48 << 20;
/// Length of a text, bytes: at 24 times this length, memory would be far over the limits.
const LENGTH: usize = 12 << 20;

/// Parses a new record, within bounds.
fn parse(text: &str) -> Result<Draft, String> {
    let (draft, allocated) = counting::during(|| Draft::parse_new(text).inspect(|draft| drop(draft.warnings(text))));
    let peak = allocated.peak;
    assert!(peak <= FACTOR * text.len() + FIXED, "{} MiB for {}…", peak >> 20, &text[..80]);
    draft.map_err(|error| error.to_string())
}

/// Items, repeated and separated by commas, as long as the tests' texts.
fn repeated(item: &str) -> String {
    let mut items = format!("{item},").repeat(LENGTH / (item.len() + 1));
    items.pop();
    items
}

#[test]
fn a_list_of_a_record_is_refused_before_it_takes_memory() {
    let checkpoint = r#""type":"loop_checkpoint","checkpoint_id":"c","checkpoint_seq":1,"covers_journal_seq":0"#;
    for (member, why) in [
        (format!(r#""payload":{{{checkpoint},"messages":[{}]}}"#, repeated("0")), "a list of more than 65536 items"),
        (format!(r#""payload":{{{checkpoint},"messages":[],"unanswered":[{}]}}"#, repeated("\"a\"")), "65536 items"),
        (format!(r#""payload":{{"type":"batch","records":[{}]}}"#, repeated("0")), "65536 items"),
        (format!(r#""tags":[{}],"payload":{{{checkpoint},"messages":[]}}"#, repeated("\"\"")), "too many values"),
        (format!(r#""x":[{}],"payload":{{{checkpoint},"messages":[]}}"#, repeated("0")), "too many values"),
        (format!(r#""payload":{{{checkpoint},"messages":[],"x":[{}]}}"#, repeated("0")), "leave them out"),
        (format!(r#""payload":{{{checkpoint},"messages":[]}},"facts":{{"message_bytes":[{}]}}"#, repeated("0")), ""),
        (
            format!(r#""payload":{{{checkpoint},"messages":[]}},"unknown_fields":"{{\"/a\":[{}]}}""#, repeated("0")),
            "over",
        ),
        (repeated("\"\":0"), ""),
    ] {
        let refused = parse(&format!(r#"{{"run_id":"r","record_id":"i",{member}}}"#));
        let refused = refused.map(|draft| draft.record.body.record_id);
        assert!(refused.as_ref().is_err_and(|refused| refused.contains(why)) || why.is_empty(), "{why}: {refused:?}");
    }
    let few = format!(r#"{{"run_id":"r","payload":{{{checkpoint},"messages":[{}0]}}}}"#, "0,".repeat(ITEMS_MAX - 1));
    assert!(parse(&few).is_ok(), "as many as the schema has room for");
}

#[test]
fn content_of_any_form_needs_a_small_multiple_of_its_length() {
    for items in ["0", "[]", "{}", "1.5", "\"\"", "{\"a\":[0]}"] {
        // A space, and another order of the members: the text differs from the printed record.
        let content = format!("[{} ]", repeated(items));
        let record = format!(
            r#"{{"run_id":"r","payload":{{"content":{content},"kind":"user","message_id":"m","type":"conversation_turn"}}}}"#
        );
        let draft = parse(&record).unwrap();
        assert_eq!(draft.record.body.unknown_fields, None);
    }
}

#[test]
fn records_beyond_the_limit_are_counted_without_memory() {
    let text = format!("[{}]", repeated("0"));
    let (items, allocated) = counting::during(|| json::items(&text, 1024).unwrap());
    assert_eq!((items.first.len(), items.count), (1024, LENGTH / 2));
    assert!(allocated.peak < 64 << 10, "{} bytes", allocated.peak);
    for (text, count) in [("[]", 0), (" [ 1 , [2,3] ] ", 2), ("[1,2,3]", 3)] {
        let items = json::items(text, 2).unwrap();
        assert_eq!((items.count, items.first.len()), (count, count.min(2)), "{text}");
    }
    for text in ["", "{}", "[", "[1", "[1,]", "[1] 2", "[1,2,3", "[1,2,x]"] {
        assert!(json::items(text, 2).is_err(), "{text}");
    }
}

/// `serde_json` reads some member names as markers, and then parses a text within a text, beyond its limit of levels.
#[test]
fn a_text_within_a_text_is_not_parsed() {
    let mut value = "0".to_owned();
    for _ in 0..14 {
        let text = format!("{}{value}{}", "[".repeat(120), "]".repeat(120));
        value = format!(r#"{{"$serde_json::private::RawValue":{}}}"#, serde_json::to_string(&text).unwrap());
    }
    let record = format!(r#"{{"run_id":"r","x":{value},"payload":{{"type":"run_lifecycle","status":"started"}}}}"#);
    let draft = parse(&record).unwrap();
    let unknown_fields = draft.record.body.unknown_fields.unwrap();
    assert!(unknown_fields.contains("$serde_json::private::RawValue"), "the member is kept as it was sent");
}
