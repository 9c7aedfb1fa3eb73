//! Records whose decision a record is: the authenticated principal, next to the client's own text.
//!
//! A decision or a retraction has the principal as a separate fact, and so has a given approval. A payload that names a person only in `who` gets the principal
//! there: `PRINCIPAL`, or `PRINCIPAL (the client's text)`. A principal has neither spaces nor parentheses. So the text
//! up to the first space is the principal, and a client cannot pass off its own text as one.

use runlog_projector::index::principal::Proofs;
use runlog_schemas::{
    id::ContentHash,
    judge::lifecycle::LifecycleStatus,
    payload::{Payload, PayloadType},
    record::{JournalRecord, RecordKind},
};

/// Makes the recorded `who` for a client that sent `said`.
pub(crate) fn who(principal: Option<&str>, said: String) -> String {
    match principal {
        None => said,
        Some(principal) if said.trim().is_empty() || said == principal => principal.to_owned(),
        Some(principal) => format!("{principal} ({said})"),
    }
}

/// Writes the principal into a record that names a person: into its `who`, and for a decision or a retraction into its facts,
/// with a proof that a server authenticated it. A record that the log already has as the client sent it, or with the principal in
/// `who` alone, stays as the log has it: its hash is `first`. No such record is in a writer's sequence, whose next record would
/// contain its hash.
pub(super) fn attribute(
    record: &mut JournalRecord,
    principal: &str,
    proofs: Option<&Proofs>,
    first: Option<ContentHash>,
) {
    let is_proven = matches!(record.body.record_kind, RecordKind::EffectResolution | RecordKind::Retraction);
    let names_somebody = is_proven || matches!(record.payload, Payload::Erasure(_));
    if !names_somebody || first == Some(record.content_hash()) {
        return;
    }
    let field = match &mut record.payload {
        Payload::EffectResolution(resolution) => Some(&mut resolution.who),
        Payload::Retraction(retraction) => Some(&mut retraction.who),
        Payload::Erasure(erasure) => Some(&mut erasure.who),
        // A payload that is stored elsewhere or encrypted stays as its client wrote it.
        _ => None,
    };
    if let Some(field) = field {
        *field = who(Some(principal), std::mem::take(field));
    }
    if is_proven && first != Some(record.content_hash()) {
        record.body.facts.principal = Some(principal.to_owned());
        record.body.facts.principal_proof = proofs.map(|proofs| proofs.prove(record));
    }
}

/// Writes the principal into a given approval, and into each given approval of a batch, with a proof. Neither is part
/// of the content hash.
pub(super) fn attribute_approvals(record: &mut JournalRecord, principal: &str, proofs: Option<&Proofs>) {
    if let Payload::Batch(batch) = &mut record.payload {
        batch.records.iter_mut().for_each(|record| attribute_approvals(record, principal, proofs));
    }
    if approves(record) {
        record.body.facts.approver = Some(principal.to_owned());
        record.body.facts.principal_proof = proofs.map(|proofs| proofs.prove(record));
    }
}

/// Whether a record, or a record of a batch, names a principal that a client may not send.
pub(super) fn names_principal(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    let of_batch = match &record.payload {
        Payload::Batch(batch) => batch.records.iter().any(names_principal),
        _ => false,
    };
    of_batch || facts.principal.is_some() || facts.principal_proof.is_some() || facts.approver.is_some()
}

/// Whether a record gives an approval. Checks its facts, as the judge does: the payload may be stored elsewhere or
/// encrypted.
pub(crate) fn approves(record: &JournalRecord) -> bool {
    let facts = &record.body.facts;
    let status = facts.status.as_deref().and_then(|status| status.parse().ok());
    facts.payload_type == PayloadType::Approval
        && matches!(status, Some(LifecycleStatus::Approved | LifecycleStatus::ApprovedForSession))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog_schemas::{
        id::{RecordId, RunId},
        payload::EffectResolution,
    };

    fn decision(said: &str) -> JournalRecord {
        let resolution = EffectResolution {
            request_record_id: RecordId::new("call".to_owned()).unwrap(),
            decision: "not_done".to_owned(),
            result: None,
            who: said.to_owned(),
            why: "it never started".to_owned(),
        };
        let id = RecordId::new("decision".to_owned()).unwrap();
        JournalRecord::new(RunId::new("run").unwrap(), id, "a", Payload::EffectResolution(resolution))
    }

    fn who_of(record: &JournalRecord) -> &str {
        match &record.payload {
            Payload::EffectResolution(resolution) => &resolution.who,
            _ => panic!("a decision"),
        }
    }

    #[test]
    fn a_decision_names_its_principal_and_the_clients_who() {
        for (said, recorded) in [("jo", "desk@acme (jo)"), ("desk@acme", "desk@acme"), ("", "desk@acme")] {
            let mut record = decision(said);
            attribute(&mut record, "desk@acme", None, None);
            assert_eq!((who_of(&record), record.body.facts.principal.as_deref()), (recorded, Some("desk@acme")));
        }
    }

    #[test]
    fn a_decision_that_is_already_in_the_log_stays_a_repeat() {
        let mut record = decision("jo");
        let first = record.content_hash();
        attribute(&mut record, "desk@acme", None, Some(first));
        assert_eq!((record.content_hash(), record.body.facts.principal), (first, None));
    }
}
