//! A value of one type as one of another that serde knows by the same names: what the first says of itself is noted, and told
//! to the second. No JSON between.
//!
//! ```text
//!   SDK's payload ─▶ {, type, "message", message_id, "m", … } ─▶ Runlog's payload; Runlog's record ─▶ … ─▶ the SDK's
//! ```
//!
//! Only what both have plainly goes this way: a member that the second type has no field for, a number beyond 63 bits, a
//! fraction, a long list, an enum that holds data are [`Unfit`], and so is what either type refuses.

use serde::{
    Serialize, Serializer,
    de::{self, DeserializeSeed, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any, ser,
};
use std::fmt;

/// The most items of a list.
pub(super) const ITEMS_MAX: usize = 1024;

/// It is for those to say what is to become of it who go by JSON.
#[derive(Debug)]
pub(super) struct Unfit;

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not plainly of both types")
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl de::Error for Unfit {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// What is noted.
#[derive(Clone, Copy, Debug)]
enum Note {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    /// A name of the type's.
    Name(&'static str),
    /// Where it stands among the texts.
    Text(usize, usize),
    /// Up to where its items go.
    List(usize),
    /// Up to where its members go, each a name and a value.
    Members(usize),
}

/// What a value says of itself.
#[derive(Debug, Default)]
pub(super) struct Tape {
    notes: Vec<Note>,
    texts: String,
}

impl Tape {
    pub(super) fn of(value: &impl Serialize) -> Result<Self, Unfit> {
        let mut tape = Self { notes: Vec::with_capacity(256), texts: String::with_capacity(2048) };
        value.serialize(&mut tape)?;
        Ok(tape)
    }

    /// The value.
    pub(super) fn root(&self) -> Told<'_> {
        Told { tape: self, at: 0 }
    }

    fn note(&mut self, note: Note) -> Result<(), Unfit> {
        self.notes.push(note);
        Ok(())
    }

    fn open(&mut self, note: fn(usize) -> Note) -> Result<Open<'_>, Unfit> {
        let at = self.notes.len();
        self.notes.push(note(at));
        Ok(Open { tape: self, at, note, items: 0 })
    }
}

impl<'t> Serializer for &'t mut Tape {
    type Ok = ();
    type Error = Unfit;
    type SerializeSeq = Open<'t>;
    type SerializeTuple = ser::Impossible<(), Unfit>;
    type SerializeTupleStruct = ser::Impossible<(), Unfit>;
    type SerializeTupleVariant = ser::Impossible<(), Unfit>;
    type SerializeMap = Open<'t>;
    type SerializeStruct = Open<'t>;
    type SerializeStructVariant = ser::Impossible<(), Unfit>;

    fn serialize_bool(self, v: bool) -> Result<(), Unfit> {
        self.note(Note::Bool(v))
    }
    fn serialize_i8(self, v: i8) -> Result<(), Unfit> {
        self.serialize_i64(v.into())
    }
    fn serialize_i16(self, v: i16) -> Result<(), Unfit> {
        self.serialize_i64(v.into())
    }
    fn serialize_i32(self, v: i32) -> Result<(), Unfit> {
        self.serialize_i64(v.into())
    }
    fn serialize_i64(self, v: i64) -> Result<(), Unfit> {
        self.note(Note::Signed(v))
    }
    fn serialize_u8(self, v: u8) -> Result<(), Unfit> {
        self.serialize_u64(v.into())
    }
    fn serialize_u16(self, v: u16) -> Result<(), Unfit> {
        self.serialize_u64(v.into())
    }
    fn serialize_u32(self, v: u32) -> Result<(), Unfit> {
        self.serialize_u64(v.into())
    }
    fn serialize_u64(self, v: u64) -> Result<(), Unfit> {
        if i64::try_from(v).is_err() {
            return Err(Unfit);
        }
        self.note(Note::Unsigned(v))
    }
    fn serialize_f32(self, _: f32) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_f64(self, _: f64) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_char(self, _: char) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_str(self, v: &str) -> Result<(), Unfit> {
        let from = self.texts.len();
        self.texts.push_str(v);
        self.note(Note::Text(from, self.texts.len()))
    }
    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_none(self) -> Result<(), Unfit> {
        self.note(Note::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unfit> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Unfit> {
        self.note(Note::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Unfit> {
        self.note(Note::Name(variant))
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Unfit> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Unfit> {
        Err(Unfit)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Open<'t>, Unfit> {
        self.open(Note::List)
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Unfit> {
        Err(Unfit)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Unfit> {
        Err(Unfit)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Unfit> {
        Err(Unfit)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Open<'t>, Unfit> {
        self.open(Note::Members)
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Open<'t>, Unfit> {
        marked(name)?;
        self.open(Note::Members)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unfit> {
        Err(Unfit)
    }
}

/// `serde_json` marks by such names what is text of its own.
fn marked(name: &str) -> Result<(), Unfit> {
    if name.starts_with('$') { Err(Unfit) } else { Ok(()) }
}

/// A list, or members, of which more is to come.
#[derive(Debug)]
pub(super) struct Open<'t> {
    tape: &'t mut Tape,
    at: usize,
    note: fn(usize) -> Note,
    items: usize,
}

impl Open<'_> {
    fn close(self) -> Result<(), Unfit> {
        let end = self.tape.notes.len();
        let opened = self.tape.notes.get_mut(self.at).ok_or(Unfit)?;
        *opened = (self.note)(end);
        if self.items > ITEMS_MAX { Err(Unfit) } else { Ok(()) }
    }
}

impl ser::SerializeSeq for Open<'_> {
    type Ok = ();
    type Error = Unfit;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.items += 1;
        value.serialize(&mut *self.tape)
    }
    fn end(self) -> Result<(), Unfit> {
        self.close()
    }
}

impl ser::SerializeMap for Open<'_> {
    type Ok = ();
    type Error = Unfit;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unfit> {
        key.serialize(&mut *self.tape)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        value.serialize(&mut *self.tape)
    }
    fn end(self) -> Result<(), Unfit> {
        self.close()
    }
}

impl ser::SerializeStruct for Open<'_> {
    type Ok = ();
    type Error = Unfit;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unfit> {
        self.tape.note(Note::Name(name))?;
        value.serialize(&mut *self.tape)
    }
    fn end(self) -> Result<(), Unfit> {
        self.close()
    }
}

/// A value of a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'t> {
    tape: &'t Tape,
    at: usize,
}

impl<'t> Told<'t> {
    fn note(self) -> Option<Note> {
        self.tape.notes.get(self.at).copied()
    }

    pub(super) fn text(self) -> Option<&'t str> {
        match self.note()? {
            Note::Name(name) => Some(name),
            Note::Text(from, to) => self.tape.texts.get(from..to),
            _ => None,
        }
    }

    /// Its items; of members each name and each value.
    fn items(self) -> Items<'t> {
        let end = match self.note() {
            Some(Note::List(end) | Note::Members(end)) => end,
            _ => 0,
        };
        Items { next: Told { at: self.at + 1, ..self }, end }
    }

    /// Its members; none where it has none.
    pub(super) fn members(self) -> impl Iterator<Item = (&'t str, Self)> {
        let mut items = self.items();
        std::iter::from_fn(move || Some((items.next()?.text()?, items.next()?)))
    }

    pub(super) fn member(self, name: &str) -> Result<Self, Unfit> {
        self.members().find(|(its, _)| *its == name).map(|(_, value)| value).ok_or(Unfit)
    }
}

/// Reads a value of these members.
pub(super) fn read<'t, T: de::Deserialize<'t>>(members: impl Iterator<Item = (&'t str, Told<'t>)>) -> Result<T, Unfit> {
    T::deserialize(MapDeserializer::new(members))
}

#[derive(Debug)]
struct Items<'t> {
    next: Told<'t>,
    end: usize,
}

impl<'t> Iterator for Items<'t> {
    type Item = Told<'t>;

    fn next(&mut self) -> Option<Told<'t>> {
        if self.next.at >= self.end {
            return None;
        }
        let told = self.next;
        self.next.at = match told.note()? {
            Note::List(end) | Note::Members(end) => end,
            _ => told.at + 1,
        };
        Some(told)
    }
}

impl<'t> IntoDeserializer<'t, Unfit> for Told<'t> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'t> de::Deserializer<'t> for Told<'t> {
    type Error = Unfit;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Unfit> {
        match self.note().ok_or(Unfit)? {
            Note::Null => visitor.visit_unit(),
            Note::Bool(v) => visitor.visit_bool(v),
            Note::Unsigned(v) => visitor.visit_u64(v),
            Note::Signed(v) => visitor.visit_i64(v),
            Note::Name(_) | Note::Text(..) => visitor.visit_borrowed_str(self.text().ok_or(Unfit)?),
            Note::List(_) => visitor.visit_seq(self.items()),
            Note::Members(_) => visitor.visit_map(self.items()),
        }
    }

    fn deserialize_option<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Unfit> {
        if matches!(self.note(), Some(Note::Null)) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(self, name: &'static str, visitor: V) -> Result<V::Value, Unfit> {
        marked(name)?;
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'t>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unfit> {
        visitor.visit_enum(IntoDeserializer::<Unfit>::into_deserializer(self.text().ok_or(Unfit)?))
    }

    /// A member that the type has no field for.
    fn deserialize_ignored_any<V: Visitor<'t>>(self, _: V) -> Result<V::Value, Unfit> {
        Err(Unfit)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'t>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

impl<'t> de::SeqAccess<'t> for Items<'t> {
    type Error = Unfit;
    fn next_element_seed<T: DeserializeSeed<'t>>(&mut self, seed: T) -> Result<Option<T::Value>, Unfit> {
        self.next().map(|item| seed.deserialize(item)).transpose()
    }
}

impl<'t> de::MapAccess<'t> for Items<'t> {
    type Error = Unfit;
    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, Unfit> {
        self.next().map(|name| seed.deserialize(name)).transpose()
    }
    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, Unfit> {
        seed.deserialize(self.next().ok_or(Unfit)?)
    }
}
