//! Computes a turn or a call as of a time from the statements about it. Pure.
//!
//! The statement with the latest valid time up to that time decides. At equal times an assertion wins over a
//! retraction, and then the later position in the log wins. If it retracts, there is no row. A call that has ended
//! stays ended, also after later statements about its request, and keeps the start that it had at its end. The end
//! itself neither asserts nor retracts the call.

use super::types::{ConversationTurn, ToolCall, ToolCallDone, ToolCallReq, Validity};

/// The end of time: all statements count.
pub(super) const END: i64 = i64::MAX;

/// A statement about a row that holds from a time on.
#[derive(Clone, Debug)]
pub(super) struct Statement<T> {
    pub(super) validity: Validity,
    /// Its record.
    pub(super) record_id: String,
    pub(super) event: T,
}

/// A statement about a turn. `None` retracts it.
pub(super) type TurnEvent = Option<ConversationTurn>;

/// A statement about a call.
#[derive(Clone, Debug)]
pub(super) enum CallEvent {
    Requested(ToolCallReq),
    /// With the hash of the outcome.
    Done(ToolCallDone, Option<String>),
    Retracted,
}

/// Returns the statements up to `at` in order of precedence: the last one decides.
fn statements_until<T>(statements: &[Statement<T>], at: i64) -> Vec<&Statement<T>> {
    let mut earlier: Vec<_> = statements.iter().filter(|statement| statement.validity.at <= at).collect();
    // A stable sort: equal statements keep the log's order.
    earlier.sort_by_key(|statement| (statement.validity.at, statement.validity.is_valid));
    earlier
}

/// The turn as of a time.
pub(super) fn turn_at(statements: &[Statement<TurnEvent>], at: i64) -> Option<ConversationTurn> {
    let last = *statements_until(statements, at).last()?;
    last.event.clone().filter(|_| last.validity.is_valid)
}

/// The call as of a time.
pub(super) fn call_at(statements: &[Statement<CallEvent>], at: i64) -> Option<ToolCall> {
    let statements = statements_until(statements, at);
    deciding_statement(&statements).filter(|last| last.validity.is_valid)?;
    let asserted = || statements.iter().rev().filter(|statement| statement.validity.is_valid);
    let requests = || {
        asserted().filter_map(|statement| match &statement.event {
            CallEvent::Requested(req) => Some(req),
            _ => None,
        })
    };
    let mut requested = requests().next()?.clone();
    let done = asserted().find_map(|statement| match &statement.event {
        CallEvent::Done(done, _) => Some(done.clone()),
        _ => None,
    });
    if let Some(done) = &done
        && let Some(request_before_end) = requests().find(|req| req.started_at.at <= done.ended_at.at)
        && requested.started_at.at > done.ended_at.at
    {
        requested.started_at = request_before_end.started_at;
    }
    Some((requested, done))
}

/// The statement that decides whether the call exists. Its end does not: an end asserts only that the call ended.
fn deciding_statement<'a>(statements: &[&'a Statement<CallEvent>]) -> Option<&'a Statement<CallEvent>> {
    statements.iter().rev().find(|statement| !matches!(statement.event, CallEvent::Done(..))).copied()
}

/// Whether the statement that decides at `at` retracts.
pub(super) fn is_retracted(statements: &[Statement<CallEvent>], at: i64) -> bool {
    deciding_statement(&statements_until(statements, at)).is_some_and(|last| !last.validity.is_valid)
}

/// How the call ended, at any time, and the hash of its outcome. A call ends at most once.
pub(super) fn end(statements: &[Statement<CallEvent>]) -> Option<(&ToolCallDone, Option<&str>)> {
    statements.iter().find_map(|statement| match &statement.event {
        CallEvent::Done(done, hash) => Some((done, hash.as_deref())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn statement(at: i64, is_valid: bool, event: CallEvent) -> Statement<CallEvent> {
        Statement { validity: Validity { at, is_valid }, record_id: String::new(), event }
    }

    fn request(at: i64, vendor: &str) -> CallEvent {
        CallEvent::Requested(ToolCallReq {
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

    fn vendor(statements: &[Statement<CallEvent>], at: i64) -> Option<String> {
        call_at(statements, at).map(|(req, _)| req.vendor)
    }

    #[test]
    fn at_a_tie_the_assertion_counts_and_then_the_log() {
        let statements = [
            statement(10, true, request(10, "a")),
            statement(20, false, CallEvent::Retracted),
            statement(20, true, request(20, "b")),
            statement(20, true, request(20, "c")),
            statement(20, false, CallEvent::Retracted),
            statement(30, false, CallEvent::Retracted),
        ];
        let vendor_at = |at| vendor(&statements, at);
        assert_eq!(
            [vendor_at(9), vendor_at(10), vendor_at(19), vendor_at(20), vendor_at(29), vendor_at(30), vendor_at(END)],
            [None, Some("a".into()), Some("a".into()), Some("c".into()), Some("c".into()), None, None]
        );
    }
}
