//! Claims about the model's answers, with histories short enough to judge by hand.
#![allow(clippy::unwrap_used, reason = "a test")]

use runlog_model::{Delivery, Journal, Model, What, fingerprint, partition_of};
use serde_json::{Value, json};

const RUN: &str = "run-42";

/// A journal of one partition, written by hand.
struct Log {
    model: Model,
    next: u64,
}

impl Log {
    fn new() -> Self {
        let journal = Journal { topic: "journal".to_owned(), journal_id: "one".to_owned(), partitions: 1 };
        let mut log = Self { model: Model::new(journal), next: 0 };
        log.add(json!({"payload": {"type": "genesis", "journal_id": "one", "partitions": 1}}));
        log
    }

    /// Delivers it at the next offset, which is returned.
    fn take(&mut self, what: What) -> u64 {
        let offset = self.next;
        self.next += 1;
        self.model.deliver(&Delivery { partition: 0, offset, log_millis: 1000 + i64::try_from(offset).unwrap(), what });
        offset
    }

    fn add(&mut self, record: Value) -> u64 {
        self.take(What::Record {
            record: record.into(),
            version: 1,
            datums: Vec::new(),
            contents: Vec::new(),
            claimant: None,
        })
    }

    /// A record of the run by a writer and its numbers: epoch, `writer_seq`, `journal_seq`.
    fn write(&mut self, id: &str, (writer, epoch, seq, number): (&str, u64, u64, u64), payload: Value) -> u64 {
        self.add(record(id, (writer, epoch, seq, number), payload))
    }

    fn claim(&mut self, writer: &str, epoch: u64) -> u64 {
        let payload = json!({"type": "run_claim", "writer_id": writer, "epoch": epoch, "claimed_by": "a test"});
        self.write(&format!("claim-{writer}"), (writer, epoch, 0, 0), payload)
    }

    fn outcome(&self, offset: u64) -> (Value, Value) {
        let outcome = self.model.outcome(0, offset, 0, "");
        (outcome["outcome"].clone(), outcome["reason"].clone())
    }

    fn pending(&self) -> Value {
        self.model.effects(true)["effects"].clone()
    }
}

fn record(id: &str, (writer, epoch, seq, number): (&str, u64, u64, u64), payload: Value) -> Value {
    json!({"run_id": RUN, "record_id": id, "writer_id": writer, "writer_epoch": epoch, "writer_seq": seq,
           "journal_seq": number, "timestamp_millis": 1, "payload": payload})
}

fn request() -> Value {
    json!({"type": "tool_call_requested", "request_id": "r", "call_id": "c", "tool_name": "book", "arguments": {"day": 1}})
}

fn completed(request: &str, result: &str) -> Value {
    json!({"type": "tool_call_completed", "request_record_id": request, "result": result})
}

fn decision(decision: &str) -> Value {
    json!({"type": "effect_resolution", "request_record_id": "ask", "decision": decision, "who": "jo", "why": "seen"})
}

fn refused(reason: &str) -> (Value, Value) {
    ("refused".into(), reason.into())
}

fn applied_outcome() -> (Value, Value) {
    ("applied".into(), Value::Null)
}

#[test]
fn a_zombies_result_is_evidence_that_the_successor_can_adopt() {
    let mut log = Log::new();
    log.claim("a", 1);
    log.write("ask", ("a", 1, 1, 1), request());
    log.claim("b", 2);
    let late = log.write("late", ("a", 1, 2, 2), completed("ask", "B-1"));
    assert_eq!(log.outcome(late), refused("fenced"));
    let pending = log.pending();
    assert_eq!(pending[0]["class"], "reconcile_required");
    assert_eq!(pending[0]["evidence"][0]["record_id"], "late");
    assert_eq!(log.model.recover(RUN)["resumable"], false);

    log.write("adopt", ("desk", 0, 0, 0), decision("adopt"));
    let fingerprint = pending[0]["fingerprint"].as_str().unwrap();
    let lookup = log.model.lookup(RUN, fingerprint, None);
    assert_eq!((&lookup["status"], &lookup["result"]), (&"completed".into(), &"B-1".into()));
    assert_eq!(log.pending(), json!([]));
}

#[test]
fn a_not_done_effect_may_run_again_until_its_next_start() {
    let mut log = Log::new();
    log.write("ask", ("a", 0, 1, 1), request());
    log.write("no", ("desk", 0, 0, 0), decision("not_done"));
    assert_eq!(log.pending()[0]["class"], "retry_safe");
    let attempt = json!({"type": "tool_call_attempt", "request_record_id": "ask", "attempt": 2, "reason": "again"});
    log.write("again", ("a", 0, 2, 2), attempt);
    assert_eq!(log.pending()[0]["class"], "reconcile_required");
}

#[test]
fn a_refused_batch_has_no_effect_and_consumes_its_numbers() {
    let mut log = Log::new();
    let records =
        [record("ask", ("a", 0, 1, 1), request()), record("done", ("a", 0, 2, 2), completed("nobody's", "B-1"))];
    let batch = log.write("batch", ("a", 0, 1, 0), json!({"type": "batch", "records": records}));
    assert_eq!(log.outcome(batch), refused("transition"));
    assert_eq!((log.pending(), &log.model.runs()["runs"]), (json!([]), &json!([])));
    let next = log.write("ask-again", ("a", 0, 3, 3), request());
    assert_eq!(log.outcome(next), applied_outcome());
}

#[test]
fn a_skip_voids_an_applied_record_and_a_record_that_stopped_the_partition() {
    let mut log = Log::new();
    log.write("ask", ("a", 0, 1, 1), request());
    let done = log.write("done", ("a", 0, 2, 2), completed("ask", "B-1"));
    let unknown = log.take(What::UnknownSchema { what: "a schema".to_owned() });
    let after_skipped =
        log.write("turn", ("a", 0, 2, 2), json!({"type": "run_lifecycle", "status": "started", "reason": ""}));
    assert_eq!(log.model.partitions()["partitions"][0]["state"], "stopped");
    assert_eq!(log.outcome(after_skipped), (Value::Null, Value::Null));

    for offset in [done, unknown] {
        log.add(json!({"payload": {"type": "skip", "offset": offset, "who": "jo", "why": "poison"}}));
    }
    assert_eq!(log.model.partitions()["partitions"][0]["state"], "running");
    assert_eq!(log.outcome(after_skipped), applied_outcome());
    assert_eq!(log.pending()[0]["id"], "ask");
    // Void also as of an earlier position.
    assert_eq!(log.model.as_of(0, done).effects(true)["effects"][0]["id"], "ask");
}

#[test]
fn a_skip_of_evidence_permits_nothing() {
    let mut log = Log::new();
    log.claim("a", 1);
    log.write("ask", ("a", 1, 1, 1), request());
    let decides = |log: &mut Log, id: &str, facts: Value| {
        let payload = json!({"type": "effect_resolution", "request_record_id": "ask", "decision": "not_done", "who": "jo",
                             "why": "looked"});
        let mut decision = record(id, ("", 0, 0, 0), payload);
        decision["facts"] = facts;
        log.add(decision)
    };
    decides(&mut log, "first", json!({"revision": 1}));
    let basis = log.pending()[0]["basis"].clone();
    log.claim("b", 2);
    let evidence = log.write("late", ("a", 1, 2, 2), completed("ask", "B-1"));
    let stale = decides(&mut log, "second", json!({"basis": basis}));
    assert_eq!(log.outcome(stale), refused("stale_decision"));
    log.add(json!({"payload": {"type": "skip", "offset": evidence, "who": "jo", "why": "forged"}}));
    let now = log.pending()[0].clone();
    assert_eq!((log.outcome(stale), &now["class"]), (refused("stale_decision"), &json!("reconcile_required")));
    assert_eq!((&now["evidence"], now["basis"] == basis), (&json!([]), false));
}

#[test]
fn a_based_checkpoints_list_is_made_of_its_spans() {
    let mut log = Log::new();
    let text = |letters: &str| letters.chars().map(|letter| json!({"content": letter.to_string()})).collect::<Vec<_>>();
    let span = |from_base: bool, from: u64, count: u64| json!({"from_base": from_base, "from": from, "count": count});
    let mut base = json!({"type": "loop_checkpoint", "checkpoint_id": "cp-1", "checkpoint_seq": 1,
        "covers_journal_seq": 0, "schema_version": 1, "messages": text("abcdef")});
    log.write("one", ("a", 0, 1, 0), base.clone());
    base["checkpoint_id"] = "cp-2".into();
    base["checkpoint_seq"] = 2.into();
    base["base"] = "cp-1".into();
    base["messages"] = text("XY").into();
    base["spans"] = json!([span(true, 0, 2), span(false, 0, 1), span(true, 3, 3), span(false, 1, 1)]);
    let list = text("abXdefY");
    base["state_hash"] = runlog_model::state_hash(&list, &Value::Null).into();
    log.write("two", ("a", 0, 2, 0), base.clone());
    assert_eq!(log.model.checkpoint(RUN, None)["messages"], Value::from(list));

    base["checkpoint_id"] = "cp-3".into();
    base["checkpoint_seq"] = 3.into();
    base["messages"] = text("X").into();
    let outside = log.write("three", ("a", 0, 3, 0), base);
    assert_eq!(log.outcome(outside), refused("checkpoint"));
}

#[test]
fn partitions_and_fingerprints_equal_those_computed_in_other_languages() {
    // By Python's hashlib.
    let expected = "v1:e1199d1740042c3adae68d039c21b47b287e5cbf91dacb35a5087df17a334f0b";
    assert_eq!(fingerprint("book", &json!({"day": 1})), expected);
    // `Utils.murmur2` of Kafka's own tests.
    for (key, hash) in [("21", -973_932_308), ("foobar", -790_332_482), ("abc", 479_470_107)] {
        let positive = u32::try_from(hash & 0x7fff_ffff).unwrap();
        assert_eq!(partition_of(key, 16), positive % 16, "{key}");
    }
}
