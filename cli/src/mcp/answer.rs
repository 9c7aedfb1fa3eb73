//! The form of answers: from the server into the journal, from the journal to the client.
//!
//! ```text
//!   server's answer          in the journal                             to the client
//!   result                   completed, the result                      the result
//!   result with isError      failed `mcp_tool_error`, the result        the result
//!   error                    failed `mcp_error`, the error              the error
//!   none, request not sent   failed `not_sent`                          a result with isError
//!   none                     pending: it may have happened              a result with isError
//!   a decision with a value  completed, any JSON                        the value as text and structured content
//! ```

use super::{
    message::{Id, Members, error, result},
    upstream::Response,
};
use runlog_producer::{Ended, Error, Failure, Json, SideEffect};
use runlog_schemas::answer::{CallError, ErrorKind};
use serde_json::{Value, json};

const TOOL_ERROR: &str = "mcp_tool_error";
const PROTOCOL_ERROR: &str = "mcp_error";
const NOT_SENT: &str = "not_sent";

/// Members of which a result of `tools/call` has at least one.
const RESULT_MEMBERS: [&str; 4] = ["content", "task", "resultType", "toolResult"];

/// Returns how the effect of a call ended.
pub(crate) fn ended(response: Response) -> Ended {
    let failed = |kind: &str, message: String| Ended::Failed(Failure { kind: kind.to_owned(), message });
    match response {
        Response::Result(text) => match Json::parse(&text) {
            Ok(json) if is_error(&text) => failed(TOOL_ERROR, json.as_str().to_owned()),
            Ok(json) => Ended::Done(json),
            Err(error) => Ended::Unknown(format!("the answer of the MCP server cannot be recorded: {error}")),
        },
        Response::Error(text) => failed(PROTOCOL_ERROR, text),
        Response::NotSent(why) => failed(NOT_SENT, why),
        Response::Lost(why) => Ended::Unknown(why),
    }
}

fn is_error(result: &str) -> bool {
    serde_json::from_str::<Members>(result).is_ok_and(|members| members.is_true("isError"))
}

/// The answer to a call, for any request that gets it.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Result(String),
    Error(String),
}

impl Reply {
    /// Makes the reply of a call that has ended. `is_recorded`: it comes from the journal.
    pub(crate) fn from_end(value: Option<&Json>, failure: Option<&CallError>, is_recorded: bool) -> Self {
        let reply = match (value, failure) {
            (Some(json), _) => Self::from_value(json.as_str()),
            (None, Some(CallError { kind, message })) => Self::from_failure(kind, message),
            (None, None) => Self::refusal("the result of the call is masked in the journal"),
        };
        if is_recorded { reply.marked() } else { reply }
    }

    fn from_value(text: &str) -> Self {
        let is_result = |members: &Members| RESULT_MEMBERS.iter().any(|name| members.get(name).is_some());
        match serde_json::from_str::<Members>(text) {
            Ok(members) if is_result(&members) => Self::Result(text.to_owned()),
            // An operator's result: clients check structured content against the tool's schema.
            Ok(_) => Self::Result(format!(r#"{{"content":[{}],"structuredContent":{text}}}"#, text_block(text))),
            Err(_) => Self::Result(format!(r#"{{"content":[{}]}}"#, text_block(text))),
        }
    }

    fn from_failure(kind: &str, message: &str) -> Self {
        let is_object = serde_json::from_str::<Members>(message).is_ok();
        match kind {
            TOOL_ERROR if is_object => Self::Result(message.to_owned()),
            PROTOCOL_ERROR if is_object => Self::Error(message.to_owned()),
            NOT_SENT => Self::refusal(&format!("the call did not reach the MCP server: {message}")),
            _ => Self::refusal(&format!("the call failed: {kind}: {message}")),
        }
    }

    /// Makes a result that explains to the model why the gate has no answer.
    pub(crate) fn refusal(why: &str) -> Self {
        let content = json!([{"type": "text", "text": format!("runlog: {why}")}]);
        Self::Result(json!({"content": content, "isError": true, "resultType": "complete"}).to_string())
    }

    /// Makes the reply of a call that has no recorded end. `page` is the address of the server's page.
    pub(crate) fn from_error(failed: &Error, tool: &str, page: &str) -> Self {
        let why = match (failed.kind(), failed.side_effect()) {
            (ErrorKind::ReconcileRequired, side_effect) => {
                let subject = failed.subject();
                let address = match (&subject.run_id, &subject.record_id) {
                    (Some(run), Some(id)) => address(page, run.as_str(), id.as_str()),
                    _ => page.to_owned(),
                };
                let what = match side_effect {
                    SideEffect::Unrecorded => "may have run, and its answer is lost",
                    _ => "is not run",
                };
                format!("{tool} {what}: an operator must decide, at {address} . Then repeat the call. {failed}")
            }
            (_, SideEffect::Held) => {
                format!("{tool} ran, and its result is not recorded yet; repeat the call to get it. {failed}")
            }
            (_, SideEffect::Evidence | SideEffect::Unrecorded) => format!("{tool} may have run. {failed}"),
            (_, SideEffect::None | SideEffect::Unknown) => format!("{tool} did not run. {failed}"),
        };
        Self::refusal(&why)
    }

    /// Marks a result as recorded, in `_meta`, and completes it for any version of the protocol.
    fn marked(self) -> Self {
        let Self::Result(text) = self else { return self };
        let mark = |text: &str| {
            let mut members: Members = serde_json::from_str(text)?;
            let mut meta = members.members("_meta").unwrap_or_default();
            meta.set("io.runlog/recorded", "true")?;
            members.set("_meta", &meta.to_json())?;
            // Required since the version 2026-07-28. The recorded answer may come from an older connection, or from an operator.
            if members.get("resultType").is_none() {
                members.set("resultType", r#""complete""#)?;
            }
            Ok::<_, serde_json::Error>(members.to_json())
        };
        Self::Result(mark(&text).unwrap_or(text))
    }

    /// The response to a request.
    pub(crate) fn to_line(&self, id: &Id) -> String {
        match self {
            Self::Result(text) => result(id, text),
            Self::Error(text) => error(Some(id), text),
        }
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The address of the page where an operator decides about an effect.
fn address(page: &str, run: &str, id: &str) -> String {
    let encoded =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    format!("{page}?run={}&kind=tool_call&effect={}", encoded(run), encoded(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(ended: Ended) -> String {
        let (value, failure) = match ended {
            Ended::Done(json) => (Some(json), None),
            Ended::Failed(Failure { kind, message }) => (None, Some(CallError { kind, message })),
            Ended::Unknown(why) => panic!("{why}"),
        };
        match Reply::from_end(value.as_ref(), failure.as_ref(), false) {
            Reply::Result(text) | Reply::Error(text) => text,
        }
    }

    #[test]
    fn the_journal_gives_back_what_the_server_answered() {
        for text in [
            r#"{"content":[{"type":"text","text":"B-2","n":1.50}],"structuredContent":{"n":12345678901234567890}}"#,
            r#"{"content":[{"type":"text","text":"no seat"}],"isError":true,"x":[]}"#,
            r#"{"task":{"taskId":"t"}}"#,
        ] {
            assert_eq!(replayed(ended(Response::Result(text.into()))), text);
        }
        let error = r#"{"code":-32602,"message":"no such tool","data":{"a":1}}"#;
        assert_eq!(replayed(ended(Response::Error(error.into()))), error);
        assert!(matches!(ended(Response::Lost("ended".into())), Ended::Unknown(_)));
    }

    #[test]
    fn an_operators_result_of_any_form_is_a_result_of_a_tool() {
        let decided = |json: &str| replayed(Ended::Done(Json::parse(json).unwrap()));
        assert_eq!(decided("7"), r#"{"content":[{"text":"7","type":"text"}]}"#);
        let object = decided(r#"{"id":7}"#);
        assert_eq!(object, r#"{"content":[{"text":"{\"id\":7}","type":"text"}],"structuredContent":{"id":7}}"#);
    }
}
