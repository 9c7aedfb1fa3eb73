//! Serializes an Avro datum by its shape, as serde serializes the contract's own types.

use super::{
    shape::{Absent, Form, Shape},
    unrecognized::Unrecognized,
};
use crate::datum::{Datum, Input, Malformed};
use serde::ser::{Error, Serialize, SerializeMap, SerializeSeq, Serializer};
use std::cell::RefCell;

/// The value at the input's position. Each value can be serialized once, in the order of the datum.
pub(super) struct Printer<'a, 'b> {
    pub(super) shape: &'static Shape,
    pub(super) input: &'a RefCell<Input<'b>>,
}

impl<'a, 'b> Printer<'a, 'b> {
    fn with_shape(&self, shape: &'static Shape) -> Self {
        Self { shape, input: self.input }
    }

    fn take<T>(&self, take: impl FnOnce(&mut Input<'b>) -> Result<T, Malformed>) -> T {
        take(&mut self.input.borrow_mut()).expect("a datum of the shape")
    }

    /// Serializes the members of an object: a record, or one of several variants.
    pub(super) fn put_members<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self.shape {
            Shape::Record(fields) => {
                for field in fields {
                    if field.absent == Absent::Refused || !self.input.borrow_mut().zero() {
                        map.serialize_entry(&*field.name, &self.with_shape(field.shape))?;
                    } else if field.absent == Absent::Null {
                        map.serialize_entry(&*field.name, &())?;
                    }
                }
                Ok(())
            }
            Shape::Variants(form, variants) => {
                let branch = self.take(Input::length);
                match (form, branch.checked_sub(1).and_then(|at| variants.get(at))) {
                    (Form::Internal(tag), Some((name, shape))) => {
                        map.serialize_entry(&**tag, &**name)?;
                        self.with_shape(shape).put_members(map)
                    }
                    (Form::Adjacent(tag, content), Some((name, shape))) => {
                        map.serialize_entry(&**tag, &**name)?;
                        map.serialize_entry(&**content, &self.with_shape(shape))
                    }
                    (Form::External, Some((name, shape))) => map.serialize_entry(&**name, &self.with_shape(shape)),
                    (Form::Adjacent(tag, content), None) => {
                        let other: Unrecognized = self.take(Datum::take);
                        map.serialize_entry(&**tag, &other.variant)?;
                        map.serialize_entry(&**content, &other.content)
                    }
                    (Form::Internal(_) | Form::External, None) => Err(M::Error::custom("no members")),
                }
            }
            _ => Err(M::Error::custom("no members")),
        }
    }

    /// Returns whether the value is an unknown variant whose JSON is kept whole.
    fn is_whole(&self) -> bool {
        matches!(self.shape, Shape::Variants(Form::Internal(_) | Form::External, _))
            && self.input.borrow().clone().length() == Ok(0)
    }
}

impl Serialize for Printer<'_, '_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.shape {
            Shape::Bool => s.serialize_bool(self.take(bool::take)),
            Shape::Int => s.serialize_u32(self.take(u32::take)),
            Shape::Long => s.serialize_u64(self.take(u64::take)),
            Shape::Text => s.serialize_str(self.take(Input::str)),
            Shape::Symbols(symbols) => {
                let at = self.take(Input::length);
                s.serialize_str(symbols.get(at).ok_or_else(|| S::Error::custom("no such symbol"))?)
            }
            Shape::List(shape) => {
                let count = self.take(Input::length);
                let mut list = s.serialize_seq(Some(count))?;
                for _ in 0..count {
                    list.serialize_element(&self.with_shape(shape))?;
                }
                if count > 0 {
                    // The end of the only block.
                    self.take(Input::length);
                }
                list.end()
            }
            Shape::Maybe(shape) => match self.take(|input| input.branch(2)) {
                0 => s.serialize_none(),
                _ => self.with_shape(shape).serialize(s),
            },
            Shape::Variants(..) if self.is_whole() => {
                self.take(Input::length);
                let other: Unrecognized = self.take(Datum::take);
                other.content.serialize(s)
            }
            Shape::Record(_) | Shape::Variants(..) => {
                let mut map = s.serialize_map(None)?;
                self.put_members(&mut map)?;
                map.end()
            }
        }
    }
}
