//! Proofs that a server authenticated the principal which a record names. A client that writes to the topic directly can write any
//! principal, but no proof.
//!
//! ```text
//!   key   = HMAC-SHA-256(secret of the servers, KEY_PURPOSE)
//!   proof = HMAC-SHA-256(key, PROOF_PURPOSE ‖ length of the journal id ‖ journal id ‖ content hash)
//!   proof of an approval:  … APPROVER_PURPOSE ‖ length of the journal id ‖ journal id ‖ content hash ‖ approver
//! ```
//!
//! The content hash covers the whole record with its run, its record id and the principal, but neither the proof nor the approver.
//! Answers check a proof; projections never do, so the index depends on no key.

use super::query::{Content, Stored};
use ring::hmac;
use runlog_schemas::{
    datum::Sha256,
    id::ContentHash,
    record::{JournalRecord, RecordKind, content_hash},
};
use std::fmt;

/// Separates this key from other keys that are derived from the same secret.
const KEY_PURPOSE: &[u8] = b"runlog principal key 1";
/// Separates proofs from other signatures with the key.
const PROOF_PURPOSE: &[u8] = b"runlog principal proof 1";
/// The same for proofs of approvals.
const APPROVER_PURPOSE: &[u8] = b"runlog approver proof 1";

/// The key that the servers of a journal use for proofs.
#[derive(Clone)]
pub struct PrincipalKey(hmac::Key);

/// Omits the key, which is a secret.
impl fmt::Debug for PrincipalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrincipalKey(…)")
    }
}

impl PrincipalKey {
    /// Derives the key from a secret that the servers share.
    pub fn derive(secret: &[u8; 32]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, KEY_PURPOSE).as_ref()))
    }
}

/// Makes and checks the proofs of one journal.
#[derive(Clone, Debug)]
pub struct Proofs {
    key: PrincipalKey,
    journal_id: String,
}

/// The principal of a record, as an answer shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPrincipal {
    /// The principal that the record names.
    pub principal: Option<String>,
    /// Whether a server with this key authenticated the principal. False without a principal.
    pub is_verified: bool,
}

impl Proofs {
    /// The proofs of a journal with this key.
    pub fn new(key: PrincipalKey, journal_id: &str) -> Self {
        Self { key, journal_id: journal_id.to_owned() }
    }

    /// The proof that a server authenticated the principal or the approver of a record. The record must be complete except for the
    /// proof. The same record always has the same proof.
    pub fn prove(&self, record: &JournalRecord) -> Sha256 {
        let mut proof = [0; 32];
        let signed = self.signed(record.content_hash(), record.body.facts.approver.as_deref());
        proof.copy_from_slice(hmac::sign(&self.key.0, &signed).as_ref());
        Sha256(proof)
    }

    /// The principal of a stored decision, retraction or approval. `None` for any other record, for an approval without an approver,
    /// and if the content was deleted, because the proof cannot be checked.
    pub(crate) fn check(&self, record: &Stored) -> Option<ShownPrincipal> {
        let Content::Available(payload) = &record.payload else { return None };
        let facts = &record.body.facts;
        let (principal, approver) = match record.body.record_kind {
            RecordKind::EffectResolution | RecordKind::Retraction => (facts.principal.clone(), None),
            _ => (Some(facts.approver.clone()?), facts.approver.as_deref()),
        };
        let is_proof = |proof: Sha256| {
            let signed = self.signed(content_hash(&record.body, payload), approver);
            hmac::verify(&self.key.0, &signed, &proof.0).is_ok()
        };
        let is_verified = principal.is_some() && facts.principal_proof.is_some_and(is_proof);
        Some(ShownPrincipal { principal, is_verified })
    }

    fn signed(&self, record: ContentHash, approver: Option<&str>) -> Vec<u8> {
        let mut bytes = approver.map_or(PROOF_PURPOSE, |_| APPROVER_PURPOSE).to_vec();
        bytes.extend((self.journal_id.len() as u64).to_be_bytes());
        bytes.extend(self.journal_id.as_bytes());
        bytes.extend(record.0.0);
        bytes.extend(approver.unwrap_or_default().as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::{
        id::{RecordId, RunId},
        payload::EffectResolution,
    };

    fn proofs(secret: u8, journal_id: &str) -> Proofs {
        Proofs::new(PrincipalKey::derive(&[secret; 32]), journal_id)
    }

    fn decision(run_id: &str, why: &str) -> JournalRecord {
        let resolution = EffectResolution {
            request_record_id: RecordId::new("call".to_owned()).unwrap(),
            decision: "give_up".to_owned(),
            result: None,
            who: "desk".to_owned(),
            why: why.to_owned(),
        };
        let id = RecordId::new("decision".to_owned()).unwrap();
        let mut record = JournalRecord::new(RunId::new(run_id).unwrap(), id, "runlog", resolution.into());
        record.body.facts.principal = Some("desk".to_owned());
        record
    }

    fn is_verified(proofs: &Proofs, JournalRecord { place, body, payload }: JournalRecord) -> bool {
        proofs.check(&Stored { place, body, payload: Content::Available(payload) }).unwrap().is_verified
    }

    #[test]
    fn a_proof_is_valid_for_one_decision_of_one_journal_with_one_key() {
        let own = proofs(1, "j");
        let mut record = decision("r", "a test");
        record.body.facts.principal_proof = Some(own.prove(&record));
        assert_eq!(record.body.facts.principal_proof, Some(own.prove(&record)), "not over itself");
        assert!(is_verified(&own, record.clone()));
        assert!(!is_verified(&proofs(2, "j"), record.clone()) && !is_verified(&proofs(1, "k"), record.clone()));
        let proof = record.body.facts.principal_proof;
        for forged in [decision("s", "a test"), decision("r", "another")] {
            let mut forged = forged;
            assert!(!is_verified(&own, forged.clone()), "without a proof");
            forged.body.facts.principal_proof = proof;
            assert!(!is_verified(&own, forged), "with the proof of another decision");
        }
        record.body.facts.principal = Some("boss".to_owned());
        assert!(!is_verified(&own, record));
    }
}
