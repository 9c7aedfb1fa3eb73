//! Tests the rules of `docs/spec.md`, "Judgement", on a run in maps. Submodules test the rules one by one; this file tests their
//! order and the effect of applying a record.

use std::{collections::HashMap, convert::Infallible};

use super::{
    lifecycle::{Family, State},
    *,
};
use crate::{
    codec,
    datum::Sha256,
    id::{ContentHash, Epoch, OrEmpty, RecordId, RunId},
    json::Json,
    messages::MessageSpan,
    payload::{
        ConversationTurn, EffectResolution, LoopCheckpoint, Payload, PayloadType, RunClaim, RunLifecycle,
        ToolCallAttempt, ToolCallCompleted, ToolCallFailed, ToolCallRequested,
    },
    record::JournalRecord,
};

mod batches;
mod calls;
mod checkpoints;
mod ends;
mod lifecycles;
mod numbers;
mod repeats;
mod writers;

/// The state of a run that the judge can read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    head: Head,
    seen: HashMap<RecordId, Vec<FirstJudgement>>,
    calls: HashMap<RecordId, CallState>,
    states: HashMap<(Family, String), State>,
    pending: HashMap<RecordId, PendingEffect>,
    /// By checkpoint id: the sizes of its messages, and whether it is pruned.
    checkpoints: HashMap<String, (Vec<u64>, bool)>,
    offset: u64,
}

impl View for Run {
    type Error = Infallible;
    fn head(&mut self) -> Result<Head, Infallible> {
        Ok(self.head.clone())
    }
    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<FirstJudgement>, Infallible> {
        Ok(self.seen.get(record_id.as_str()).and_then(|seen| seen.first()).cloned())
    }
    fn seen_conflict(
        &mut self,
        record_id: RecordId<&str>,
        content: ContentHash,
    ) -> Result<Option<FirstJudgement>, Infallible> {
        let seen = self.seen.get(record_id.as_str());
        Ok(seen.and_then(|seen| seen.iter().find(|seen| seen.content_hash == content)).cloned())
    }
    fn call(&mut self, request: RecordId<&str>) -> Result<Option<CallState>, Infallible> {
        Ok(self.calls.get(request.as_str()).cloned())
    }
    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, Infallible> {
        Ok(self.states.get(&(family, key.to_owned())).cloned())
    }
    fn pending_effect(
        &mut self,
        id: RecordId<&str>,
        _: Option<ContentHash>,
    ) -> Result<Option<PendingEffect>, Infallible> {
        Ok(self.pending.get(id.as_str()).cloned())
    }
    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, Infallible> {
        let checkpoint = self.checkpoints.get(checkpoint_id);
        Ok(checkpoint.map(|(sizes, pruned)| CheckpointState { messages: sizes.len() as u64, pruned: *pruned }))
    }

    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, Infallible> {
        let span = MessageSpan { from_base: true, from, count };
        Ok(span.slice(&self.checkpoints[checkpoint_id].0).iter().sum())
    }
}

/// A verdict without its head, which tests compare separately.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Applied,
    NoOp,
    Repeat(Option<Reason>),
    Refused(Reason),
}
use Word::{Applied, NoOp, Refused, Repeat};

impl Run {
    fn take(&mut self, record: &JournalRecord) -> Word {
        self.take_framed(&codec::encode(record))
    }

    /// Judges a record that is numbered again.
    fn take_renumbered(&mut self, record: &JournalRecord) -> Word {
        self.take_framed(&codec::encode_renumbered(record, codec::Framing::SingleObject))
    }

    fn take_framed(&mut self, framed: &[u8]) -> Word {
        let envelope = codec::read(framed).unwrap();
        self.offset += 1;
        if envelope.kind == RecordKind::Batch { self.batch(&envelope) } else { self.judge_one(&envelope, 0) }
    }

    fn judge_one(&mut self, envelope: &Envelope<'_>, index: u32) -> Word {
        let Ok(verdict) = judge(envelope, self);
        self.take_verdict(envelope, index, verdict)
    }

    fn take_verdict(&mut self, envelope: &Envelope<'_>, index: u32, verdict: Verdict) -> Word {
        let offset = self.offset.try_into().unwrap();
        let remember = |refused| FirstJudgement { content_hash: envelope.content_hash(), offset, index, refused };
        match verdict {
            Verdict::Applied { head, no_op } => {
                self.head = head;
                self.seen.insert(envelope.record_id.to_owned(), vec![remember(None)]);
                if !no_op {
                    self.apply(envelope);
                }
                if no_op { NoOp } else { Applied }
            }
            Verdict::Repeat { first, head } => {
                self.head = head;
                Repeat(first.refused)
            }
            Verdict::Refused { reason, head } => {
                self.head = head;
                if !reason.may_be_resent() {
                    let seen = self.seen.entry(envelope.record_id.to_owned()).or_default();
                    match seen.first_mut().filter(|first| first.content_hash == envelope.content_hash()) {
                        Some(first) => *first = remember(Some(reason)),
                        None => seen.push(remember(Some(reason))),
                    }
                }
                Refused(reason)
            }
        }
    }

    fn batch(&mut self, envelope: &Envelope<'_>) -> Word {
        let Ok(opened) = batch::open(envelope, self);
        let records = match opened {
            batch::Opened::Judged(verdict) => return self.take_verdict(envelope, 0, verdict),
            batch::Opened::Records(records) => records,
        };
        let before = self.clone();
        let offset = self.offset.try_into().unwrap();
        let seen = FirstJudgement { content_hash: envelope.content_hash(), offset, index: 0, refused: None };
        self.seen.insert(envelope.record_id.to_owned(), vec![seen]);
        for (index, record) in (0..).zip(&records) {
            if let Refused(reason) | Repeat(Some(reason)) = self.judge_one(record, index) {
                *self = before;
                let head = batch::refused(envelope, &records, self.head.clone());
                return self.take_verdict(envelope, index, Verdict::Refused { reason, head });
            }
        }
        Applied
    }

    fn apply(&mut self, record: &Envelope<'_>) {
        self.step(record);
        let ended = match (record.facts.payload_type.known().unwrap(), record.facts.status.as_deref()) {
            (PayloadType::ToolCallRequested, _) => {
                let call = CallState { status: CallStatus::Pending, outcome_hash: None, has_counted_evidence: false };
                self.calls.insert(record.record_id.to_owned(), call);
                return;
            }
            (PayloadType::LoopCheckpoint, _) => {
                let facts = &record.facts;
                let base = facts.base.as_ref().map_or(&[][..], |base| &self.checkpoints[base].0);
                let own: Vec<u64> = facts.message_bytes.iter().copied().map(u64::from).collect();
                let spans = messages::resolve(base.len() as u64, own.len() as u64, &facts.spans).unwrap();
                let sizes = spans.iter().flat_map(|span| span.slice(if span.from_base { base } else { &own })).copied();
                let sizes = sizes.collect();
                self.checkpoints.insert(facts.checkpoint_id.clone().unwrap(), (sizes, false));
                return;
            }
            // This prune hides all checkpoints.
            (PayloadType::CheckpointPrune, _) => {
                self.checkpoints.values_mut().for_each(|(_, pruned)| *pruned = true);
                return;
            }
            (PayloadType::ToolCallCompleted, _) | (PayloadType::EffectResolution, Some("done" | "adopt")) => {
                CallStatus::Completed
            }
            (PayloadType::ToolCallFailed, _) | (PayloadType::EffectResolution, Some("give_up")) => CallStatus::Failed,
            _ => return,
        };
        let Some(call) = self.calls.get_mut(record.facts.answers.as_ref().unwrap()) else { return };
        call.status = ended;
        call.outcome_hash = Some(record.payload_hash());
    }

    fn step(&mut self, record: &Envelope<'_>) {
        let Some(step) = lifecycle::StatusReport::from_record(record) else { return };
        let key = (step.family, step.key.clone());
        let before = self.states.get(&key);
        let ended = match step.change_from(before.map(|state| &state.status)) {
            lifecycle::StateChange::Unchanged => return,
            lifecycle::StateChange::Open => false,
            lifecycle::StateChange::Ended => true,
        };
        let (status, set_by) = (step.status, record.payload_hash());
        self.states.insert(key, State { status, ended, set_by, has_counted_evidence: false });
    }

    /// Returns the next numbers of the writer and of the run.
    fn next(&self) -> (WriterSeq, JournalSeq) {
        (self.head.next_writer_seq, self.head.next_journal_seq)
    }

    /// Builds a record with the next numbers, by the run's writer.
    fn next_record(&self, id: &str, payload: impl Into<Payload>) -> JournalRecord {
        let mut record = JournalRecord::new(RunId::ours("run"), RecordId::ours(id).to_owned(), "agent", payload.into());
        let kind = record.body.record_kind;
        record.place.writer_id.clone_from(&self.head.writer_id);
        record.place.writer_epoch = self.head.epoch;
        record.place.writer_seq = if kind.unclaimed() { WriterSeq::ZERO } else { self.head.next_writer_seq };
        record.place.journal_seq = if kind.numbered() { self.head.next_journal_seq } else { JournalSeq::ZERO };
        record
    }

    fn add(&mut self, id: &str, payload: impl Into<Payload>) -> Word {
        let record = self.next_record(id, payload);
        self.take(&record)
    }

    /// Builds the next record and changes it.
    fn changed(&mut self, id: &str, payload: impl Into<Payload>, change: impl FnOnce(&mut JournalRecord)) -> Word {
        let mut record = self.next_record(id, payload);
        change(&mut record);
        self.take(&record)
    }

    /// Creates a run that `writer` claimed, with a turn and a pending call `call`.
    fn claimed(writer: &str) -> Self {
        let mut run = Self::default();
        assert_eq!(run.take(&claim("claim", writer, 1)), Applied);
        assert_eq!(run.add("turn", user_turn("hello")), Applied);
        assert_eq!(run.add("call", request()), Applied);
        run
    }
}

fn user_turn(text: &str) -> ConversationTurn {
    ConversationTurn {
        message_id: "m".into(),
        parent_id: None,
        thread_id: None,
        kind: "user".into(),
        content: Json::of(text).unwrap(),
    }
}

fn lifecycle(status: &str) -> RunLifecycle {
    RunLifecycle { status: status.into(), reason: String::new() }
}

fn request() -> ToolCallRequested {
    let request = ToolCallRequested {
        request_id: "q".into(),
        call_id: "1".into(),
        parent_id: None,
        vendor: None,
        tool_name: "book".into(),
        args_sha256: String::new(),
        fingerprint: OrEmpty::NONE,
        arguments: Some(Json::of(&7).unwrap()),
    };
    request.seal().unwrap()
}

fn completed(request: &str, result: i32) -> ToolCallCompleted {
    ToolCallCompleted {
        request_record_id: request.parse().unwrap(),
        result: Some(Json::of(&result).unwrap()),
        latency_ms: None,
    }
}

fn failed(request: &str) -> ToolCallFailed {
    ToolCallFailed {
        request_record_id: request.parse().unwrap(),
        error_kind: "no".into(),
        error_message: String::new(),
        latency_ms: None,
    }
}

fn attempt(request: &str) -> ToolCallAttempt {
    ToolCallAttempt { request_record_id: request.parse().unwrap(), attempt: 2, reason: String::new() }
}

fn resolution(request: &str, decision: &str) -> EffectResolution {
    EffectResolution {
        request_record_id: request.parse().unwrap(),
        decision: decision.into(),
        result: None,
        who: "jo".into(),
        why: "asked".into(),
    }
}

fn checkpoint(id: &str, covers: u32, base: Option<&str>) -> LoopCheckpoint {
    let mut checkpoint = LoopCheckpoint {
        checkpoint_id: id.into(),
        checkpoint_seq: 1,
        covers_journal_seq: covers.into(),
        base: base.map(str::to_owned),
        unanswered: Vec::new(),
        schema_version: 1,
        session_id: String::new(),
        turn: 0,
        messages: Vec::new(),
        spans: Vec::new(),
        total_usage: None,
        tool_calls_count: 0,
        verification_reports: Vec::new(),
        state: None,
        state_hash: String::new(),
        created_at_millis: 0,
    };
    checkpoint.state_hash = checkpoint.content_hash();
    checkpoint
}

fn claim(id: &str, writer: &str, epoch: u32) -> JournalRecord {
    let payload = RunClaim { writer_id: writer.parse().unwrap(), epoch: Epoch::from(epoch), claimed_by: String::new() };
    let mut record = JournalRecord::new(RunId::ours("run"), RecordId::ours(id).to_owned(), "agent", payload.into());
    record.place.writer_id = writer.parse().unwrap();
    record.place.writer_epoch = Epoch::from(epoch);
    record
}

#[test]
fn the_rules_apply_in_their_order() {
    let mut run = Run::claimed("a");
    let earlier = run.next_record("x", user_turn("x"));
    run.take(&earlier);
    let worst = |record: &mut JournalRecord| {
        record.place.writer_id = "b".parse().unwrap();
        record.place.writer_seq = record.place.writer_seq.saturating_add(5);
        record.place.journal_seq = record.place.journal_seq.saturating_add(5);
    };
    // A record that violates every rule but was judged before.
    assert_eq!(run.changed("x", user_turn("x"), worst), Repeat(None));
    // A fenced record that is also a gap, a conflict and out of sequence.
    assert_eq!(run.changed("x", user_turn("y"), worst), Refused(Reason::Fenced));
    // A gap that is also a conflict and out of sequence.
    let gap = |record: &mut JournalRecord| {
        record.place.writer_seq = record.place.writer_seq.saturating_add(5);
        record.place.journal_seq = record.place.journal_seq.saturating_add(5);
    };
    assert_eq!(run.changed("x", user_turn("y"), gap), Refused(Reason::Gap));
    // A conflict that is out of sequence.
    assert_eq!(
        run.changed("x", user_turn("y"), |record| record.place.journal_seq =
            record.place.journal_seq.saturating_add(5)),
        Refused(Reason::Conflict)
    );
    // Out of sequence on a run that has ended.
    run.add("end", lifecycle("completed"));
    assert_eq!(
        run.changed("z", user_turn("z"), |record| record.place.journal_seq =
            record.place.journal_seq.saturating_add(5)),
        Refused(Reason::Sequence)
    );
}

#[test]
fn the_run_hash_follows_from_the_applied_records_only() {
    let mut run = Run::claimed("a");
    let (before, records) = (run.head.hash, run.head.records);
    run.changed("x", user_turn("x"), |record| record.place.writer_seq = record.place.writer_seq.saturating_add(1));
    run.add("y", completed("nobody", 1));
    run.add("turn", user_turn("another"));
    assert_eq!((run.head.hash, run.head.records), (before, records));
    let record = run.next_record("z", user_turn("z"));
    let framed = codec::encode(&record);
    run.take(&record);
    let bytes = Sha256::of(codec::unframe(&framed).unwrap().datum);
    assert_eq!((run.head.hash, run.head.records), (before.chain(&bytes), records + 1));
    run.take(&record);
    assert_eq!(run.head.records, records + 1);
}
