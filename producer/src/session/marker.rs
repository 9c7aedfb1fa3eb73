//! Ends a call whose result cannot be recorded: with a marker in place of the result, or with the beginning of a failure's message
//! (docs/protocol.md, "Results that cannot be recorded").
//!
//! A marker names the call that it ends. This distinguishes it from results that an effect returns.

use crate::error::Error;
use runlog_schemas::{
    answer::ErrorKind,
    id::RecordId,
    json::{self, Json},
    payload::{Payload, ToolCallCompleted, ToolCallFailed},
};
use serde_json::{Value, json};

const MARKER: &str = "runlog.result_not_recorded";
/// The maximum characters of a marker's message, and of a truncated failure message.
const TEXT_MAX: usize = 1000;

/// Why a result is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It has no JSON form that a record can contain.
    NoJson,
    /// It has more bytes than the journal stores.
    TooLarge,
    /// The journal refuses it, or it is a marker itself.
    Invalid,
}

impl Reason {
    /// The reason for which the journal never accepts a content. `None` for an error that has another cause.
    pub(crate) fn from_error(error: &Error) -> Option<Self> {
        match error.kind() {
            ErrorKind::TooLarge => Some(Self::TooLarge),
            ErrorKind::Invalid => Some(Self::Invalid),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::NoJson => "no_json",
            Self::TooLarge => "too_large",
            Self::Invalid => "invalid",
        }
    }
}

/// The marker of a call, with the number of bytes of its result's JSON.
pub(crate) fn marker(call: &RecordId, reason: Reason, message: &str, bytes: usize) -> Json {
    let (reason, message) = (reason.as_str(), beginning(message));
    let members = json!({ "call": call, "reason": reason, "message": message, "type": null, "bytes": bytes });
    Json::from(json!({ MARKER: members }))
}

/// The reason and the message of a call's marker. `None` for a result.
pub(crate) fn read(call: &RecordId, result: &Json) -> Option<String> {
    // Members are found without parsing the values of a large result.
    let members = json::members(result.as_str()).ok()?;
    let [(name, members)] = &members[..] else { return None };
    let Value::Object(marker) = json::value(members).ok().filter(|_| name == MARKER)? else { return None };
    let text = |name: &str| marker.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("call") == call.as_str()).then(|| format!("{}: {}", text("reason"), text("message")))
}

/// The payload that ends the call without the content that the journal never accepts. `None` if the payload has no such content.
pub(crate) fn without_content(payload: &Payload, reason: Reason, why: &str) -> Option<Payload> {
    match payload {
        Payload::ToolCallCompleted(ToolCallCompleted { request_record_id, result: Some(result), latency_ms }) => {
            let result = match read(request_record_id, result) {
                None => Some(marker(request_record_id, reason, why, result.as_str().len())),
                Some(_) => return None,
            };
            Some(
                ToolCallCompleted { request_record_id: request_record_id.clone(), result, latency_ms: *latency_ms }
                    .into(),
            )
        }
        Payload::ToolCallFailed(failed) => {
            let ToolCallFailed { error_kind, error_message, .. } = failed;
            let count = error_message.chars().count();
            // A text that was cut before has the reason at its end.
            if error_kind.chars().count() <= TEXT_MAX && count <= 3 * TEXT_MAX {
                return None;
            }
            let why = beginning(why);
            let error_message = format!("{} [{count} characters, not recorded: {why}]", beginning(error_message));
            Some(ToolCallFailed { error_kind: beginning(error_kind), error_message, ..failed.clone() }.into())
        }
        _ => None,
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RecordId {
        RecordId::new(text.to_owned()).unwrap()
    }

    #[test]
    fn only_an_object_with_the_marker_of_the_same_call_alone_is_a_marker() {
        let own = marker(&id("a"), Reason::TooLarge, "81 bytes", 81);
        assert_eq!(read(&id("a"), &own).as_deref(), Some("too_large: 81 bytes"));
        assert_eq!(read(&id("b"), &own), None, "the marker of another call");
        for other in
            [json!({ MARKER: { "call": "a" }, "more": 1 }), json!({ MARKER: "a" }), json!([MARKER]), json!("a")]
        {
            assert_eq!(read(&id("a"), &Json::from(other.clone())), None, "{other}");
        }
        assert_eq!(read(&id("a"), &Json::from(json!({ MARKER: { "call": "a", "reason": 1 } }))).as_deref(), Some(": "));
    }

    #[test]
    fn content_is_left_out_once() {
        let (request_record_id, latency_ms) = (id("a"), None);
        let done = ToolCallCompleted { request_record_id, result: Some(Json::from(json!("x"))), latency_ms };
        let failed = ToolCallFailed {
            request_record_id: id("a"),
            error_kind: "k".repeat(2000),
            error_message: "é".repeat(9000),
            latency_ms,
        };
        for payload in [Payload::from(done), failed.into()] {
            let without = without_content(&payload, Reason::Invalid, &"why ".repeat(2000)).expect("it has content");
            assert!(format!("{without:?}").chars().count() < 4000, "{without:?}");
            assert_eq!(without_content(&without, Reason::Invalid, "again"), None);
        }
    }
}
