//! Text ids. Each is generic over the type of its text, so that an envelope borrows its ids from its bytes.

use super::illegal::{FINGERPRINT_BYTES_MAX, ID_BYTES_MAX, Illegal};
use crate::{
    canonical,
    datum::{Datum, Input, Malformed, Sha256, put_bytes},
};
use std::{borrow::Borrow, cmp, fmt, hash, ops::Deref, str::FromStr};

/// The common part of the owned ids, for [`OrEmpty`].
pub trait Text: Sized {
    /// Parses a text. Refuses an invalid id.
    fn parse(text: String) -> Result<Self, Illegal>;
    /// Returns the text.
    fn text(&self) -> &str;
    /// Parses an id of a record at byte `at`, which the error contains.
    fn take(text: &str, at: usize) -> Result<Self, Malformed>;
    /// Refuses the texts that [`Text::take`] refuses, without allocating.
    fn check(text: &str, at: usize) -> Result<(), Malformed>;
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $what:literal, at most $max:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<S = String>(S);

        impl<S: AsRef<str>> $name<S> {
            /// Creates an id. Refuses an empty text and a text over the limit.
            pub fn new(text: S) -> Result<Self, Illegal> {
                match text.as_ref().len() {
                    0 => Err(Illegal::Empty { what: $what }),
                    bytes if bytes > $max => Err(Illegal::TooLong { what: $what, max: $max, bytes }),
                    _ => Ok(Self(text)),
                }
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                self.0.as_ref()
            }

            /// Borrows the id. Functions take borrowed ids.
            pub fn borrow(&self) -> $name<&str> {
                $name(self.0.as_ref())
            }

            /// Copies the id into an owned one.
            pub fn to_owned(&self) -> $name {
                $name(self.0.as_ref().to_owned())
            }

            /// Returns the text's bytes, as in a message key.
            pub fn as_bytes(&self) -> &[u8] {
                self.as_str().as_bytes()
            }
        }

        impl<'a> $name<&'a str> {
            /// Creates an id of Runlog's own, known to be valid.
            #[allow(dead_code, reason = "not every id has a value of our own")]
            pub(crate) const fn ours(text: &'a str) -> Self {
                Self(text)
            }

            /// Reads an id from a datum, borrowed.
            pub fn take_borrowed(input: &mut Input<'a>) -> Result<Self, Malformed> {
                let at = input.position();
                let text = input.str()?;
                Self::new(text).map_err(|illegal| Self::malformed(&illegal, at))
            }

            /// Reads an optional id: the empty string means absent.
            pub fn take_or_empty(input: &mut Input<'a>) -> Result<Option<Self>, Malformed> {
                let at = input.position();
                match input.str()? {
                    "" => Ok(None),
                    text => Self::new(text).map(Some).map_err(|illegal| Self::malformed(&illegal, at)),
                }
            }

            fn malformed(illegal: &Illegal, at: usize) -> Malformed {
                let what = match illegal {
                    Illegal::Empty { .. } => concat!("an empty ", $what),
                    _ => concat!("a ", $what, " over its limit"),
                };
                Malformed { what, at }
            }
        }

        impl Text for $name {
            fn parse(text: String) -> Result<Self, Illegal> {
                Self::new(text)
            }
            fn text(&self) -> &str {
                &self.0
            }
            fn take(text: &str, at: usize) -> Result<Self, Malformed> {
                let id = $name::<&str>::new(text).map_err(|illegal| $name::<&str>::malformed(&illegal, at))?;
                Ok(id.to_owned())
            }
            fn check(text: &str, at: usize) -> Result<(), Malformed> {
                $name::<&str>::new(text).map(drop).map_err(|illegal| $name::<&str>::malformed(&illegal, at))
            }
        }

        impl Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                put_bytes(self.0.as_bytes(), out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                $name::<&str>::take_borrowed(input).map(|id| id.to_owned())
            }
            fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
                $name::<&str>::take_borrowed(input).map(drop)
            }
        }

        impl OrEmpty<$name> {
            /// Borrows the id, if present.
            pub fn borrow(&self) -> Option<$name<&str>> {
                self.0.as_ref().map(|id| id.borrow())
            }
        }

        impl From<Option<$name<&str>>> for OrEmpty<$name> {
            fn from(id: Option<$name<&str>>) -> Self {
                Self(id.map(|id| id.to_owned()))
            }
        }

        impl From<$name> for OrEmpty<$name> {
            fn from(id: $name) -> Self {
                Self(Some(id))
            }
        }

        impl From<$name<&str>> for $name {
            fn from(id: $name<&str>) -> Self {
                id.to_owned()
            }
        }

        impl From<&$name> for $name {
            fn from(id: &$name) -> Self {
                id.clone()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Illegal;
            fn try_from(text: String) -> Result<Self, Illegal> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Illegal;
            fn try_from(text: &str) -> Result<Self, Illegal> {
                $name::new(text).map(|id| id.to_owned())
            }
        }

        impl TryFrom<&String> for $name {
            type Error = Illegal;
            fn try_from(text: &String) -> Result<Self, Illegal> {
                text.as_str().try_into()
            }
        }

        impl FromStr for $name {
            type Err = Illegal;
            fn from_str(text: &str) -> Result<Self, Illegal> {
                text.try_into()
            }
        }

        impl<S: AsRef<str>> AsRef<str> for $name<S> {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl<S: AsRef<str>> fmt::Display for $name<S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        /// Prints the text.
        impl<S: AsRef<str>> fmt::Debug for $name<S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl<S: AsRef<str>, O: AsRef<str>> PartialEq<$name<O>> for $name<S> {
            fn eq(&self, other: &$name<O>) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl<S: AsRef<str>> PartialEq<str> for $name<S> {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl<S: AsRef<str>> PartialEq<&str> for $name<S> {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl<S: AsRef<str>> Eq for $name<S> {}

        impl<S: AsRef<str>> PartialOrd for $name<S> {
            fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        /// Orders by bytes, like keys.
        impl<S: AsRef<str>> Ord for $name<S> {
            fn cmp(&self, other: &Self) -> cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl<S: AsRef<str>> hash::Hash for $name<S> {
            fn hash<H: hash::Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }

        /// Lets a map with this key be queried by text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<S: AsRef<str>> serde::Serialize for $name<S> {
            fn serialize<Z: serde::Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

texts! {
    /// A run. Its records are in one partition, which follows from the id.
    RunId = "run id", at most ID_BYTES_MAX;
    /// A record, unique within its run. The id of a request identifies its call.
    RecordId = "record id", at most ID_BYTES_MAX;
    /// A writer: random per open.
    WriterId = "writer id", at most ID_BYTES_MAX;
    /// The identity of a tool call: [`Fingerprint::of_call`], or a host's own, unchanged.
    Fingerprint = "fingerprint", at most FINGERPRINT_BYTES_MAX;
}

impl Fingerprint {
    /// Computes the fingerprint of a call from the JSON text of its arguments. All spellings of the same arguments have the same
    /// fingerprint.
    ///
    /// Errors: the arguments are not JSON, repeat a key, or have no canonical form.
    pub fn of_call(tool_name: &str, arguments: &str) -> Result<Self, canonical::Error> {
        Ok(Self::of_hashed_call(tool_name, &canonical::args_sha256(arguments)?))
    }

    /// Computes the fingerprint of a call whose arguments a host has hashed: `v1:` and the lower-case hex of
    /// SHA-256(tool name ‖ 0x00 ‖ `args_sha256` as ASCII).
    #[must_use]
    pub fn of_hashed_call(tool_name: &str, args_sha256: &str) -> Self {
        let hash = Sha256::of_parts(&[tool_name.as_bytes(), &[0], args_sha256.as_bytes()]);
        Self(format!("v1:{hash}"))
    }
}

/// An optional id. Absent is the empty string in Avro and in JSON; in JSON also null.
///
/// A record about a partition has no run, and before a run's first claim records need no writer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrEmpty<T>(pub Option<T>);

impl<T> OrEmpty<T> {
    /// No id.
    pub const NONE: Self = Self(None);
}

impl<T: Text> OrEmpty<T> {
    /// Parses a text that may be empty. Refuses an invalid id.
    pub fn parse(text: String) -> Result<Self, Illegal> {
        if text.is_empty() { Ok(Self(None)) } else { T::parse(text).map(Some).map(Self) }
    }

    /// Returns the text, which is empty without an id.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("", T::text)
    }
}

impl<T> Default for OrEmpty<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for OrEmpty<T> {
    type Target = Option<T>;
    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T: Text> fmt::Display for OrEmpty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: Text> FromStr for OrEmpty<T> {
    type Err = Illegal;
    fn from_str(text: &str) -> Result<Self, Illegal> {
        Self::parse(text.to_owned())
    }
}

impl<T: Text> Datum for OrEmpty<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let at = input.position();
        match input.str()? {
            "" => Ok(Self(None)),
            text => <T as Text>::take(text, at).map(Some).map(Self),
        }
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        let at = input.position();
        match input.str()? {
            "" => Ok(()),
            text => T::check(text, at),
        }
    }
}

impl<T: Text> serde::Serialize for OrEmpty<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Text> serde::Deserialize<'de> for OrEmpty<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Option<String> as serde::Deserialize>::deserialize(deserializer)?;
        Self::parse(text.unwrap_or_default()).map_err(serde::de::Error::custom)
    }
}
