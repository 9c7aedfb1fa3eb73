//! A run of a scenario, and the records for it. Each record carries all its numbers, so that the server fills in none.

use super::payloads;
use serde_json::{Value, json};

/// Start of the writers' clocks, milliseconds since the Unix epoch: 2026-11-22T00:00:00Z.
pub(crate) const CLOCK: u64 = 1_795_305_600_000;

/// Payload types that have no `journal_seq`.
const UNNUMBERED: [&str; 10] = [
    "loop_checkpoint",
    "checkpoint_prune",
    "write_back_staged",
    "write_back_committed",
    "write_back_rejected",
    "code_edit_proposal",
    "batch",
    "run_claim",
    "effect_resolution",
    "retraction",
];

/// A run and the numbers of its writer's next record.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) writer: String,
    pub(crate) epoch: u64,
    pub(crate) writer_seq: u64,
    pub(crate) journal_seq: u64,
    /// Partition and offset of the last append. Reads include at least this record.
    pub(crate) last: Option<(u64, u64)>,
    records: u64,
}

impl Run {
    /// Returns a run without a claim.
    pub(crate) fn new(id: String) -> Self {
        let writer = "conformance".to_owned();
        Self { id, writer, epoch: 0, writer_seq: 1, journal_seq: 1, last: None, records: 0 }
    }

    fn numbered_record(&mut self, payload: Value, writer_seq: u64, journal_seq: u64) -> Record {
        self.records += 1;
        Record(json!({
            "run_id": self.id,
            "record_id": format!("record-{}", self.records),
            "agent_id": "conformance",
            "writer_id": self.writer,
            "writer_epoch": self.epoch,
            "writer_seq": writer_seq,
            "journal_seq": journal_seq,
            "timestamp_millis": CLOCK + self.records,
            "payload": payload,
        }))
    }

    /// Builds the writer's next record and consumes its numbers.
    pub(crate) fn record(&mut self, payload: Value) -> Record {
        let writer_seq = self.writer_seq;
        self.writer_seq += 1;
        let mut journal_seq = 0;
        if is_numbered(&payload) {
            journal_seq = self.journal_seq;
            self.journal_seq += 1;
        }
        self.numbered_record(payload, writer_seq, journal_seq)
    }

    /// Builds a record of a kind that needs no claim.
    pub(crate) fn unclaimed_record(&mut self, payload: Value) -> Record {
        self.numbered_record(payload, 0, 0).with("writer_id", "desk").with("writer_epoch", 0)
    }

    /// Builds a decision on an effect at a revision. `evidence` is the id of the evidence that it adopts or
    /// overrules.
    pub(crate) fn decision(&mut self, effect: &str, decision: &str, revision: u64, evidence: Option<&str>) -> Record {
        let facts = json!({"revision": revision, "evidence": evidence});
        self.unclaimed_record(payloads::resolution(effect, decision)).with("facts", facts)
    }

    /// Builds a claim that takes the run over at an epoch.
    pub(crate) fn claim(&mut self, writer: &str, epoch: u64) -> Record {
        let claim = json!({"type": "run_claim", "writer_id": writer, "epoch": epoch, "claimed_by": "conformance"});
        self.numbered_record(claim, 0, 0).with("writer_id", writer).with("writer_epoch", epoch)
    }

    /// Builds a batch of the writer's next records.
    pub(crate) fn batch(&mut self, payloads: Vec<Value>) -> Record {
        let first = self.writer_seq;
        let records: Vec<Value> = payloads.into_iter().map(|payload| self.record(payload).0).collect();
        self.numbered_record(json!({"type": "batch", "records": records}), first, 0)
    }
}

fn is_numbered(payload: &Value) -> bool {
    !payload["type"].as_str().is_some_and(|name| UNNUMBERED.contains(&name))
}

/// A record as the client sends it.
#[derive(Clone, Debug)]
pub(crate) struct Record(pub(crate) Value);

impl Record {
    /// Sets a member of the envelope.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0[name] = value.into();
        self
    }

    /// Makes the record's fact valid from `seconds` after [`CLOCK`] on.
    #[must_use]
    pub(crate) fn valid(self, seconds: u64) -> Self {
        self.with("validity", json!({"at": CLOCK + 1000 * seconds, "is_valid": true}))
    }

    /// Makes the record's fact invalid from `seconds` after [`CLOCK`] on.
    #[must_use]
    pub(crate) fn invalid(self, seconds: u64) -> Self {
        self.with("validity", json!({"at": CLOCK + 1000 * seconds, "is_valid": false}))
    }

    pub(crate) fn id(&self) -> &str {
        self.0["record_id"].as_str().unwrap_or_default()
    }
}
