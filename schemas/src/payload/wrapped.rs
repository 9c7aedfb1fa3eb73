//! Payloads that contain others: batches, ciphertext, and bytes that another SDK owns.

use crate::{
    datum,
    datum::{Datum, Input, Malformed},
    record::JournalRecord,
    scalar::Bytes,
};
use serde::{Deserialize, Serialize};

/// Largest number of records of a batch.
pub const BATCH_RECORDS_MAX: usize = 4096;

/// Records of one run that take effect together or not at all. Their `writer_seq`s are consecutive from the envelope's.
/// Not allowed: a batch, a claim, a partition's record, a stored payload, a kind that needs no claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// The records, in order.
    pub records: Vec<JournalRecord>,
}

impl Batch {
    fn each<'a>(
        input: &mut Input<'a>,
        mut record: impl FnMut(&mut Input<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        // The schema refers to itself, but only one level of batches is allowed.
        if std::mem::replace(&mut input.in_batch, true) {
            return Err(input.malformed("a batch within a batch"));
        }
        let mut left = BATCH_RECORDS_MAX;
        datum::blocks(input, |input| {
            left = left.checked_sub(1).ok_or_else(|| input.malformed("too many records in a batch"))?;
            record(input)
        })?;
        input.in_batch = false;
        Ok(())
    }
}

impl Batch {
    /// Visits the byte range of each record in an encoded batch, relative to the beginning of `input`.
    pub(crate) fn spans(
        input: &mut Input<'_>,
        mut visit: impl FnMut(std::ops::Range<usize>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        Self::each(input, |input| {
            let from = input.position();
            JournalRecord::skip(input)?;
            visit(from..input.position())
        })
    }
}

impl Batch {
    /// The lowest schema version that expresses every record.
    pub(crate) fn version(&self) -> u16 {
        self.records.iter().map(|record| record.body.facts.version()).max().unwrap_or(1)
    }

    /// Appends its datum, each record in this version.
    pub(crate) fn put_in(&self, version: u16, out: &mut Vec<u8>) {
        if !self.records.is_empty() {
            datum::put_long(self.records.len().cast_signed() as i64, out);
            self.records.iter().for_each(|record| record.put_in(version, out));
        }
        datum::put_long(0, out);
    }
}

impl Datum for Batch {
    fn put(&self, out: &mut Vec<u8>) {
        self.put_in(self.version(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut records = Vec::new();
        Self::each(input, |input| {
            records.push(JournalRecord::take(input)?);
            Ok(())
        })?;
        Ok(Self { records })
    }
    fn skip(input: &mut Input<'_>) -> Result<(), Malformed> {
        Self::each(input, JournalRecord::skip)
    }
}

/// A payload encrypted under the run's key, which the envelope's `key_id` names. Kind and facts describe the plaintext;
/// the content hash covers the ciphertext.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encrypted {
    /// The name of the algorithm.
    pub algorithm: String,
    /// The nonce, unique for the key.
    pub nonce: Bytes,
    /// The encodings of the payload with its union branch and of its unknown fields, encrypted.
    pub ciphertext: Bytes,
}
datum!(Encrypted { algorithm, nonce, ciphertext });

/// A payload that another SDK owns and that no index reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPayload {
    /// The owner of the payload.
    pub family: String,
    /// The payload's type within the family.
    pub payload_type: String,
    /// The version of the type.
    pub schema_version: u32,
    /// The media type of `bytes`.
    pub content_type: String,
    /// The payload as its owner wrote it.
    pub bytes: Bytes,
}
datum!(HostPayload { family, payload_type, schema_version, content_type, bytes });
