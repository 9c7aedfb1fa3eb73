//! The hashes that the specification gives formulas for, and the partition of a run.

use crate::record;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a hexadecimal text; `None` if it is not hexadecimal.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..text.len()).step_by(2).map(pair).collect()
}

/// RFC 8785 for the generator's values: ASCII keys, strings, integers within ±2^53, booleans, nulls.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            let members: Vec<String> = names
                .iter()
                .map(|name| format!("{}:{}", Value::from(name.as_str()), canonical(&members[*name])))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// A hash of a record's content that is equal for equal content. It is the model's own: the content hash of an
/// encoded record's bytes takes precedence.
pub fn content(record: &Value) -> String {
    hex(&Sha256::digest(canonical(&record::content(record))))
}

/// The content hash of a record that no encoder has hashed. A basis made of such hashes is their list, so that [`basis`] can replace them.
pub(crate) fn unencoded(record: &Value) -> String {
    format!("{UNENCODED}{}", content(record))
}

const UNENCODED: char = '~';

/// A basis uses this hash for a skipped record with this content hash.
pub(crate) fn skipped(content: &str) -> String {
    match content.strip_prefix(UNENCODED) {
        Some(content) => format!("{UNENCODED}skipped {content}"),
        None => hex(&Sha256::digest(format!("skipped {content}"))),
    }
}

/// The basis of an effect after a further record with this content hash.
pub(crate) fn after(before: &str, content: &str) -> String {
    if content.starts_with(UNENCODED) {
        return format!("{before}{content}");
    }
    hex(&Sha256::digest(format!("after {before} {content}")))
}

/// The basis in the log of a basis of the generator: `encoded` returns the content hash of a record's [`content`].
pub fn basis(generated: &str, encoded: impl Fn(&str) -> Option<String>) -> String {
    let hash_of = |content: &str| encoded(content).unwrap_or_else(|| content.to_owned());
    let mut hashes =
        generated.split(UNENCODED).filter(|part| !part.is_empty()).map(|part| match part.strip_prefix("skipped ") {
            Some(content) => skipped(&hash_of(content)),
            None => hash_of(part),
        });
    let first = hashes.next().unwrap_or_default();
    hashes.fold(first, |before, content| after(&before, &content))
}

/// A basis of the generator without its last record.
pub(crate) fn basis_before(generated: &str) -> Option<&str> {
    generated.rsplit_once(UNENCODED).map(|(before, _)| before).filter(|before| !before.is_empty())
}

/// The SHA-256 of a secret, both hexadecimal; `None` without a secret.
pub(crate) fn commitment(secret: &str) -> Option<String> {
    let secret = unhex(secret).filter(|secret| !secret.is_empty())?;
    Some(hex(&Sha256::digest(secret)))
}

/// `"v1:" + hex(SHA-256(tool_name ‖ 00 ‖ hex(SHA-256(JCS(arguments)))))`.
pub fn fingerprint(tool_name: &str, arguments: &Value) -> String {
    let args = hex(&Sha256::digest(canonical(arguments)));
    let mut hash = Sha256::new();
    hash.update(tool_name);
    hash.update([0]);
    hash.update(args);
    format!("v1:{}", hex(&hash.finalize()))
}

/// The `state_hash` of a checkpoint without usage and reports: the hashes of its messages' compact texts, then the
/// hash of the Avro of `total_usage`, `verification_reports`, `state` (null, an empty array, and null or a string).
pub fn state_hash(messages: &[Value], state: &Value) -> String {
    let mut rest = vec![0, 0];
    if state.is_null() {
        rest.push(0);
    } else {
        let text = state.to_string();
        rest.push(2);
        let mut length = text.len() as u64 * 2; // Zigzag of a length is its double.
        while length >= 0x80 {
            rest.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        rest.push(u8::try_from(length).unwrap_or(0));
        rest.extend(text.bytes());
    }
    let mut hash = Sha256::new();
    for message in messages {
        hash.update(Sha256::digest(message.to_string()));
    }
    hash.update(Sha256::digest(rest));
    hex(&hash.finalize())
}

/// `h = SHA-256(h ‖ datum hash)` from 32 zero bytes; `None` if a datum's hash is unknown.
pub(crate) fn run_hash<'a>(datums: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let mut hash = vec![0; 32];
    for datum in datums {
        hash.extend(unhex(datum?)?);
        hash = Sha256::digest(&hash).to_vec();
    }
    Some(hex(&hash))
}

/// A run's partition: Kafka's murmur2 (seed 0x9747b28c, the sign bit cleared) mod `partitions`.
pub fn partition_of(run_id: &str, partitions: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let bytes = run_id.as_bytes();
    let mut h = 0x9747_b28c ^ u32::try_from(bytes.len()).unwrap_or(0);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    for (at, byte) in rest.iter().enumerate() {
        h ^= u32::from(*byte) << (8 * at);
    }
    if !rest.is_empty() {
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^= h >> 15;
    (h & 0x7fff_ffff) % partitions
}
