//! A value that this build may not know, because a newer build wrote it.

use crate::datum::{Datum, Input, Malformed, put_bytes};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A `T`, or the text of a value that this build does not know, because a newer build wrote it. The text is serialized unchanged.
///
/// It compares with a `T`, and an unknown value equals no `T`. So check for values that allow something (`status ==
/// RunStatus::Open`), never for values that forbid it. An unknown value then has the safe meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OrOther<T> {
    /// A value that this build knows.
    Known(T),
    /// The text of an unknown value.
    Other(String),
}

#[cfg(feature = "openapi")]
crate::openapi::same! { [T: schemars::JsonSchema] OrOther<T> = T; }

impl<T> OrOther<T> {
    /// Returns the value, if this build knows it.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Other(_) => None,
        }
    }
}

impl<T: AsRef<str>> OrOther<T> {
    /// Returns the text, as in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.as_ref(),
            Self::Other(text) => text,
        }
    }
}

impl<T> Default for OrOther<T> {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

/// Encodes the text as an Avro `string`, so that a build that knows the value writes the same bytes.
impl<T: AsRef<str> + FromStr> Datum for OrOther<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_str().as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        input.str().map(Self::of)
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        input.str().map(drop)
    }
}

impl<T> From<T> for OrOther<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: FromStr> OrOther<T> {
    /// Converts a text.
    pub fn of(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Other(text.to_owned()), Self::Known)
    }
}

impl<T: PartialEq> PartialEq<T> for OrOther<T> {
    fn eq(&self, value: &T) -> bool {
        self.known() == Some(value)
    }
}

impl<T: AsRef<str>> fmt::Display for OrOther<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::OrOther;
    use crate::{
        datum::Datum,
        judge::{Class, RunStatus},
        payload::PayloadType,
    };

    #[test]
    fn an_unknown_value_is_kept_and_equals_no_known_value() -> Result<(), serde_json::Error> {
        let status: OrOther<RunStatus> = serde_json::from_str("\"suspended\"")?;
        assert_eq!(status, OrOther::Other("suspended".to_owned()));
        assert_eq!(serde_json::to_string(&status)?, "\"suspended\"");
        assert!(RunStatus::ALL.iter().all(|known| status != *known));
        let class: Option<OrOther<Class>> = serde_json::from_str("\"retry_safe\"")?;
        assert_eq!(class, Some(OrOther::Known(Class::RetrySafe)));
        assert_eq!(serde_json::to_string(&class)?, "\"retry_safe\"");
        assert_eq!(serde_json::from_str::<Option<OrOther<Class>>>("null")?, None);
        Ok(())
    }

    #[test]
    fn a_value_has_the_bytes_of_its_text_whether_it_is_known_or_not() {
        for (text, known) in [("skip", Some(PayloadType::Skip)), ("of_tomorrow", None), ("", None)] {
            let bytes = text.to_owned().to_bytes();
            let value = OrOther::<PayloadType>::from_bytes(&bytes).unwrap();
            assert_eq!((value.known().copied(), value.as_str()), (known, text));
            assert_eq!(value.to_bytes(), bytes);
            assert_eq!(PayloadType::ALL.iter().filter(|one| value == **one).count(), usize::from(known.is_some()));
        }
    }

    #[test]
    fn the_text_of_a_known_value_is_that_value() {
        for known in RunStatus::ALL {
            assert_eq!(OrOther::<RunStatus>::of(known.as_str()), OrOther::Known(*known));
        }
        assert_eq!(OrOther::<RunStatus>::of("Open").known(), None);
    }
}
