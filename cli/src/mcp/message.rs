//! JSON-RPC messages as members whose texts are kept. A line with repeated or unreadable members is refused: the server could read
//! it differently.

use serde::{Deserialize, de};
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, fmt};

/// The longest line that is accepted, bytes: the largest payload of a record, with the members around it.
pub(crate) const LINE_BYTES_MAX: usize = 80 << 20;

/// The members of an object. Each value keeps its text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(pub(crate) BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> de::Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.insert(name.clone(), value).is_some() {
                        return Err(de::Error::custom(format!("the member {name:?} is repeated")));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Members {
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(AsRef::as_ref)
    }

    /// A member that is a text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A member that is an object.
    pub(crate) fn members(&self, name: &str) -> Option<Self> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == "true")
    }

    pub(crate) fn set(&mut self, name: &str, json: &str) -> Result<(), serde_json::Error> {
        self.0.insert(name.to_owned(), RawValue::from_string(json.to_owned())?);
        Ok(())
    }

    pub(crate) fn to_json(&self) -> String {
        let members = self.0.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get()));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(String);

impl Id {
    /// Parses a text or a number. `None` for null and for anything else, which is no id.
    fn parse(raw: &RawValue) -> Option<Self> {
        match serde_json::from_str(raw.get()).ok()? {
            id @ (Value::String(_) | Value::Number(_)) => Some(Self(id.to_string())),
            _ => None,
        }
    }

    /// The id as JSON.
    pub(crate) fn as_json(&self) -> &str {
        &self.0
    }
}

/// A parsed message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) members: Members,
    /// The id, unless the message is a notification.
    pub(crate) id: Option<Id>,
    /// The method, unless the message is a response.
    pub(crate) method: Option<String>,
}

impl Message {
    /// Parses one message of a line.
    ///
    /// Errors: not an object, a repeated member, a method that is not a text, or an id that is neither text nor number.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let members: Members = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let id = match members.get("id").filter(|id| id.get() != "null") {
            None => None,
            Some(raw) => {
                Some(Id::parse(raw).ok_or_else(|| format!("the id {} is neither text nor number", raw.get()))?)
            }
        };
        let method = match members.get("method") {
            None => None,
            Some(raw) => {
                Some(serde_json::from_str(raw.get()).map_err(|error| format!("the method is no text: {error}"))?)
            }
        };
        Ok(Self { members, id, method })
    }

    /// Splits a line into messages: one, or the elements of a batch.
    pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
        if !line.trim_start().starts_with('[') {
            return Ok(vec![line.to_owned()]);
        }
        let all: Vec<Box<RawValue>> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(|one| one.get().to_owned()).collect())
    }

    pub(crate) fn params(&self) -> Members {
        self.members.members("params").unwrap_or_default()
    }
}

/// A `tools/call` of the client.
#[derive(Clone, Debug)]
pub(crate) struct CallRequest {
    message: Message,
    pub(crate) id: Id,
    pub(crate) tool: String,
    params: Members,
    pub(crate) meta: Members,
}

impl CallRequest {
    /// Reads a `tools/call`.
    ///
    /// Errors: the tool has no name, or `_meta` is no object.
    pub(crate) fn parse(id: Id, message: Message) -> Result<Self, String> {
        let params = message.members.members("params").ok_or("params is not an object without repeated members")?;
        let tool = params.text("name").ok_or("params.name is not a text")?;
        let meta = match params.get("_meta") {
            None => Members::default(),
            Some(_) => params.members("_meta").ok_or("params._meta is not an object without repeated members")?,
        };
        Ok(Self { message, id, tool, params, meta })
    }

    /// The JSON that identifies the call besides its tool, and that the journal records: the arguments. If the request has further
    /// members, such as `task` or `inputResponses`, an object of all of them.
    pub(crate) fn arguments(&self) -> String {
        let mut members = self.params.clone();
        members.0.retain(|name, _| name != "name" && name != "_meta");
        match members.get("arguments") {
            Some(arguments) if members.0.len() == 1 => arguments.get().to_owned(),
            None if members.0.is_empty() => "{}".to_owned(),
            _ => members.to_json(),
        }
    }

    /// A text argument that is not empty.
    pub(crate) fn text_argument(&self, name: &str) -> Option<String> {
        self.params.members("arguments")?.text(name).filter(|value| !value.is_empty())
    }

    /// The request for the server: with the record id of the call in `_meta`, and with an idempotency key as an argument.
    pub(crate) fn for_server(&self, request: &str, key: Option<(&str, &str)>) -> Result<String, String> {
        let build = || {
            let (mut members, mut params, mut meta) =
                (self.message.members.clone(), self.params.clone(), self.meta.clone());
            meta.set("io.runlog/request", &Value::from(request).to_string())?;
            params.set("_meta", &meta.to_json())?;
            if let Some((name, key)) = key {
                let mut arguments = self.params.members("arguments").unwrap_or_default();
                arguments.set(name, &Value::from(key).to_string())?;
                params.set("arguments", &arguments.to_json())?;
            }
            members.set("params", &params.to_json())?;
            Ok(members.to_json())
        };
        build().map_err(|error: serde_json::Error| error.to_string())
    }
}

/// A successful response.
pub(crate) fn result(id: &Id, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json())
}

/// A failed response, with an error object.
pub(crate) fn error(id: Option<&Id>, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.map_or("null", Id::as_json))
}

/// An error object.
pub(crate) fn error_object(code: i32, message: &str) -> String {
    serde_json::json!({"code": code, "message": message}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_two_parsers_could_read_differently_is_refused() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}"#,
            r#"{"id":[1],"method":"tools/call"}"#,
            r#"{"id":1,"method":["tools/call"]}"#,
            "7",
        ] {
            assert!(Message::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_call_keeps_what_the_gate_does_not_know_and_gets_its_key() {
        let text = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","trace":1.50,"params":{"name":"pay","task":{"ttl":1e3},
            "arguments":{"cents":12345678901234567890123},"_meta":{"progressToken":7,"x/y":null}}}"#;
        let message = Message::parse(text).unwrap();
        let call = CallRequest::parse(message.id.clone().unwrap(), message).unwrap();
        assert_eq!(call.arguments(), r#"{"arguments":{"cents":12345678901234567890123},"task":{"ttl":1e3}}"#);
        assert_eq!(
            call.for_server("r1", Some(("key", "k1"))).unwrap(),
            r#"{"id":"a","jsonrpc":"2.0","method":"tools/call","params":{"_meta":{"io.runlog/request":"r1","progressToken":7,"x/y":null},"arguments":{"cents":12345678901234567890123,"key":"k1"},"name":"pay","task":{"ttl":1e3}},"trace":1.50}"#
        );
    }
}
