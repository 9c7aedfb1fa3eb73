//! Parses JSON by a shape into an Avro datum, as serde parses the contract's own types.
//!
//! Members that the shape lacks are skipped: the record keeps them in `unknown_fields`.

use super::{
    shape::{Absent, Form, Shape},
    unrecognized::Unrecognized,
};
use crate::{
    canonical::escape,
    datum::{Datum, put_long},
    json::{Invalid, Json, bounded},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, fmt};

/// Parses a text, and returns whether a number exceeds Avro's range and was replaced by the largest number. The error's
/// pointer leads to the refused value.
pub(super) fn datum(shape: &'static Shape, text: &str) -> Result<(Vec<u8>, bool), Invalid> {
    let (mut out, mut pointer, mut is_clipped) = (Vec::new(), String::new(), false);
    let parser = Parser { shape, out: &mut out, pointer: &mut pointer, is_clipped: &mut is_clipped };
    match bounded::read_seed(text, parser) {
        Ok(()) => Ok((out, is_clipped)),
        Err(error) => Err(Invalid { what: error.to_string(), pointer }),
    }
}

/// Appends the encoding of a value to `out`. After an error `pointer` leads to the refused value.
struct Parser<'a> {
    shape: &'static Shape,
    out: &'a mut Vec<u8>,
    pointer: &'a mut String,
    is_clipped: &'a mut bool,
}

impl Parser<'_> {
    /// Parses the value at a step below this value.
    fn step<E>(
        &mut self,
        step: &str,
        shape: &'static Shape,
        parse: impl FnOnce(Parser<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&escape(step));
        parse(Parser { shape, out: &mut *self.out, pointer: &mut *self.pointer, is_clipped: &mut *self.is_clipped })?;
        self.pointer.truncate(length);
        Ok(())
    }

    fn variant<E: Error>(
        mut self,
        form: &Form,
        variants: &'static [(Box<str>, &'static Shape)],
        raw: &RawValue,
    ) -> Result<(), E> {
        let (variant, content) = form.open::<E>(raw)?;
        let Some(at) = variants.iter().position(|(name, _)| **name == *variant) else {
            // The content if it is separate from the name, otherwise the whole value.
            let text = if matches!(form, Form::Adjacent(..)) { content } else { raw };
            put_long(0, self.out);
            Unrecognized { variant, content: Json::parse(text.get()).map_err(E::custom)? }.put(self.out);
            return Ok(());
        };
        put_long(at.cast_signed() as i64 + 1, self.out);
        let shape = variants[at].1;
        let parse = |parser: Parser<'_>| bounded::read_seed(content.get(), parser).map_err(E::custom);
        match form {
            Form::Internal(_) => parse(Parser { shape, ..self }),
            Form::Adjacent(_, content) => self.step(content, shape, parse),
            Form::External => self.step(&variant, shape, parse),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Parser<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        match self.shape {
            Shape::Bool => bool::deserialize(d)?.put(self.out),
            Shape::Int => {
                let number = u32::deserialize(d)?;
                *self.is_clipped |= i32::try_from(number).is_err();
                number.put(self.out);
            }
            Shape::Long => {
                let number = u64::deserialize(d)?;
                *self.is_clipped |= i64::try_from(number).is_err();
                number.put(self.out);
            }
            Shape::Text => String::deserialize(d)?.put(self.out),
            Shape::Symbols(symbols) => {
                let symbol = String::deserialize(d)?;
                let at = symbols.iter().position(|known| **known == *symbol).unwrap_or_default();
                put_long(at.cast_signed() as i64, self.out);
            }
            Shape::List(_) => return d.deserialize_seq(self),
            Shape::Maybe(_) => return d.deserialize_option(self),
            Shape::Record(_) => return d.deserialize_map(self),
            Shape::Variants(form, variants) => {
                let raw = Box::<RawValue>::deserialize(d)?;
                return self.variant(form, variants, &raw);
            }
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Parser<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.shape {
            Shape::List(_) => "a sequence",
            Shape::Maybe(_) => "option",
            _ => "an object",
        })
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        put_long(0, self.out);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if matches!(self.shape, Shape::Maybe(_)) {
            return self.visit_none();
        }
        Err(E::invalid_type(serde::de::Unexpected::Unit, &self))
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        let Shape::Maybe(shape) = self.shape else { return Err(D::Error::custom("not an option")) };
        put_long(1, self.out);
        Parser { shape, ..self }.deserialize(d)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let Shape::List(shape) = self.shape else {
            return Err(A::Error::custom("an array, not an object"));
        };
        let (mut count, mut encoded) = (0_i64, Vec::new());
        loop {
            let mut has_item = false;
            self.step::<A::Error>(&count.to_string(), shape, |parser| {
                let item = Parser { out: &mut encoded, ..parser };
                has_item = items.next_element_seed(item)?.is_some();
                Ok(())
            })?;
            if !has_item {
                break;
            }
            count += 1;
        }
        if count > 0 {
            put_long(count, self.out);
            self.out.append(&mut encoded);
        }
        put_long(0, self.out);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let Shape::Record(fields) = self.shape else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let mut encodings: Vec<Option<Vec<u8>>> = vec![None; fields.len()];
        while let Some(name) = members.next_key::<String>()? {
            let Some(at) = fields.iter().position(|field| *field.name == *name) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let mut encoding = Vec::new();
            self.step(&name, fields[at].shape, |parser| match &encodings[at] {
                Some(_) => Err(A::Error::custom(format_args!("duplicate field `{name}`"))),
                None => members.next_value_seed(Parser { out: &mut encoding, ..parser }),
            })?;
            encodings[at] = Some(encoding);
        }
        for (field, encoding) in fields.iter().zip(encodings) {
            match encoding {
                Some(encoding) => self.out.extend(encoding),
                None if field.absent == Absent::Refused => return Err(missing(&field.name)),
                // A null or an empty list.
                None => put_long(0, self.out),
            }
        }
        Ok(())
    }
}

fn missing<E: Error>(name: &str) -> E {
    E::custom(format_args!("missing field `{name}`"))
}

impl Form {
    /// Returns the name of the variant in `raw` and the JSON of its content.
    fn open<'a, E: Error>(&self, raw: &'a RawValue) -> Result<(String, &'a RawValue), E> {
        let text = raw.get();
        if matches!(self, Self::External) && text.starts_with('"') {
            return Ok((serde_json::from_str(text).map_err(E::custom)?, raw));
        }
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text).map_err(E::custom)?;
        let variant = |tag: &str| {
            let name = members.get(tag).ok_or_else(|| missing::<E>(tag))?;
            serde_json::from_str::<String>(name.get()).map_err(E::custom)
        };
        match self {
            Self::Internal(tag) => Ok((variant(tag)?, raw)),
            Self::Adjacent(tag, content) => {
                Ok((variant(tag)?, members.get(&**content).copied().unwrap_or(RawValue::NULL)))
            }
            Self::External => members.into_iter().next().ok_or_else(|| E::custom("an enum without a variant")),
        }
    }
}
