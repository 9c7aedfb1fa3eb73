//! Buckets of offsets: on disk, rows of lists that grow with the log are kept by a range of offsets first.
//!
//! ```text
//!   a key                     index, family | what is listed | offset | record's index
//!   column family `events`    bucket | index, family | what is listed | offset | record's index ──▶ row
//! ```
//!
//! A list's new rows come at its end. With many lists between them, every new table would overlap all older ones; with the
//! bucket first, it overlaps those of the last bucket or two alone. A list is read bucket by bucket, with a seek for each,
//! also where it has nothing there.

use super::{Index, events, numbers::put_number};

/// The bits of an offset within its bucket: a million offsets. Smaller ones would make compaction cheaper, and lists dearer.
const BUCKET_BITS: u32 = 20;
/// Bytes of an offset, and of the record's index after it.
pub(super) const OFFSET_BYTES: usize = 8;
pub(super) const PLACE_BYTES: usize = OFFSET_BYTES + 4;

/// Indices whose rows are kept by bucket: all keys of them end with an offset and a record's index.
const BUCKETED: Index = events::INDEX;

/// Whether a key's row is kept by bucket, or all rows with this prefix.
pub(super) fn is_bucketed(key: &[u8]) -> bool {
    key.first() == Some(&BUCKETED.byte)
}

/// The bucket of an offset.
pub(super) fn of(offset: u64) -> u64 {
    offset >> BUCKET_BITS
}

/// The bucket of the least offset that these bytes, which follow what is listed in a key, may begin.
pub(super) fn from(place: &[u8]) -> u64 {
    let mut offset = [0; OFFSET_BYTES];
    let count = place.len().min(OFFSET_BYTES);
    offset[..count].copy_from_slice(&place[..count]);
    of(u64::from_be_bytes(offset))
}

/// What is listed under a key, with its index and family; none for a key that no bucketed family has.
pub(super) fn list_of(key: &[u8]) -> Option<&[u8]> {
    let family = BUCKETED.family_of(key)?;
    let (mut texts, mut at) = (family.key.len().checked_sub(2)?, 2);
    while texts > 0 {
        at += key.get(at..)?.iter().position(|byte| *byte == 0)?;
        texts -= usize::from(*key.get(at + 1)? == 1);
        at += 2;
    }
    Some(&key[..at])
}

/// Appends a row's key as it is on disk.
pub(super) fn put_key(key: &[u8], out: &mut Vec<u8>) {
    let place = key.len().saturating_sub(PLACE_BYTES);
    put_number(from(&key[place..]), out);
    out.extend_from_slice(key);
}

/// A key, or the beginning of one, in a bucket.
pub(super) fn key_in(bucket: u64, key: &[u8]) -> Vec<u8> {
    let mut on_disk = Vec::with_capacity(key.len() + 4);
    put_number(bucket, &mut on_disk);
    on_disk.extend_from_slice(key);
    on_disk
}

/// A key in whose order rows are given to [`Tables`](super::Tables), and how to tell it from the row's own.
pub(crate) fn sort_key(key: &[u8]) -> Vec<u8> {
    let mut sorted = vec![MARK];
    put_key(key, &mut sorted);
    sorted
}

/// The row's own key in one of [`sort_key`]; any other key as it is.
pub(crate) fn sorted_key(key: &[u8]) -> &[u8] {
    match key {
        [MARK, length, rest @ ..] => rest.get(usize::from(*length)..).unwrap_or_default(),
        key => key,
    }
}

/// No index has this byte.
const MARK: u8 = u8::MAX;

/// Whether rows of the family of a key are to be sorted by [`sort_key`].
pub(crate) fn is_sorted_by_bucket(key: &[u8]) -> bool {
    is_bucketed(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Key, KeyPart};
    use runlog_schemas::{id::Offset, refs::EntityKind};

    #[test]
    fn every_bucketed_family_lists_texts_by_offset_and_record() {
        for family in BUCKETED.families {
            let (place, texts) =
                family.key.split_last_chunk::<2>().map(|(texts, place)| (place, texts)).expect("a place");
            assert!(matches!(place, [KeyPart::U64("offset"), KeyPart::U32("index")]), "{family:?}");
            assert!(texts.iter().all(|part| matches!(part, KeyPart::Text(_))), "{family:?}");
        }
    }

    #[test]
    fn what_is_listed_ends_before_the_offset_whatever_bytes_it_has() {
        let at = |list: Key| events::at(list, Offset::from(1 << 20), 7);
        for list in [
            events::of_kind("a\0\u{1}", "\0"),
            events::of_subject(EntityKind::Run, "0\u{1}"),
            events::of_tag(""),
            events::of_correlation("k", "\0\0\u{1}"),
        ] {
            assert_eq!(list_of(at(list.clone()).bytes()), Some(list.bytes()));
            assert_eq!(list_of(list.bytes()), Some(list.bytes()));
            let key = at(list).into_bytes();
            assert_eq!(sorted_key(&sort_key(&key)), key);
            let mut on_disk = Vec::new();
            put_key(&key, &mut on_disk);
            assert_eq!(on_disk, [&[1, 1][..], &key].concat());
        }
        assert_eq!(list_of(events::of_family("a").bytes()), None);
    }
}
