//! Keys whose byte order is the order of their parts.

use super::index::Index;
use runlog_schemas::{datum::Sha256, id::Offset};

/// The size in which most keys fit: a run id that is a UUID, with a fingerprint or a record id.
const CAPACITY: usize = 112;

/// A key, built part by part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// The common prefix of one of an index' row families; `order` is the family's number.
    pub fn new(index: Index, order: u8) -> Self {
        let mut bytes = Vec::with_capacity(CAPACITY);
        bytes.push(index.byte);
        bytes.push(order);
        Self(bytes)
    }

    /// A key from its bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Adds a string: its bytes with 00 escaped as 00 FF, ended by 00 01, so that no string's end sorts past another's
    /// continuation.
    #[must_use]
    pub fn text(mut self, text: impl AsRef<str>) -> Self {
        self.escape(text.as_ref());
        self.0.extend_from_slice(&[0, 1]);
        self
    }

    /// Adds the beginning of a string, to scan for strings that start with it.
    #[must_use]
    pub fn text_prefix(mut self, text: &str) -> Self {
        self.escape(text);
        self
    }

    fn escape(&mut self, text: &str) {
        if !text.as_bytes().contains(&0) {
            self.0.extend_from_slice(text.as_bytes());
            return;
        }
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
    }

    /// Adds a byte.
    #[must_use]
    pub fn u8(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    /// Adds a number, big-endian.
    #[must_use]
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Adds a number, big-endian.
    #[must_use]
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Adds a hash.
    #[must_use]
    pub fn hash(mut self, hash: &Sha256) -> Self {
        self.0.extend_from_slice(&hash.0);
        self
    }

    /// Adds an offset, so that keys are in log order.
    #[must_use]
    pub fn offset(self, offset: Offset) -> Self {
        self.u64(offset.get())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The greatest key that starts with this one's bytes, for scans against key order.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.0.extend_from_slice(&[0xff; 24]);
        self
    }
}

/// The end of the string that begins at `at` in a key, its terminator included; `None` if it does not end.
pub(crate) fn text_end(key: &[u8], mut at: usize) -> Option<usize> {
    // Within a string, 00 is followed by FF.
    loop {
        at += key.get(at..)?.iter().position(|byte| *byte == 0)?;
        if *key.get(at + 1)? == 1 {
            return Some(at + 2);
        }
        at += 2;
    }
}

/// The first 16 bytes of a key, as a number in the order of keys: most comparisons need no further bytes.
pub(crate) fn beginning(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let count = key.len().min(bytes.len());
    bytes[..count].copy_from_slice(&key[..count]);
    u128::from_be_bytes(bytes)
}

/// Reads a key's parts. Each method returns `None` if the key does not have that part.
#[derive(Clone, Debug)]
pub struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    /// Starts after the index and order bytes of `key`.
    pub fn new(key: &'a [u8]) -> Self {
        Self(key.get(2..).unwrap_or_default())
    }

    /// Starts at the first of `bytes`, without index and order bytes.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next string.
    pub fn text(&mut self) -> Option<String> {
        let mut out = Vec::new();
        let mut rest = self.0;
        loop {
            match rest {
                [0, 1, tail @ ..] => {
                    self.0 = tail;
                    return String::from_utf8(out).ok();
                }
                [0, 0xff, tail @ ..] => {
                    out.push(0);
                    rest = tail;
                }
                [0, ..] | [] => return None,
                [byte, tail @ ..] => {
                    out.push(*byte);
                    rest = tail;
                }
            }
        }
    }

    /// The next string, which is an id.
    pub fn id<T: TryFrom<String>>(&mut self) -> Option<T> {
        self.text()?.try_into().ok()
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// The next number.
    pub fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*number))
    }

    /// The next hash.
    pub fn hash(&mut self) -> Option<Sha256> {
        let (hash, rest) = self.0.split_first_chunk::<32>()?;
        self.0 = rest;
        Some(Sha256(*hash))
    }

    /// The next offset.
    pub fn offset(&mut self) -> Option<Offset> {
        Offset::new(self.u64()?).ok()
    }

    /// The next number.
    pub fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }
}
