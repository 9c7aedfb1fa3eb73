//! A type for each kind of hash. All are SHA-256; hashes of a record's or a payload's bytes have the plain type.

use crate::datum::{Datum, Input, Malformed, Sha256};
use std::fmt;

macro_rules! hashes {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Sha256);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Datum for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Sha256::take(input).map(Self)
            }
        }
    )*};
}

hashes! {
    /// The hash of a record without its sequencing: over the body and the payload's own hash, inline or stored. Two records with
    /// equal hashes are one record that was sent twice.
    ContentHash;
    /// The chained hash of a run's applied records. Zero before the first.
    RunHash;
    /// The predecessor of a record: the content hash of its writer's previous record, or for the first record after a
    /// claim the run hash as of that claim. `writer_seq` determines which.
    PrevHash;
}

impl ContentHash {
    /// Stands for a record in an effect's basis, if the record was skipped.
    #[must_use]
    pub fn skipped(self) -> Self {
        Self(Sha256::of(format!("skipped {self}").as_bytes()))
    }

    /// Computes the basis of an effect after a further record about it. `before` is the basis before the record: no basis may come back.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        Self(Sha256::of(format!("after {before} {self}").as_bytes()))
    }

    /// Computes the payload hash of a batch from the content hashes of its records.
    pub(crate) fn of_batch(records: impl Iterator<Item = Self>) -> Sha256 {
        let hashes: Vec<Self> = records.collect();
        let parts: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.0.as_slice()).collect();
        Sha256::of_parts(&parts)
    }
}

impl RunHash {
    /// Returns the run hash after one more record: SHA-256(self ‖ the record's own hash).
    #[must_use]
    pub fn chain(self, record: &Sha256) -> Self {
        Self(self.0.chain(record))
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        Sha256::parse(hex).map(Self)
    }
}

impl From<ContentHash> for PrevHash {
    fn from(previous: ContentHash) -> Self {
        Self(previous.0)
    }
}

impl From<RunHash> for PrevHash {
    fn from(after_claim: RunHash) -> Self {
        Self(after_claim.0)
    }
}
