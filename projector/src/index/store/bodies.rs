//! Bodies: long rows that are written once. On disk they are outside of the database, compressed in blocks.
//!
//! ```text
//!   commit ─┬─ bodies ──▶ blocks ──▶ body file            appended before the commit, synced before a flush
//!           └─ references, and the end of the file ──▶ database
//!
//!   body file   header | block | block | …
//!   header      magic, the database's identity: 48 bytes
//!   block       length of its frame, length of its bodies: 4 bytes each, little-endian | Zstandard frame with a checksum
//!   a row       00 | the row                       a short one
//!               01 | block, start, length          a reference, as Avro longs
//! ```
//!
//! Memtables, flushes and compactions would each copy a body, and bodies are four fifths of all bytes that an index writes.
//! The log keeps them too, but a broker cannot return one record quickly, and may delete it.
//!
//! A commit ends its last block, so a reference never names a block that only memory has. The end of the file is a row
//! ([`meta::bodies`](super::meta::bodies)) of the same commit. After a crash the file is cut to the end that the rows name:
//! the fold applies the later records again. A database syncs the file before it flushes its rows, so after a power cut the
//! file has every body that the rows name. A file that is shorter, or that belongs to another database, is an error.
//!
//! A reference stays valid as long as the database is open: bodies are not overwritten while a row names them.

mod blocks;
mod cache;
mod file;
mod scan;

pub(super) use blocks::Blocks;
pub(super) use cache::BodyMemory;
pub(super) use file::{BodyFile, BodyTable};
pub(super) use scan::BodyScan;

use super::{
    error::Error,
    index::{FAMILIES_MAX, INDICES_MAX},
    indices::INDICES,
    rows::damaged,
};
use runlog_schemas::datum::{Input, Malformed, put_long};

/// A row up to this size stays in the database, bytes: a reference takes a dozen.
const SHORT_BYTES: usize = 64;
const SHORT: u8 = 0;
const REFERENCE: u8 = 1;

/// Whether a family's rows are bodies, by their two leading bytes.
static IS_BODY: [[bool; FAMILIES_MAX]; INDICES_MAX] = {
    let mut bodies = [[false; FAMILIES_MAX]; INDICES_MAX];
    let mut index = 0;
    while index < INDICES.len() {
        let mut family = 0;
        while family < INDICES[index].families.len() {
            let row_family = &INDICES[index].families[family];
            bodies[INDICES[index].byte as usize][row_family.order as usize] = row_family.bodies;
            family += 1;
        }
        index += 1;
    }
    bodies
};

/// Whether the rows of this key's family are bodies.
pub(super) fn is_body(key: &[u8]) -> bool {
    let [index, family, ..] = key else { return false };
    let families = IS_BODY.get(usize::from(*index));
    families.and_then(|families| families.get(usize::from(*family))).copied().unwrap_or(false)
}

/// The place of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The position of its block in the file.
    block: u64,
    /// Its start within the block's bodies, and its length.
    start: usize,
    length: usize,
}

/// A row of a family of bodies, as the database has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'r> {
    Short(&'r [u8]),
    Reference(Reference),
}

impl<'r> Stored<'r> {
    /// Decodes the database's row. Errors: `Damaged`.
    pub(super) fn decode(key: &[u8], row: &'r [u8]) -> Result<Self, Error> {
        let malformed = |what| damaged(key, Malformed { what, at: 0 });
        match row.split_first() {
            Some((&SHORT, row)) => Ok(Self::Short(row)),
            Some((&REFERENCE, rest)) => {
                let mut input = Input::new(rest);
                let mut number = || input.long().map_err(|source| damaged(key, source));
                let (block, start, length) = (number()?, number()?, number()?);
                let unsigned = |number: i64| u64::try_from(number).ok();
                let size = |number| unsigned(number).and_then(|number| usize::try_from(number).ok());
                let parts = unsigned(block).zip(size(start)).zip(size(length));
                let ((block, start), length) = parts.ok_or_else(|| malformed("its reference has a negative number"))?;
                Ok(Self::Reference(Reference { block, start, length }))
            }
            _ => Err(malformed("it is neither a row nor a reference")),
        }
    }
}

/// Encodes a row of a family of bodies for the database: a long row is added to `blocks`.
pub(super) fn encode(row: &[u8], blocks: &mut Blocks, out: &mut Vec<u8>) -> std::io::Result<()> {
    out.clear();
    if row.len() <= SHORT_BYTES {
        out.push(SHORT);
        out.extend_from_slice(row);
        return Ok(());
    }
    let Reference { block, start, length } = blocks.push(row)?;
    out.push(REFERENCE);
    put_long(block.cast_signed(), out);
    put_long((start as u64).cast_signed(), out);
    put_long((length as u64).cast_signed(), out);
    Ok(())
}

/// The part of a block that a reference names.
fn slice<'b>(key: &[u8], bodies: &'b [u8], at: Reference) -> Result<&'b [u8], Error> {
    let end = at.start.checked_add(at.length);
    let body = end.and_then(|end| bodies.get(at.start..end));
    body.ok_or_else(|| damaged(key, Malformed { what: "its reference ends after its block", at: at.start }))
}

#[cfg(test)]
mod tests;
