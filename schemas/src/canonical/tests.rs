use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::id::Fingerprint;

mod meaning;

/// The vectors. `tests/python/canonical.py` runs them too.
const VECTORS: &str = include_str!("../../vectors/canonical.json");

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Vector {
    Accepted {
        name: String,
        input: String,
        canonical: String,
        args_sha256: String,
        tool_name: String,
        fingerprint: String,
    },
    Refused {
        name: String,
        input: String,
        refused: String,
        pointer: String,
    },
}

fn reason_name(problem: &Problem) -> &'static str {
    match problem {
        Problem::Syntax { .. } => "syntax",
        Problem::TooDeep => "too_deep",
        Problem::DuplicateKey(_) => "duplicate_key",
        Problem::LoneSurrogate => "lone_surrogate",
        Problem::NotFinite => "not_finite",
    }
}

#[test]
fn every_vector_holds() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).unwrap();
    assert!(!vectors.is_empty());
    for vector in vectors {
        match vector {
            Vector::Accepted { name, input, canonical, args_sha256, tool_name, fingerprint } => {
                assert_eq!(canonicalize(&input).as_deref(), Ok(canonical.as_str()), "{name}");
                assert_eq!(canonicalize(&canonical).as_deref(), Ok(canonical.as_str()), "{name}, again");
                assert_eq!(super::args_sha256(&input).as_ref(), Ok(&args_sha256), "{name}");
                assert_eq!(Fingerprint::of_hashed_call(&tool_name, &args_sha256).as_str(), fingerprint, "{name}");
                let of_call = Fingerprint::of_call(&tool_name, &input);
                assert_eq!(of_call.as_ref().map(Fingerprint::as_str), Ok(fingerprint.as_str()), "{name}");
            }
            Vector::Refused { name, input, refused, pointer } => {
                let error = canonicalize(&input).expect_err(&name);
                assert_eq!((reason_name(&error.problem), error.pointer), (refused.as_str(), pointer), "{name}");
            }
        }
    }
}

/// RFC 8785, appendix B: the bits of a double, and its text.
const NUMBERS: [(u64, &str); 24] = [
    (0x0000_0000_0000_0000, "0"),
    (0x8000_0000_0000_0000, "0"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x8000_0000_0000_0001, "-5e-324"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
    (0x4340_0000_0000_0000, "9007199254740992"),
    (0xc340_0000_0000_0000, "-9007199254740992"),
    (0x4430_0000_0000_0000, "295147905179352830000"),
    (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
    (0x44b5_2d02_c7e1_4af6, "1e+23"),
    (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
    (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
    (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
    (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
    (0x41b3_de43_5555_5553, "333333333.3333332"),
    (0x41b3_de43_5555_5554, "333333333.33333325"),
    (0x41b3_de43_5555_5555, "333333333.3333333"),
    (0x41b3_de43_5555_5556, "333333333.3333334"),
    (0x41b3_de43_5555_5557, "333333333.33333343"),
    (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
];

#[test]
fn the_number_samples_of_the_rfc_are_written_as_it_says() {
    for (bits, text) in NUMBERS {
        // A literal with an exponent is a double, even if its value is whole.
        let json = format!("{:e}", f64::from_bits(bits));
        assert_eq!(canonicalize(&json).as_deref(), Ok(text), "{bits:016x}");
    }
}

#[test]
fn compact_removes_white_space_between_tokens_and_nothing_else() {
    let spaced = " {\t\"b\" : [ 1.0 , -0 , 1E5 , 12345678901234567890 ] ,\r\n \"a b\" : \" \\u0041 \\ud800 \" , \"b\":{ } , \"\\u0062\" : null}\n";
    let compacted = r#"{"b":[1.0,-0,1E5,12345678901234567890],"a b":" \u0041 \ud800 ","b":{},"\u0062":null}"#;
    assert_eq!(compact(spaced).as_deref(), Ok(compacted));
    assert_eq!(compact(compacted).as_deref(), Ok(compacted));
}

#[test]
fn compact_refuses_what_is_not_json_and_what_is_too_deep() {
    let cut_off = compact("[1,{\"a\":tru").expect_err("not JSON");
    assert_eq!(cut_off.pointer, "/1/a");
    assert_eq!(cut_off.problem, Problem::Syntax { expected: "a value", offset: 8 });
    assert_eq!(compact(&"[".repeat(1_000_000)).expect_err("too deep").problem, Problem::TooDeep);
}

#[test]
fn an_error_names_its_cause_and_its_pointer() {
    let message = |json| canonicalize(json).expect_err(json).to_string();
    assert_eq!(message(r#"{"a":[{"k":1,"k":2}]}"#), "duplicate key \"k\" at /a/0");
    assert_eq!(message("[1"), "not JSON: expected a comma or the array's end at byte 2 at the top level");
}

/// A value with the spellings that a sender may choose without changing the call.
#[derive(Clone, Debug)]
enum Value {
    Plain(&'static str, &'static str),
    Text(String),
    Array(Vec<Value>),
    Object(std::collections::BTreeMap<String, Value>),
}

impl Value {
    /// Spells the value in canonical form, or with reversed keys, escaped strings and white space everywhere.
    fn spell(&self, plainly: bool) -> String {
        let (space, join) = if plainly { ("", ",") } else { ("\n ", " ,\t") };
        match self {
            Self::Plain(plain, odd) => if plainly { plain } else { odd }.to_string(),
            Self::Text(text) => spell_text(text, plainly),
            Self::Array(elements) => {
                let elements: Vec<_> = elements.iter().map(|element| element.spell(plainly)).collect();
                format!("[{space}{}{space}]", elements.join(join))
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(key, _)| key.encode_utf16().collect::<Vec<_>>());
                if !plainly {
                    members.reverse();
                }
                let member = |(key, value): (&String, &Self)| {
                    format!("{}{space}:{space}{}", spell_text(key, plainly), value.spell(plainly))
                };
                let members: Vec<_> = members.into_iter().map(member).collect();
                format!("{{{space}{}{space}}}", members.join(join))
            }
        }
    }
}

fn spell_text(text: &str, plainly: bool) -> String {
    if plainly {
        return serde_json::to_string(text).unwrap();
    }
    format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<String>())
}

fn value() -> impl Strategy<Value = Value> {
    let plain = prop::sample::select(vec![
        ("null", "null"),
        ("true", "true"),
        ("0", "-0"),
        ("100", "1.00E+2"),
        ("0.000001", "1e-6"),
        ("1e-7", "0.0000001"),
        ("18446744073709551616", "18446744073709551616"),
    ]);
    let leaf = prop_oneof![plain.prop_map(|(plain, odd)| Value::Plain(plain, odd)), ".{0,8}".prop_map(Value::Text)];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(".{0,4}", inner, 0..6).prop_map(Value::Object),
        ]
    })
}

proptest! {
    #[test]
    fn order_of_keys_spacing_and_spelling_do_not_matter(value in value()) {
        let canonical = value.spell(true);
        prop_assert_eq!(canonicalize(&value.spell(false)), Ok(canonical.clone()));
        prop_assert_eq!(canonicalize(&canonical), Ok(canonical));
    }

    #[test]
    fn any_text_is_answered_as_serde_json_would(text in r#"[\[\]{}:,"\\a1e.\-0u ]{0,12}"#) {
        let valid = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(compact(&text).is_ok(), valid, "{}", text);
    }
}
