//! Limits the nesting of JSON in a record, so that JSON parsers accept the whole record with its content.
//!
//! ```text
//!   { "payload": { "arguments": ··· } }       2 levels, and 125 for the arguments
//!   { "payload": { "messages": [ ··· ] } }    3 levels, and 124 for a message
//!   a batch adds the 3 levels { "payload": { "records": [ ··· ] } } around each of its records
//! ```

use crate::{json::Json, payload::Payload, record::JournalRecord};

/// Most levels of a record's JSON, its own object included: the limit of `serde_json` and of most parsers.
pub const RECORD_LEVELS_MAX: usize = 127;

/// Levels that a batch adds around each of its records.
const OF_BATCH: usize = 3;

/// The error for a member of a record that nests too deeply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member} nests {levels} levels deep, more than the {max} levels that a record allows there")]
pub struct TooDeep {
    /// A JSON pointer to the member.
    pub member: String,
    /// The member's number of levels.
    pub levels: usize,
    /// The largest number of levels that this member may have.
    pub max: usize,
}

/// Returns the nesting depth of a JSON text: the most arrays and objects open at once.
pub fn levels(text: &str) -> usize {
    let (mut open, mut most, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Returns whether a text nests deeper than `max`. Fast for a text with at most `max` opening brackets.
pub fn exceeds(text: &str, max: usize) -> bool {
    let brackets = || text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    text.len() > 2 * max && brackets() > max && levels(text) > max
}

/// Checks the depth of a record's JSON, including the records of a batch.
///
/// Errors: the first member that nests too deeply.
pub fn check(record: &JournalRecord) -> Result<(), TooDeep> {
    check_payload(&record.payload)
}

/// Like [`check`], for the record around a payload.
pub fn check_payload(payload: &Payload) -> Result<(), TooDeep> {
    check_nested(payload, 0, "/payload")
}

/// Like [`check_payload`], with `around` levels around the record.
fn check_nested(payload: &Payload, around: usize, pointer: &str) -> Result<(), TooDeep> {
    let one = |json: &Json, above: usize, member: &str| {
        let max = RECORD_LEVELS_MAX - around - above;
        match exceeds(json.as_str(), max) {
            true => Err(TooDeep { member: format!("{pointer}/{member}"), levels: levels(json.as_str()), max }),
            false => Ok(()),
        }
    };
    let maybe = |json: &Option<Json>, member: &str| json.iter().try_for_each(|json| one(json, 2, member));
    let many = |list: &[Json], member: &str| {
        list.iter().enumerate().try_for_each(|(nth, json)| one(json, 3, &format!("{member}/{nth}")))
    };
    match payload {
        Payload::ConversationTurn(turn) => one(&turn.content, 2, "content"),
        Payload::CodeEditProposal(proposal) => one(&proposal.diffs, 2, "diffs"),
        Payload::ToolCallRequested(call) => maybe(&call.arguments, "arguments"),
        Payload::ToolCallCompleted(call) => maybe(&call.result, "result"),
        Payload::EffectResolution(resolution) => maybe(&resolution.result, "result"),
        Payload::ToolJournalEntry(entry) => {
            one(&entry.arguments, 2, "arguments")?;
            one(&entry.result, 2, "result")
        }
        Payload::LoopCheckpoint(checkpoint) => {
            many(&checkpoint.messages, "messages")?;
            many(&checkpoint.verification_reports, "verification_reports")?;
            maybe(&checkpoint.total_usage, "total_usage")?;
            maybe(&checkpoint.state, "state")
        }
        Payload::Batch(batch) => batch.records.iter().enumerate().try_for_each(|(nth, record)| {
            check_nested(&record.payload, around + OF_BATCH, &format!("{pointer}/records/{nth}/payload"))
        }),
        // Other payloads have fixed depths.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        draft::Draft,
        id::{RecordId, RunId},
        payload::{ConversationTurn, LoopCheckpoint, wrapped::Batch},
    };

    fn nested(levels: usize) -> Json {
        Json::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels))).unwrap()
    }

    fn record(id: &str, payload: impl Into<Payload>) -> JournalRecord {
        JournalRecord::new(RunId::new("r").unwrap(), RecordId::new(id.to_owned()).unwrap(), "a", payload.into())
    }

    fn turn_record(levels: usize) -> JournalRecord {
        let (message_id, kind, content) = (String::new(), String::new(), nested(levels));
        record("t", ConversationTurn { message_id, parent_id: None, thread_id: None, kind, content })
    }

    fn checkpoint(levels: usize) -> JournalRecord {
        let text = r#"{"checkpoint_id":"c","checkpoint_seq":1,"covers_journal_seq":0,"messages":[1]}"#;
        let mut checkpoint: LoopCheckpoint = serde_json::from_str(text).unwrap();
        checkpoint.messages.push(nested(levels));
        checkpoint.state_hash = checkpoint.content_hash();
        record("c", checkpoint)
    }

    #[test]
    fn check_and_parse_accept_the_same_depths() {
        let batch = |levels| record("b", Batch { records: vec![turn_record(levels)] });
        type Make<'a> = &'a dyn Fn(usize) -> JournalRecord;
        let cases: [(Make<'_>, usize, &str); 3] = [
            (&turn_record, 125, "/payload/content"),
            (&checkpoint, 124, "/payload/messages/1"),
            (&batch, 122, "/payload/records/0/payload/content"),
        ];
        for (make, max, member) in cases {
            let json = |levels| serde_json::to_string(&make(levels)).unwrap();
            assert_eq!(check(&make(max)), Ok(()), "{member}");
            assert_eq!(Draft::parse(&json(max)).unwrap().record, make(max), "{member}");
            let deep = TooDeep { member: member.into(), levels: max + 1, max };
            assert_eq!(check(&make(max + 1)), Err(deep), "{member}");
            let refused = Draft::parse(&json(max + 1)).unwrap_err();
            assert!(
                refused.what.contains("nests 128 levels deep") && member.starts_with(&refused.pointer),
                "{refused}"
            );
        }
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(levels(r#"{"[[[\"[":["\\",{"a":"}]"}]}"#), 3);
        assert_eq!((levels("1"), levels("[[],[]]")), (0, 2));
    }
}
