//! Reads OTLP/JSON: one document per line, or one for the whole file, as the collector's file exporter writes them.
//!
//! <https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/>. Members that are not needed are ignored.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TracesData {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    #[serde(default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Debug, Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<Span>,
}

/// The members of a span that an import needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    /// Empty for a root span.
    #[serde(default)]
    pub(super) parent_span_id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(deserialize_with = "number")]
    pub(super) start_time_unix_nano: u64,
    #[serde(deserialize_with = "number")]
    pub(super) end_time_unix_nano: u64,
    #[serde(default, deserialize_with = "attributes")]
    pub(super) attributes: Map<String, Value>,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    message: String,
    /// A number, or the name of the enum's value.
    #[serde(default)]
    code: Value,
}

impl Span {
    /// Returns a text attribute.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the message of the failure, perhaps empty, or `None` if the span does not report one.
    pub(super) fn failure(&self) -> Option<&str> {
        let failed = self.status.code == 2 || self.status.code == "STATUS_CODE_ERROR";
        let kind = self.text("error.type");
        (failed || kind.is_some()).then(|| match self.status.message.as_str() {
            "" => kind.unwrap_or_default(),
            message => message,
        })
    }
}

/// Reads all spans of a file.
pub(super) fn read(text: &str) -> Result<Vec<Span>, serde_json::Error> {
    let mut spans = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<TracesData>() {
        let scopes = document?.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.extend(scopes.flat_map(|scope| scope.spans));
    }
    Ok(spans)
}

/// Reads a 64-bit number: a decimal text, as in protobuf's JSON, or a number, as some writers write it.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(d)?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| serde::de::Error::custom(format!("{value} is no time in nanoseconds")))
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: AnyValue,
}

/// `AnyValue`: one member, named by its type. An empty value has no member.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AnyValue {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Value>,
    double_value: Option<Value>,
    array_value: Option<Array>,
    kvlist_value: Option<KeyValues>,
    bytes_value: Option<String>,
}

#[derive(Default, Deserialize)]
struct Array {
    #[serde(default)]
    values: Vec<AnyValue>,
}

#[derive(Default, Deserialize)]
struct KeyValues {
    #[serde(default)]
    values: Vec<KeyValue>,
}

impl AnyValue {
    fn plain(self) -> Value {
        let whole = |value: Value| match value.as_str().and_then(|text| text.parse::<i64>().ok()) {
            Some(number) => number.into(),
            None => value,
        };
        // Bytes stay in their base64 text.
        let text = self.string_value.or(self.bytes_value);
        text.map(Value::from)
            .or_else(|| self.bool_value.map(Value::from))
            .or_else(|| self.int_value.map(whole))
            .or(self.double_value)
            .or_else(|| Some(self.array_value?.values.into_iter().map(Self::plain).collect()))
            .or_else(|| Some(Value::Object(object(self.kvlist_value?.values))))
            .unwrap_or(Value::Null)
    }
}

fn object(members: Vec<KeyValue>) -> Map<String, Value> {
    members.into_iter().map(|member| (member.key, member.value.plain())).collect()
}

fn attributes<'de, D: Deserializer<'de>>(d: D) -> Result<Map<String, Value>, D::Error> {
    Vec::<KeyValue>::deserialize(d).map(object)
}
