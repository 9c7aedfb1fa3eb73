//! Parses JSON that all readers understand alike: an object, without two members of one name and without numbers beyond the range of a
//! double.

use runlog_projector::index::error::Error;
use runlog_schemas::{answer::ErrorKind, canonical};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;
use std::fmt::Display;

/// Parses a request's body of any content type.
pub(super) fn parsed<T: DeserializeOwned>(body: &str, what: &str) -> Result<T, Error> {
    let invalid = |why: &dyn Display| Error::new(ErrorKind::Invalid, format!("the body is not {what}: {why}"));
    unambiguous(body).map_err(|error| invalid(&error))
}

/// Parses an object like [`object`]. Refuses what readers understand differently: see [`canonical::ambiguity`].
pub(super) fn unambiguous<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if let Some((what, pointer)) = canonical::ambiguity(text) {
        return Err(serde_json::Error::custom(format!("{what}, at {pointer:?}")));
    }
    object(text)
}

/// Parses an object. Serde reads an array as well: its items as the members, in the order of the source.
pub(super) fn object<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if !text.trim_start().starts_with('{') {
        return Err(serde_json::Error::custom("not an object"));
    }
    serde_json::from_str(text)
}

/// Like [`object`], for a member of a body that may be absent or null. With `default` and `deserialize_with`.
pub(super) fn member<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    raw.map(|raw| object(raw.get())).transpose().map_err(D::Error::custom)
}
