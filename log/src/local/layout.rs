//! The encoding of keys and values in the database. A change needs another [`VERSION`].
//!
//! ```text
//!   column family   key                  value
//!   default         "layout"             version: u8 · partitions: u32
//!                   "id"                 the log's 16 random bytes, in hexadecimal; absent in older logs
//!                   "end" partition: u32 the offset after the partition's last record: u64; absent in older logs, and too
//!                                        small if an older program appended last
//!   p00000 …        offset: u64          1: u8 · timestamp: i64 · key: bytes · count: u32
//!                                        · count × (name: bytes · value: bytes) · value, to the end
//! ```
//!
//! Integers are big-endian, so that keys sort like offsets. `bytes` is a u32 length, then the bytes. RocksDB's
//! checksums protect all of it.

use crate::{Delivery, Entry, Offset, PartitionId};

/// The version of this layout.
pub(super) const VERSION: u8 = 1;

/// The first byte of a record's value.
const RECORD: u8 = 1;

pub(super) const LAYOUT_KEY: &[u8] = b"layout";

pub(super) const ID_KEY: &[u8] = b"id";

/// The length of the log's id: 16 bytes.
pub(super) const ID_HEX_DIGITS: usize = 32;

/// The key of a partition's end.
pub(super) fn end_key(partition: PartitionId) -> Vec<u8> {
    [&b"end"[..], &partition.get().to_be_bytes()].concat()
}

/// The column family of a partition.
pub(super) fn family(partition: PartitionId) -> String {
    format!("p{:05}", partition.get())
}

pub(super) fn encode_layout(partitions: u32) -> Vec<u8> {
    [&[VERSION][..], &partitions.to_be_bytes()].concat()
}

/// Decodes the version, and the partition count if the version is [`VERSION`].
pub(super) fn decode_layout(bytes: &[u8]) -> Option<(u8, Option<u32>)> {
    let (version, rest) = bytes.split_first()?;
    let partitions = (*version == VERSION).then(|| rest.try_into().ok().map(u32::from_be_bytes)).flatten();
    Some((*version, partitions))
}

pub(super) fn encode_key(offset: Offset) -> [u8; 8] {
    offset.get().to_be_bytes()
}

pub(super) fn decode_key(bytes: &[u8]) -> Option<Offset> {
    Offset::new(u64::from_be_bytes(bytes.try_into().ok()?)).ok()
}

pub(super) fn encode_record(entry: &Entry, millis: i64) -> Vec<u8> {
    let mut record = Vec::with_capacity(64 + entry.key.len() + entry.value.len());
    record.push(RECORD);
    record.extend(millis.to_be_bytes());
    put_bytes(&entry.key, &mut record);
    put_length(entry.headers.len(), &mut record);
    for (name, value) in &entry.headers {
        put_bytes(name.as_bytes(), &mut record);
        put_bytes(value, &mut record);
    }
    record.extend(&entry.value);
    record
}

/// Decodes a record. Returns `None` if the bytes are not a record.
pub(super) fn decode_record(partition: PartitionId, offset: Offset, mut bytes: &[u8]) -> Option<Delivery> {
    let rest = &mut bytes;
    if take(rest, 1)? != [RECORD] {
        return None;
    }
    let timestamp_millis = i64::from_be_bytes(take(rest, 8)?.try_into().ok()?);
    let key = take_bytes(rest)?.to_vec();
    let count = take_length(rest)?;
    // A count that the bytes cannot hold must not allocate: a header has at least its two lengths.
    let mut headers = Vec::with_capacity(count.min(rest.len() / 8));
    for _ in 0..count {
        let name = String::from_utf8(take_bytes(rest)?.to_vec()).ok()?;
        headers.push((name, take_bytes(rest)?.to_vec()));
    }
    Some(Delivery { partition, offset, timestamp_millis, key, value: rest.to_vec(), headers })
}

fn put_length(length: usize, into: &mut Vec<u8>) {
    let length = u32::try_from(length).expect("a batch was checked against limits far below 4 GiB");
    into.extend(length.to_be_bytes());
}

fn put_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    put_length(bytes.len(), into);
    into.extend(bytes);
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    from.split_off(..length)
}

fn take_length(from: &mut &[u8]) -> Option<usize> {
    let bytes = take(from, 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(bytes)).ok()
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(from)?;
    take(from, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let headers = vec![("a".into(), b"1".to_vec()), (String::new(), Vec::new())];
        Entry { key: b"run".to_vec(), value: b"value".to_vec(), headers }
    }

    #[test]
    fn a_record_decodes_to_the_encoded_record() {
        let bytes = encode_record(&entry(), -5);
        let (partition, offset) = (3.into(), 9.into());
        let record = decode_record(partition, offset, &bytes).unwrap();
        let Entry { key, value, headers } = entry();
        assert_eq!(record, Delivery { partition, offset, timestamp_millis: -5, key, value, headers });
    }

    #[test]
    fn a_cut_record_is_refused_wherever_it_is_cut_before_its_value() {
        let bytes = encode_record(&entry(), 0);
        for length in 0..bytes.len() - entry().value.len() {
            assert_eq!(decode_record(PartitionId::ZERO, Offset::ZERO, &bytes[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn keys_sort_as_their_offsets() {
        let offsets =
            [0, 1, 255, 256, u64::from(u32::MAX) + 1, Offset::MAX.get()].map(|offset| Offset::new(offset).unwrap());
        assert!(offsets.map(encode_key).is_sorted());
        assert_eq!(offsets.map(|offset| decode_key(&encode_key(offset)).unwrap()), offsets);
        assert_eq!(decode_key(&u64::MAX.to_be_bytes()), None, "no offset of ours");
    }
}
