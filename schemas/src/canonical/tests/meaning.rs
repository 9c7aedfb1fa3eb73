//! Tests that fingerprints are equal if and only if the meanings are equal. This module defines the meaning of a text a second
//! time, without the scanner and the writer: numbers are IEEE doubles, and integers beyond ±(2^53−1) are their digits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{args_sha256, canonicalize};
use crate::id::Fingerprint;

/// The greatest integer up to which doubles distinguish all integers: 2^53 − 1.
const SAFE: f64 = 9_007_199_254_740_991.0;

/// The meaning of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Word(&'static str),
    /// The bits of a double.
    Double(u64),
    /// The digits of an integer.
    Digits(String),
    Text(&'static str),
    Array(Vec<Meaning>),
    Object(BTreeMap<&'static str, Meaning>),
}

/// Spellings of numbers. Many mean the same number, and many are close to it.
const NUMBERS: [&str; 34] = [
    "0",
    "-0",
    "0.0",
    "-0.0",
    "0e9",
    "1e-400",
    "1",
    "1.0",
    "10e-1",
    "1E+0",
    "-1",
    "-1.0",
    "0.1",
    "1e-1",
    "0.10000000000000001",
    "0.10000000000000002",
    "5e-324",
    "9007199254740991",
    "9007199254740991.0",
    "9007199254740992",
    "9007199254740992.0",
    "9007199254740993",
    "9007199254740993.0",
    "-9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551616.0",
    "18446744073709552000",
    "18446744073709552000.0",
    "1000000000000000000000",
    "1e21",
    "1000000000000000000000.0",
    "1e22",
    "10000000000000000000000",
];

/// Strings. Some look alike, and some look like JSON syntax.
const TEXTS: [&str; 12] =
    ["", "a", "b", "A", "1", "null", "\u{e9}", "e\u{301}", "\u{1f980}", "\"", "a\",\"b", "\u{0}\n\\u0061"];

const WORDS: [&str; 3] = ["null", "true", "false"];

fn number(spelled: &str) -> Meaning {
    let double: f64 = spelled.parse().unwrap();
    let whole = !spelled.contains(['.', 'e', 'E']);
    if double.abs() <= SAFE {
        // Adding positive zero turns negative zero into zero and changes no other number.
        Meaning::Double((double + 0.0).to_bits())
    } else if whole {
        Meaning::Digits(spelled.to_owned())
    } else if double.abs() < 1e21 {
        // Only a double that is written without an exponent has the same text as an integer.
        Meaning::Digits(format!("{double}"))
    } else {
        Meaning::Double(double.to_bits())
    }
}

/// A JSON value with spellings, for building texts.
#[derive(Clone, Debug)]
enum Value {
    Word(&'static str),
    Number(&'static str),
    Text(&'static str),
    Array(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

impl Value {
    fn meaning(&self) -> Meaning {
        match self {
            Self::Word(word) => Meaning::Word(word),
            Self::Number(spelled) => number(spelled),
            Self::Text(text) => Meaning::Text(text),
            Self::Array(items) => Meaning::Array(items.iter().map(Self::meaning).collect()),
            Self::Object(members) => {
                Meaning::Object(members.iter().map(|(key, value)| (*key, value.meaning())).collect())
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Word(plain) | Self::Number(plain) => (*plain).to_owned(),
            Self::Text(text) => serde_json::to_string(text).unwrap(),
            Self::Array(items) => format!("[{}]", items.iter().map(Self::text).collect::<Vec<_>>().join(", ")),
            Self::Object(members) => {
                let member =
                    |(key, value): &(&str, Self)| format!("{}:{}", super::spell_text(key, false), value.text());
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Returns an equal value with other spellings of numbers and reversed members.
    fn respelled(&self) -> Self {
        match self {
            Self::Number(spelled) => {
                let meant = number(spelled);
                let other = NUMBERS.iter().rev().find(|other| number(other) == meant);
                Self::Number(other.copied().unwrap_or(spelled))
            }
            Self::Array(items) => Self::Array(items.iter().map(Self::respelled).collect()),
            Self::Object(members) => {
                Self::Object(members.iter().rev().map(|(key, value)| (*key, value.respelled())).collect())
            }
            other => other.clone(),
        }
    }

    /// Returns the value with leaf number `at` replaced. `at` counts down over the visited leaves.
    fn replaced(&self, at: &mut usize, by: &Self) -> Self {
        match self {
            Self::Array(items) => Self::Array(items.iter().map(|item| item.replaced(at, by)).collect()),
            Self::Object(members) => {
                Self::Object(members.iter().map(|(key, value)| (*key, value.replaced(at, by))).collect())
            }
            leaf => {
                let here = *at == 0;
                *at = at.wrapping_sub(1);
                if here { by.clone() } else { leaf.clone() }
            }
        }
    }
}

fn leaf() -> BoxedStrategy<Value> {
    prop_oneof![
        1 => prop::sample::select(&WORDS[..]).prop_map(Value::Word),
        4 => prop::sample::select(&NUMBERS[..]).prop_map(Value::Number),
        2 => prop::sample::select(&TEXTS[..]).prop_map(Value::Text),
    ]
    .boxed()
}

fn value() -> BoxedStrategy<Value> {
    let nested = leaf().prop_recursive(3, 8, 3, |inner| {
        let members = prop::collection::btree_map(prop::sample::select(&TEXTS[..]), inner.clone(), 0..3);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    nested.boxed()
}

/// Two values that are often equal, and often differ in one leaf only.
fn pair() -> impl Strategy<Value = (Value, Value)> {
    (value(), value(), leaf(), 0..6_usize, 0..3_u8).prop_map(|(one, unrelated, leaf, mut at, how)| {
        let other = match how {
            0 => unrelated,
            1 => one.respelled(),
            _ => one.respelled().replaced(&mut at, &leaf),
        };
        (one, other)
    })
}

fn canonical(value: &Value) -> String {
    let text = value.text();
    canonicalize(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn equal_meaning_is_equal_canonical_text_is_an_equal_fingerprint((one, other) in pair()) {
        let equal = one.meaning() == other.meaning();
        let (first, second) = (canonical(&one), canonical(&other));
        prop_assert_eq!(first == second, equal, "{} and {}", first, second);
        let fingerprint = |arguments: &str| Fingerprint::of_call("tool", arguments).unwrap();
        prop_assert_eq!(fingerprint(&first) == fingerprint(&second), equal, "{} and {}", first, second);
    }

    #[test]
    fn a_tool_and_its_arguments_are_not_shifted_into_each_other((one, other) in pair(), pick in (0..7_usize, 0..7_usize)) {
        let hashes = [args_sha256(&canonical(&one)).unwrap(), args_sha256(&canonical(&other)).unwrap()];
        // Some tool names end with the hash of arguments.
        let tools = [
            String::new(), "t".into(), "t\0".into(), "\0t".into(), format!("t\0{}", hashes[0]),
            format!("t\0{}", hashes[1]), format!("t{}", hashes[1]),
        ];
        let equal = tools[pick.0] == tools[pick.1] && one.meaning() == other.meaning();
        let prints = (Fingerprint::of_hashed_call(&tools[pick.0], &hashes[0]), Fingerprint::of_hashed_call(&tools[pick.1], &hashes[1]));
        prop_assert_eq!(prints.0 == prints.1, equal, "{:?} and {:?}", tools[pick.0], tools[pick.1]);
    }
}
