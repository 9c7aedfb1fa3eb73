//! A `writer` for callers with their own journal protocol: records are appended unchanged and read back whole.
//!
//! Each function panics if its claim does not hold.

use std::time::Duration;

use runlog_producer::{JournalRecord, Json, LoopState, REDACTED, RecordFilter, Redaction, SideEffect, Writer};
use runlog_schemas::{
    answer::ErrorKind,
    id::{JournalSeq, RecordId},
    payload::{
        ConversationTurn, LoopCheckpoint, Payload, PayloadType, RunLifecycle, ToolCallCompleted, ToolCallRequested,
        observed::{CodeEditProposal, ProposalStatus, ToolJournalEntry},
        wrapped::HostPayload,
    },
    refs::CorrelationEntry,
    scalar::Bytes,
};
use serde_json::{Value, json};

use crate::backend::{Backend, FaultOutcome};

/// The deadline of a write whose record is held back.
const SOON: Duration = Duration::from_millis(500);

fn draft_record(writer: &Writer, id: &str, journal_seq: u64) -> JournalRecord {
    let content = Json::from(json!({ "id": id, "big": 12_345_678_901_234_567_890_u64, "list": [null, 1.5, "ü"] }));
    let turn =
        ConversationTurn { message_id: id.into(), parent_id: None, thread_id: None, kind: "user".into(), content };
    let mut record = writer.draft(Some(RecordId::new(id.to_owned()).expect("an id")), turn).expect("a draft");
    record.place.journal_seq = JournalSeq::new(journal_seq).expect("a number");
    record
}

/// A checkpoint of the writer, with the hash of its content.
fn checkpoint(writer: &Writer, id: &str, covers: u64, seq: u64) -> JournalRecord {
    let list = json!({
        "checkpoint_id": id, "checkpoint_seq": seq, "covers_journal_seq": covers, "schema_version": 1,
        "messages": [], "state": { "of": id },
    });
    let mut checkpoint: LoopCheckpoint = serde_json::from_value(list).expect("a checkpoint");
    checkpoint.state_hash = checkpoint.content_hash();
    writer.draft(None, checkpoint).expect("a draft")
}

async fn shown_turns(backend: &Backend, run: &str) -> Vec<Value> {
    let records = backend.records(run).await.into_iter();
    let turns = records.filter(|(kind, _)| kind == "conversation_turn");
    turns.map(|(_, mut turn)| turn["message_id"].take()).collect()
}

/// Covers every outcome of the first write.
pub async fn a_write_without_an_answer_is_there_once_when_written_again(backend: &Backend) {
    for fault in backend.faults {
        let run = format!("again-{fault:?}");
        let writer = backend.runlog.writer(run.as_str()).await.expect("a writer");
        writer.write(draft_record(&writer, "a", 1)).await.expect("written");
        let came = backend.run_with_fault(*fault, writer.write(draft_record(&writer, "b", 2))).await;
        let again = writer.write(draft_record(&writer, "b", 2)).await;
        let wrote = again.unwrap_or_else(|error| panic!("{fault:?}, {came:?}: {error}"));
        assert_eq!(wrote.journal_seq.get(), 2, "now or before: {wrote:?}");
        assert_eq!(
            writer.write(draft_record(&writer, "c", 3)).await.expect("written").journal_seq.get(),
            3,
            "{fault:?}"
        );
        assert_eq!(shown_turns(backend, &run).await, ["a", "b", "c"], "{fault:?}, {came:?}");
    }
}

/// The write was acknowledged, and its read-back timed out: it may be applied. The writer refuses other writes until then.
pub async fn a_write_that_is_not_read_back_is_unknown_until_it_is_written_again(backend: &Backend) {
    let runlog = backend.connect(|config| (config.read_back, config.deadline) = (SOON, SOON)).await;
    let writer = runlog.writer("held").await.expect("a writer");
    backend.hold("held");
    for _ in 0..2 {
        let error = writer.write(draft_record(&writer, "a", 1)).await.expect_err("the outcome is unknown");
        assert_eq!(error.side_effect(), SideEffect::Unknown, "{error}");
    }
    let error = writer.write(draft_record(&writer, "b", 0)).await.expect_err("the earlier write is unknown");
    assert_eq!(error.side_effect(), SideEffect::None, "{error}");
    backend.release("held");
    let wrote = writer.write(draft_record(&writer, "a", 1)).await.expect("found");
    assert_eq!((wrote.journal_seq.get(), wrote.repeat), (1, true), "the number of the first write");
    assert_eq!(shown_turns(backend, "held").await, ["a"]);
    assert_eq!(writer.write(draft_record(&writer, "b", 2)).await.expect("written").journal_seq.get(), 2);
}

/// If two records have one number, one record is applied, and the writer of the other gets an error.
pub async fn a_replacement_gets_the_number_or_learns_that_it_is_used(backend: &Backend) {
    for fault in backend.faults {
        let run = format!("instead-{fault:?}");
        let writer = backend.runlog.writer(run.as_str()).await.expect("a writer");
        let came = backend.run_with_fault(*fault, writer.write(draft_record(&writer, "result", 1))).await;
        let first = match writer.write(draft_record(&writer, "marker", 1)).await {
            Ok(wrote) => {
                assert!(!matches!(came, FaultOutcome::Completed), "{fault:?}: one number, two records");
                assert_eq!(wrote.journal_seq.get(), 1);
                "marker"
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{fault:?}: {error}");
                "result"
            }
        };
        writer.write(draft_record(&writer, "next", 2)).await.expect("the writer stays ready");
        assert_eq!(shown_turns(backend, &run).await, [first, "next"], "{fault:?}, {came:?}");
    }
}

/// The position of a repeat is the position of the first record.
pub async fn records_of_an_earlier_process_are_found(backend: &Backend) {
    let first = backend.runlog.writer("before").await.expect("a writer");
    let there = first.write(draft_record(&first, "a", 1)).await.expect("written").position;
    first.write(draft_record(&first, "b", 0)).await.expect("written");
    let second = backend.connect(|_| {}).await.writer("before").await.expect("a writer");
    assert_eq!(second.next().await.expect("numbers").0.get(), 3);
    let repeat = second.write(draft_record(&second, "a", 1)).await.expect("found");
    assert_eq!((repeat.position, repeat.journal_seq.get(), repeat.repeat), (there, 1, true));
    assert_eq!((first.epoch().get(), second.epoch().get()), (1, 2));
    assert_eq!(second.write(draft_record(&second, "c", 3)).await.expect("written").journal_seq.get(), 3);
    let other = draft_record(&second, "a", 1);
    let other = JournalRecord { body: runlog_schemas::record::Body { tags: vec!["x".into()], ..other.body }, ..other };
    let error = second.write(other).await.expect_err("one id, two contents");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // A record that is refused for its content uses its number, so that the following records are not refused as a gap.
    let next = second.next().await.expect("numbers").0.get();
    assert_eq!(next, 5);
    assert_eq!(
        second.write(draft_record(&second, "d", next)).await.expect("the writer stays ready").journal_seq.get(),
        next
    );
    assert_eq!(second.epoch().get(), 3, "after the refusal it claimed the run again");
    for _ in 0..2 {
        let error = first.write(draft_record(&first, "late", 0)).await.expect_err("another writer has the run");
        assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::ClaimLost), "{error}");
    }
    assert_eq!(shown_turns(backend, "before").await, ["a", "b", "c", "d"]);
}

/// Records that were already written alone are repeats in a batch, and take no number of the run.
pub async fn a_record_after_a_batch_of_known_ones_gets_the_next_number(backend: &Backend) {
    let writer = backend.runlog.writer("known").await.expect("a writer");
    let there = writer.write(draft_record(&writer, "a", 1)).await.expect("written").position;
    let records = vec![draft_record(&writer, "b", 0), draft_record(&writer, "a", 0)];
    let positions = writer.batch(RecordId::new("batch".to_owned()).expect("an id"), records).await.expect("a batch");
    assert_eq!(positions[1], there, "the position of the first write");
    let wrote = writer.write(draft_record(&writer, "c", 3)).await.expect("written");
    assert_eq!((wrote.journal_seq.get(), wrote.repeat), (3, false));
    assert_eq!(
        (writer.epoch().get(), shown_turns(backend, "known").await),
        (1, vec![json!("a"), json!("b"), json!("c")])
    );
}

/// A used number is refused as well.
pub async fn a_number_that_is_not_the_next_is_not_written(backend: &Backend) {
    let writer = backend.runlog.writer("numbers").await.expect("a writer");
    for wrong in [2, 3, 1 << 40] {
        let error = writer.write(draft_record(&writer, "a", wrong)).await.expect_err("it is not the next");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    writer.write(draft_record(&writer, "a", 1)).await.expect("written");
    let error = writer.write(draft_record(&writer, "b", 1)).await.expect_err("the number is in use");
    assert!(error.to_string().contains("the next one is 2"), "{error}");
    let records = backend.records("numbers").await;
    let kinds: Vec<_> = records.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["run_claim", "conversation_turn"], "only the requested record is written");
}

/// After its end a run accepts a checkpoint, but no numbered record. Records before the end, and the end, are repeats.
pub async fn an_ended_run_accepts_the_records_allowed_after_its_end(backend: &Backend) {
    let writer = backend.runlog.writer("over").await.expect("a writer");
    writer.write(draft_record(&writer, "a", 1)).await.expect("written");
    let end = RunLifecycle { status: "completed".into(), reason: String::new() };
    let end = writer.draft(Some(RecordId::new("end".to_owned()).expect("an id")), end).expect("a draft");
    let ended = writer.write(end.clone()).await.expect("ended");
    writer.write(checkpoint(&writer, "terminal", 2, 1)).await.expect("taken");
    let later = backend.runlog.writer("over").await.expect("a writer");
    assert!(later.write(draft_record(&later, "a", 1)).await.expect("it is there").repeat);
    assert_eq!(later.write(end).await.expect("it is there").position, ended.position, "the same end");
    let error = later.write(draft_record(&later, "b", 3)).await.expect_err("it ended");
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("ended"), "{error}");
    assert_eq!(later.next().await.expect("numbers").1, 2);
    later.write(checkpoint(&later, "later", 2, 2)).await.expect("taken");
    let loaded = backend.runlog.checkpoint("over", None).await.expect("an answer").expect("a checkpoint");
    assert_eq!(loaded.checkpoint_id, "later");
    let loaded =
        backend.runlog.checkpoint("over", Some(JournalSeq::new(1).expect("a number"))).await.expect("an answer");
    assert!(loaded.is_none(), "{loaded:?}");
    assert!(backend.runlog.checkpoint("nobody", None).await.expect("an answer").is_none());
    assert_eq!(shown_turns(backend, "over").await, ["a"]);
}

/// Records are read in order, page by page, and by a filter on their attributes.
pub async fn records_are_read_as_they_were_written(backend: &Backend) {
    let writer = backend.runlog.writer("read").await.expect("a writer");
    let mut wrote = Vec::new();
    for (nth, key) in (1..).zip(["x=1", "y", "x=1", "ü ?&", "x=1"]) {
        let mut record = draft_record(&writer, &format!("r{nth}"), nth);
        let entry = CorrelationEntry { key: "port".into(), value: key.into() };
        record.body.event_index.correlation_keys = vec![entry];
        let position = writer.write(record.clone()).await.expect("written").position;
        wrote.push((position, record, key));
    }
    for (which, limit) in [(None, 2), (Some("x=1"), 2), (Some("ü ?&"), 1), (Some("none"), 9), (Some("x"), 9)] {
        let select =
            RecordFilter { correlation: which.map(|value| ("port".into(), value.into())), ..RecordFilter::default() };
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = backend.runlog.records("read", &select, cursor.as_deref(), limit).await.expect("a page");
            found.extend(page.records.into_iter().map(|read| (read.position, read.record.expect("its content"))));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        found.retain(|(_, record)| record.payload.payload_type() != PayloadType::RunClaim);
        let wanted: Vec<_> = wrote.iter().filter(|(_, _, key)| which.is_none_or(|which| which == *key)).collect();
        assert_eq!(found.len(), wanted.len(), "{which:?}");
        for ((at, read), (position, record, _)) in found.iter().zip(wanted) {
            assert_eq!((at, &read.body, &read.payload), (position, &record.body, &record.payload), "{which:?}");
            assert_eq!(read.place.journal_seq, record.place.journal_seq);
        }
    }
    let none = backend.runlog.records("nobody", &RecordFilter::default(), None, 1).await.expect("a page");
    assert!(none.records.is_empty() && none.next_cursor.is_none());
    assert!(backend.runlog.recovery("nobody").await.expect("an answer").is_none());
    let recovery = backend.runlog.recovery("read").await.expect("an answer").expect("a run");
    assert_eq!(recovery.next_journal_seq.get(), 6);
    let error = backend.runlog.records("read", &RecordFilter::default(), None, 1001).await.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
}

/// JSON with this many levels.
fn nested(levels: usize) -> Json {
    Json::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels))).expect("JSON")
}

/// The error says where, how deep, and the limit. JSON at the limit is read back whole.
pub async fn a_record_that_readers_could_not_decode_is_not_written(backend: &Backend) {
    let writer = backend.runlog.writer("deep").await.expect("a writer");
    let turn = |levels| {
        let mut record = draft_record(&writer, &format!("t{levels}"), 0);
        if let Payload::ConversationTurn(turn) = &mut record.payload {
            turn.content = nested(levels);
        }
        record
    };
    writer.write(turn(125)).await.expect("written");
    let state = |levels| LoopState { messages: vec![json!(1).into(), nested(levels)], ..LoopState::default() };
    writer.checkpoint(&state(124)).await.expect("written");
    let batch = |levels| writer.batch(RecordId::new(format!("b{levels}")).expect("an id"), vec![turn(levels)]);
    batch(122).await.expect("written");
    let refused = [
        ("/payload/content nests 126 levels deep, more than the 125", writer.write(turn(126)).await.map(drop)),
        ("/payload/messages/1 nests 125 levels deep", writer.checkpoint(&state(125)).await.map(drop)),
        ("/payload/records/0/payload/content nests 123 levels deep", batch(123).await.map(drop)),
    ];
    for (told, came) in refused {
        let error = came.expect_err("it is too deep");
        assert_eq!((error.kind(), error.side_effect()), (ErrorKind::Invalid, SideEffect::None), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
    let page = backend.runlog.records("deep", &RecordFilter::default(), None, 10).await.expect("a page");
    let read: Vec<JournalRecord> = page.records.into_iter().map(|read| read.record.expect("whole")).collect();
    assert_eq!(read.len(), 4, "a claim, and the records that are not too deep");
    assert!(read.iter().any(|record| record.payload == turn(125).payload), "as it was written");

    let run = backend.runlog.open("deep call").await.expect("open");
    let never = |_| async { Ok(Json::from(json!("it ran"))) };
    let error = run.tool("book", &nested(126).to_value()).once(never).await.expect_err("it is too deep");
    assert_eq!((error.kind(), error.side_effect()), (ErrorKind::Invalid, SideEffect::None), "{error}");
}

/// The process whose effect ran has the result. Any other process gets an error that says why it is missing.
pub async fn a_result_that_cannot_be_recorded_ends_its_call_with_a_marker(backend: &Backend) {
    let run = backend.open("unrecordable").await;
    let never = |_| async { Ok(Json::from(json!("it ran"))) };
    let results = [
        (1, nested(126), "no_json: /payload/result nests 126 levels deep"),
        (2, Json::from(json!("x".repeat(65 << 20))), "too_large: "),
    ];
    for (args, result, _) in results.clone() {
        let answer = run.tool("book", &args).once(|_| async { Ok(result.clone()) }).await.expect("its process has it");
        assert!(answer.result == Some(result), "{args}: as the effect returned it");
    }
    let next = backend.open("unrecordable").await;
    assert_eq!((next.recovery().pending.len(), next.recovery().completed.len()), (0, 2), "both calls have ended");
    for (args, _, why) in results {
        let error = next.tool("book", &args).once(never).await.expect_err("its result is missing");
        assert_eq!((error.kind(), error.side_effect()), (ErrorKind::MissingContent, SideEffect::None), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        next.tool("book", &args).once(never).await.expect_err("nor does a further try run the effect");
    }
}

/// JSON with members that must not reach the journal, and a member that stays.
fn secret() -> Value {
    json!({ "card": 4_111_111, "pin": 9_876_543, "word": "a hunter2", "stays": 7 })
}

/// A record of each kind with content, with a secret in it.
fn with_secrets(writer: &Writer) -> Vec<JournalRecord> {
    let request = ToolCallRequested {
        request_id: "r".into(),
        call_id: "c".into(),
        parent_id: None,
        vendor: None,
        tool_name: "pay".into(),
        args_sha256: String::new(),
        fingerprint: None.into(),
        arguments: Some(secret().into()),
    };
    let request = writer.draft(None, request.seal().expect("a request")).expect("a draft");
    let result = Some(secret().into());
    let completed = ToolCallCompleted { request_record_id: request.body.record_id.clone(), result, latency_ms: None };
    let host = |content_type: &str, bytes: String| HostPayload {
        family: "host".into(),
        payload_type: "row".into(),
        schema_version: 1,
        content_type: content_type.into(),
        bytes: Bytes(bytes.into_bytes()),
    };
    let entry = ToolJournalEntry {
        session_id: "s".into(),
        call_fingerprint: "login: hunter2".into(),
        tool_name: "pay".into(),
        arguments: secret().into(),
        result: secret().into(),
        is_error: false,
        timestamp_ms: 1,
    };
    let proposal = CodeEditProposal {
        request_id: "p".into(),
        diffs: secret().into(),
        confidence: None,
        status: ProposalStatus::Pending,
        decided_at_millis: None,
        applied_at_millis: None,
        commit_hash: None,
    };
    let rejected = json!({
        "type": "write_back_rejected", "txn": 1, "at": "2026-11-22T00:00:00Z",
        "reason": { "reason": "schema_mismatch", "detail": "no hunter2" },
    });
    let message = json!({
        "type": "message", "message_id": "id-of-hunter2", "role": "user", "redacted_summary": "a hunter2",
    });
    let of_contract = |json| serde_json::from_value::<Payload>(json).expect("a payload");
    let payloads: [Payload; 7] = [
        completed.into(),
        host("application/json; charset=utf-8", format!(" {}", secret())).into(),
        host("text/plain", "a hunter2".into()).into(),
        entry.into(),
        proposal.into(),
        of_contract(rejected),
        of_contract(message),
    ];
    let mut records = vec![request];
    records.extend(payloads.map(|payload| writer.draft(None, payload).expect("a draft")));
    if let Some(last) = records.last_mut() {
        let unknown = json!({ "/payload/note": ["a hunter2"], "/payload/other_id": "id-of-hunter2" });
        last.body.unknown_fields = Some(unknown.to_string());
        last.body.source.redacted_summary = Some("from hunter2".into());
    }
    records
}

/// Fingerprints and keys are computed from the content before redaction.
pub async fn redacted_content_of_any_record_reaches_no_journal(backend: &Backend) {
    let redaction = Redaction::new("words").pointer(None, "/card").pointer(Some("pay"), "/pin");
    let redaction = redaction
        .texts(|text| if text.starts_with("id-") { text.into() } else { text.replace("hunter2", REDACTED).into() });
    let runlog = backend.connect(|config| config.redaction = Some(redaction)).await;
    let writer = runlog.writer("secrets").await.expect("a writer");
    let mut wrote = with_secrets(&writer);
    for record in &wrote {
        writer.write(record.clone()).await.expect("written");
    }
    let saved = LoopState { messages: vec![json!("a hunter2").into()], ..LoopState::default() };
    writer.checkpoint(&saved).await.expect("saved");
    let mut saving = checkpoint(&writer, "its own", 0, 9);
    if let Payload::LoopCheckpoint(saved) = &mut saving.payload {
        saved.state = Some(secret().into());
        saved.state_hash = saved.content_hash();
    }
    let batch = vec![saving.clone(), wrote[2].clone()];
    let mut batch: Vec<JournalRecord> = batch;
    batch[1].body.record_id = RecordId::new("in a batch".to_owned()).expect("an id");
    writer.batch(RecordId::new("batch".to_owned()).expect("an id"), batch.clone()).await.expect("written");
    if let Payload::LoopCheckpoint(on_base) = &mut saving.payload {
        on_base.base = Some("its own".into());
    }
    saving.body.record_id = RecordId::new("on a base".to_owned()).expect("an id");
    let error =
        writer.write(saving).await.expect_err("the list of its base is unknown here, so its hash cannot be redone");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    let page = backend.runlog.records("secrets", &RecordFilter::default(), None, 1000).await.expect("a page");
    let read: Vec<JournalRecord> = page.records.into_iter().map(|read| read.record.expect("its content")).collect();
    wrote.extend(batch);
    for wrote in &wrote {
        let there = read.iter().find(|read| read.body.record_id == wrote.body.record_id).expect("a record");
        assert_eq!(there.body.redaction_policy_id, "words");
        let (there, true_facts) = (&there.body.facts, &wrote.body.facts);
        assert_eq!((&there.fingerprint, &there.key), (&true_facts.fingerprint, &true_facts.key), "{there:?}");
    }
    for record in read {
        let mut text = serde_json::to_string(&record).expect("JSON");
        if let Payload::HostPayload(host) = record.payload {
            text += &String::from_utf8(host.bytes.0).expect("a text");
        }
        let allowed = text.replace("id-of-hunter2", "");
        assert!(["hunter2", "4111111"].iter().all(|secret| !allowed.contains(secret)), "{allowed}");
        assert!(record.body.facts.tool_name.is_none() || !allowed.contains("9876543"), "{allowed}");
        assert!(!allowed.contains("\"card\"") || allowed.contains("\"stays\":7"), "{allowed}");
    }
    let checkpoint_at = |at| backend.runlog.checkpoint("secrets", at);
    let latest = checkpoint_at(None).await.expect("an answer").expect("its hash is right");
    assert_eq!(latest.messages, Some(vec![json!(format!("a {REDACTED}")).into()]));
    let own = checkpoint_at(Some(JournalSeq::ZERO)).await.expect("an answer").expect("its hash is right");
    assert_eq!(own.checkpoint_id, "its own");
    assert_eq!(own.state.map(|state| state.to_value()["word"].clone()), Some(format!("a {REDACTED}").into()));
}

/// The claims above, each as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! writing_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, writing:
            a_write_without_an_answer_is_there_once_when_written_again,
            a_replacement_gets_the_number_or_learns_that_it_is_used,
            records_of_an_earlier_process_are_found,
            a_result_that_cannot_be_recorded_ends_its_call_with_a_marker,
            a_number_that_is_not_the_next_is_not_written,
            a_record_after_a_batch_of_known_ones_gets_the_next_number,
            an_ended_run_accepts_the_records_allowed_after_its_end,
            records_are_read_as_they_were_written,
            redacted_content_of_any_record_reaches_no_journal,
            a_record_that_readers_could_not_decode_is_not_written,
        }
    };
}
