//! What a client needs to know of a journal and of the server that answers for it.

use super::OrOther;
use crate::symbols;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

symbols! {
    /// What a server understands beyond the first version of this interface. A client checks it before it sends a
    /// request that an older server would misunderstand.
    ///
    /// * `Revisions`: pending effects have a `revision`; a decision may name what it was based on (`revision`,
    /// `evidence`, `epoch`, `principal`), and the journal refuses one that is out of date.
    /// * `DryRun`: `dry_run=true` of `/v1/skips` and `/v1/horizons` appends nothing.
    /// * `Force`: a skip of a record that can be read is refused without `force=true`.
    /// * `Strict`: `strict=true` of an append refuses records that otherwise get a warning.
    /// * `Order`: `order=desc` of a run's records is newest first.
    /// * `Correlations`: `correlation` may be repeated, and records match all of them.
    /// * `Checkpoints`: a run's checkpoints newest first, and one by its id.
    /// * `ReadBack`: at `consistency=latest` the answer of an append has the run's writer as of then.
    /// * `RecordWriter`: outcomes have the writer of the record, as `record_writer`.
    /// * `ClaimIds`: a claim takes a `record_id` and a `writer_id`, and is found by its id when it is sent again.
    /// * `OnlyIf`: a claim takes `only_if`, the head that the run must have.
    /// * `Copies`: a run's checkpoints, messages and host payloads are copied into another run.
    /// * `Base64`: bytes are taken as base64, and returned so with `bytes=base64`.
    /// * `AnswerAtAck`: `return=ack` of an append answers before the record is judged, and `also=` asks later for the outcome.
    /// * `Bases`: schema version 3 is written: attempts and decisions may name the state that they were made at (`basis`),
    /// and requests what they need (`unresolved`, `repeatable`). The server fills `basis` in where it is absent.
    /// * `Contradictions`: results that contradict the end of their effect are kept and listed: `contradicted=true` of
    /// `/v1/effects`, and `contradicted` of a call.
    /// * `EffectFacts`: `/v1/effects` says of each effect since when it runs, by whom, with which arguments, and how old its run's
    /// last record is; pending effects of a recovery have their `state`.
    /// * `WhoAmI`: `/v1/whoami` answers what the caller's credential allows.
    /// * `Overview`: `/v1/overview` answers the figures of a dashboard.
    /// * `Uploads`: a payload can be uploaded before its record, and the receipt lets the record name it.
    Feature {
        Revisions = "revisions",
        DryRun = "dry_run",
        Force = "force",
        Strict = "strict",
        Order = "order",
        Correlations = "correlations",
        Checkpoints = "checkpoints",
        ReadBack = "read_back",
        RecordWriter = "record_writer",
        ClaimIds = "claim_ids",
        OnlyIf = "only_if",
        Copies = "copies",
        Base64 = "base64",
        Uploads = "uploads",
        AnswerAtAck = "answer_at_ack",
        Bases = "bases",
        Contradictions = "contradictions",
        EffectFacts = "effect_facts",
        WhoAmI = "whoami",
        Overview = "overview",
    }
}

/// What a producer needs to know of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Journal {
    /// The topic.
    pub topic: String,
    /// The journal.
    pub journal_id: String,
    /// Its partition count.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub partitions: u32,
    /// Fingerprints of the schemas that this server reads, hexadecimal as on the wire.
    pub schemas: Vec<String>,
    /// The ids that the journal's schema registry assigned, by fingerprint; empty without a registry. A producer whose
    /// schema is among them frames its records with the id.
    #[serde(default)]
    pub schema_ids: BTreeMap<String, u32>,
    /// The longest accepted payload, bytes of its Avro encoding: the limit of a record, or of the content store if
    /// there is one.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default = "inline_only")]
    pub payload_bytes_max: u64,
    /// What this server understands beyond the first version of this interface. Empty from a server that is older than
    /// this list.
    #[serde(default)]
    pub features: Vec<OrOther<Feature>>,
}

impl Journal {
    /// Whether the server has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.iter().any(|has| *has == feature)
    }
}

/// The limit of a server that does not report one.
fn inline_only() -> u64 {
    crate::codec::RECORD_BYTES_MAX as u64
}
