//! Converts values of records to the forms of the trajectory format: text, parts of text, objects.

use super::CALLS_MAX;
use runlog_schemas::json::{self, Json, members};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message or a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Text {
    Plain(String),
    Parts(Vec<Part>),
}

/// A part of a message. The format allows images only as files, so content other than text stays JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
}

#[derive(Deserialize)]
struct InputPart {
    #[serde(rename = "type")]
    kind: String,
    /// The text. OpenAI names it `text`, OpenTelemetry `content`.
    #[serde(alias = "content")]
    text: Option<String>,
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl Text {
    pub(super) fn empty() -> Self {
        Self::Plain(String::new())
    }

    /// Converts a message's content: a string, parts, or null. Other content becomes its JSON text, and so does a string with a
    /// lone surrogate.
    pub(super) fn from_content(content: &Json) -> Self {
        let text = content.as_str();
        match text.as_bytes().first() {
            Some(b'n') => Self::empty(),
            Some(b'"') => Self::Plain(serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())),
            Some(b'[') => Self::parts(text).unwrap_or_else(|| Self::Plain(text.to_owned())),
            _ => Self::Plain(text.to_owned()),
        }
    }

    /// Converts a call's result: to a string, or to its JSON text. Unlike in a message's content, null is a value.
    pub(super) fn from_result(result: Option<&Json>) -> Self {
        match result {
            None => Self::Plain("[not recorded]".to_owned()),
            Some(result) if result.as_str().starts_with('"') => Self::from_content(result),
            Some(result) => Self::Plain(result.as_str().to_owned()),
        }
    }

    fn parts(text: &str) -> Option<Self> {
        let input_parts: Vec<InputPart> = serde_json::from_str(text).ok()?;
        let part = |part: InputPart| Some(Part { kind: "text", text: part.text.filter(|_| part.kind == "text")? });
        Some(Self::Parts(input_parts.into_iter().map(part).collect::<Option<_>>()?))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Parts(parts) => parts.iter().map(|part| part.text.len()).sum(),
        }
    }
}

/// Returns arguments as an object, which the format requires, and whether they already were an object.
pub(super) fn arguments(arguments: Option<Json>) -> (Json, bool) {
    match arguments {
        None => (Json::from(serde_json::json!({})), true),
        Some(object) if object.as_str().starts_with('{') => (object, true),
        Some(other) => (Json::from(serde_json::json!({ "value": other.to_value() })), false),
    }
}

/// A chat message of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) role: String,
    pub(super) content: Json,
    /// Whether an assistant asks for calls.
    pub(super) has_calls: bool,
    /// Those of them that have a tool and arguments.
    pub(super) calls: Vec<Asked>,
    /// The id of the call that a tool's message answers.
    pub(super) answers: Option<String>,
    /// Whether it is a piece of a LangGraph thread.
    pub(super) is_piece: bool,
}

/// A call in an assistant's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) arguments: Json,
}

/// Why a checkpoint's message has no step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NoMessage {
    /// JSON that is no chat message, such as another value of a thread.
    OtherValue,
    /// Bytes of a serializer, which can be encrypted.
    Encoded,
}

type Members<'a> = Vec<(String, &'a str)>;

fn member<'a>(members: &Members<'a>, name: &str) -> Option<&'a str> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

fn text(members: &Members<'_>, name: &str) -> Option<String> {
    serde_json::from_str(member(members, name)?).ok()
}

/// Parses a checkpoint's message: an object with a role, or a piece of a LangGraph thread, which is a pair of its form and its value.
pub(super) fn parse_message(message: &Json) -> Result<Message, NoMessage> {
    let is_piece = message.as_str().starts_with('[');
    let text_of_piece = if is_piece { message_of_piece(message.as_str())? } else { message.as_str() };
    let members = members(text_of_piece).map_err(|_| NoMessage::OtherValue)?;
    let role = text(&members, "role").or_else(|| text(&members, "type")).ok_or(NoMessage::OtherValue)?;
    let role = match role.as_str() {
        // The role names of LangChain.
        "human" => "user".to_owned(),
        "ai" => "assistant".to_owned(),
        _ => role,
    };
    let content = Json::parse(member(&members, "content").unwrap_or("null")).map_err(|_| NoMessage::OtherValue)?;
    let list = member(&members, "tool_calls").filter(|calls| !matches!(*calls, "null" | "[]"));
    let calls = list.and_then(|calls| json::items(calls, CALLS_MAX).ok());
    let calls = calls.into_iter().flat_map(|calls| calls.first).filter_map(|call| parse_call(call.get())).collect();
    Ok(Message { role, content, has_calls: list.is_some(), calls, answers: text(&members, "tool_call_id"), is_piece })
}

/// The JSON of the LangChain message in a piece: `["value", {"$type": "langchain_core.messages.…", "value": {…}}]`.
fn message_of_piece(piece: &str) -> Result<&str, NoMessage> {
    let pair = json::items(piece, 2).map_err(|_| NoMessage::OtherValue)?;
    let [form, value] = &pair.first[..] else { return Err(NoMessage::OtherValue) };
    if form.get() != "\"value\"" {
        return Err(NoMessage::Encoded);
    }
    let value = members(value.get()).map_err(|_| NoMessage::OtherValue)?;
    let is_message = text(&value, "$type").is_some_and(|name| name.starts_with("langchain_core.messages."));
    member(&value, "value").filter(|_| is_message).ok_or(NoMessage::OtherValue)
}

/// Parses a call as LangChain writes it, with `args`, or as OpenAI does, with a `function` whose arguments are a text.
fn parse_call(call: &str) -> Option<Asked> {
    let outer = members(call).ok()?;
    let inner = member(&outer, "function").and_then(|function| members(function).ok());
    let of_call = inner.as_ref().unwrap_or(&outer);
    let arguments = match text(of_call, "arguments") {
        Some(text) => Json::parse(&text).unwrap_or_else(|_| Json::from(Value::from(text))),
        None => Json::parse(member(of_call, "args").or_else(|| member(of_call, "arguments"))?).ok()?,
    };
    Some(Asked { id: text(&outer, "id").unwrap_or_default(), tool: text(of_call, "name")?, arguments })
}
