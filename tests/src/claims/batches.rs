//! Batches, and records that are written unchanged.
//!
//! Each function panics if its claim does not hold.

use std::time::Duration;

use runlog_producer::{Action, JournalRecord, Json, Redaction, Run};
use runlog_schemas::{
    answer::ErrorKind,
    payload::{ConversationTurn, Payload, observed::ToolJournalEntry},
};
use serde_json::{Value, json};

use crate::backend::{Backend, FaultOutcome};

/// How long a record may take to be applied.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a text; two such texts are too large for a record.
const HALF: usize = 600 << 10;

fn draft_turn(run: &Run, text: &str) -> JournalRecord {
    let content = Json::from(Value::from(text));
    run.draft(ConversationTurn {
        message_id: text[..1].into(),
        parent_id: None,
        thread_id: None,
        kind: "user".into(),
        content,
    })
    .expect("a draft")
}

/// A commit of a change that is not staged.
fn unstaged(run: &Run) -> JournalRecord {
    let committed = json!({ "type": "write_back_committed", "txn": 7, "at": "2026-11-22T00:00:00Z" });
    run.draft(serde_json::from_value::<Payload>(committed).expect("a payload")).expect("a draft")
}

async fn shown_turns(backend: &Backend, run: &str) -> Vec<Value> {
    let records = backend.records(run).await.into_iter();
    records.filter(|(kind, _)| kind == "conversation_turn").map(|(_, mut turn)| turn["content"].take()).collect()
}

/// Later records are numbered after all records of the batch, whether it is applied or refused.
pub async fn a_batch_takes_effect_whole_or_not_at_all(backend: &Backend) {
    let run = backend.open("batch").await;
    let positions =
        run.batch(vec![draft_turn(&run, "a"), draft_turn(&run, "b"), draft_turn(&run, "c")]).await.expect("a batch");
    let offsets: Vec<_> = positions.iter().map(|position| (position.offset, position.index)).collect();
    assert_eq!(offsets, (0..3).map(|index| (positions[0].offset, index)).collect::<Vec<_>>());
    run.turn("user", "d").await.expect("a turn");
    run.flush().await.expect("applied");
    // Over HTTP the answer already reports the refusal.
    let refused = run.batch(vec![draft_turn(&run, "e"), unstaged(&run), draft_turn(&run, "f")]).await;
    let error = match refused {
        Err(error) => error,
        Ok(_) => run.flush().await.expect_err("it was refused"),
    };
    assert_eq!((error.kind(), error.action()), (ErrorKind::Conflict, Action::Reopen), "{error}");
    assert!(error.to_string().contains("not_staged"), "{error}");
    run.reopen().await.expect("reopened");
    run.record(draft_turn(&run, "g")).await.expect("a record");
    run.flush().await.expect("applied");
    assert_eq!(shown_turns(backend, "batch").await, ["a", "b", "c", "d", "g"]);
}

/// The record gets no number, and the handle stays ready.
pub async fn an_invalid_record_is_refused_before_it_is_numbered(backend: &Backend) {
    let run = backend.open("refused").await;
    let other = backend.open("refused other").await;
    let large = |text: &str| draft_turn(&run, &text.repeat(HALF));
    let refused = [
        (ErrorKind::TooLarge, run.batch(vec![large("a"), large("b")]).await.map(drop)),
        (ErrorKind::Invalid, run.batch(Vec::new()).await.map(drop)),
        (ErrorKind::Invalid, run.batch(vec![draft_turn(&run, "a"), draft_turn(&other, "b")]).await.map(drop)),
        (ErrorKind::Invalid, run.record(draft_turn(&other, "c")).await.map(drop)),
    ];
    for (kind, came) in refused {
        let error = came.expect_err("it cannot be written");
        assert_eq!((error.kind(), error.action()), (kind, Action::FixTheInput), "{error}");
    }
    run.record(draft_turn(&run, "d")).await.expect("a record");
    run.flush().await.expect("applied");
    assert_eq!(shown_turns(backend, "refused").await, ["d"]);
}

/// Covers every outcome of the append.
pub async fn reopen_finds_a_whole_batch_or_sends_it_whole(backend: &Backend) {
    for fault in backend.faults {
        let id = format!("batch-{fault:?}");
        let run = backend.open(&id).await;
        let mut whole = Vec::new();
        loop {
            whole.extend(["a", "b"]);
            let came =
                backend.run_with_fault(*fault, run.batch(vec![draft_turn(&run, "a"), draft_turn(&run, "b")])).await;
            if !matches!(came, FaultOutcome::Completed) {
                break;
            }
        }
        let done = run.reopen().await.expect("reopened");
        assert_eq!(done.landed + done.appended, 1, "{fault:?}: {done:?}");
        run.turn("user", "c").await.expect("a turn");
        run.flush().await.expect("applied");
        whole.push("c");
        assert_eq!(shown_turns(backend, &id).await, whole, "{fault:?}");
    }
}

/// The call is still recognised by its own fingerprint and by Runlog's.
pub async fn a_record_written_unchanged_is_redacted_like_others(backend: &Backend) {
    let redaction = Redaction::new("keys").texts(|text| text.replace("hunter2", "[redacted]").into());
    let runlog = backend.connect(|config| config.redaction = Some(redaction)).await;
    let run = runlog.open("as it is").await.expect("open");
    let entry = ToolJournalEntry {
        session_id: "s".into(),
        call_fingerprint: r#"login:{"word":"hunter2"}"#.into(),
        tool_name: "login".into(),
        arguments: json!({ "word": "hunter2" }).into(),
        result: json!("hello, hunter2").into(),
        is_error: false,
        timestamp_ms: 1,
    };
    let draft = run.draft(entry).expect("a draft");
    let (key, fingerprint) = (draft.body.facts.key.clone(), draft.body.facts.fingerprint.clone());
    assert!(key.is_some() && fingerprint.is_some(), "of the true arguments");
    run.batch(vec![draft, draft_turn(&run, "hunter2")]).await.expect("a batch");
    run.flush().await.expect("applied");
    let records = backend.records("as it is").await;
    let text = serde_json::to_string(&records).expect("JSON");
    assert!(!text.contains("hunter2") && text.contains("hello, [redacted]"), "{text}");
}

/// The first write may be by this handle or another handle, alone or in a batch, with any outcome. The repeat gets no
/// number, and later records get the right numbers: their results are applied, not only acknowledged.
pub async fn a_record_that_is_written_again_takes_no_number(backend: &Backend) {
    let book = async |run: &Run, seat: u32| {
        let booked = async |_| Ok(Json::from(json!(seat)));
        run.tool("book", &json!({ "seat": seat })).once(booked).await.expect("an answer");
        run.flush().await.expect("applied");
        let recovery = backend.runlog.recovery(run.id().as_str()).await.expect("an answer").expect("a run");
        assert_eq!(
            (recovery.pending.len(), recovery.completed.len()),
            (0, seat as usize),
            "{seat} results are applied"
        );
    };
    let run = backend.open("repeats").await;
    let (a, b, c, d) = (draft_turn(&run, "a"), draft_turn(&run, "b"), draft_turn(&run, "c"), draft_turn(&run, "d"));
    let first = run.record(a.clone()).await.expect("a record");
    assert_eq!(run.record(a.clone()).await.expect("a repeat"), first, "the position of the first write");
    run.applied(&first, PATIENCE).await.expect("applied");
    book(&run, 1).await;
    let fault = backend.faults[0];
    backend.run_with_fault(fault, run.record(b.clone())).await;
    run.reopen().await.expect("reopened");
    run.record(b.clone()).await.expect("there, or written now");
    book(&run, 2).await;
    let positions = run.batch(vec![c.clone(), b.clone(), a.clone()]).await.expect("a batch");
    assert_eq!(positions[2], first, "the position of the first write");
    for position in &positions {
        run.applied(position, PATIENCE).await.expect("applied");
    }
    book(&run, 3).await;
    let refused =
        run.batch(vec![a.clone(), d.clone()]).await.expect_err("the record after a repeat has a wrong number");
    assert_eq!((refused.kind(), refused.action()), (ErrorKind::Conflict, Action::Reopen), "{refused}");
    run.reopen().await.expect("reopened");
    run.record(d.clone()).await.expect("a record");
    let next = backend.open("repeats").await;
    assert_eq!(next.record(c.clone()).await.expect("a repeat"), positions[0], "a repeat of another handle's record");
    let repeats = next.batch(vec![b, a, c]).await.expect("a batch of repeats");
    assert_eq!(repeats, [positions[1].clone(), first, positions[0].clone()]);
    book(&next, 4).await;
    assert_eq!(shown_turns(backend, "repeats").await, ["a", "b", "c", "d"]);
}

/// The claims above, each as a test on the journal that `$backend` starts.
#[macro_export]
macro_rules! batch_claims {
    ($backend:path) => {
        $crate::backend_claims! { $backend, batches:
            a_batch_takes_effect_whole_or_not_at_all,
            an_invalid_record_is_refused_before_it_is_numbered,
            reopen_finds_a_whole_batch_or_sends_it_whole,
            a_record_written_unchanged_is_redacted_like_others,
            a_record_that_is_written_again_takes_no_number,
        }
    };
}
