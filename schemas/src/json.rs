//! JSON kept as text, so that its digits, key order and spelling never change.

use crate::{
    canonical,
    datum::{Datum, Input, Malformed, put_bytes},
};
use bounded::Bounds;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};
use std::{fmt, sync::Arc};

pub(crate) mod bounded;

/// The reason why a JSON text was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, at {pointer:?}")]
pub struct Invalid {
    /// The problem.
    pub what: String,
    /// JSON pointer to the problem.
    pub pointer: String,
}

pub(crate) fn invalid(what: impl ToString, pointer: &str) -> Invalid {
    Invalid { what: what.to_string(), pointer: pointer.to_owned() }
}

/// A JSON value as compact text. In Avro a `string`, in JSON the value itself.
///
/// Two values are equal if their texts are equal. To compare meanings, compare parsed values. Clones share the text and compare
/// in constant time, because message lists are compared at every checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks `text` and removes its insignificant white space.
    pub fn parse(text: &str) -> Result<Self, canonical::Error> {
        canonical::compact(text).map(|text| Self(text.into()))
    }

    /// Serialises a value.
    pub fn of<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// Returns the compact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text like [`value`].
    pub fn to_value(&self) -> Value {
        value(&self.0).unwrap_or(Value::Null)
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> serde::Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Parses a JSON text for inspection, with losses. Integers beyond 64 bits become floating-point numbers, as in `serde_json`. Lone
/// surrogates, which recorded terminals contain and Rust strings cannot, become U+FFFD.
///
/// Errors: invalid JSON, and numbers beyond a double's range.
pub fn value(text: &str) -> Result<Value, serde_json::Error> {
    plain(text).or_else(|error| match without_lone_surrogates(text) {
        Some(replaced) => plain(&replaced),
        None => Err(error),
    })
}

/// Refuses the same texts as [`value`], without memory for their values.
pub fn check_value(text: &str) -> Result<(), serde_json::Error> {
    check_plain(text).or_else(|error| match without_lone_surrogates(text) {
        Some(replaced) => check_plain(&replaced),
        None => Err(error),
    })
}

/// Like [`check_value`], and refuses lone surrogates.
pub(crate) fn check_plain(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str(text).map(|Readable| ())
}

/// Parses a value like [`value`], but refuses lone surrogates and values beyond `bounds`.
pub(crate) fn value_within(text: &str, bounds: &Bounds) -> Result<Value, serde_json::Error> {
    bounded::within(text, bounds).map(|Plain(value)| value)
}

/// The first items of a JSON array, and the number of all its items.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    /// The texts of the first items.
    pub first: Vec<&'a RawValue>,
    /// The number of items.
    pub count: usize,
}

/// Returns the first `max` items of a JSON array. Further items are counted, and need no memory.
///
/// Errors: the text is not a JSON array.
pub fn items(text: &str, max: usize) -> Result<Items<'_>, serde_json::Error> {
    struct Each(usize);
    impl<'de> Visitor<'de> for Each {
        type Value = Items<'de>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items<'de>, A::Error> {
            let mut first = Vec::new();
            while first.len() < self.0
                && let Some(item) = items.next_element::<&RawValue>()?
            {
                first.push(item);
            }
            let mut count = first.len();
            while count >= self.0 && items.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(Items { first, count })
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let items = serde::Deserializer::deserialize_seq(&mut json, Each(max))?;
    json.end()?;
    Ok(items)
}

/// Returns the members of a JSON object, each as its name and its value's text, in their order. Repeated names are
/// kept, and no name has a special meaning.
///
/// Errors: the text is not a JSON object.
pub fn members(text: &str) -> Result<Vec<(String, &str)>, serde_json::Error> {
    serde_json::from_str(text).map(|Members(members)| members)
}

struct Members<'a>(Vec<(String, &'a str)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((name, value.get()));
                }
                Ok(Members(members))
            }
        }
        d.deserialize_map(Each)
    }
}

/// Parses a value with any member names. `serde_json` itself interprets some names as markers.
fn plain(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|Plain(value)| value)
}

struct Plain(Value);

impl<'de> serde::Deserialize<'de> for Plain {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(AsItIs).map(Plain)
    }
}

struct AsItIs;

impl<'de> Visitor<'de> for AsItIs {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Plain(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Plain(member))) = members.next_entry()? {
            all.insert(name, member);
        }
        Ok(Value::Object(all))
    }
}

/// A value that was parsed and dropped.
struct Readable;

impl<'de> serde::Deserialize<'de> for Readable {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Self;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

/// Replaces each escape of a lone surrogate by U+FFFD. Returns `None` without lone surrogates.
fn without_lone_surrogates(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut replaced, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(escape) = text.as_bytes()[at..].iter().position(|byte| *byte == b'\\') {
        at += escape;
        let pair =
            |high: u16, low: Option<u16>| high < 0xdc00 && low.is_some_and(|low| (0xdc00..0xe000).contains(&low));
        at += match unit(at) {
            Some(high @ 0xd800..0xe000) if pair(high, unit(at + 6)) => 12,
            Some(0xd800..0xe000) => {
                replaced += &text[copied..at];
                replaced += "\\ufffd";
                copied = at + 6;
                6
            }
            _ => 2.min(text.len() - at),
        };
    }
    (copied > 0).then(|| replaced + &text[copied..])
}

/// Reads a member for which absent and null differ: null is a value. Use it with `default` and `deserialize_with`.
pub fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Json>, D::Error> {
    serde::Deserialize::deserialize(d).map(Some)
}

impl Datum for Json {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.0.as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let at = input.position();
        let text = input.str()?;
        check(text, at)?;
        Ok(Self(text.into()))
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        let at = input.position();
        check(input.str()?, at)
    }
}

/// Checks the text of a JSON field, which a foreign client can write. Text that is not JSON, or nests deeper than readers accept,
/// is malformed.
fn check(text: &str, at: usize) -> Result<(), Malformed> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|_| Malformed { what: "string does not hold JSON", at })?;
    // Fast path: few texts have so many brackets.
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > canonical::DEPTH_MAX && !canonical::nests_within_bounds(text) {
        return Err(Malformed { what: "JSON nests too deep", at });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{members, value};

    #[test]
    fn a_value_keeps_its_spelling_except_lone_surrogates() {
        for (text, seen) in [
            (r#""\ud83d\ude00 \\ud83d \u00e9\n""#, "\u{1f600} \\ud83d \u{e9}\n"),
            (r#""\ud83d \ude00 \ud83d\ud83d\ude00""#, "\u{fffd} \u{fffd} \u{fffd}\u{1f600}"),
            (r#""\udc00\udc00\\""#, "\u{fffd}\u{fffd}\\"),
        ] {
            assert_eq!(value(text).unwrap(), seen, "{text}");
        }
        let marked = r#"{"a":{"$serde_json::private::RawValue":"["},"b":[{"$serde_json::private::Number":1}]}"#;
        assert_eq!(value(marked).unwrap().to_string(), marked, "a name that is a mark of serde_json's");
        for text in [r#""\ud83d"#, "1e999", r#""\u12""#, "\"\\é\"", "\\"] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn members_are_returned_as_written() {
        let object = r#"{"$serde_json::private::RawValue":"[","b":{"c": 1.0},"\u0061":[],"b":2}"#;
        let expected = [("$serde_json::private::RawValue", r#""[""#), ("b", r#"{"c": 1.0}"#), ("a", "[]"), ("b", "2")];
        assert_eq!(members(object).unwrap(), expected.map(|(name, text)| (name.to_owned(), text)));
        for text in ["[1]", "{", "null"] {
            assert!(members(text).is_err(), "{text}");
        }
    }
}
