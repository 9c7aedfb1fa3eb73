//! Segments: sorted entries in temporary files, and their merge.
//!
//! ```text
//!   segment = block …          block = length (4) ∣ checksum (8) ∣ entry …      numbers are little-endian
//!   entry   = length of the key (4) ∣ length of the value (4) ∣ key ∣ value
//! ```
//!
//! The checksum detects bytes that the disk has changed; otherwise they would become rows.

use crate::index::store::Error;
use std::{
    fs::File,
    hash::{BuildHasher as _, Hasher as _},
    io::{self, BufWriter, ErrorKind, Read as _, Write as _},
    ops::Range,
    path::{Path, PathBuf},
};

/// A block ends with the entry that reaches this size, bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// The size of an entry's two lengths, bytes.
const LENGTHS: usize = 8;

fn temporary(path: &Path, source: io::Error) -> Error {
    Error::Temporary { path: path.to_owned(), source }
}

fn checksum(block: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::with_seed(0).build_hasher();
    hasher.write(block);
    hasher.finish()
}

/// Writes a segment.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    path: PathBuf,
    file: BufWriter<File>,
    block: Vec<u8>,
}

impl SegmentWriter {
    /// Creates the file, and its folder.
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let file = folder.and_then(|()| File::create(&path)).map_err(|source| temporary(&path, source))?;
        Ok(Self { path, file: BufWriter::new(file), block: Vec::with_capacity(BLOCK_BYTES) })
    }

    /// Adds an entry. The caller must add entries in key order.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        for length in [key.len(), value.len()] {
            self.block.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        }
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), Error> {
        let length = u32::try_from(self.block.len()).unwrap_or(u32::MAX).to_le_bytes();
        let written = self.file.write_all(&length);
        let written = written.and_then(|()| self.file.write_all(&checksum(&self.block).to_le_bytes()));
        written.and_then(|()| self.file.write_all(&self.block)).map_err(|source| temporary(&self.path, source))?;
        self.block.clear();
        Ok(())
    }

    /// Writes the rest and returns the file. Does not sync it, because it is not used after a crash.
    pub(super) fn finish(mut self) -> Result<PathBuf, Error> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.file.flush().map_err(|source| temporary(&self.path, source))?;
        Ok(self.path)
    }
}

/// A reader of a segment, positioned at one of its entries.
#[derive(Debug)]
struct SegmentReader {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    key: Range<usize>,
    value: Range<usize>,
}

impl SegmentReader {
    /// Opens a segment at its first entry; `None` if it is empty.
    fn open(path: PathBuf) -> Result<Option<Self>, Error> {
        let file = File::open(&path).map_err(|source| temporary(&path, source))?;
        let mut reader = Self { path, file, block: Vec::new(), key: 0..0, value: 0..0 };
        Ok(reader.advance()?.then_some(reader))
    }

    fn key(&self) -> &[u8] {
        &self.block[self.key.clone()]
    }

    /// Moves to the next entry. Returns whether there is one.
    fn advance(&mut self) -> Result<bool, Error> {
        let mut at = self.value.end;
        if at == self.block.len() {
            if !self.read_block().map_err(|source| temporary(&self.path, source))? {
                return Ok(false);
            }
            at = 0;
        }
        let length = |at: usize| {
            let bytes = self.block.get(at..)?.first_chunk::<4>()?;
            usize::try_from(u32::from_le_bytes(*bytes)).ok()
        };
        let ends = || {
            let key = at + LENGTHS..(at + LENGTHS).checked_add(length(at)?)?;
            let value = key.end..key.end.checked_add(length(at + 4)?)?;
            (value.end <= self.block.len()).then_some((key, value))
        };
        let damaged = || temporary(&self.path, io::Error::from(ErrorKind::InvalidData));
        (self.key, self.value) = ends().ok_or_else(damaged)?;
        Ok(true)
    }

    fn read_block(&mut self) -> io::Result<bool> {
        let (mut length, mut sum) = ([0; 4], [0; 8]);
        match self.file.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        self.file.read_exact(&mut sum)?;
        let length = u32::from_le_bytes(length) as usize;
        self.block.resize(length, 0);
        self.file.read_exact(&mut self.block)?;
        if checksum(&self.block) != u64::from_le_bytes(sum) {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(true)
    }
}

/// The merge of segments, positioned at the entry with the least key.
#[derive(Debug)]
pub(super) struct Merge {
    /// The readers by their current keys, greatest first.
    readers: Vec<SegmentReader>,
}

impl Merge {
    /// Opens the segments.
    pub(super) fn open(segments: Vec<PathBuf>) -> Result<Self, Error> {
        let readers = segments.into_iter().map(|path| SegmentReader::open(path).transpose());
        let mut readers = readers.flatten().collect::<Result<Vec<_>, _>>()?;
        readers.sort_by(|a, b| b.key().cmp(a.key()));
        Ok(Self { readers })
    }

    /// The current entry.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.readers.last().map(|reader| (reader.key(), &reader.block[reader.value.clone()]))
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        let Some(mut reader) = self.readers.pop() else { return Ok(()) };
        if reader.advance()? {
            let at = self.readers.partition_point(|other| other.key() > reader.key());
            self.readers.insert(at, reader);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_of_a_segment_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = SegmentWriter::create(folder.path().join("segment")).expect("the disk has space");
        writer.put(b"key", b"value").expect("the disk has space");
        let path = writer.finish().expect("the disk has space");
        let whole = std::fs::read(&path).expect("it is there");
        assert!(Merge::open(vec![path.clone()]).is_ok_and(|merge| merge.entry() == Some((b"key", b"value"))));
        for at in 4..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, changed).expect("the disk has space");
            assert!(Merge::open(vec![path.clone()]).is_err(), "byte {at}");
        }
    }
}
