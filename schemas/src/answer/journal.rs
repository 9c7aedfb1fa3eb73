//! The data of a journal and of its server that clients need.

use crate::{or_other::OrOther, symbols};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

symbols! {
    /// A feature of a server beyond the first version of this interface. A client checks it before it sends a request that an
    /// older server would misinterpret.
    ///
    /// * `Revisions`: pending effects have a `revision`. A decision may name the state on which it is based (`revision`, `evidence`,
    /// `epoch`, `principal`), and the journal refuses a stale decision.
    /// * `DryRun`: `dry_run=true` of `/v1/skips` and `/v1/horizons` returns the plan without appending.
    /// * `Force`: a skip of a readable record is refused without `force=true`.
    /// * `Strict`: `strict=true` of an append refuses records instead of warning.
    /// * `Order`: `order=desc` returns a run's records newest first.
    /// * `Correlations`: `correlation` may be repeated; records must match all values.
    /// * `Checkpoints`: a run's checkpoints can be listed newest first, and read by id.
    /// * `ReadBack`: at `consistency=latest` the answer to an append contains the run's current writer.
    /// * `RecordWriter`: outcomes contain the writer of the record, `record_writer`.
    /// * `ClaimIds`: a claim may have a `record_id` and a `writer_id`, and is recognised by its id when it is sent again.
    /// * `OnlyIf`: a claim may have `only_if`, the required head of the run.
    /// * `Copies`: a run's checkpoints, messages and host payloads can be copied into another run.
    /// * `Base64`: requests may contain bytes as base64, and answers contain them so with `bytes=base64`.
    /// * `AnswerAtAck`: with `return=ack` an append is answered before the record is judged. `also=` returns the outcome later.
    /// * `Bases`: the server writes schema version 3. Attempts and decisions may name the state on which they are based (`basis`); the
    /// server fills in an absent `basis`. Requests may have `unresolved` and `repeatable`.
    /// * `Commitments`: the server writes schema version 3. Claims may have `commitment` and `shown`. A result of a credential without
    /// `resolve` is refused as `not_started_here` if another handle started the call last, and requests may have `observed`.
    /// * `Contradictions`: results that contradict the end of their effect are kept and listed: `contradicted=true` of
    /// `/v1/effects`, and `contradicted` of a call.
    /// * `EffectFacts`: `/v1/effects` returns each effect's start time, process and arguments, and the age of its run's last record.
    /// Pending effects of a recovery have a `state`.
    /// * `WhoAmI`: `/v1/whoami` returns the permissions of the caller's credential.
    /// * `Overview`: `/v1/overview` returns the figures of a dashboard.
    /// * `CallKeys`: `/v1/runs/{run}/lookup` finds a call by tool and idempotency key.
    /// * `Filters`: `/v1/effects` accepts `prefix` and `tool`, and `/v1/runs` accepts `idle`.
    /// * `Uploads`: a payload can be uploaded before its record, and the receipt lets the record name it.
    /// * `Logs`: of later versions. Positions and cursors name their log.
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
        Commitments = "commitments",
        Contradictions = "contradictions",
        EffectFacts = "effect_facts",
        WhoAmI = "whoami",
        Overview = "overview",
        CallKeys = "call_keys",
        Filters = "filters",
        Logs = "logs",
    }
}

impl Feature {
    /// Returns whether a server has the feature only if it writes records with a basis, which needs schema version
    /// [`BASIS_SINCE`](crate::schema::BASIS_SINCE).
    pub fn needs_basis(self) -> bool {
        matches!(self, Self::Bases | Self::Commitments)
    }
}

/// The data of a journal for clients and producers.
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
    /// The ids in the journal's schema registry, by fingerprint; empty without a registry. A producer must frame its records with
    /// the id of its schema, if there is one.
    #[serde(default)]
    pub schema_ids: BTreeMap<String, u32>,
    /// The longest accepted payload, bytes of its Avro encoding: the limit of a record, or of the content store if
    /// there is one.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    #[serde(default = "inline_only")]
    pub payload_bytes_max: u64,
    /// The features of this server beyond the first version of this interface. Empty from a server without this list.
    #[serde(default)]
    pub features: Vec<OrOther<Feature>>,
}

impl Journal {
    /// Returns whether the server has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.iter().any(|has| *has == feature)
    }
}

/// The limit of a server that does not report one.
fn inline_only() -> u64 {
    crate::codec::RECORD_BYTES_MAX as u64
}
