//! A JSON text as the very value that it was written from.
//!
//! `serde_json` reads some doubles as a neighbour of theirs (unless its feature `float_roundtrip` is on), and an object whose
//! first member has a name of its own as what that means to it. A recorded value is neither.

use runlog_producer::json::members;
use serde::de::Error as _;
use serde_json::{Error, Map, Number, Value, value::RawValue};

/// The value of `text`, which `serde_json` wrote: its doubles exact, the order of its members as `serde_json`'s map keeps it.
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
    exact.ok_or_else(|| Error::custom(format_args!("{text} is no double")))
}

#[cfg(test)]
mod tests {
    use super::value;
    use serde_json::{Value, json};

    /// SplitMix64: every bit pattern comes up.
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
    fn every_double_comes_back_to_the_bit() {
        let all = doubles().filter(|double| double.is_finite()).take(100_000);
        for double in all.chain([-0.0, f64::MIN_POSITIVE, f64::MAX, 5e-324, 1e23, 0.1 + 0.2]) {
            let written = json!({ "n": [double] });
            let read = value(&written.to_string()).unwrap();
            assert_eq!(read["n"][0].as_f64().map(f64::to_bits), Some(double.to_bits()), "{written}");
        }
    }

    #[test]
    fn what_serde_json_takes_for_its_own_comes_back_as_it_was() {
        let own = "$serde_json::private::RawValue";
        let nested = (0..120).fold(json!(u64::MAX), |inner, _| json!([inner]));
        let values =
            [json!({ own: "[1]" }), json!({ "a": { own: "x" }, "b": i64::MIN }), nested, Value::Null, json!("é\n")];
        for written in values {
            assert_eq!(value(&written.to_string()).unwrap(), written);
        }
    }
}
