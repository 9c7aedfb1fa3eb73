//! SHA-256 in the journal's encodings.

use ring::digest::{self, Context, Digest};
use std::fmt;

/// Formats bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    text.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
    text
}

/// A SHA-256; Avro `fixed` of 32 bytes, 64 lower-case hexadecimal digits in JSON.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(&digest::digest(&digest::SHA256, bytes))
    }

    /// Hashes the concatenated parts.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&digest::SHA256);
        parts.iter().for_each(|part| context.update(part));
        Self::from_digest(&context.finish())
    }

    /// Hashes the parts, each prefixed with its length in bytes (8 bytes, big-endian).
    pub fn of_prefixed<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self::from_digest(&context.finish())
    }

    fn from_digest(digest: &Digest) -> Self {
        let mut hash = Self::default();
        hash.0.copy_from_slice(digest.as_ref());
        hash
    }

    /// Returns SHA-256(self ‖ next), the next run hash.
    #[must_use]
    pub fn chain(&self, next: &Self) -> Self {
        let mut both = [0u8; 64];
        both[..32].copy_from_slice(&self.0);
        both[32..].copy_from_slice(&next.0);
        Self::of(&both)
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let mut out = [0u8; 32];
        if hex.len() != 64 || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
    }
}
