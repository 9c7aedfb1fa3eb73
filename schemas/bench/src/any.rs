//! A whole value in memory, as a generic reader keeps it: what `serde_avro_fast` is asked for where nobody wrote a struct.

use serde::de::{Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use std::fmt;

pub enum Any {
    Null,
    Boolean(bool),
    Long(i64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Items(Vec<Any>),
    Fields(Vec<(String, Any)>),
}

impl Any {
    /// How many leaves it has: so that nothing is optimised away.
    pub fn leaves(&self) -> usize {
        match self {
            Self::Null | Self::Boolean(_) | Self::Long(_) | Self::Double(_) => 1,
            Self::Text(text) => text.len().min(1),
            Self::Bytes(bytes) => bytes.len().min(1),
            Self::Items(items) => items.iter().map(Self::leaves).sum(),
            Self::Fields(fields) => fields.iter().map(|(name, value)| name.len().min(1) * value.leaves()).sum(),
        }
    }
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Everything)
    }
}

struct Everything;

impl<'de> Visitor<'de> for Everything {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_unit<E>(self) -> Result<Any, E> {
        Ok(Any::Null)
    }
    fn visit_none<E>(self) -> Result<Any, E> {
        Ok(Any::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Any, D::Error> {
        Any::deserialize(inner)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
        Ok(Any::Boolean(value))
    }
    fn visit_i32<E>(self, value: i32) -> Result<Any, E> {
        Ok(Any::Long(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
        Ok(Any::Long(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Any, E> {
        Ok(Any::Double(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Any, E> {
        Ok(Any::Text(value.to_owned()))
    }
    fn visit_bytes<E>(self, value: &[u8]) -> Result<Any, E> {
        Ok(Any::Bytes(value.to_vec()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Any, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Any::Items(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Any, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = fields.next_entry()? {
            all.push(field);
        }
        Ok(Any::Fields(all))
    }
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Any, A::Error> {
        let (name, content) = access.variant::<String>()?;
        Ok(Any::Fields(vec![(name, content.newtype_variant()?)]))
    }
}
