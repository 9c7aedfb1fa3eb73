//! The secret of a writer's handle.

use crate::datum::{Datum, Input, Malformed, Sha256};
use std::fmt;

/// 32 random bytes that only one handle of a run knows; 64 hexadecimal digits in JSON. A claim contains their SHA-256, and the
/// handle's next claim the bytes. Neither `Debug` nor JSON output shows them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Wraps 32 random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// Returns the SHA-256 for the claim that commits to the secret.
    pub fn commitment(&self) -> Sha256 {
        Sha256::of(&self.0)
    }

    /// Returns 64 hexadecimal digits, for the request that shows the secret to the server.
    pub fn reveal(&self) -> String {
        Sha256(self.0).to_string()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Sha256::deserialize(d).map(|bytes| Self(bytes.0))
    }
}

impl Datum for Secret {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Sha256::take(input).map(|bytes| Self(bytes.0))
    }
}
