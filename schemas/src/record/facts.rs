//! The facts of a record: unencrypted copies of fields of its payload.

use crate::{
    datum::{Datum, Input, Malformed, Sha256},
    id::{ContentHash, Epoch, Fingerprint, JournalSeq, RecordId, Secret},
    json::Json,
    messages::MessageSpan,
    or_other::OrOther,
    payload::{Payload, PayloadType, contract::ContractPayload, observed::ToolJournalEntry},
    symbols,
};
use serde::{Deserialize, Serialize};
use sources::status_and_key;

mod sources;

symbols! {
    /// Whether a request may start while a call of an earlier epoch waits for a decision.
    Unresolved { Refuse = "refuse", Allow = "allow" }
}

/// The fields that the judge and the indices need, unencrypted beside a payload that may be encrypted. The writer derives them from
/// the payload; a reader uses only these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The payload's type. Every payload type of a readable record is known to this build.
    pub payload_type: OrOther<PayloadType>,
    /// The payload's status or decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The tool, on requests; on the contract's effect intents, the kind of effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The call's fingerprint, on requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// The record that this one answers: a request's `record_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<RecordId>,
    /// On checkpoints: their id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// On checkpoints: the last `journal_seq` covered, inclusive. On prunes: checkpoints that cover less are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers_journal_seq: Option<JournalSeq>,
    /// On checkpoints: their number within the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_seq: Option<u64>,
    /// On checkpoints: when they were made, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at_millis: Option<u64>,
    /// On checkpoints: the id of the checkpoint whose message list they extend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The id of the record's effect, approval, message, wake condition or transaction. For a tool journal entry, the
    /// hexadecimal SHA-256 of its own fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// On checkpoints: the spans that make up their message list, as in the payload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<MessageSpan>,
    /// On checkpoints: the size of each of their own messages, bytes of its text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub message_bytes: Vec<u32>,
    /// On decisions: the effect's revision that its author saw. The decision is refused if the effect's revision is greater.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// On decisions: the evidence that it adopts or rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<RecordId>,
    /// On decisions of the run's writer: the only epoch in which it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// On decisions, retractions, skips and horizons: the author, as a server authenticated it. Clients must not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// On records with a principal or an approver: an HMAC over the content hash, by which servers with the same key recognise that one
    /// of them authenticated the principal. Not part of the content hash. Clients must not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_proof: Option<Sha256>,
    /// On attempts and decisions: a hash over the content hashes of the effect's records, evidence included. Refused if the
    /// effect has a newer record. No basis of an effect comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<ContentHash>,
    /// On attempts with a basis: their number, 2 for the first repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// On requests: whether they may start while a call of an earlier epoch waits for a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<Unresolved>,
    /// On requests: whether the call is safe to run again without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeatable: Option<bool>,
    /// On requests: whether the record reports a call of another system, whose result may have any writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<bool>,
    /// On claims: the SHA-256 of a secret of the claiming handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commitment: Option<Sha256>,
    /// On claims: the secret of the handle's previous claim. It shows that both claims are of one handle. Not part of the JSON.
    #[serde(default, skip_serializing)]
    pub shown: Option<Secret>,
    /// On results and on a writer's own decisions: whether the record is valid only for an effect that the handle itself started. A
    /// server sets it for credentials without `resolve`. Not part of the content hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_own: Option<bool>,
    /// On given approvals: who gave it, as a server authenticated it. Not part of the content hash. Clients must not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
}

/// Size of the facts of a version if all are unset: one zero byte for each.
pub(crate) fn unset_bytes(from: u16, to: u16) -> usize {
    [(2, 5), (3, 9)].iter().filter(|(version, _)| from < *version && *version <= to).map(|(_, bytes)| bytes).sum()
}

/// The fields since a version are written only if one of them, or of a later version, is set: the lowest version that
/// expresses the facts, as [`JournalRecord::version`](super::JournalRecord::version) says.
macro_rules! fields_by_version {
    ($take_first:ident { $($first:ident),* } $($take:ident since $since:literal { $($field:ident),* })*) => {
        impl Datum for Facts {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$first.put(out);)*
                let version = self.version();
                $(if version >= $since { $(self.$field.put(out);)* })*
            }

            fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
                let mut facts = Self::$take_first(input)?;
                $(facts.$take(input)?;)*
                Ok(facts)
            }
        }

        impl Facts {
            /// Reads the fields of version 1.
            pub(crate) fn $take_first(input: &mut Input<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($first: Datum::take(input)?,)* ..Self::default() })
            }

            $(
                #[doc = concat!("Reads the fields that version ", $since, " added, if the datum has them.")]
                pub(crate) fn $take(&mut self, input: &mut Input<'_>) -> Result<(), Malformed> {
                    if input.version() >= $since {
                        $(self.$field = Datum::take(input)?;)*
                    }
                    Ok(())
                }
            )*
        }
    };
}
fields_by_version! {
    take_version_1 {
        payload_type, status, tool_name, fingerprint, answers, checkpoint_id, covers_journal_seq, checkpoint_seq,
        created_at_millis, base, key, spans, message_bytes
    }
    take_version_2 since 2 { revision, evidence, epoch, principal, principal_proof }
    take_version_3 since 3 {
        basis, attempt, unresolved, repeatable, observed, commitment, shown, only_own, approver
    }
}

/// The facts that a record's author states and its payload does not contain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatedFacts {
    revision: Option<u64>,
    evidence: Option<RecordId>,
    epoch: Option<Epoch>,
    principal: Option<String>,
    principal_proof: Option<Sha256>,
    basis: Option<ContentHash>,
    unresolved: Option<Unresolved>,
    repeatable: Option<bool>,
    observed: Option<bool>,
    commitment: Option<Sha256>,
    shown: Option<Secret>,
    only_own: Option<bool>,
    approver: Option<String>,
}

impl From<&Facts> for StatedFacts {
    fn from(facts: &Facts) -> Self {
        Self {
            revision: facts.revision,
            evidence: facts.evidence.clone(),
            epoch: facts.epoch,
            principal: facts.principal.clone(),
            principal_proof: facts.principal_proof,
            basis: facts.basis,
            unresolved: facts.unresolved,
            repeatable: facts.repeatable,
            observed: facts.observed,
            commitment: facts.commitment,
            shown: facts.shown,
            only_own: facts.only_own,
            approver: facts.approver.clone(),
        }
    }
}

/// The status of a prune that keeps the latest terminal checkpoint.
pub const PRESERVE_LATEST_TERMINAL: &str = "preserve_latest_terminal";

impl Facts {
    /// Returns whether the facts name the state that a decision was made on.
    pub fn has_decision_basis(&self) -> bool {
        self.basis.is_some()
            || self.revision.is_some()
            || self.evidence.is_some()
            || self.epoch.is_some()
            || self.principal.is_some()
    }

    /// Returns the basis of a decision; `None` for other records. It also says which effect the decision is about, if effects of several
    /// kinds have the id.
    pub fn decided_basis(&self) -> Option<ContentHash> {
        self.basis.filter(|_| self.payload_type == PayloadType::EffectResolution)
    }

    /// Returns the lowest version that expresses the facts.
    pub fn version(&self) -> u16 {
        if self.only_own.is_some() || self.approver.is_some() {
            3
        } else if self.principal_proof.is_some() {
            self.version_of_content().max(2)
        } else {
            self.version_of_content()
        }
    }

    /// Returns the lowest version that expresses the input of the content hash: all fields except `principal_proof`,
    /// `only_own` and `approver`.
    pub(crate) fn version_of_content(&self) -> u16 {
        let has_version_3 = self.basis.is_some()
            || self.attempt.is_some()
            || self.unresolved.is_some()
            || self.repeatable.is_some()
            || self.observed.is_some()
            || self.commitment.is_some()
            || self.shown.is_some();
        if has_version_3 {
            3
        } else if self.has_decision_basis() {
            2
        } else {
            1
        }
    }

    /// Adds the stated facts that a record with this payload has.
    #[must_use]
    pub(crate) fn with_stated(self, payload: &Payload, stated: StatedFacts) -> Self {
        let StatedFacts {
            revision,
            evidence,
            epoch,
            principal,
            principal_proof,
            basis,
            unresolved,
            repeatable,
            observed,
            commitment,
            shown,
            only_own,
            approver,
        } = stated;
        match payload {
            Payload::EffectResolution(_) => {
                Self { revision, evidence, epoch, principal, principal_proof, basis, only_own, ..self }
            }
            Payload::ToolCallAttempt(p) => Self { basis, attempt: basis.map(|_| p.attempt), ..self },
            Payload::ToolCallRequested(_) => Self { unresolved, repeatable, observed, ..self },
            Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) => Self { only_own, ..self },
            Payload::RunClaim(_) => Self { commitment, shown, ..self },
            Payload::Retraction(_) | Payload::Skip(_) | Payload::RetentionHorizon(_) => {
                Self { principal, principal_proof, ..self }
            }
            Payload::Contract(contract) if contract.payload_type() == PayloadType::Approval => {
                Self { approver, principal_proof, ..self }
            }
            _ => self,
        }
    }

    /// Derives the facts of a payload.
    pub fn from_payload(payload: &Payload) -> Self {
        let mut facts = Self { payload_type: payload.payload_type().into(), ..Self::default() };
        match payload {
            Payload::RunLifecycle(p) => facts.status = Some(p.status.clone()),
            Payload::ToolCallRequested(p) => {
                facts.status = Some("requested".into());
                facts.tool_name = Some(p.tool_name.clone());
                facts.fingerprint.clone_from(&p.fingerprint.0);
            }
            Payload::ToolCallAttempt(p) => facts.answer("attempt", &p.request_record_id),
            Payload::ToolCallCompleted(p) => facts.answer("completed", &p.request_record_id),
            Payload::ToolCallFailed(p) => facts.answer("failed", &p.request_record_id),
            Payload::EffectResolution(p) => facts.answer(&p.decision, &p.request_record_id),
            Payload::LoopCheckpoint(p) => {
                facts.checkpoint_id = Some(p.checkpoint_id.clone());
                facts.covers_journal_seq = Some(p.covers_journal_seq);
                facts.checkpoint_seq = Some(p.checkpoint_seq);
                facts.created_at_millis = Some(p.created_at_millis);
                facts.base.clone_from(&p.base);
                facts.spans.clone_from(&p.spans);
                let size = |message: &Json| u32::try_from(message.as_str().len()).unwrap_or(u32::MAX);
                facts.message_bytes = p.messages.iter().map(size).collect();
            }
            Payload::CheckpointPrune(p) => {
                facts.status = p.preserve_latest_terminal.then(|| PRESERVE_LATEST_TERMINAL.into());
                facts.covers_journal_seq = Some(p.prune_covered_before);
            }
            Payload::ConversationTurn(p) => facts.key = Some(p.message_id.clone()),
            Payload::RunClaim(_) | Payload::Skip(_) | Payload::Genesis(_) => {}
            // A claim check does not contain the other facts.
            Payload::StoredPayload(stored) => facts.payload_type.clone_from(&stored.payload_type),
            Payload::Contract(p) => of_contract(p, &mut facts),
            other => of_own(other, &mut facts),
        }
        facts
    }

    fn state(&mut self, status: &str, key: &str) {
        self.status = Some(status.to_owned());
        self.key = Some(key.to_owned());
    }

    fn answer(&mut self, status: &str, request: &RecordId) {
        self.status = Some(status.to_owned());
        self.answers = Some(request.clone());
    }
}

/// Fills in the facts of a payload of another SDK's contract.
fn of_contract(payload: &ContractPayload, facts: &mut Facts) {
    (facts.status, facts.key) = status_and_key(payload);
    let number = |path| payload.text(path).and_then(|number| number.parse().ok());
    match payload.payload_type() {
        PayloadType::Tool => facts.tool_name = payload.text("canonical_tool_name"),
        PayloadType::EffectIntent => facts.tool_name = payload.text("kind"),
        PayloadType::Checkpoint => {
            facts.checkpoint_id = payload.text("checkpoint_id");
            // The contract's number may exceed the schema's range.
            facts.covers_journal_seq =
                number("covers_journal_seq").map(|covers| JournalSeq::ZERO.saturating_add(covers));
            facts.checkpoint_seq = number("checkpoint_seq");
            facts.created_at_millis = number("created_at_millis");
        }
        _ => {}
    }
}

/// Fills in the facts of Runlog's own payloads other than tool calls and checkpoints, and of the smaller
/// contracts that have structs.
fn of_own(payload: &Payload, facts: &mut Facts) {
    match payload {
        Payload::ToolJournalEntry(p) => tool_journal_entry(p, facts),
        Payload::CodeEditProposal(p) => facts.state(p.status.as_str(), &p.request_id),
        Payload::Retraction(p) => facts.state("retracted", &p.retracted_record_id),
        Payload::Erasure(_) => facts.status = Some("erased".to_owned()),
        Payload::Fork(p) => facts.state("forked", p.from_run_id.as_str()),
        Payload::RetentionHorizon(p) => facts.key = Some(p.family.clone()),
        _ => {}
    }
}

impl Payload {
    /// The payload's idempotency key and dedupe key, which a new record's envelope repeats.
    pub fn keys(&self) -> (Option<String>, Option<String>) {
        let Self::Contract(p) = self else { return (None, None) };
        match (p.payload_type(), p.variant()) {
            (PayloadType::EffectIntent, _) | (PayloadType::OutputDelivery, Some("intent")) => {
                (p.text("idempotency_key"), p.text("dedupe_key"))
            }
            (PayloadType::Tool, _) => (p.text("idempotency_key"), None),
            _ => (None, None),
        }
    }
}

/// The fingerprint is Runlog's. The entry's own fingerprint may contain the arguments in clear, so the key is its hash.
fn tool_journal_entry(entry: &ToolJournalEntry, facts: &mut Facts) {
    facts.key = Some(Sha256::of(entry.call_fingerprint.as_bytes()).to_string());
    facts.status = Some(if entry.is_error { "failed" } else { "completed" }.to_owned());
    facts.tool_name = Some(entry.tool_name.clone());
    facts.fingerprint = Fingerprint::of_call(&entry.tool_name, entry.arguments.as_str()).ok();
}
