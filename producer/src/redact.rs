//! Redacts content before a record is encoded. Pure.
//!
//! Fingerprints and argument hashes cover the original arguments, so a call is recognised although its arguments are redacted.
//! Content that is read from the journal (a recorded result, a checkpoint) is redacted.

use runlog_schemas::json::{Json, members};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, sync::Arc};

mod records;

/// Replaces a removed value.
pub const REDACTED: &str = "[redacted]";

type Texts = Arc<dyn Fn(&str) -> Cow<'_, str> + Send + Sync>;

/// The content to remove from records: in arguments, results, failures, turns, checkpoints, host payloads, and the
/// human-readable text of other records. Ids, references, hashes, keys, statuses and names never change, because the journal
/// finds, judges and recognises records by them. Bytes that are not text, and encrypted content, are not searched.
#[derive(Clone, Default)]
pub struct Redaction {
    policy_id: String,
    pointers: Vec<(Option<String>, Vec<String>)>,
    texts: Vec<Texts>,
}

impl Redaction {
    /// Creates an empty redaction. `policy_id` names the policy in every record (`redaction_policy_id`).
    pub fn new(policy_id: impl Into<String>) -> Self {
        Self { policy_id: policy_id.into(), ..Self::default() }
    }

    /// Removes the value at a JSON pointer (RFC 6901; a segment `*` matches every member or element) from arguments and results
    /// of `tool`. Without a tool, it applies to the arguments and results of all tools, the content of turns and proposals,
    /// JSON host payloads, and each message and the state of a checkpoint. A result that is written as a record of its own does
    /// not name its tool: all pointers apply to it.
    #[must_use]
    pub fn pointer(mut self, tool: Option<&str>, pointer: &str) -> Self {
        let segments = pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~"));
        self.pointers.push((tool.map(str::to_owned), segments.collect()));
        self
    }

    /// Applies a pattern to every string value and to the text of every failure. Names of members are not changed. With the
    /// `regex` crate: `.texts(move |text| pattern.replace_all(text, REDACTED))`.
    #[must_use]
    pub fn texts(mut self, pattern: impl Fn(&str) -> Cow<'_, str> + Send + Sync + 'static) -> Self {
        self.texts.push(Arc::new(pattern));
        self
    }

    /// The policy's name.
    pub(crate) fn policy_id(&self) -> &str {
        &self.policy_id
    }

    /// Redacts a value. Returns it unchanged if it has no part to remove. The remainder keeps its text, digits and order.
    pub(crate) fn json(&self, tool: Option<&str>, json: &Json) -> Json {
        self.json_where(|only| only.is_none() || only == tool, json)
    }

    /// Redacts a value of an unknown tool: all pointers apply.
    pub(crate) fn json_of_some_tool(&self, json: &Json) -> Json {
        self.json_where(|_| true, json)
    }

    fn json_where(&self, counts: impl Fn(Option<&str>) -> bool, json: &Json) -> Json {
        let counting = self.pointers.iter().filter(|(only, _)| counts(only.as_deref()));
        let pointers: Vec<&[String]> = counting.map(|(_, segments)| segments.as_slice()).collect();
        if pointers.is_empty() && self.texts.is_empty() {
            return json.clone();
        }
        let changed = self.change(json.as_str(), &pointers).and_then(|text| Json::parse(&text).ok());
        changed.unwrap_or_else(|| json.clone())
    }

    /// Redacts a text.
    pub(crate) fn text(&self, text: &str) -> String {
        let changed = |text: String, pattern: &Texts| match pattern(&text) {
            Cow::Borrowed(same) if same.len() == text.len() => text,
            other => other.into_owned(),
        };
        self.texts.iter().fold(text.to_owned(), changed)
    }

    /// Redacts a JSON text; the pointers are relative to it. `None` if it does not change.
    fn change(&self, text: &str, pointers: &[&[String]]) -> Option<String> {
        if pointers.iter().any(|pointer| pointer.is_empty()) {
            return serde_json::to_string(REDACTED).ok();
        }
        let below = |name: &str| -> Vec<&[String]> {
            let split = pointers.iter().filter_map(|pointer| pointer.split_first());
            split.filter(|(segment, _)| *segment == "*" || *segment == name).map(|(_, rest)| rest).collect()
        };
        match text.as_bytes().first()? {
            b'"' => self.string(text),
            b'{' => {
                let members = members(text).ok()?;
                let parts = members.iter().map(|(name, value)| (named(name), *value, self.change(value, &below(name))));
                join('{', parts, '}')
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                let parts = items.iter().enumerate().map(|(index, value)| {
                    (String::new(), value.get(), self.change(value.get(), &below(&index.to_string())))
                });
                join('[', parts, ']')
            }
            _ => None,
        }
    }

    /// Redacts a JSON string. `None` if it does not change.
    fn string(&self, text: &str) -> Option<String> {
        let old: String = serde_json::from_str(text).ok()?;
        let new = self.text(&old);
        if new == old { None } else { serde_json::to_string(&new).ok() }
    }
}

/// A member's name and the colon.
fn named(name: &str) -> String {
    let quoted = serde_json::to_string(name).unwrap_or_default();
    format!("{quoted}:")
}

/// Joins the parts, changed or unchanged. `None` if nothing changed.
fn join<'a>(open: char, parts: impl Iterator<Item = (String, &'a str, Option<String>)>, close: char) -> Option<String> {
    let (mut out, mut changed) = (String::from(open), false);
    for (index, (before, old, new)) in parts.enumerate() {
        if index > 0 {
            out.push(',');
        }
        changed |= new.is_some();
        out.push_str(&before);
        out.push_str(new.as_deref().unwrap_or(old));
    }
    out.push(close);
    changed.then_some(out)
}

/// Patterns are functions, which have no `Debug`.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction")
            .field("policy_id", &self.policy_id)
            .field("pointers", &self.pointers)
            .field("texts", &self.texts.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn redacted(redaction: &Redaction, tool: Option<&str>, value: Value) -> Value {
        redaction.json(tool, &Json::from(value)).to_value()
    }

    #[test]
    fn a_pointer_redacts_what_it_names_and_nothing_else() {
        let redaction = Redaction::new("p").pointer(None, "/card/number").pointer(Some("pay"), "/items/*/a~1b");
        let order = json!({ "card": { "number": 4111, "name": "A" }, "items": [{ "a/b": 1, "c": 2 }, { "c": 3 }] });
        let mut expected = order.clone();
        expected["card"]["number"] = REDACTED.into();
        assert_eq!(redacted(&redaction, Some("book"), order.clone()), expected);
        expected["items"][0]["a/b"] = REDACTED.into();
        assert_eq!(redacted(&redaction, Some("pay"), order), expected);
        let other = Json::parse(r#"{"card":12345678901234567890123,"items":{}}"#).unwrap();
        assert_eq!(redaction.json(Some("pay"), &other), other);
        let exact = Json::parse(r#"{"z":12345678901234567890123,"card":{"number":1,"a":1.0}}"#).unwrap();
        let expected = r#"{"z":12345678901234567890123,"card":{"number":"[redacted]","a":1.0}}"#;
        assert_eq!(redaction.json(None, &exact).as_str(), expected, "what stays keeps its text");
    }

    #[test]
    fn a_pattern_is_applied_to_every_string_and_to_no_name() {
        let redaction = Redaction::new("p").texts(|text| text.replace("secret", REDACTED).into());
        let value = json!({ "secret": ["a secret", { "b": "secret" }, 1] });
        let expected = json!({ "secret": ["a [redacted]", { "b": "[redacted]" }, 1] });
        assert_eq!(redacted(&redaction, None, value), expected);
        assert_eq!(redaction.text("the secret"), "the [redacted]");
    }
}
