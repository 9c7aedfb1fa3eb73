//! JSON carried as its own text, so that nothing about it changes: digits, key order, spelling.

use crate::{
    canonical,
    datum::{Datum, Input, Malformed, put_bytes},
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A JSON value as compact text. In Avro a `string`, in JSON the value itself.
///
/// Two are equal when their texts are; for equality of meaning compare parsed values. A clone shares the text, and is
/// compared with what it shares it with in no time: message lists are compared at every checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks `text` and removes its insignificant white space.
    pub fn parse(text: &str) -> Result<Self, canonical::Error> {
        canonical::compact(text).map(|text| Self(text.into()))
    }

    /// Any value that serialises.
    pub fn of<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// The compact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed value; integers beyond 64 bits become floating point, as `serde_json` does it.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or(serde_json::Value::Null)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
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

/// For a member that may be absent and may be null, which are not the same: null is a value.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Json>, D::Error> {
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

/// A foreign client can write anything into a string field: what is not JSON, or nests deeper than anybody reads, is not
/// decodable.
fn check(text: &str, at: usize) -> Result<(), Malformed> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|_| Malformed { what: "string does not hold JSON", at })?;
    // Hardly any text has that many brackets at all, which is quickly seen.
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets > canonical::DEPTH_MAX && !canonical::nests_within_bounds(text) {
        return Err(Malformed { what: "JSON nests too deep", at });
    }
    Ok(())
}
