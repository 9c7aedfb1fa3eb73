//! Parses JSON to exactly the value that was written.
//!
//! `serde_json` misreads two things: without its feature `float_roundtrip` some doubles become a neighbouring one, and an object
//! whose first member has a name that `serde_json` uses internally is not read as an object.

use runlog_producer::json::members;
use serde::de::Error as _;
use serde_json::{Error, Map, Number, Value, value::RawValue};

/// The value of `text`, which `serde_json` wrote. Doubles are exact; members have the order of `serde_json`'s map.
pub(super) fn value(text: &str) -> Result<Value, Error> {
    match text.as_bytes().first() {
        Some(b'{') => {
            let each = members(text)?.into_iter().map(|(name, member)| Ok((name, value(member)?)));
            each.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            items.into_iter().map(|item| value(item.get())).collect::<Result<_, _>>().map(Value::Array)
        }
        Some(b'-' | b'0'..=b'9') => number(text).map(Value::Number),
        _ => serde_json::from_str(text),
    }
}

fn number(text: &str) -> Result<Number, Error> {
    let read: Number = serde_json::from_str(text)?;
    if !text.contains(['.', 'e', 'E']) || read.to_string() == text {
        return Ok(read);
    }
    // The standard library's doubles are exact.
    let exact = text.parse().ok().and_then(Number::from_f64);
    exact.ok_or_else(|| Error::custom(format_args!("{text} is not a finite double")))
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::{Value, json};

    /// SplitMix64, which produces every bit pattern.
    fn doubles() -> impl Iterator<Item = f64> {
        let mut state = 7_u64;
        std::iter::from_fn(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            Some(f64::from_bits(bits ^ (bits >> 31)))
        })
    }

    #[test]
    fn every_double_is_read_to_the_bit() {
        let all = doubles().filter(|double| double.is_finite()).take(100_000);
        for double in all.chain([-0.0, f64::MIN_POSITIVE, f64::MAX, 5e-324, 1e23, 0.1 + 0.2]) {
            let written = json!({ "n": [double] });
            let read = value(&written.to_string()).unwrap();
            assert_eq!(read["n"][0].as_f64().map(f64::to_bits), Some(double.to_bits()), "{written}");
        }
    }

    #[test]
    fn an_object_with_a_name_that_serde_json_uses_internally_is_read_as_written() {
        let own = "$serde_json::private::RawValue";
        let nested = (0..120).fold(json!(u64::MAX), |inner, _| json!([inner]));
        let values =
            [json!({ own: "[1]" }), json!({ "a": { own: "x" }, "b": i64::MIN }), nested, Value::Null, json!("é\n")];
        for written in values {
            assert_eq!(value(&written.to_string()).unwrap(), written);
        }
    }
}
