//! Strict JSON parsing and RFC 8785 canonical form, independent of the product's.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};
use std::fmt;

/// The largest integer below which every integer is a double.
const SAFE_MAX: u64 = (1 << 53) - 1;

/// Parses JSON; refuses an object with a duplicate key.
pub(super) fn strict(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let refused = |error: serde_json::Error| error.to_string();
    match text.as_bytes().first() {
        Some(b'[') => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text).map_err(refused)?;
            items.iter().map(|item| strict(item.get())).collect()
        }
        Some(b'{') => serde_json::from_str::<Members>(text).map(|members| members.0.into()).map_err(refused),
        // serde_json sometimes rounds to a neighbour.
        Some(b'-' | b'0'..=b'9') if text.contains(['.', 'e', 'E']) => {
            serde_json::from_str::<&RawValue>(text).map_err(refused)?;
            text.parse::<f64>().map(Value::from).map_err(|error| error.to_string())
        }
        _ => serde_json::from_str(text).map_err(refused),
    }
}

struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
        let mut all = Map::new();
        while let Some((name, value)) = members.next_entry::<String, Box<RawValue>>()? {
            let value = strict(value.get()).map_err(A::Error::custom)?;
            if all.insert(name.clone(), value).is_some() {
                return Err(A::Error::custom(format!("duplicate key {name:?}")));
            }
        }
        Ok(Members(all))
    }
}

/// A fault of the canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slip {
    None,
    /// Keys in the order of their bytes instead of their UTF-16.
    Order,
    /// Integers as doubles.
    Doubles,
}

fn canonical(value: &Value, slip: Slip) -> String {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            if slip != Slip::Order {
                names.sort_by_key(|name| name.encode_utf16().collect::<Vec<_>>());
            }
            let member =
                |name: &&String| format!("{}:{}", Value::from(name.as_str()), canonical(&members[*name], slip));
            format!("{{{}}}", names.iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| canonical(item, slip)).collect::<Vec<_>>().join(","))
        }
        Value::Number(number) if number.is_f64() => double(number.as_f64().unwrap_or_default()),
        Value::Number(number) if slip == Slip::Doubles && number.as_u64().is_some_and(|n| n > SAFE_MAX) => {
            double(number.as_f64().unwrap_or_default())
        }
        plain => plain.to_string(),
    }
}

/// ECMAScript's text of a number (`Number::toString`).
fn double(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.replace('.', "");
    let point = exponent.parse::<i64>().unwrap_or_default() + 1;
    let length = i64::try_from(digits.len()).unwrap_or_default();
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
    let at = usize::try_from(point).unwrap_or_default();
    let text = match point {
        _ if length <= point && point <= 21 => format!("{digits}{}", zeros(point - length)),
        _ if 0 < point && point <= 21 => format!("{}.{}", &digits[..at], &digits[at..]),
        _ if -6 < point && point <= 0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let rest = if length > 1 { format!(".{}", &digits[1..]) } else { String::new() };
            let sign = if point > 0 { "+" } else { "" };
            format!("{}{rest}e{sign}{}", &digits[..1], point - 1)
        }
    };
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits of UTF-8 text.
pub(super) fn unhex(text: &str) -> Option<String> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    String::from_utf8((0..text.len()).step_by(2).map(pair).collect::<Option<_>>()?).ok()
}

/// SHA-256 of a text, hexadecimal. Here a record is encoded as its JSON.
pub(super) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

pub(super) fn fingerprint(tool: &str, arguments: &Value, slip: Slip) -> String {
    format!("v1:{}", sha256(&format!("{tool}\0{}", sha256(&canonical(arguments, slip)))))
}
