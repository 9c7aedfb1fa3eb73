//! Parses new records, with stricter checks than readers. Records in the log that violate these checks stay readable.

use super::Draft;
use crate::{
    canonical,
    hidden::is_blank,
    id::{Epoch, JournalSeq, WriterSeq},
    json::{Invalid, invalid},
    payload::{
        EffectResolution, Payload, PayloadType,
        lifetime::{Erasure, Fork},
        observed::Retraction,
    },
    record::{JournalRecord, RecordKind},
};

/// The longest tool name, bytes. A lookup has the name in its URL, where each byte can need three bytes.
const TOOL_NAME_BYTES_MAX: usize = 1024;

impl Draft {
    /// Like [`Self::parse`], for a new record.
    ///
    /// Errors: also an object with two members of one name and a number beyond the range of a double, because readers differ in what
    /// they make of them; a number without a successor; a tool name over 1024 bytes; an empty idempotency key of a tool call; a key, an author or a reason without a visible
    /// character; a result on a decision other than `done`. The same errors apply to the records of a batch.
    pub fn parse_new(text: &str) -> Result<Self, Invalid> {
        if let Some((what, pointer)) = canonical::ambiguity(text) {
            return Err(invalid(what, &pointer));
        }
        let draft = Self::parse(text)?;
        check(&draft.record, "")?;
        Ok(draft)
    }
}

/// Checks a record whose JSON is at the pointer `at`.
fn check(record: &JournalRecord, at: &str) -> Result<(), Invalid> {
    let refused = |what: &str, member: &str| Err(invalid(what, &format!("{at}{member}")));
    if let Some(member) = largest_number(record) {
        return refused("the largest possible number, which no number can follow", member);
    }
    let facts = &record.body.facts;
    let is_call = facts.payload_type == PayloadType::ToolCallRequested;
    let tool_name = facts.tool_name.as_ref().filter(|_| is_call);
    if let Some(bytes) = tool_name.map(String::len).filter(|bytes| *bytes > TOOL_NAME_BYTES_MAX) {
        let what = format!("a tool name has at most {TOOL_NAME_BYTES_MAX} bytes; shorten it from {bytes}");
        return refused(&what, "/payload/tool_name");
    }
    // Its agent believes that the receiver recognises a repeat by the key.
    if is_call && record.body.idempotency_key.as_deref() == Some("") {
        return refused("empty; pass a key that only this call has, or leave it out", "/idempotency_key");
    }
    // Such a key is a mistake, and would make the effect safe to repeat. The contract's effects may have an empty key, which has no
    // effect.
    let keys = [("/idempotency_key", &record.body.idempotency_key), ("/dedupe_key", &record.body.dedupe_key)];
    let is_unusable = |key: &str| !key.is_empty() && is_blank(key);
    if let Some((member, _)) = keys.into_iter().find(|(_, key)| key.as_deref().is_some_and(is_unusable)) {
        return refused("blank; pass a key that only this effect has, or leave it out", member);
    }
    if let Some((name, _)) = attribution(&record.payload).into_iter().flatten().find(|(_, text)| is_blank(text)) {
        return refused(&format!("{name} is blank; say who decided, and why"), &format!("/payload/{name}"));
    }
    match &record.payload {
        Payload::EffectResolution(decided) if decided.has_stray_result() => {
            refused("only the decision `done` has a result; leave it out", "/payload/result")
        }
        Payload::Batch(batch) => {
            let mut records = batch.records.iter().enumerate();
            records.try_for_each(|(nth, record)| check(record, &format!("{at}/payload/records/{nth}")))
        }
        _ => Ok(()),
    }
}

/// Returns the pointer to a number of the record that has no successor.
fn largest_number(record: &JournalRecord) -> Option<&'static str> {
    let (place, checkpoint_seq) = (&record.place, record.body.facts.checkpoint_seq);
    let numbers = [
        ("/writer_epoch", place.writer_epoch == Epoch::MAX),
        ("/writer_seq", place.writer_seq == WriterSeq::MAX),
        ("/journal_seq", place.journal_seq == JournalSeq::MAX),
        ("/payload/epoch", matches!(&record.payload, Payload::RunClaim(claim) if claim.epoch == Epoch::MAX)),
        (
            "/payload/attempt",
            matches!(&record.payload, Payload::ToolCallAttempt(attempt) if attempt.attempt == i32::MAX.cast_unsigned()),
        ),
        (
            "/payload/checkpoint_seq",
            record.body.record_kind == RecordKind::LoopCheckpoint && checkpoint_seq == Some(i64::MAX.cast_unsigned()),
        ),
    ];
    numbers.into_iter().find_map(|(member, is_largest)| is_largest.then_some(member))
}

/// Returns author and reason of a payload that must have both.
fn attribution(payload: &Payload) -> Option<[(&'static str, &str); 2]> {
    match payload {
        Payload::EffectResolution(EffectResolution { who, why, .. })
        | Payload::Retraction(Retraction { who, why, .. })
        | Payload::Erasure(Erasure { who, why, .. })
        | Payload::Fork(Fork { who, why, .. }) => Some([("who", who.as_str()), ("why", why.as_str())]),
        _ => None,
    }
}
