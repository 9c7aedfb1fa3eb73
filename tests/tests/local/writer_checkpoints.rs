//! Checkpoints of a `writer`, which appends records unchanged: each contains only the messages that the previous
//! checkpoint of any writer lacked.

use runlog_log::memory::MemoryOptions;
use runlog_producer::{
    Json, LoopState, Writer,
    id::RecordId,
    payload::{CheckpointPrune, LoopCheckpoint},
};
use runlog_tests::backend::Backend;
use serde_json::{Value, json};

const RUN: &str = "run-1";

/// A loop's state after `turn` rounds of one message each, long enough to be worth a reference.
fn state(turn: u64) -> LoopState {
    let message = |round| Json::from(json!({ "round": round, "content": "x".repeat(500) }));
    LoopState {
        session_id: "session".into(),
        turn,
        messages: (1..=turn).map(message).collect(),
        state: Some(Json::from(json!({ "turn": turn }))),
        tool_calls_count: turn,
    }
}

async fn save(writer: &Writer, turn: u64) {
    writer.checkpoint(&state(turn)).await.expect("a checkpoint");
}

/// Checks the run's last checkpoint in answers.
async fn assert_latest(backend: &Backend, turn: u64) {
    let answered = backend.runlog.checkpoint(RUN, None).await.expect("an answer").expect("a checkpoint");
    let wanted = state(turn);
    assert_eq!((answered.state, answered.messages), (wanted.state, Some(wanted.messages)));
}

/// How many messages the run's last checkpoint contains itself, and whether it has a base.
async fn brought(backend: &Backend) -> (usize, bool) {
    let records = backend.records(RUN).await;
    let (_, last) = records.iter().rfind(|(kind, _)| kind == "loop_checkpoint").expect("a checkpoint");
    (last["messages"].as_array().map_or(0, Vec::len), last.get("base").is_some_and(|base| *base != Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_carries_only_messages_that_the_previous_one_of_any_writer_lacked() {
    let backend = Backend::local().await.expect("a journal");
    let writer = backend.runlog.writer(RUN).await.expect("a writer");
    save(&writer, 3).await;
    assert_eq!(brought(&backend).await, (3, false));
    save(&writer, 5).await;
    assert_eq!(brought(&backend).await, (2, true));
    let other = backend.runlog.writer(RUN).await.expect("a writer");
    save(&other, 6).await;
    assert_eq!(brought(&backend).await, (1, true));
    assert_latest(&backend, 6).await;
    writer.checkpoint(&state(7)).await.expect_err("another writer has the run");
    assert_latest(&backend, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_after_one_with_an_unknown_outcome_is_complete() {
    let memory = Backend::memory(MemoryOptions::default()).await.expect("a journal");
    let http = Backend::http().await.expect("a journal");
    for backend in [memory, http] {
        let writer = backend.runlog.writer(RUN).await.expect("a writer");
        for (turn, fault) in (1..).step_by(2).zip(backend.faults) {
            save(&writer, turn).await;
            backend.run_with_fault(*fault, writer.checkpoint(&state(turn + 1))).await;
            save(&writer, turn + 2).await;
            assert_latest(&backend, turn + 2).await;
            assert!(brought(&backend).await.1, "{fault:?}: its base was applied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_never_has_a_pruned_base() {
    let backend = Backend::memory(MemoryOptions::default()).await.expect("a journal");
    let writer = backend.runlog.writer(RUN).await.expect("a writer");
    save(&writer, 3).await;
    let prune = CheckpointPrune { prune_covered_before: 1.into(), preserve_latest_terminal: false };
    writer.write(writer.draft(None, prune).expect("a record")).await.expect("a prune");
    save(&writer, 4).await;
    assert_eq!(brought(&backend).await, (4, false));
    assert_latest(&backend, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_after_a_batch_uses_no_base_that_the_batch_pruned_and_gets_the_next_number() {
    let memory = Backend::memory(MemoryOptions::default()).await.expect("a journal");
    let http = Backend::http().await.expect("a journal");
    for backend in [memory, http] {
        let writer = backend.runlog.writer(RUN).await.expect("a writer");
        save(&writer, 3).await;
        let prune = CheckpointPrune { prune_covered_before: 1.into(), preserve_latest_terminal: false };
        let list = json!({
            "checkpoint_id": "in the batch", "checkpoint_seq": 7, "covers_journal_seq": 0, "schema_version": 1,
            "messages": [], "state": null,
        });
        let mut saved: LoopCheckpoint = serde_json::from_value(list).expect("a checkpoint");
        saved.state_hash = saved.content_hash();
        let records = vec![writer.draft(None, prune).expect("a record"), writer.draft(None, saved).expect("a record")];
        writer.batch(RecordId::new("batch".to_owned()).expect("an id"), records).await.expect("a batch");
        assert_eq!(writer.next().await.expect("numbers").1, 8);
        save(&writer, 4).await;
        assert_latest(&backend, 4).await;
        // It may build on the one in the batch, which has no messages.
        assert_eq!(brought(&backend).await.0, 4);
    }
}
