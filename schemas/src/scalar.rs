//! Scalars that JSON and Avro write differently: byte strings and finite numbers.

use crate::datum::{Datum, Input, Malformed, hex, put_bytes};

/// A byte string; Avro `bytes`, lower-case hexadecimal in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes(pub Vec<u8>);

impl serde::Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex(&self.0))
    }
}

impl<'de> serde::Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(d)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("expected pairs of hexadecimal digits"))
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
    /// The number; none where it is not finite.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(number))
    }

    /// The number.
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
