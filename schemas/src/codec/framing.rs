//! The framing of a datum: the bytes before it, which name its schema version.

use super::unreadable::{RECORD_BYTES_MAX, Unreadable};
use crate::{
    datum,
    schema::{self, Version},
};
use std::borrow::Cow;

/// The framing of a writer's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Avro's single-object encoding.
    #[default]
    SingleObject,
    /// Confluent's framing, with the registry's id of the schema version.
    Confluent(u32),
}

impl Framing {
    pub(super) fn put(self, version: &Version, out: &mut Vec<u8>) {
        match self {
            Self::SingleObject => single_object(version, out),
            Self::Confluent(id) => {
                out.push(CONFLUENT);
                out.extend_from_slice(&id.to_be_bytes());
            }
        }
    }
}

pub(super) fn single_object(version: &Version, out: &mut Vec<u8>) {
    out.extend_from_slice(&SINGLE_OBJECT);
    out.extend_from_slice(&version.fingerprint);
}

/// The size that counts against [`RECORD_BYTES_MAX`], bytes: the size in single-object form, for either framing.
pub fn size(framed: &[u8]) -> usize {
    let shorter = SINGLE_OBJECT_BYTES - CONFLUENT_BYTES;
    framed.len() + if framed.first() == Some(&CONFLUENT) { shorter } else { 0 }
}

const SINGLE_OBJECT: [u8; 2] = [0xC3, 0x01];
pub(super) const SINGLE_OBJECT_BYTES: usize = 10;
const CONFLUENT: u8 = 0x00;
const CONFLUENT_BYTES: usize = 5;

/// A schema registry: maps ids to versions and determines the framing of records.
pub trait Schemas: std::fmt::Debug + Send + Sync {
    /// Returns the version with this id. Does not block: [`Unreadable::Unresolved`] until the registry has answered.
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable>;

    /// Returns the framing for records of a version. Does not block: the error contains the reason why it is not known yet.
    fn framing(&self, version: &'static Version) -> Result<Framing, String>;

    /// Blocks until an answer arrives, at most for `longest`. May return early.
    fn wait(&self, longest: std::time::Duration);
}

/// The absence of a registry: ids cannot be looked up and are not written.
#[derive(Clone, Copy, Debug)]
pub struct NoRegistry;

impl Schemas for NoRegistry {
    fn version(&self, id: u32) -> Result<&'static Version, Unreadable> {
        Err(Unreadable::UnknownSchema(format!("id {id} (no registry is configured)")))
    }

    fn framing(&self, _: &'static Version) -> Result<Framing, String> {
        Ok(Framing::SingleObject)
    }

    fn wait(&self, _: std::time::Duration) {}
}

/// Returns the id of a record in the Confluent framing.
pub fn confluent_id(framed: &[u8]) -> Option<u32> {
    match framed {
        [CONFLUENT, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// Converts a record to an Avro single object, which names its schema without a registry. Copies only other framings.
pub fn reframe<'a>(framed: &'a [u8], schemas: &dyn Schemas) -> Result<Cow<'a, [u8]>, Unreadable> {
    if size(framed) > RECORD_BYTES_MAX {
        return Err(Unreadable::TooLarge(framed.len()));
    }
    let Some(id) = confluent_id(framed) else { return Ok(Cow::Borrowed(framed)) };
    Ok(reframe_as(framed, schemas.version(id)?))
}

/// Like [`reframe`], for a record of a known schema version.
pub fn reframe_as<'a>(framed: &'a [u8], version: &'static Version) -> Cow<'a, [u8]> {
    if confluent_id(framed).is_none() {
        return Cow::Borrowed(framed);
    }
    let datum = &framed[CONFLUENT_BYTES..];
    let mut out = Vec::with_capacity(SINGLE_OBJECT_BYTES + datum.len());
    single_object(version, &mut out);
    out.extend_from_slice(datum);
    Cow::Owned(out)
}

/// A datum and its schema version.
#[derive(Clone, Copy, Debug)]
pub struct Unframed<'a> {
    /// The version.
    pub version: &'static Version,
    /// The datum.
    pub datum: &'a [u8],
}

/// Removes the framing of a single object. Does not support ids; see [`reframe`].
pub fn unframe(bytes: &[u8]) -> Result<Unframed<'_>, Unreadable> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(Unreadable::TooLarge(bytes.len()));
    }
    if let Some(id) = confluent_id(bytes) {
        let version = NoRegistry.version(id)?;
        return Ok(Unframed { version, datum: &bytes[CONFLUENT_BYTES..] });
    }
    match bytes {
        [0xC3, 0x01, rest @ ..] if rest.len() >= 8 => {
            let (fingerprint, datum) = rest.split_at(8);
            let unknown = || Unreadable::UnknownSchema(format!("fingerprint {}", datum::hex(fingerprint)));
            Ok(Unframed { version: schema::by_fingerprint(fingerprint).ok_or_else(unknown)?, datum })
        }
        _ => Err(Unreadable::NotFramed),
    }
}
