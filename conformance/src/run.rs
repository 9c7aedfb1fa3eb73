//! A run of a scenario's own, and the records that it says, each with its place: nothing is left to the server to fill in.

use super::payloads;
use serde_json::{Value, json};

/// What the writers' clocks start at, milliseconds since the Unix epoch: 2026-11-22T00:00:00Z.
pub(crate) const CLOCK: u64 = 1_795_305_600_000;

/// Payload types that no `journal_seq` is given to.
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

/// A run, and the place of the next record that its writer says.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) writer: String,
    pub(crate) epoch: u64,
    pub(crate) writer_seq: u64,
    pub(crate) journal_seq: u64,
    /// Partition and offset of the last append: what reads are at least as fresh as.
    pub(crate) last: Option<(u64, u64)>,
    records: u64,
}

impl Run {
    /// An unclaimed run.
    pub(crate) fn new(id: String) -> Self {
        let writer = "conformance".to_owned();
        Self { id, writer, epoch: 0, writer_seq: 1, journal_seq: 1, last: None, records: 0 }
    }

    fn at(&mut self, payload: Value, writer_seq: u64, journal_seq: u64) -> Record {
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

    /// The next record of the run's writer, with the next numbers, which it takes.
    pub(crate) fn record(&mut self, payload: Value) -> Record {
        let writer_seq = self.writer_seq;
        self.writer_seq += 1;
        let mut journal_seq = 0;
        if is_numbered(&payload) {
            journal_seq = self.journal_seq;
            self.journal_seq += 1;
        }
        self.at(payload, writer_seq, journal_seq)
    }

    /// A record of a kind that needs no claim.
    pub(crate) fn unclaimed(&mut self, payload: Value) -> Record {
        self.at(payload, 0, 0).with("writer_id", "desk").with("writer_epoch", 0)
    }

    /// A decision on an effect, made at a revision. `evidence` is the id of the evidence that it adopts or decides
    /// against.
    pub(crate) fn decision(&mut self, effect: &str, decision: &str, revision: u64, evidence: Option<&str>) -> Record {
        let facts = json!({"revision": revision, "evidence": evidence});
        self.unclaimed(payloads::resolution(effect, decision)).with("facts", facts)
    }

    /// A claim that takes the run over at an epoch.
    pub(crate) fn claim(&mut self, writer: &str, epoch: u64) -> Record {
        let claim = json!({"type": "run_claim", "writer_id": writer, "epoch": epoch, "claimed_by": "conformance"});
        self.at(claim, 0, 0).with("writer_id", writer).with("writer_epoch", epoch)
    }

    /// A batch of the next records.
    pub(crate) fn batch(&mut self, payloads: Vec<Value>) -> Record {
        let first = self.writer_seq;
        let records: Vec<Value> = payloads.into_iter().map(|payload| self.record(payload).0).collect();
        self.at(json!({"type": "batch", "records": records}), first, 0)
    }
}

fn is_numbered(payload: &Value) -> bool {
    !payload["type"].as_str().is_some_and(|name| UNNUMBERED.contains(&name))
}

/// A record as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Record(pub(crate) Value);

impl Record {
    /// With another member of the envelope.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0[name] = value.into();
        self
    }

    /// Stating its fact from so many seconds behind [`CLOCK`] on.
    #[must_use]
    pub(crate) fn valid(self, seconds: u64) -> Self {
        self.with("validity", json!({"at": CLOCK + 1000 * seconds, "is_valid": true}))
    }

    /// Retracting it from then on.
    #[must_use]
    pub(crate) fn invalid(self, seconds: u64) -> Self {
        self.with("validity", json!({"at": CLOCK + 1000 * seconds, "is_valid": false}))
    }

    pub(crate) fn id(&self) -> &str {
        self.0["record_id"].as_str().unwrap_or_default()
    }
}
