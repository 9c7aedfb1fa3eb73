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
    pub(super) said: T,
}

/// A statement about a turn. `None` retracts it.
pub(super) type OfTurn = Option<ConversationTurn>;

/// A statement about a call.
#[derive(Clone, Debug)]
pub(super) enum OfCall {
    Requested(ToolCallReq),
    /// With the hash of the outcome.
    Done(ToolCallDone, Option<String>),
    Retracted,
}

/// The statements up to `at` in order of precedence: the last one decides.
fn until<T>(statements: &[Statement<T>], at: i64) -> Vec<&Statement<T>> {
    let mut until: Vec<_> = statements.iter().filter(|statement| statement.validity.at <= at).collect();
    // A stable sort: equal ones keep the log's order.
    until.sort_by_key(|statement| (statement.validity.at, statement.validity.is_valid));
    until
}

/// The turn as of a time.
pub(super) fn turn(statements: &[Statement<OfTurn>], at: i64) -> Option<ConversationTurn> {
    let last = *until(statements, at).last()?;
    last.said.clone().filter(|_| last.validity.is_valid)
}

/// The call as of a time.
pub(super) fn call(statements: &[Statement<OfCall>], at: i64) -> Option<ToolCall> {
    let until = until(statements, at);
    decides(&until).filter(|last| last.validity.is_valid)?;
    let asserted = || until.iter().rev().filter(|statement| statement.validity.is_valid);
    let requests = || {
        asserted().filter_map(|statement| match &statement.said {
            OfCall::Requested(req) => Some(req),
            _ => None,
        })
    };
    let mut requested = requests().next()?.clone();
    let done = asserted().find_map(|statement| match &statement.said {
        OfCall::Done(done, _) => Some(done.clone()),
        _ => None,
    });
    if let Some(done) = &done
        && let Some(begun) = requests().find(|req| req.started_at.at <= done.ended_at.at)
        && requested.started_at.at > done.ended_at.at
    {
        requested.started_at = begun.started_at;
    }
    Some((requested, done))
}

/// The statement that decides whether the call exists. Its end does not: an end asserts only that the call ended.
fn decides<'a>(until: &[&'a Statement<OfCall>]) -> Option<&'a Statement<OfCall>> {
    until.iter().rev().find(|statement| !matches!(statement.said, OfCall::Done(..))).copied()
}

/// Whether the statement that decides at `at` retracts.
pub(super) fn is_retracted(statements: &[Statement<OfCall>], at: i64) -> bool {
    decides(&until(statements, at)).is_some_and(|last| !last.validity.is_valid)
}

/// How the call ended, at any time, and the hash of its outcome. A call ends at most once.
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
