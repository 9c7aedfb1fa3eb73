//! What stands of a turn or a call, from what was stated of it. Pure.
//!
//! Of the statements up to a time the latest by valid time counts, at a tie an assertion before a retraction, then the log's
//! order. Where that one retracts, nothing stands. A call's end stands whatever is said of its request later.

use super::types::{ConversationTurn, ToolCall, ToolCallDone, ToolCallReq, Validity};

/// The end of time: all that was ever stated counts.
pub(super) const END: i64 = i64::MAX;

/// Something stated of a row, from a time on.
#[derive(Clone, Debug)]
pub(super) struct Statement<T> {
    pub(super) validity: Validity,
    /// The record that says so.
    pub(super) record_id: String,
    pub(super) said: T,
}

/// What is said of a turn; nothing more where it is retracted.
pub(super) type OfTurn = Option<ConversationTurn>;

/// What is said of a call.
#[derive(Clone, Debug)]
pub(super) enum OfCall {
    Requested(ToolCallReq),
    /// With the hash of its outcome.
    Done(ToolCallDone, Option<String>),
    Retracted,
}

/// The statements in the order in which they count: the last one up to `at` decides.
fn until<T>(statements: &[Statement<T>], at: i64) -> Vec<&Statement<T>> {
    let mut until: Vec<_> = statements.iter().filter(|statement| statement.validity.at <= at).collect();
    // Stable: what stands later in the log stays behind.
    until.sort_by_key(|statement| (statement.validity.at, statement.validity.is_valid));
    until
}

/// The turn at a time.
pub(super) fn turn(statements: &[Statement<OfTurn>], at: i64) -> Option<ConversationTurn> {
    let last = *until(statements, at).last()?;
    last.said.clone().filter(|_| last.validity.is_valid)
}

/// The call at a time.
pub(super) fn call(statements: &[Statement<OfCall>], at: i64) -> Option<ToolCall> {
    let until = until(statements, at);
    until.last().filter(|last| last.validity.is_valid)?;
    let asserted = || until.iter().rev().filter(|statement| statement.validity.is_valid);
    let requested = asserted().find_map(|statement| match &statement.said {
        OfCall::Requested(req) => Some(req.clone()),
        _ => None,
    })?;
    let done = asserted().find_map(|statement| match &statement.said {
        OfCall::Done(done, _) => Some(done.clone()),
        _ => None,
    });
    Some((requested, done))
}

/// The end that a call has, whenever it holds, and the hash of its outcome. There is one at the most.
pub(super) fn end(statements: &[Statement<OfCall>]) -> Option<(&ToolCallDone, Option<&str>)> {
    statements.iter().find_map(|statement| match &statement.said {
        OfCall::Done(done, hash) => Some((done, hash.as_deref())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn said(at: i64, is_valid: bool, said: OfCall) -> Statement<OfCall> {
        Statement { validity: Validity { at, is_valid }, record_id: String::new(), said }
    }

    fn request(at: i64, vendor: &str) -> OfCall {
        OfCall::Requested(ToolCallReq {
            request_id: Uuid::nil(),
            call_id: "c".into(),
            parent_id: Uuid::nil(),
            vendor: vendor.into(),
            tool_name: "t".into(),
            args_sha256: "h".into(),
            arguments_json: None,
            started_at: Validity { at, is_valid: true },
        })
    }

    fn vendor(statements: &[Statement<OfCall>], at: i64) -> Option<String> {
        call(statements, at).map(|(req, _)| req.vendor)
    }

    #[test]
    fn at_a_tie_the_assertion_counts_and_then_the_log() {
        let statements = [
            said(10, true, request(10, "a")),
            said(20, false, OfCall::Retracted),
            said(20, true, request(20, "b")),
            said(20, true, request(20, "c")),
            said(20, false, OfCall::Retracted),
            said(30, false, OfCall::Retracted),
        ];
        let of = |at| vendor(&statements, at);
        assert_eq!(
            [of(9), of(10), of(19), of(20), of(29), of(30), of(END)],
            [None, Some("a".into()), Some("a".into()), Some("c".into()), Some("c".into()), None, None]
        );
    }
}
