//! The rules of the design's section 3, one by one, on a run that is kept in maps.

use std::{collections::HashMap, convert::Infallible};

use super::*;
use crate::{
    codec,
    id::RunId,
    json::Json,
    messages::MessageSpan,
    payload::{
        ConversationTurn, EffectResolution, LoopCheckpoint, Payload, RunClaim, RunLifecycle, ToolCallAttempt,
        ToolCallCompleted, ToolCallFailed, ToolCallRequested,
        effect::{Checkpoint, Recovery},
    },
    record::JournalRecord,
};

mod batches;
mod checkpoints;
mod lifecycles;

/// A run as the rows of an index keep it, and no more of it than the judge may ask.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    head: Head,
    seen: HashMap<RecordId, Vec<Seen>>,
    calls: HashMap<RecordId, CallState>,
    states: HashMap<(Family, String), State>,
    /// By id: the sizes of its messages, and whether it is pruned.
    checkpoints: HashMap<String, (Vec<u64>, bool)>,
    offset: u64,
}

impl View for Run {
    type Error = Infallible;
    fn head(&mut self) -> Result<Head, Infallible> {
        Ok(self.head.clone())
    }
    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<Seen>, Infallible> {
        Ok(self.seen.get(record_id.as_str()).and_then(|seen| seen.first()).cloned())
    }
    fn seen_again(&mut self, record_id: RecordId<&str>, content: ContentHash) -> Result<Option<Seen>, Infallible> {
        let seen = self.seen.get(record_id.as_str());
        Ok(seen.and_then(|seen| seen.iter().find(|seen| seen.content_hash == content)).cloned())
    }
    fn call(&mut self, request: RecordId<&str>) -> Result<Option<CallState>, Infallible> {
        Ok(self.calls.get(request.as_str()).cloned())
    }
    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, Infallible> {
        Ok(self.states.get(&(family, key.to_owned())).cloned())
    }
    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, Infallible> {
        let known = self.checkpoints.get(checkpoint_id);
        Ok(known.map(|(sizes, pruned)| CheckpointState { messages: sizes.len() as u64, pruned: *pruned }))
    }

    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, Infallible> {
        let span = MessageSpan { from_base: true, from, count };
        Ok(span.of(&self.checkpoints[checkpoint_id].0).iter().sum())
    }
}

/// A verdict without its head, which is compared on its own.
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
        let framed = codec::encode(record);
        let envelope = codec::read(&framed).unwrap();
        self.offset += 1;
        if envelope.kind == RecordKind::Batch { self.batch(&envelope) } else { self.one(&envelope, 0) }
    }

    fn one(&mut self, envelope: &Envelope<'_>, index: u32) -> Word {
        let Ok(verdict) = judge(envelope, self);
        self.take_verdict(envelope, index, verdict)
    }

    fn take_verdict(&mut self, envelope: &Envelope<'_>, index: u32, verdict: Verdict) -> Word {
        let offset = self.offset.try_into().unwrap();
        let remember = |refused| Seen { content_hash: envelope.content_hash(), offset, index, refused };
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
                if !reason.of_place() {
                    self.seen.entry(envelope.record_id.to_owned()).or_default().push(remember(Some(reason)));
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
        let seen = Seen { content_hash: envelope.content_hash(), offset, index: 0, refused: None };
        self.seen.insert(envelope.record_id.to_owned(), vec![seen]);
        for (index, record) in (0..).zip(&records) {
            if let Refused(reason) | Repeat(Some(reason)) = self.one(record, index) {
                *self = before;
                let head = batch::refused(envelope, &records, self.head.clone());
                return self.take_verdict(envelope, index, Verdict::Refused { reason, head });
            }
        }
        Applied
    }

    fn apply(&mut self, record: &Envelope<'_>) {
        self.step(record);
        let ended = match (record.facts.payload_type.as_str(), record.facts.status.as_deref()) {
            ("tool_call_requested", _) => {
                let call = CallState { status: CallStatus::Pending, outcome_hash: None, has_evidence: false };
                self.calls.insert(record.record_id.to_owned(), call);
                return;
            }
            ("loop_checkpoint", _) => {
                let facts = &record.facts;
                let base = facts.base.as_ref().map_or(&[][..], |base| &self.checkpoints[base].0);
                let own: Vec<u64> = facts.message_bytes.iter().copied().map(u64::from).collect();
                let spans = messages::resolve(base.len() as u64, own.len() as u64, &facts.spans).unwrap();
                let sizes = spans.iter().flat_map(|span| span.of(if span.from_base { base } else { &own })).copied();
                let sizes = sizes.collect();
                self.checkpoints.insert(facts.checkpoint_id.clone().unwrap(), (sizes, false));
                return;
            }
            // This one hides them all.
            ("checkpoint_prune", _) => {
                self.checkpoints.values_mut().for_each(|(_, pruned)| *pruned = true);
                return;
            }
            ("tool_call_completed", _) | ("effect_resolution", Some("done" | "adopt")) => CallStatus::Completed,
            ("tool_call_failed", _) | ("effect_resolution", Some("give_up")) => CallStatus::Failed,
            _ => return,
        };
        let Some(call) = self.calls.get_mut(record.facts.answers.as_ref().unwrap()) else { return };
        call.status = ended;
        call.outcome_hash = Some(record.payload_hash());
    }

    fn step(&mut self, record: &Envelope<'_>) {
        let Some(step) = lifecycle::Step::of(record) else { return };
        let key = (step.family, step.key.clone());
        let before = self.states.get(&key);
        let ended = match step.behind(before.map(|state| state.status.as_str())) {
            lifecycle::Behind::Same => return,
            lifecycle::Behind::Open => false,
            lifecycle::Behind::Ended => true,
        };
        let (status, set_by) = (step.status.to_owned(), record.payload_hash());
        self.states.insert(key, State { status, ended, set_by, has_evidence: false });
    }

    /// The next numbers: of the writer, of the run.
    fn next(&self) -> (WriterSeq, JournalSeq) {
        (self.head.next_writer_seq, self.head.next_journal_seq)
    }

    /// A record with the numbers that are the next, by the writer who has the run.
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

    /// A record that is the next in every way, with something about it changed.
    fn changed(&mut self, id: &str, payload: impl Into<Payload>, change: impl FnOnce(&mut JournalRecord)) -> Word {
        let mut record = self.next_record(id, payload);
        change(&mut record);
        self.take(&record)
    }

    /// A run that `writer` claimed, with a turn and a pending call `call`.
    fn claimed(writer: &str) -> Self {
        let mut run = Self::default();
        assert_eq!(run.take(&claim("claim", writer, 1)), Applied);
        assert_eq!(run.add("turn", turn("hello")), Applied);
        assert_eq!(run.add("call", request()), Applied);
        run
    }
}

fn turn(text: &str) -> ConversationTurn {
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

// Rule 1.

#[test]
fn a_repeat_has_the_first_verdict_and_no_effect() {
    let mut run = Run::claimed("a");
    let first = run.next_record("x", turn("x"));
    assert_eq!(run.take(&first), Applied);
    let before = run.head.clone();
    assert_eq!(run.take(&first), Repeat(None));
    assert_eq!(run.head, before);
}

#[test]
fn a_repeat_consumes_its_writer_seq_only_if_that_is_the_next() {
    let mut run = Run::claimed("a");
    let mut again = run.next_record("x", turn("x"));
    run.take(&again);
    let (writer_seq, journal_seq) = run.next();
    for far in [WriterSeq::ZERO, 1.into(), writer_seq.saturating_add(1), writer_seq.saturating_add(9)] {
        again.place.writer_seq = far;
        assert_eq!(run.take(&again), Repeat(None));
        assert_eq!(run.next(), (writer_seq, journal_seq), "repeated as {far}");
    }
    again.place.writer_seq = writer_seq;
    // Not even the next number of the run is consumed.
    again.place.journal_seq = journal_seq;
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq));
}

#[test]
fn a_repeat_in_a_place_that_is_not_its_writers_consumes_nothing() {
    let mut run = Run::claimed("a");
    let mut again = run.next_record("x", turn("x"));
    run.take(&again);
    assert_eq!(run.take(&claim("claim-b", "b", 2)), Applied);
    let before = run.head.clone();
    // The next number of the epoch, by a writer who has not the epoch.
    again.place.writer_seq = 1.into();
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.head, before);
    // Its content in the new writer's place is a repeat as well: an append of unknown fate, sent again.
    again.place.writer_id = "b".parse().unwrap();
    again.place.writer_epoch = 2.into();
    assert_eq!(run.take(&again), Repeat(None));
    assert_eq!(run.head.next_writer_seq, 2.into());
}

#[test]
fn a_repeat_of_what_was_refused_for_its_content_is_refused_the_same_way() {
    let mut run = Run::claimed("a");
    let orphan = run.next_record("x", completed("nobody", 1));
    assert_eq!(run.take(&orphan), Refused(Reason::Transition));
    assert_eq!(run.take(&orphan), Repeat(Some(Reason::Transition)));
    let conflicting = run.next_record("y", turn("y"));
    let mut low = conflicting.clone();
    low.place.writer_seq = 1.into();
    assert_eq!(run.take(&low), Refused(Reason::Conflict));
    assert_eq!(run.take(&conflicting), Repeat(Some(Reason::Conflict)));
}

#[test]
fn what_was_refused_for_its_place_is_judged_anew() {
    let mut run = Run::claimed("a");
    let record = run.next_record("x", turn("x"));
    let mut early = record.clone();
    early.place.writer_seq = early.place.writer_seq.saturating_add(1);
    let mut foreign = record.clone();
    foreign.place.writer_id = "b".parse().unwrap();
    assert_eq!(run.take(&early), Refused(Reason::Gap));
    assert_eq!(run.take(&foreign), Refused(Reason::Fenced));
    assert_eq!(run.take(&record), Applied);
}

// Rule 2.

#[test]
fn before_any_claim_everybody_writes_in_epoch_0_and_in_no_other() {
    let mut run = Run::default();
    for writer in ["", "a", "b"] {
        assert_eq!(
            run.changed(&format!("x{writer}"), turn(writer), |record| record.place.writer_id = writer.parse().unwrap()),
            Applied
        );
    }
    assert_eq!(run.changed("x", turn("x"), |record| record.place.writer_epoch = 1.into()), Refused(Reason::Fenced));
    assert_eq!(run.next(), (4.into(), 4.into()));
}

#[test]
fn only_the_writer_of_the_last_applied_claim_writes() {
    let mut run = Run::claimed("a");
    run.take(&claim("claim-b", "b", 2));
    let before = run.head.clone();
    for (writer, epoch) in [("a", 1), ("", 0), ("a", 2), ("b", 1), ("b", 3), ("", 2)] {
        let word = run.changed("x", turn("x"), |record| {
            record.place.writer_id = writer.parse().unwrap();
            record.place.writer_epoch = Epoch::from(epoch);
        });
        assert_eq!(word, Refused(Reason::Fenced), "{writer} in {epoch}");
        assert_eq!(run.head, before, "a fenced record consumes nothing");
    }
    assert_eq!(run.add("x", turn("x")), Applied);
}

#[test]
fn a_claim_is_applied_at_the_next_epoch_only() {
    let mut run = Run::claimed("a");
    let before = run.head.clone();
    for epoch in [0, 1, 3, 9] {
        assert_eq!(run.take(&claim("c", "b", epoch)), Refused(Reason::Fenced), "epoch {epoch}");
    }
    let changes: [fn(&mut JournalRecord); 2] =
        [|record| record.place.writer_seq = 1.into(), |record| record.place.writer_id = OrEmpty::NONE];
    for change in changes {
        let mut odd = claim("c", "b", 2);
        change(&mut odd);
        assert_eq!(run.take(&odd), Refused(Reason::Fenced));
    }
    assert_eq!(run.head, before);
    // Refused for its place, it may come again.
    assert_eq!(run.take(&claim("c", "b", 2)), Applied);
    assert_eq!((run.head.epoch, run.head.writer_id.as_str()), (2.into(), "b"));
    assert_eq!(run.next(), (1.into(), before.next_journal_seq), "its writer begins at 1, the run goes on");
}

#[test]
fn of_two_claims_for_one_epoch_the_first_wins_and_the_other_is_fenced() {
    let mut run = Run::default();
    assert_eq!(run.take(&claim("c-a", "a", 1)), Applied);
    assert_eq!(run.take(&claim("c-b", "b", 1)), Refused(Reason::Fenced));
    assert_eq!(
        run.changed("x", turn("x"), |record| record.place.writer_id = "b".parse().unwrap()),
        Refused(Reason::Fenced)
    );
    assert_eq!(run.add("y", turn("y")), Applied);
    // The first one's claim, sent again, gives it nothing back.
    run.take(&claim("c-c", "c", 2));
    assert_eq!(run.take(&claim("c-a", "a", 1)), Repeat(None));
    assert_eq!((run.head.epoch, run.head.writer_id.as_str(), run.head.next_writer_seq), (2.into(), "c", 1.into()));
}

#[test]
fn a_claim_under_the_id_of_another_record_is_a_conflict() {
    let mut run = Run::claimed("a");
    // One that has lost has lost, whatever its id.
    assert_eq!(run.take(&claim("turn", "c", 3)), Refused(Reason::Fenced));
    assert_eq!(run.take(&claim("turn", "b", 2)), Refused(Reason::Conflict));
    assert_eq!(run.head.epoch, 1.into());
}

// Rule 3.

#[test]
fn a_writer_seq_beyond_the_next_is_a_gap_and_consumes_nothing() {
    let mut run = Run::claimed("a");
    let before = run.head.clone();
    for ahead in [1, 2, 100] {
        let word = run
            .changed("x", turn("x"), |record| record.place.writer_seq = record.place.writer_seq.saturating_add(ahead));
        assert_eq!(word, Refused(Reason::Gap));
        assert_eq!(run.head, before);
    }
}

// Rule 4.

#[test]
fn a_known_id_with_other_content_is_a_conflict_and_consumes_what_was_the_next() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(run.add("turn", turn("something else")), Refused(Reason::Conflict));
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
    // That content under that id was judged: again, it is no second refusal.
    let mut again = run.next_record("turn", turn("something else"));
    assert_eq!(run.take(&again), Repeat(Some(Reason::Conflict)));
    assert_eq!(run.next(), (writer_seq.saturating_add(2), journal_seq.saturating_add(1)));
    again.payload = turn("a third thing").into();
    assert_eq!(run.take(&again), Refused(Reason::Conflict));
    // What it was refused for did not change what the id stands for.
    let mut first = run.next_record("turn", turn("hello"));
    first.place.writer_seq = 1.into();
    assert_eq!(run.take(&first), Repeat(None));
}

#[test]
fn a_lower_writer_seq_with_other_content_is_a_conflict() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(
        run.changed("x", turn("x"), |record| record.place.writer_seq = record.place.writer_seq.saturating_sub(1)),
        Refused(Reason::Conflict)
    );
    // Its number of the run was the next, its writer's number was not.
    assert_eq!(run.next(), (writer_seq, journal_seq.saturating_add(1)));
    let word = run.changed("y", turn("y"), |record| {
        record.place.writer_seq = 0.into();
        record.place.journal_seq = 1.into();
    });
    assert_eq!(word, Refused(Reason::Conflict));
    assert_eq!(run.next(), (writer_seq, journal_seq.saturating_add(1)));
}

// Rule 5.

#[test]
fn a_journal_seq_other_than_the_next_is_refused_and_consumes_the_writers_number() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    for (taken, wrong) in
        [(1, JournalSeq::ZERO), (2, journal_seq.saturating_sub(1)), (3, journal_seq.saturating_add(1))]
    {
        let word = run.changed(&format!("x{taken}"), turn("x"), |record| record.place.journal_seq = wrong);
        assert_eq!(word, Refused(Reason::Sequence), "{wrong}");
        assert_eq!(run.next(), (writer_seq.saturating_add(taken), journal_seq));
    }
    let word = run.changed("y", checkpoint("c", 1, None), |record| record.place.journal_seq = journal_seq);
    assert_eq!(word, Refused(Reason::Sequence), "checkpoints have no number of the run");
    assert_eq!(run.next(), (writer_seq.saturating_add(4), journal_seq));
}

#[test]
fn a_call_ends_once_and_for_good() {
    let ends: [(Payload, Payload); 2] =
        [(completed("call", 1).into(), failed("call").into()), (failed("call").into(), completed("call", 1).into())];
    for (first, second) in ends {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("end", first), Applied);
        assert_eq!(run.add("other end", second), Refused(Reason::Transition));
        assert_eq!(run.add("other result", completed("call", 2)), Refused(Reason::Transition));
        for (id, late) in [("attempt", Payload::from(attempt("call"))), ("done", resolution("call", "done").into())] {
            assert_eq!(run.add(id, late), Refused(Reason::Transition), "{id}");
        }
    }
}

#[test]
fn the_same_completion_again_changes_nothing_and_is_no_fault() {
    let mut run = Run::claimed("a");
    run.add("end", completed("call", 1));
    let (writer_seq, journal_seq) = run.next();
    assert_eq!(run.add("end again", completed("call", 1)), NoOp);
    assert_eq!(run.next(), (writer_seq.saturating_add(1), journal_seq.saturating_add(1)));
}

#[test]
fn an_answer_needs_a_request() {
    let mut run = Run::claimed("a");
    // A turn is no request.
    for (id, request) in [("x", "nobody"), ("y", "turn")] {
        assert_eq!(run.add(&format!("{id}1"), completed(request, 1)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}2"), failed(request)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}3"), attempt(request)), Refused(Reason::Transition));
        assert_eq!(run.add(&format!("{id}4"), resolution(request, "not_done")), Refused(Reason::Transition));
    }
}

#[test]
fn only_an_effect_with_evidence_is_adopted() {
    let mut run = Run::claimed("a");
    assert_eq!(run.add("x", resolution("call", "adopt")), Refused(Reason::Transition));
    run.calls.get_mut("call").unwrap().has_evidence = true;
    assert_eq!(run.add("y", resolution("call", "adopt")), Applied);
}

#[test]
fn a_run_starts_once() {
    let mut run = Run::default();
    assert_eq!(run.add("a", lifecycle("started")), Applied);
    assert_eq!(run.add("b", lifecycle("started")), Refused(Reason::Transition));
    // What the contract does not name is carried and changes nothing.
    assert_eq!(run.add("c", lifecycle("napping")), Applied);
    assert_eq!(run.head.status, RunStatus::Open);
}

fn contract_checkpoint(covers: u64) -> Checkpoint {
    Checkpoint {
        checkpoint_id: "c".into(),
        run_id: "run".into(),
        checkpoint_seq: 9,
        covers_journal_seq: covers,
        loop_state: "awaiting_model".into(),
        turn_id: None,
        attempt_id: None,
        runtime_package_fingerprint: String::new(),
        pending_side_effects: vec![],
        pending_approvals: vec![],
        content_ref_manifest: vec![],
        state_hash: String::new(),
        created_at_millis: 0,
        writer_id: "w".into(),
    }
}

#[test]
fn a_contracts_checkpoint_covers_no_more_than_the_head_and_takes_no_loop_checkpoints_number() {
    let mut run = Run::claimed("a");
    let (_, journal_seq) = run.next();
    assert_eq!(
        run.add("c1", contract_checkpoint(journal_seq.get())),
        Refused(Reason::Checkpoint),
        "itself is not behind it"
    );
    assert_eq!(run.add("c2", contract_checkpoint(journal_seq.get())), Applied);
    assert_eq!(run.head.checkpoint_seq, 0);
}

#[test]
fn an_ended_run_takes_only_what_is_not_numbered_and_the_contracts_markers() {
    for status in ["completed", "failed", "cancelled"] {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("end", lifecycle(status)), Applied);
        assert_eq!(run.head.status.as_str(), status);
        for (id, late) in [
            ("turn 2", Payload::from(turn("late"))),
            ("call 2", request().into()),
            ("result", completed("call", 1).into()),
            ("end 2", lifecycle("completed").into()),
        ] {
            assert_eq!(run.add(id, late), Refused(Reason::Ended), "{id}");
        }
        assert_eq!(run.add("loop checkpoint", checkpoint("c", 1, None)), Applied);
        assert_eq!(run.add("contract's checkpoint", contract_checkpoint(1)), Applied);
        let marker = Recovery { unsafe_pending: vec![], recovery_reason: "died".into(), policy_refs: vec![] };
        assert_eq!(run.add("recovery marker", marker), Applied);
        assert_eq!(run.add("resolution", resolution("call", "done")), Applied);
        assert_eq!(run.take(&claim("claim 2", "b", 2)), Applied, "a claim skips the content rules");
        assert_eq!(run.head.status.as_str(), status);
    }
}

#[test]
fn what_follows_a_record_refused_for_its_content_is_not_lost() {
    let mut run = Run::claimed("a");
    let (writer_seq, journal_seq) = run.next();
    // A writer that has sent three records before it learns of the first one's refusal.
    let orphan = run.next_record("x1", completed("nobody", 1));
    let mut second = run.next_record("x2", turn("x2"));
    let mut third = run.next_record("x3", completed("call", 1));
    for (record, after) in [(&mut second, 1), (&mut third, 2)] {
        record.place.writer_seq = writer_seq.saturating_add(after);
        record.place.journal_seq = journal_seq.saturating_add(after);
    }
    assert_eq!(run.take(&orphan), Refused(Reason::Transition));
    assert_eq!((run.take(&second), run.take(&third)), (Applied, Applied));
    assert_eq!(run.next(), (writer_seq.saturating_add(3), journal_seq.saturating_add(3)));
}

// Records that need no claim.

#[test]
fn a_resolution_is_judged_by_its_id_and_its_content_and_by_nothing_else() {
    let mut run = Run::claimed("a");
    let before = run.next();
    let foreign = |record: &mut JournalRecord| {
        record.place.writer_id = "an operator".parse().unwrap();
        record.place.writer_epoch = 7.into();
    };
    assert_eq!(run.changed("r1", resolution("call", "not_done"), foreign), Applied);
    assert_eq!(run.changed("r1", resolution("call", "not_done"), foreign), Repeat(None));
    assert_eq!(run.changed("r1", resolution("call", "done"), foreign), Refused(Reason::Conflict));
    let numbered = |record: &mut JournalRecord| record.place.journal_seq = before.1;
    assert_eq!(run.changed("r2", resolution("call", "done"), numbered), Refused(Reason::Sequence));
    assert_eq!(run.changed("r3", resolution("call", "done"), foreign), Applied);
    assert_eq!(run.changed("r4", resolution("call", "done"), foreign), Refused(Reason::Transition));
    assert_eq!(run.next(), before, "it takes no number from the writer who has the run");
}

// The order of the rules, and what applying does.

#[test]
fn the_rules_are_asked_in_their_order() {
    let mut run = Run::claimed("a");
    let known = run.next_record("x", turn("x"));
    run.take(&known);
    let worst = |record: &mut JournalRecord| {
        record.place.writer_id = "b".parse().unwrap();
        record.place.writer_seq = record.place.writer_seq.saturating_add(5);
        record.place.journal_seq = record.place.journal_seq.saturating_add(5);
    };
    // Everything is wrong with it, but it was judged before.
    assert_eq!(run.changed("x", turn("x"), worst), Repeat(None));
    // A fenced one that is a gap, a conflict and out of sequence.
    assert_eq!(run.changed("x", turn("y"), worst), Refused(Reason::Fenced));
    // A gap that is a conflict and out of sequence.
    let gap = |record: &mut JournalRecord| {
        record.place.writer_seq = record.place.writer_seq.saturating_add(5);
        record.place.journal_seq = record.place.journal_seq.saturating_add(5);
    };
    assert_eq!(run.changed("x", turn("y"), gap), Refused(Reason::Gap));
    // A conflict that is out of sequence.
    assert_eq!(
        run.changed("x", turn("y"), |record| record.place.journal_seq = record.place.journal_seq.saturating_add(5)),
        Refused(Reason::Conflict)
    );
    // Out of sequence on a run that has ended.
    run.add("end", lifecycle("completed"));
    assert_eq!(
        run.changed("z", turn("z"), |record| record.place.journal_seq = record.place.journal_seq.saturating_add(5)),
        Refused(Reason::Sequence)
    );
}

#[test]
fn the_run_hash_grows_with_what_was_applied_and_with_nothing_else() {
    let mut run = Run::claimed("a");
    let (before, records) = (run.head.hash, run.head.records);
    run.changed("x", turn("x"), |record| record.place.writer_seq = record.place.writer_seq.saturating_add(1));
    run.add("y", completed("nobody", 1));
    run.add("turn", turn("another"));
    assert_eq!((run.head.hash, run.head.records), (before, records));
    let record = run.next_record("z", turn("z"));
    let framed = codec::encode(&record);
    run.take(&record);
    let bytes = Sha256::of(codec::unframe(&framed).unwrap().datum);
    assert_eq!((run.head.hash, run.head.records), (before.behind(&bytes), records + 1));
    run.take(&record);
    assert_eq!(run.head.records, records + 1);
}
