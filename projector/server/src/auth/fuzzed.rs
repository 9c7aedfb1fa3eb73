//! The functions of [`fuzzing`](crate::fuzzing) that need the parsers of this module.

use super::{
    grants::Table,
    identities::{Algorithm, Issuer},
    jwks::KeySet,
    jwt::Jwt,
    receipts::{KEY_BYTES, ReceiptKey, Upload},
    token_file::TokenFile,
};
use runlog_schemas::{
    id::RunId,
    payload::{PayloadType, StoredPayload},
};
use std::path::Path;

/// Parses a token file. An accepted file is accepted again as it would be written, and makes a table of permissions.
pub fn token_file(text: &str) {
    let path = Path::new("tokens.json");
    let Ok(file) = TokenFile::parse(text, path) else { return };
    let written = serde_json::to_string(&file).expect("a file serialises");
    assert_eq!(TokenFile::parse(&written, path).expect("a written file is read again"), file);
    assert!(Table::new(path, &file, &Table::default()).is_ok(), "an accepted file can be used");
}

/// Parses a set of keys, and checks a signature with each.
pub fn key_set(text: &str) {
    let Ok(set) = KeySet::parse(text) else { return };
    assert!(set.len() > 0);
    for algorithm in [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256] {
        if let Some(key) = set.get("a", algorithm) {
            assert!(!key.verifies(b"message", b"no signature"));
        }
    }
}

/// Parses a JWT and verifies it with the keys of a set at a time. `issuer` is an issuer of a token file, as JSON.
pub fn jwt(token: &str, keys: &str, issuer: &str, now_millis: u64) {
    let Ok(jwt) = Jwt::parse(token) else { return };
    let (Ok(keys), Ok(issuer)) = (KeySet::parse(keys), serde_json::from_str::<Issuer>(issuer)) else { return };
    let Some(key) = keys.get(jwt.kid(), jwt.algorithm()) else { return };
    let _ = jwt.claims_at(&issuer, now_millis);
    if let Ok(verified) = jwt.verify(&issuer, &key, now_millis) {
        assert!(now_millis < verified.expires_millis && jwt.issuer() == issuer.issuer);
    }
}

/// Checks a receipt. Only the text that the server issues proves an upload.
pub fn receipt(text: &str, now_millis: u64) {
    let key = ReceiptKey::new(&[1; KEY_BYTES]);
    let stored = StoredPayload::of(PayloadType::ConversationTurn, b"content");
    let Ok(run_id) = RunId::new("r") else { return };
    let upload = Upload { journal_id: "j", run_id, stored: &stored };
    let issued = key.issue(upload, now_millis).0;
    assert!(key.proves(&issued, upload, now_millis));
    // The text is a mutation of the right one, since no mutation finds a signature.
    let mutated = text.replace("RECEIPT", &issued);
    assert_eq!(key.proves(&mutated, upload, now_millis), mutated == issued, "{mutated:?}");
}
