//! Cuts off the torn end of a write-ahead log after a power cut.
//!
//! RocksDB itself ignores a last record that is too short. It treats a last record with wrong bytes as damage, although
//! sectors reach a disk in any order. This module distinguishes a torn end from damage by the bytes after it: a record that
//! was never synced was not acknowledged, and no record follows it. So the first broken record is cut off if no whole record
//! follows. If that record had been synced, an index that contains it is ahead of its log and reports that.
//!
//! ```text
//!   file      blocks of 32 KiB, the last one shorter; fragments do not cross blocks, fewer than 7 bytes are left empty
//!   fragment  crc: u32 · length: u16 · kind: u8 · (log number: u32, of kinds 5 to 8) · payload     little-endian
//!   kind      1 whole · 2 first · 3 middle · 4 last; 5 to 8 the same, in a file that was used before
//! ```
//!
//! The format is RocksDB's `db/log_format.h`. The CRC is a masked CRC-32C over kind, log number and payload.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
const NUMBER_BYTES: usize = 4;
/// Larger than any single write. A broken record further from the end is damage.
const TORN_BYTES_MAX: usize = 24 << 20;

/// Cuts off the torn end of the newest write-ahead log in `dir`. Returns the file and the number of removed bytes. Returns
/// `None` if the end is intact, or if the broken record is not at the end.
pub(super) fn cut_torn_end(dir: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    let files = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let logs =
        files.iter().map(fs::DirEntry::path).filter(|path| path.extension().is_some_and(|ending| ending == "log"));
    let number = |path: &PathBuf| path.file_stem().and_then(|name| name.to_str()?.parse::<u64>().ok());
    let Some(newest) = logs.max_by_key(number) else { return Ok(None) };
    let mut file = fs::File::options().read(true).write(true).open(&newest)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let Some(at) = torn_at(&bytes) else { return Ok(None) };
    file.set_len(at as u64)?;
    file.sync_all()?;
    Ok(Some((newest, (bytes.len() - at) as u64)))
}

/// Returns the start of the broken record, if no record begins after it.
fn torn_at(bytes: &[u8]) -> Option<usize> {
    // `begin` is the start of the record that contains the fragment at `at`.
    let (mut at, mut begin) = (0, 0);
    while at < bytes.len() {
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        if left < HEADER_BYTES {
            at += left;
            continue;
        }
        let Some(fragment) = fragment(bytes, at) else {
            let rest = at + 1..bytes.len();
            let follows = || rest.clone().any(|at| begins(bytes, at) && fragment(bytes, at).is_some());
            let torn = bytes.len() - begin <= TORN_BYTES_MAX && !follows();
            return torn.then_some(begin);
        };
        if fragment.begins {
            begin = at;
        }
        at += fragment.bytes;
        if fragment.ends {
            begin = at;
        }
    }
    None
}

struct Fragment {
    bytes: usize,
    begins: bool,
    ends: bool,
}

/// Whether the header at `at` has a kind that begins a record: a cheap filter before the CRC.
fn begins(bytes: &[u8], at: usize) -> bool {
    bytes.get(at + 6).is_some_and(|kind| [1, 2, 5, 6].contains(kind))
}

/// Returns the fragment at `at`, or `None` without a complete fragment with a matching CRC.
fn fragment(bytes: &[u8], at: usize) -> Option<Fragment> {
    let header: [u8; HEADER_BYTES] = bytes.get(at..at + HEADER_BYTES)?.try_into().ok()?;
    let [a, b, c, d, low, high, kind] = header;
    let number = if (5..=8).contains(&kind) { NUMBER_BYTES } else { 0 };
    let size = HEADER_BYTES + number + usize::from(u16::from_le_bytes([low, high]));
    let covered = bytes.get(at + HEADER_BYTES - 1..at + size)?;
    let fits = at % BLOCK_BYTES + size <= BLOCK_BYTES;
    let whole = kind != 0 && fits && masked(crc32c(covered)) == u32::from_le_bytes([a, b, c, d]);
    whole.then(|| Fragment { bytes: size, begins: [1, 2, 5, 6].contains(&kind), ends: [1, 4, 5, 8].contains(&kind) })
}

/// Masks a CRC as RocksDB stores it: a CRC over bytes that contain CRCs would otherwise be weak.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

const TABLE: [u32; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with records of these lengths, and the start of each record.
    fn file(lengths: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for (nth, length) in lengths.iter().enumerate() {
            let (payload, mut from) = (vec![nth as u8; *length], 0);
            let mut has_begun = false;
            loop {
                let mut left = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
                if left < HEADER_BYTES {
                    bytes.extend(vec![0; left]);
                    left = BLOCK_BYTES;
                }
                let part = (left - HEADER_BYTES).min(length - from);
                let ends = from + part == *length;
                let kind = match (has_begun, ends) {
                    (false, true) => 1,
                    (false, false) => 2,
                    (true, false) => 3,
                    (true, true) => 4,
                };
                if !has_begun {
                    begins.push(bytes.len());
                }
                let covered = [&[kind], &payload[from..from + part]].concat();
                bytes.extend(masked(crc32c(&covered)).to_le_bytes());
                bytes.extend((part as u16).to_le_bytes());
                bytes.extend(covered);
                (has_begun, from) = (true, from + part);
                if ends {
                    break;
                }
            }
        }
        (bytes, begins)
    }

    #[test]
    fn the_crc_equals_the_standards_crc() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn only_the_last_record_can_be_torn() {
        let (bytes, begins) = file(&[100, 40_000, 20, BLOCK_BYTES - 7, 70_000]);
        assert_eq!(torn_at(&bytes), None, "it is whole");
        for at in (0..bytes.len()).step_by(997).chain(begins.iter().copied()) {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert_eq!(torn_at(&broken), (at >= begins[4]).then_some(begins[4]), "at {at}");
        }
    }
}
