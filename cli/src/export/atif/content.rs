//! Converts values of records to the forms of the trajectory format: text, parts of text, objects.

use runlog_schemas::json::{Json, members};
use serde::{Deserialize, Serialize};

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

/// Returns role and content of a checkpoint's message, and whether it asks for calls; `None` if it is no chat message.
pub(super) fn parse_message(message: &Json) -> Option<(String, Json, bool)> {
    let members = members(message.as_str()).ok()?;
    let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    let role: String = serde_json::from_str(member("role").or_else(|| member("type"))?).ok()?;
    let role = match role.as_str() {
        // The role names of LangChain.
        "human" => "user".to_owned(),
        "ai" => "assistant".to_owned(),
        _ => role,
    };
    let content = Json::parse(member("content").unwrap_or("null")).ok()?;
    Some((role, content, member("tool_calls").is_some_and(|calls| calls != "null" && calls != "[]")))
}
