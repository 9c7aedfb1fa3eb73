//! Receipts of uploads: a server that stores content gives its sender a receipt, and requires it for a record that
//! names the content.
//!
//! ```text
//!   receipt = expiry . HMAC-SHA-256(key, journal ‖ run ‖ payload type ‖ SHA-256 ‖ length ‖ expiry)
//! ```
//!
//! Servers with the same `receipt_key` accept each other's receipts. A receipt does not prove that the content exists.

use ring::hmac;
use runlog_schemas::{
    datum::{Sha256, hex},
    id::RunId,
    payload::StoredPayload,
};
use std::fmt;

/// How long a receipt is valid: a client must append the record within this time after the upload.
const VALID_MILLIS: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Separates these signatures from other uses of the key.
const PURPOSE: &[u8] = b"runlog upload receipt 1";

/// The key that signs receipts.
#[derive(Clone)]
pub(crate) struct ReceiptKey(hmac::Key);

/// The key is a secret.
impl fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptKey(…)")
    }
}

/// Uploaded content, for one run of one journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upload<'a> {
    pub(crate) journal_id: &'a str,
    pub(crate) run_id: RunId<&'a str>,
    pub(crate) stored: &'a StoredPayload,
}

impl ReceiptKey {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Issues a receipt. Returns it with its expiry, milliseconds since the Unix epoch.
    pub(super) fn issue(&self, upload: Upload<'_>, now_millis: u64) -> (String, u64) {
        let expires = now_millis.saturating_add(VALID_MILLIS);
        let tag = hmac::sign(&self.0, &signed_bytes(upload, expires));
        (format!("{expires}.{}", hex(tag.as_ref())), expires)
    }

    /// Whether a text is a receipt of this upload that has not expired.
    pub(super) fn proves(&self, receipt: &str, upload: Upload<'_>, now_millis: u64) -> bool {
        let Some((expires, tag)) = receipt.split_once('.') else { return false };
        let (Some(expires), Some(tag)) = (millis(expires), digest(tag)) else { return false };
        hmac::verify(&self.0, &signed_bytes(upload, expires), &tag).is_ok() && now_millis < expires
    }
}

/// Parses an expiry in the only form that [`ReceiptKey::issue`] writes: a receipt has one spelling.
fn millis(text: &str) -> Option<u64> {
    text.parse().ok().filter(|millis: &u64| millis.to_string() == text)
}

/// Encodes each part after its length, so that different uploads have different bytes.
fn signed_bytes(Upload { journal_id, run_id, stored }: Upload<'_>, expires_millis: u64) -> Vec<u8> {
    let mut bytes = PURPOSE.to_vec();
    for part in [journal_id, run_id.as_str(), &stored.payload_type.to_string(), &stored.sha256.to_string()] {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes.extend(stored.bytes.to_be_bytes());
    bytes.extend(expires_millis.to_be_bytes());
    bytes
}

/// Parses 32 bytes as 64 hexadecimal digits in lower case.
pub(super) fn digest(text: &str) -> Option<[u8; 32]> {
    let in_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    Sha256::parse(text).filter(|_| in_lower_case).map(|hash| hash.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::payload::PayloadType;

    #[test]
    fn a_receipt_is_of_one_content_for_one_run_of_one_journal_until_it_expires() {
        let key = ReceiptKey::new(&[1; KEY_BYTES]);
        let stored = StoredPayload::of(PayloadType::ConversationTurn, b"content");
        let run = |name| RunId::new(name).unwrap();
        let upload = Upload { journal_id: "j", run_id: run("a/1"), stored: &stored };
        let (receipt, expires) = key.issue(upload, 5);
        assert!(key.proves(&receipt, upload, 5) && !key.proves(&receipt, upload, expires));
        let other = StoredPayload::of(PayloadType::ConversationTurn, b"other");
        let longer = StoredPayload { bytes: 8, ..stored.clone() };
        for foreign in [
            Upload { journal_id: "k", ..upload },
            Upload { run_id: run("a/2"), ..upload },
            Upload { stored: &other, ..upload },
            Upload { stored: &longer, ..upload },
            // The same letters, split at another place.
            Upload { journal_id: "ja", run_id: run("/1"), ..upload },
        ] {
            assert!(!key.proves(&receipt, foreign, 5), "{foreign:?}");
        }
        let later = receipt.replacen(&expires.to_string(), &(expires + 1).to_string(), 1);
        let respelled = [format!("+{receipt}"), format!("0{receipt}"), format!("{receipt}0"), receipt.to_uppercase()];
        let [signed, padded, longer, upper] = respelled.each_ref();
        for forged in [
            "",
            ".",
            "5.",
            &later,
            signed,
            padded,
            longer,
            upper,
            receipt.trim_end_matches(|c: char| c.is_ascii_hexdigit()),
        ] {
            assert!(!key.proves(forged, upload, 5), "{forged:?}");
        }
        assert!(!ReceiptKey::new(&[2; KEY_BYTES]).proves(&receipt, upload, 5), "of another server");
    }
}
