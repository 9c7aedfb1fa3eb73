//! Buckets of offsets. On disk, the keys of lists that grow with the log begin with a range of offsets.
//!
//! ```text
//!   a key                     index, family | list | offset | record's index
//!   column family `events`    bucket | index, family | list | offset | record's index ──▶ row
//! ```
//!
//! The list in a key is a text such as a tag. New rows are at the end of each list, so without buckets every new table file
//! would overlap all older table files. With the bucket first, it overlaps only the table files of the last one or two
//! buckets. A list is read bucket by bucket, with one seek per bucket, also for buckets without rows of the list.

use super::{events, index::Index, key::text_end, numbers::put_number};
use std::borrow::Cow;

/// The bits of an offset within its bucket: a million offsets. Smaller buckets would make compaction cheaper, but reads of
/// lists more expensive.
const BUCKET_BITS: u32 = 20;
/// Bytes of an offset, and of the record's index after it.
const OFFSET_BYTES: usize = 8;
const SUFFIX_BYTES: usize = OFFSET_BYTES + 4;

/// The index whose rows are stored by bucket: all its keys end with an offset and a record's index.
const BUCKETED: Index = events::INDEX;

/// Whether rows with this key, or with this prefix of a key, are stored by bucket.
pub(super) fn is_bucketed(key: &[u8]) -> bool {
    key.first() == Some(&BUCKETED.byte)
}

/// The bucket of the least offset that begins with `suffix`, the bytes of a key after its list.
pub(super) fn bucket_of(suffix: &[u8]) -> u64 {
    let mut offset = [0; OFFSET_BYTES];
    let count = suffix.len().min(OFFSET_BYTES);
    offset[..count].copy_from_slice(&suffix[..count]);
    u64::from_be_bytes(offset) >> BUCKET_BITS
}

/// The list of a key, with its index and family; `None` for a key that no bucketed family has.
pub(super) fn list_of(key: &[u8]) -> Option<&[u8]> {
    let family = BUCKETED.family_of(key)?;
    let texts = family.key.len().checked_sub(2)?;
    let end = (0..texts).try_fold(2, |at, _| text_end(key, at))?;
    Some(&key[..end])
}

/// Appends a row's key as it is on disk.
pub(super) fn put_key(key: &[u8], out: &mut Vec<u8>) {
    let suffix = key.len().saturating_sub(SUFFIX_BYTES);
    put_number(bucket_of(&key[suffix..]), out);
    out.extend_from_slice(key);
}

/// A key, or the beginning of one, in a bucket.
pub(super) fn key_in(bucket: u64, key: &[u8]) -> Vec<u8> {
    let mut on_disk = Vec::with_capacity(key.len() + 4);
    put_number(bucket, &mut on_disk);
    on_disk.extend_from_slice(key);
    on_disk
}

/// The key by which rows must be sorted for [`Tables`](super::Tables): the row's own key, if it is not stored by bucket.
pub(crate) fn sort_key(key: &[u8]) -> Cow<'_, [u8]> {
    if !is_bucketed(key) {
        return key.into();
    }
    let mut sorted = vec![BUCKETED_MARK];
    put_key(key, &mut sorted);
    sorted.into()
}

/// The row's own key, from its [`sort_key`].
pub(crate) fn sorted_key(key: &[u8]) -> &[u8] {
    match key {
        [BUCKETED_MARK, length, rest @ ..] => rest.get(usize::from(*length)..).unwrap_or_default(),
        key => key,
    }
}

/// The first byte of the sort key of a bucketed row. No index has this byte.
const BUCKETED_MARK: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::store::{Key, KeyPart};
    use runlog_schemas::{id::Offset, refs::EntityKind};

    #[test]
    fn every_bucketed_family_lists_texts_by_offset_and_record() {
        for family in BUCKETED.families {
            let (suffix, texts) =
                family.key.split_last_chunk::<2>().map(|(texts, suffix)| (suffix, texts)).expect("a suffix");
            assert!(matches!(suffix, [KeyPart::U64("offset"), KeyPart::U32("index")]), "{family:?}");
            assert!(texts.iter().all(|part| matches!(part, KeyPart::Text(_))), "{family:?}");
        }
    }

    #[test]
    fn a_list_ends_before_the_offset_for_texts_of_any_bytes() {
        let at = |list: Key| events::key(list, Offset::from(1 << 20), 7);
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
