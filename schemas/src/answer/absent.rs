//! A value that is null in JSON if it equals its default.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T: Default + PartialEq + Serialize, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    (*value != T::default()).then_some(value).serialize(s)
}

pub(super) fn deserialize<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(d).map(Option::unwrap_or_default)
}
