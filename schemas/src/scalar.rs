//! Scalars with different encodings in JSON and Avro: byte strings and finite numbers.

use crate::datum::{Datum, Input, Malformed, hex, put_bytes};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A byte string; Avro `bytes`. Written in JSON as lower-case hexadecimal, and read from base64 (RFC 4648 section 4, padded) too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes(pub Vec<u8>);

impl serde::Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex(&self.0))
    }
}

impl<'de> serde::Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(InJson)
    }
}

/// The member of the object that holds bytes in base64.
const BASE64: &str = "base64";

impl Bytes {
    /// Returns an object with the member `base64`, a third longer than the bytes; hexadecimal doubles them.
    pub fn in_base64(&self) -> serde_json::Value {
        serde_json::json!({ BASE64: STANDARD.encode(&self.0) })
    }
}

/// Reads both forms.
struct InJson;

impl<'de> serde::de::Visitor<'de> for InJson {
    type Value = Bytes;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pairs of hexadecimal digits, or an object with the member base64")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Bytes).ok_or_else(|| E::custom("expected pairs of hexadecimal digits"))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut members: A) -> Result<Bytes, A::Error> {
        let invalid = |what: &str| <A::Error as serde::de::Error>::custom(what);
        let Some((name, text)) = members.next_entry::<String, String>()? else {
            return Err(invalid("expected the member base64"));
        };
        if name != BASE64 || members.next_entry::<String, serde::de::IgnoredAny>()?.is_some() {
            return Err(invalid("expected the member base64 and no other"));
        }
        STANDARD.decode(text).map(Bytes).map_err(|error| invalid(&format!("not base64: {error}")))
    }
}

impl Datum for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(&self.0, out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let length = input.length()?;
        input.bytes(length).map(|bytes| Self(bytes.to_vec()))
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        let length = input.length()?;
        input.bytes(length).map(drop)
    }
}

/// A finite floating-point number: JSON has no infinities and no NaN. Avro `double`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finite(f64);

// Among finite numbers equality is reflexive.
impl Eq for Finite {}

impl Finite {
    /// Creates a number. Returns `None` if it is not finite.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// Returns the number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl serde::Serialize for Finite {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Finite {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number = <f64 as serde::Deserialize>::deserialize(d)?;
        Self::new(number).ok_or_else(|| serde::de::Error::custom("the number is not finite"))
    }
}

impl Datum for Finite {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(input.bytes(8)?);
        Self::new(f64::from_le_bytes(bytes)).ok_or_else(|| input.malformed("number is not finite"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_from_hexadecimal_and_from_base64_and_from_nothing_else() {
        let read =
            |json: &str| serde_json::from_str::<Bytes>(json).map(|bytes| bytes.0).map_err(|error| error.to_string());
        for json in [r#""00fF7e""#, r#"{"base64": "AP9+"}"#] {
            assert_eq!(read(json), Ok(vec![0, 0xff, 0x7e]), "{json}");
        }
        assert_eq!(serde_json::from_value::<Bytes>(Bytes(vec![7]).in_base64()).unwrap(), Bytes(vec![7]));
        for json in [
            r#""0""#,
            r#""AP9+""#,
            r#"{}"#,
            r#"{"base64": "AP9"}"#,
            r#"{"base64": "AP9_"}"#,
            r#"{"base64": "A P9"}"#,
            r#"{"base64": "AP9+", "hex": ""}"#,
            r#"{"hex": "00"}"#,
            "7",
            "null",
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
