//! The data of a journal and of its server that clients need.

use super::{appended::Disposition, position::Position};
use crate::{id::LogId, or_other::OrOther, symbols};
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
    /// * `SkipPlans`: a skip may have the `plan` of its dry run, and is refused if it would now do something else.
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
    /// * `Summaries`: `/v1/runs` accepts `summary`, and `/v1/overview` has the numbers of runs.
    /// * `Uploads`: a payload can be uploaded before its record, and the receipt lets the record name it.
    /// * `Logs`: positions and cursors name their log, and requests may name it: `PARTITION:OFFSET@LOG`. A position or cursor of
    /// another log is refused.
    Feature {
        Revisions = "revisions",
        DryRun = "dry_run",
        Force = "force",
        SkipPlans = "skip_plans",
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
        Summaries = "summaries",
        Logs = "logs",
    }
}

impl Feature {
    /// Returns whether a server has the feature only if it writes records with a basis, which needs schema version
    /// [`BASIS_SINCE`](crate::schema::BASIS_SINCE).
    pub fn needs_basis(self) -> bool {
        matches!(self, Self::Bases | Self::Commitments)
    }

    /// Returns what an operator does so that a server has the feature, as an imperative for error messages.
    pub fn remedy(self) -> &'static str {
        if self.needs_basis() {
            "start it with --write-schema 3, and upgrade it first if it is older"
        } else {
            "it is older: upgrade it first"
        }
    }
}

symbols! {
    /// The role of a server. `unknown`: the journal has no home. `home`: the server reads the home. `mirror`: the server reads a
    /// mirror, or cannot prove that it reads the home. `contested`: two logs were made the home. A server with the role `mirror` or
    /// `contested` refuses appends, claims, and reads at `latest`.
    LogRole { Unknown = "unknown", Home = "home", Mirror = "mirror", Contested = "contested" }
}

/// The home of a journal: the log to which its servers append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JournalHome {
    /// The log.
    pub log: LogId,
    /// The number of the home within the journal, from 1.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub epoch: u32,
}

/// The answer to a request that gives a journal a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HomeSet {
    /// The home.
    pub home: JournalHome,
    /// `applied` if a partition gets a record of the home, `repeat` if all partitions have it already.
    pub outcome: OrOther<Disposition>,
    /// The positions of the appended records, by partition; empty in a dry run.
    pub positions: Vec<Position>,
    /// Whether the request appended nothing, because it asked only for the answer.
    pub dry_run: bool,
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
    /// The log that this server reads. Absent if it cannot be learned, such as from brokers without topic ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_id: Option<LogId>,
    /// The home in force, if the journal has a home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<JournalHome>,
    /// Whether the server reads the home. `unknown` from an older server.
    #[serde(default = "unknown")]
    pub role: OrOther<LogRole>,
}

impl Journal {
    /// Returns whether the server has a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.iter().any(|has| *has == feature)
    }
}

/// The role of a server that does not report one.
fn unknown() -> OrOther<LogRole> {
    LogRole::Unknown.into()
}

/// The limit of a server that does not report one.
fn inline_only() -> u64 {
    crate::codec::RECORD_BYTES_MAX as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_servers_journal_has_no_home_and_the_role_is_unknown() {
        let older = r#"{ "topic": "t", "journal_id": "j", "partitions": 1, "schemas": [] }"#;
        let journal: Journal = serde_json::from_str(older).unwrap();
        assert_eq!((&journal.log_id, &journal.home, journal.role == LogRole::Unknown), (&None, &None, true));
    }

    #[test]
    fn a_role_of_a_later_version_equals_no_known_role() {
        let later = r#"{ "topic": "t", "journal_id": "j", "partitions": 1, "schemas": [], "role": "witness",
            "log_id": "memory:a", "home": { "log": "memory:b", "epoch": 2, "region": "x" } }"#;
        let journal: Journal = serde_json::from_str(later).unwrap();
        assert!(!LogRole::ALL.iter().any(|role| journal.role == *role));
        let home = JournalHome { log: LogId::memory("b").unwrap(), epoch: 2 };
        assert_eq!((journal.log_id, journal.home), (LogId::memory("a"), Some(home)));
    }
}
