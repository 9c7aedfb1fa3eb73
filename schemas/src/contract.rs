//! Macros that declare the types of another SDK's contract: `contract!` for records, `variants!` for enums with data.
//!
//! ```text
//!   contract! { A { b: String, maybe c: u64, null d: String, many e: F } }
//!               required ──┘   left out ┘    null ┘    left out when empty ┘     (in JSON; in Avro unions and arrays)
//!   variants! { V: internal("type") { 1 X(Y) = "x" } }      branch 0 keeps a variant that this build does not know
//! ```
//!
//! The JSON equals serde's output for the contract's own type. A test compares these types with the list in
//! `schemas/contracts/`.

use crate::{datum, json::Json};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A variant that this build does not know, kept unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecognized {
    /// The variant's name.
    pub variant: String,
    /// The JSON text of the content if it is separate from the name, otherwise of the whole value.
    pub content: Json,
}
datum!(Unrecognized { variant, content });

/// Serde's representation of an enum with data.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// The variant's name is a member among its fields.
    Internal(&'static str),
    /// The variant's name and its content are two members.
    Adjacent(&'static str, &'static str),
    /// An object with one member, named as the variant; without fields a string.
    External,
}

impl Form {
    /// Returns the name of the variant in `raw` and the JSON of its content.
    pub fn open<'a, E: serde::de::Error>(self, raw: &'a RawValue) -> Result<(String, &'a RawValue), E> {
        let text = raw.get();
        if matches!(self, Self::External) && text.starts_with('"') {
            return Ok((serde_json::from_str(text).map_err(E::custom)?, raw));
        }
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text).map_err(E::custom)?;
        let member = |name: &'static str| members.get(name).copied().ok_or_else(|| E::missing_field(name));
        let variant = |tag| serde_json::from_str::<String>(member(tag)?.get()).map_err(E::custom);
        match self {
            Self::Internal(tag) => Ok((variant(tag)?, raw)),
            Self::Adjacent(tag, content) => {
                Ok((variant(tag)?, members.get(content).copied().unwrap_or(RawValue::NULL)))
            }
            Self::External => match members.into_iter().next() {
                Some((variant, content)) => Ok((variant, content)),
                None => Err(E::custom("an enum without a variant")),
            },
        }
    }

    /// Keeps the content of an unknown variant, or the whole value.
    pub fn keep<E: serde::de::Error>(
        self,
        variant: String,
        raw: &RawValue,
        content: &RawValue,
    ) -> Result<Unrecognized, E> {
        let content_text = if matches!(self, Self::Adjacent(..)) { content } else { raw };
        Ok(Unrecognized { variant, content: Json::parse(content_text.get()).map_err(E::custom)? })
    }
}

/// A record of a contract: its fields, in the schema's order.
#[macro_export]
macro_rules! contract {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $crate::contract!(@ [$(#[$doc])*] $name [] [] $($fields)*);
    };
    (@ $doc:tt $name:ident [$($done:tt)*] [$($names:ident)*] maybe $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::contract!(@ $doc $name [
            $($done)*
            #[doc = concat!("The contract's `", stringify!($field), "`, if it has one.")]
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $field: Option<$type>,
        ] [$($names)* $field] $($rest)*);
    };
    (@ $doc:tt $name:ident [$($done:tt)*] [$($names:ident)*] null $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::contract!(@ $doc $name [
            $($done)*
            #[doc = concat!("The contract's `", stringify!($field), "`; written as null if absent.")]
            #[serde(default)]
            pub $field: Option<$type>,
        ] [$($names)* $field] $($rest)*);
    };
    (@ $doc:tt $name:ident [$($done:tt)*] [$($names:ident)*] many $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::contract!(@ $doc $name [
            $($done)*
            #[doc = concat!("The contract's `", stringify!($field), "`, in order.")]
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub $field: Vec<$type>,
        ] [$($names)* $field] $($rest)*);
    };
    (@ $doc:tt $name:ident [$($done:tt)*] [$($names:ident)*] $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::contract!(@ $doc $name [
            $($done)*
            #[doc = concat!("The contract's `", stringify!($field), "`.")]
            pub $field: $type,
        ] [$($names)* $field] $($rest)*);
    };
    (@ [$($doc:tt)*] $name:ident [$($done:tt)*] [$($names:ident)*]) => {
        $($doc)*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($done)* }
        $crate::datum!($name { $($names),* });
    };
}

/// An enum of a contract whose variants hold records: a union whose first branch is [`Unrecognized`].
#[macro_export]
macro_rules! variants {
    (
        $(#[$doc:meta])* $name:ident: $form:ident $tags:tt {
            $($branch:literal $variant:ident($type:ident) = $json:literal),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant, reason = "moved once, from its bytes to its reader")]
        pub enum $name {
            /// A variant that this build does not know.
            Unrecognized($crate::contract::Unrecognized),
            $(#[doc = concat!("`", $json, "`")] $variant($type),)*
        }

        impl $name {
            /// The variant's name in JSON.
            pub fn variant(&self) -> &str {
                match self {
                    Self::Unrecognized(other) => &other.variant,
                    $(Self::$variant(_) => $json,)*
                }
            }
        }

        impl $crate::datum::Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    Self::Unrecognized(value) => { $crate::datum::put_long(0, out); value.put(out); }
                    $(Self::$variant(value) => { $crate::datum::put_long($branch, out); value.put(out); })*
                }
            }
            fn take(input: &mut $crate::datum::Input<'_>) -> Result<Self, $crate::datum::Malformed> {
                match input.length()? {
                    0 => $crate::datum::Datum::take(input).map(Self::Unrecognized),
                    $($branch => $crate::datum::Datum::take(input).map(Self::$variant),)*
                    _ => Err(input.malformed("no such union branch")),
                }
            }
            fn skip(input: &mut $crate::datum::Input<'_>) -> Result<(), $crate::datum::Malformed> {
                match input.length()? {
                    0 => $crate::contract::Unrecognized::skip(input),
                    $($branch => $type::skip(input),)*
                    _ => Err(input.malformed("no such union branch")),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Unrecognized(other) => $crate::variants!(@other $form $tags other, s),
                    $(Self::$variant(value) => $crate::variants!(@write $form $tags $json, value, s),)*
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let raw = Box::<serde_json::value::RawValue>::deserialize(d)?;
                let form = $crate::variants!(@form $form $tags);
                let (variant, content) = form.open::<D::Error>(&raw)?;
                match variant.as_str() {
                    $($json => $crate::json::bounded::read(content.get())
                        .map(Self::$variant)
                        .map_err(serde::de::Error::custom),)*
                    _ => form.keep(variant, &raw, content).map(Self::Unrecognized),
                }
            }
        }
    };
    (@form internal ($tag:literal)) => { $crate::contract::Form::Internal($tag) };
    (@form adjacent ($tag:literal, $content:literal)) => { $crate::contract::Form::Adjacent($tag, $content) };
    (@form external ()) => { $crate::contract::Form::External };
    (@write internal ($tag:literal) $json:literal, $value:ident, $s:ident) => {{
        #[derive(serde::Serialize)]
        struct Tagged<'a, T> { #[serde(rename = $tag)] tag: &'static str, #[serde(flatten)] value: &'a T }
        Tagged { tag: $json, value: $value }.serialize($s)
    }};
    (@write adjacent ($tag:literal, $content:literal) $json:expr, $value:expr, $s:ident) => {{
        #[derive(serde::Serialize)]
        struct Pair<'a, T> { #[serde(rename = $tag)] tag: &'a str, #[serde(rename = $content)] content: &'a T }
        Pair { tag: $json, content: $value }.serialize($s)
    }};
    (@write external () $json:literal, $value:ident, $s:ident) => { $s.collect_map([($json, $value)]) };
    (@other adjacent ($tag:literal, $content:literal) $other:ident, $s:ident) => {
        $crate::variants!(@write adjacent ($tag, $content) &$other.variant, &$other.content, $s)
    };
    (@other $form:ident $tags:tt $other:ident, $s:ident) => { $other.content.serialize($s) };
}
