//! An external sort: accepts entries in any order and returns them in key order, with bounded memory.
//!
//! ```text
//!   push ─▶ memory ─▶ sort ─┬─ everything fits ───────────────▶ Sorted
//!             ▲             └─ segment (a sorted file) ─▶ merge ─▶ Sorted
//!             └──── emptied ◀────────┘
//! ```
//!
//! A key is a prefix and a suffix. There are few prefixes. A suffix has at most [`SUFFIX_BYTES`] bytes, mostly an
//! offset. Prefixes are numbered, and entries are sorted by these numbers, which is several times faster than by bytes.
//! The result is in key order, because no prefix may be the beginning of another one.

use super::segment::{Merge, SegmentWriter};
use crate::index::store::Error;
use std::{collections::HashMap, path::PathBuf};

/// The longest suffix, bytes.
pub(super) const SUFFIX_BYTES: usize = 12;
/// Address space reserved for values, bytes, so that the buffer need not grow, which copies it. Only written pages use
/// memory.
const RESERVED_MAX: usize = 128 << 20;
/// Bytes counted for a prefix in addition to twice its length: it is stored twice.
const PREFIX_BYTES: usize = 64;

/// Collects entries.
#[derive(Debug)]
pub(super) struct Sorter {
    /// The path of the segments, without their number.
    file: PathBuf,
    bytes_max: usize,
    collected: Collected,
    segments: Vec<PathBuf>,
}

/// Entries in memory.
#[derive(Debug, Default)]
struct Collected {
    /// Each entry's length (4 bytes) and value.
    values: Vec<u8>,
    entries: Vec<Entry>,
    numbers: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    prefix_bytes: usize,
}

/// An entry. Entries sort by their fields, after the prefixes' numbers are replaced by ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// The prefix's number; its rank once sorted.
    prefix: u32,
    /// The suffix's length is the same for all entries of a prefix.
    suffix: u64,
    suffix_end: u32,
    at: u32,
    suffix_bytes: u8,
}

impl Sorter {
    /// Holds up to `bytes_max` in memory (at most 4 GiB, exceeded by one entry), then writes segments, whose names begin
    /// with `file`.
    pub(super) fn new(file: PathBuf, bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(u32::MAX as usize / 2);
        Self { file, bytes_max, collected: Collected::default(), segments: Vec::new() }
    }

    /// Adds an entry; its value is the concatenation of the parts. The key is split into prefix and suffix at `split`.
    pub(super) fn push(&mut self, key: &[u8], split: usize, value: &[&[u8]]) -> Result<(), Error> {
        if self.collected.values.capacity() == 0 {
            self.collected.values.reserve_exact(self.bytes_max.min(RESERVED_MAX));
        }
        self.collected.push(key.split_at(split), value);
        if self.collected.bytes() >= self.bytes_max { self.spill() } else { Ok(()) }
    }

    /// Writes the entries in memory to a segment.
    fn spill(&mut self) -> Result<(), Error> {
        let mut name = self.file.clone().into_os_string();
        name.push(format!(".{}", self.segments.len()));
        let mut writer = SegmentWriter::create(name.into())?;
        let mut sorted = std::mem::take(&mut self.collected).sort();
        while let Some((key, value)) = sorted.entry() {
            writer.put(key, value)?;
            sorted.advance();
        }
        self.collected = sorted.emptied();
        self.segments.push(writer.finish()?);
        Ok(())
    }

    /// All entries in key order. If there are segments, writes the remaining entries to one too, which frees their memory.
    pub(super) fn finish(mut self) -> Result<Sorted, Error> {
        if self.segments.is_empty() {
            return Ok(Sorted::Memory(self.collected.sort()));
        }
        if !self.collected.entries.is_empty() {
            self.spill()?;
        }
        Ok(Sorted::Merge(Merge::open(self.segments)?))
    }
}

impl Collected {
    fn bytes(&self) -> usize {
        self.values.len() + self.entries.len() * size_of::<Entry>() + self.prefix_bytes
    }

    fn push(&mut self, (prefix, suffix): (&[u8], &[u8]), value: &[&[u8]]) {
        let number = match self.numbers.get(prefix) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
                self.prefix_bytes += 2 * prefix.len() + PREFIX_BYTES;
                self.numbers.insert(prefix.into(), number);
                number
            }
        };
        let mut padded = [0; SUFFIX_BYTES];
        padded[..suffix.len()].copy_from_slice(suffix);
        let (first, last) = padded.split_at(8);
        let length: usize = value.iter().map(|part| part.len()).sum();
        self.entries.push(Entry {
            prefix: number,
            suffix: first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            suffix_end: last.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)),
            at: u32::try_from(self.values.len()).unwrap_or(u32::MAX),
            suffix_bytes: u8::try_from(suffix.len()).unwrap_or(u8::MAX),
        });
        self.values.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        value.iter().for_each(|part| self.values.extend_from_slice(part));
    }

    fn sort(self) -> InMemory {
        let Self { values, mut entries, numbers, .. } = self;
        let mut prefixes: Vec<_> = numbers.into_iter().collect();
        prefixes.sort_unstable();
        let mut ranks = vec![0; prefixes.len()];
        for (rank, (_, number)) in (0..).zip(&prefixes) {
            ranks[*number as usize] = rank;
        }
        entries.iter_mut().for_each(|entry| entry.prefix = ranks[entry.prefix as usize]);
        entries.sort_unstable();
        let prefixes = prefixes.into_iter().map(|(prefix, _)| prefix).collect();
        let mut sorted = InMemory { values, entries, prefixes, next: 0, key: Vec::new() };
        sorted.form_key();
        sorted
    }
}

/// Sorted entries in memory, positioned at one of them.
#[derive(Debug)]
pub(super) struct InMemory {
    values: Vec<u8>,
    entries: Vec<Entry>,
    prefixes: Vec<Box<[u8]>>,
    next: usize,
    key: Vec<u8>,
}

impl InMemory {
    fn entry(&self) -> Option<(&[u8], &[u8])> {
        let at = self.entries.get(self.next)?.at as usize;
        let (length, rest) = self.values.get(at..)?.split_first_chunk::<4>()?;
        Some((&self.key, rest.get(..u32::from_le_bytes(*length) as usize)?))
    }

    fn advance(&mut self) {
        self.next += 1;
        self.form_key();
    }

    /// Removes the entries and keeps their memory. Allocating it again for each segment would take a tenth of a build,
    /// because the system clears its pages.
    fn emptied(mut self) -> Collected {
        self.values.clear();
        self.entries.clear();
        Collected { values: self.values, entries: self.entries, ..Collected::default() }
    }

    fn form_key(&mut self) {
        let Some(entry) = self.entries.get(self.next) else { return };
        self.key.clear();
        self.key.extend_from_slice(&self.prefixes[entry.prefix as usize]);
        let end = self.key.len() + usize::from(entry.suffix_bytes);
        self.key.extend_from_slice(&entry.suffix.to_be_bytes());
        self.key.extend_from_slice(&entry.suffix_end.to_be_bytes());
        self.key.truncate(end);
    }
}

/// Sorted entries, positioned at one of them.
#[derive(Debug)]
pub(super) enum Sorted {
    /// All entries are in memory.
    Memory(InMemory),
    /// All entries are in segments.
    Merge(Merge),
}

impl Sorted {
    /// The current entry, key and value; `None` after the last one.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Memory(sorted) => sorted.entry(),
            Self::Merge(merge) => merge.entry(),
        }
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        match self {
            Self::Memory(sorted) => sorted.advance(),
            Self::Merge(merge) => merge.advance()?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_returned_in_key_order_from_memory_and_from_segments() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut expected = Vec::new();
        for number in 0..500u64 {
            let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let name = format!("{}\u{0}\u{1}", scattered % 13);
            let suffix = &scattered.to_be_bytes()[..(scattered % 13 % 3 * 4) as usize];
            expected.push(([name.as_bytes(), suffix].concat(), name.len(), number.to_be_bytes()));
        }
        for bytes_max in [usize::MAX, 4000, 1] {
            let mut sorter = Sorter::new(folder.path().join(bytes_max.to_string()), bytes_max);
            for (key, split, value) in &expected {
                sorter.push(key, *split, &[&value[..3], &value[3..]]).expect("the disk has space");
            }
            let mut sorted = sorter.finish().expect("the disk has space");
            assert_eq!(matches!(sorted, Sorted::Merge(_)), bytes_max != usize::MAX);
            let mut entries = Vec::new();
            while let Some((key, value)) = sorted.entry() {
                entries.push((key.to_vec(), value.to_vec()));
                sorted.advance().expect("it can be read");
            }
            let mut wanted: Vec<_> = expected.iter().map(|(key, _, value)| (key.clone(), value.to_vec())).collect();
            wanted.sort();
            // There are equal keys, because the suffixes are few. Equal keys are in no order.
            assert!(entries.is_sorted_by(|a, b| a.0 <= b.0));
            entries.sort();
            assert_eq!(entries, wanted, "with {bytes_max} bytes");
        }
    }
}
