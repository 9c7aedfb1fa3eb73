//! Payloads of other SDKs' contracts, as data: the schema describes their JSON and their Avro.
//!
//! ```text
//!   avsc ─▶ shape ─┬─▶ parse   JSON ─▶ Avro
//!                  ├─▶ print   Avro ─▶ JSON
//!                  └─▶ walk    checks Avro, and finds the text at a path
//! ```

use super::payload_type::PayloadType;
use crate::{
    datum::{Input, Malformed},
    json::Invalid,
};
use print::Printer;
use serde::ser::{Serialize, SerializeMap, Serializer};
use shape::Shape;
use std::{cell::RefCell, fmt};

mod parse;
mod print;
mod shape;
mod unrecognized;
mod walk;

/// A payload of another SDK's contract. Its JSON has the contract's form, and is read with [`Payload::from_json`](super::Payload::from_json).
#[derive(Clone, PartialEq, Eq)]
pub struct ContractPayload {
    payload_type: PayloadType,
    /// The Avro datum in canonical form, so that equal payloads have equal bytes.
    datum: Vec<u8>,
    /// Whether a number of its JSON exceeds Avro's range, so that the payload differs from the payload of its bytes.
    is_clipped: bool,
}

impl ContractPayload {
    /// Parses the JSON of a payload type. The error's pointer is relative to the payload.
    pub(super) fn parse(payload_type: PayloadType, text: &str) -> Result<Self, Invalid> {
        let (datum, is_clipped) = parse::datum(shape::of(payload_type), text)?;
        Ok(Self { payload_type, datum, is_clipped })
    }

    pub(super) fn take(payload_type: PayloadType, input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut datum = Some(Vec::new());
        walk::copy(shape::of(payload_type), input, &mut datum)?;
        Ok(Self { payload_type, datum: datum.unwrap_or_default(), is_clipped: false })
    }

    pub(super) fn skip(payload_type: PayloadType, input: &mut Input<'_>) -> Result<(), Malformed> {
        walk::copy(shape::of(payload_type), input, &mut None)
    }

    /// Returns the payload's type.
    pub fn payload_type(&self) -> PayloadType {
        self.payload_type
    }

    /// Returns the payload's Avro datum, without its union branch.
    pub fn datum(&self) -> &[u8] {
        &self.datum
    }

    /// Returns the name of the payload's variant, if the payload is one of several variants and this build knows it.
    pub fn variant(&self) -> Option<&'static str> {
        let Shape::Variants(_, variants) = self.shape() else { return None };
        let branch = self.input().length().ok()?;
        variants.get(branch.checked_sub(1)?).map(|(name, _)| &**name)
    }

    /// Returns the text, symbol, name of the variant, or number at a path: names of fields, separated by `/`. A path leads
    /// through variants. The empty path is the payload itself.
    pub fn text(&self, path: &str) -> Option<String> {
        walk::find(self.shape(), &mut self.input(), path)
    }

    fn shape(&self) -> &'static Shape {
        shape::of(self.payload_type)
    }

    fn input(&self) -> Input<'_> {
        Input::new(&self.datum)
    }
}

impl Serialize for ContractPayload {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let input = RefCell::new(self.input());
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("type", self.payload_type.as_str())?;
        Printer { shape: self.shape(), input: &input }.put_members(&mut map)?;
        map.end()
    }
}

impl fmt::Debug for ContractPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
