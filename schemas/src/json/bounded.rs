//! Parses JSON within a limit of values, so that a text becomes at most a small multiple of its length in memory.
//!
//! A list needs two bytes of text for an item, and 16 to 48 bytes of memory. [`Bounded`] wraps a deserializer and counts items
//! and members while they are parsed. JSON that is kept as text counts as one value, because it needs only the memory
//! of its text.

use crate::datum::ITEMS_MAX;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};
use std::{cell::Cell, fmt, marker::PhantomData};

/// Values of a record's payload or facts, over all lists. A list itself has at most [`ITEMS_MAX`] items, as in Avro.
const VALUES_MAX: usize = 1 << 21;

/// The limits of one text.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Items of one list.
    items_max: usize,
    /// Values that may still be parsed.
    left: Cell<usize>,
}

impl Bounds {
    /// Limits only the number of all values.
    pub(crate) fn of_values(max: usize) -> Self {
        Self { items_max: usize::MAX, left: Cell::new(max) }
    }

    fn take<E: Error>(&self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom("too many values"))?;
        self.left.set(left);
        Ok(())
    }
}

/// Parses a value of a type whose lists the schema limits.
///
/// Errors: other text, and more items than the schema allows.
pub(crate) fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, serde_json::Error> {
    read_seed(text, PhantomData::<T>)
}

/// Like [`read`], with a seed.
pub(crate) fn read_seed<'de, S: DeserializeSeed<'de>>(text: &'de str, seed: S) -> Result<S::Value, serde_json::Error> {
    seed_within(text, seed, &Bounds { items_max: ITEMS_MAX, left: Cell::new(VALUES_MAX) })
}

/// Parses a value within `bounds`, which several texts may share.
pub(crate) fn within<'de, T: Deserialize<'de>>(text: &'de str, bounds: &Bounds) -> Result<T, serde_json::Error> {
    seed_within(text, PhantomData::<T>, bounds)
}

fn seed_within<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    inner: S,
    bounds: &Bounds,
) -> Result<S::Value, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Bounded { inner, bounds }.deserialize(&mut json)?;
    json.end()?;
    Ok(value)
}

/// A part of a deserializer, its visitors or its sequences, with the limits of the text.
struct Bounded<'a, T> {
    inner: T,
    bounds: &'a Bounds,
}

impl<'a, T> Bounded<'a, T> {
    fn around<U>(&self, inner: U) -> Bounded<'a, U> {
        Bounded { inner, bounds: self.bounds }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_option(visitor)
    }

    // The name distinguishes JSON that is kept as text.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.around(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    // Derived enums are symbols, without data.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.inner.visit_i64(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.inner.visit_u64(value)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.inner.visit_f64(value)
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.inner.visit_str(value)
    }
    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(value)
    }
    fn visit_string<E: Error>(self, value: String) -> Result<V::Value, E> {
        self.inner.visit_string(value)
    }
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.around(inner);
        self.inner.visit_some(inner)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.around(inner);
        self.inner.visit_newtype_struct(inner)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        let items = Counted { inner: self.around(items), items: 0 };
        self.inner.visit_seq(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        let members = self.around(members);
        self.inner.visit_map(members)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let inner = self.around(inner);
        self.inner.deserialize(inner)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.bounds.take::<A::Error>()?;
        let seed = self.around(seed);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let seed = self.around(seed);
        self.inner.next_value_seed(seed)
    }
}

/// A list whose parsed items are counted.
struct Counted<'a, A> {
    inner: Bounded<'a, A>,
    items: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let bounds = self.inner.bounds;
        bounds.take::<A::Error>()?;
        let Some(item) = self.inner.inner.next_element_seed(Bounded { inner: seed, bounds })? else { return Ok(None) };
        self.items += 1;
        if self.items > bounds.items_max {
            return Err(A::Error::custom(format!("a list of more than {} items", bounds.items_max)));
        }
        Ok(Some(item))
    }
}
