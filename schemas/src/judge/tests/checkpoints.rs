//! Tests the bases of checkpoints, and the limits of their lists.

use super::{super::*, Applied, Payload, Refused, Run, checkpoint, lifecycle};
use crate::{
    json::Json,
    messages::{MESSAGES_MAX, MessageSpan},
    payload::{CheckpointPrune, LoopCheckpoint},
};
use serde_json::{Value, json};

#[test]
fn a_checkpoint_covers_no_more_than_the_head_and_needs_an_applied_base() {
    let mut run = Run::claimed("a");
    let head = u32::try_from(run.head.next_journal_seq.get()).unwrap() - 1;
    assert_eq!(run.add("x1", checkpoint("c1", head + 1, None)), Refused(Reason::Checkpoint));
    assert_eq!(run.add("x2", checkpoint("c1", head, Some("nobody's"))), Refused(Reason::Checkpoint));
    assert_eq!(run.add("x3", checkpoint("c1", head, None)), Applied);
    assert_eq!(run.add("x4", checkpoint("c2", 0, Some("c1"))), Applied);
    assert_eq!(run.add("x5", checkpoint("c2", head, None)), Refused(Reason::Checkpoint), "its id is taken");
    assert_eq!(
        run.next(),
        (8.into(), (head + 1).into()),
        "each consumed a number of its writer but no number of the run"
    );
}

/// Returns `checkpoint` with messages of these sizes and with spans of (from the base, index, count).
fn listed(id: &str, base: Option<&str>, sizes: &[usize], spans: &[(bool, u64, u64)]) -> LoopCheckpoint {
    let text = |size: &usize| Json::from(serde_json::Value::from("m".repeat(size - 2)));
    let span =
        |(from_base, from, count): &(bool, u64, u64)| MessageSpan { from_base: *from_base, from: *from, count: *count };
    let (messages, spans) = (sizes.iter().map(text).collect(), spans.iter().map(span).collect());
    LoopCheckpoint { messages, spans, ..checkpoint(id, 0, base) }
}

#[test]
fn a_checkpoints_list_is_made_of_its_own_messages_and_of_an_applied_bases_list() {
    let mut run = Run::claimed("a");
    assert_eq!(run.add("a", listed("a", None, &[9, 9, 9], &[])), Applied);
    for (number, (word, record)) in [
        // A span of the base needs a base.
        (Refused(Reason::Checkpoint), listed("x", None, &[9], &[(true, 0, 1)])),
        (Refused(Reason::Checkpoint), listed("x", Some("nobody's"), &[9], &[])),
        (Refused(Reason::Checkpoint), listed("x", Some("a"), &[], &[(true, 2, 2)])),
        (Refused(Reason::Checkpoint), listed("x", Some("a"), &[9], &[(false, 1, 1)])),
        (Refused(Reason::Checkpoint), listed("x", Some("a"), &[], &[(true, 0, 0)])),
        (Refused(Reason::Checkpoint), listed("x", Some("a"), &[], &[(true, i64::MAX as u64, i64::MAX as u64)])),
        (Applied, listed("b", Some("a"), &[9], &[(true, 1, 2), (false, 0, 1), (true, 0, 1)])),
        (Applied, listed("c", Some("b"), &[9], &[])),
        // An applied base that is not the latest checkpoint.
        (Applied, listed("d", Some("a"), &[], &[(true, 2, 1)])),
        (Refused(Reason::Checkpoint), listed("x", Some("d"), &[], &[(true, 0, 2)])),
        (Applied, listed("e", Some("c"), &[], &[(true, 0, 5)])),
        // A refused checkpoint is not a base.
        (Refused(Reason::Checkpoint), listed("x", Some("x"), &[9], &[])),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(run.add(&format!("record {number}"), record.clone()), word, "{number}: {record:?}");
    }
}

#[test]
fn a_list_is_bounded_in_messages_and_in_bytes() {
    let mut run = Run::claimed("a");
    let half = 600_000_usize;
    assert_eq!(run.add("a", listed("a", None, &[half, 9], &[])), Applied);
    let fits = MESSAGE_BYTES_MAX / half as u64;
    let repeated = |count: u64| vec![(true, 0, 1); usize::try_from(count).unwrap()];
    assert_eq!(run.add("b", listed("b", Some("a"), &[], &repeated(fits))), Applied);
    assert_eq!(run.add("c", listed("c", Some("a"), &[], &repeated(fits + 1))), Refused(Reason::Checkpoint));
    assert_eq!(run.add("d", listed("d", Some("b"), &[half], &[])), Refused(Reason::Checkpoint));
    // A list that doubles repeatedly stays within its limits.
    assert_eq!(run.add("0", listed("0", Some("a"), &[], &[(true, 1, 1)])), Applied);
    for doubling in 0..16_u32 {
        let (base, count) = (doubling.to_string(), 2_u64.pow(doubling));
        let id = (doubling + 1).to_string();
        assert_eq!(run.add(&id, listed(&id, Some(&base), &[], &[(true, 0, count); 2])), Applied, "{doubling}");
    }
    assert_eq!(2_u64.pow(16), MESSAGES_MAX);
    assert_eq!(run.add("more", listed("more", Some("16"), &[9], &[])), Refused(Reason::Checkpoint));
}

#[test]
fn a_pruned_checkpoint_is_no_base_any_more_and_its_id_stays_taken() {
    let mut run = Run::claimed("a");
    assert_eq!(run.add("a", listed("a", None, &[9], &[])), Applied);
    assert_eq!(run.add("b", listed("b", Some("a"), &[9], &[])), Applied);
    let before = run.next();
    let prune = CheckpointPrune { prune_covered_before: 99.into(), preserve_latest_terminal: false };
    assert_eq!(run.add("prune", prune.clone()), Applied);
    assert_eq!(
        run.next(),
        (before.0.saturating_add(1), before.1),
        "it consumes a number of its writer but no number of the run"
    );
    assert_eq!(run.add("c", listed("c", Some("b"), &[9], &[])), Refused(Reason::Checkpoint));
    assert_eq!(run.add("d", listed("b", None, &[9], &[])), Refused(Reason::Checkpoint));
    assert_eq!(run.add("e", listed("e", None, &[9], &[])), Applied);
    assert_eq!(run.add("end", lifecycle("completed")), Applied);
    assert_eq!(run.add("prune 2", prune), Applied, "an ended run can be pruned");
}

/// Returns a checkpoint of the run-journal contract.
pub(super) fn contracts(covers: u64) -> Payload {
    of_contract(&json!({
        "type": "checkpoint", "checkpoint_id": "c", "run_id": "run", "checkpoint_seq": 9, "covers_journal_seq": covers,
        "loop_state": "awaiting_model", "runtime_package_fingerprint": "", "state_hash": "", "created_at_millis": 0,
        "writer_id": "w",
    }))
}

/// Returns a payload of the run-journal contract.
pub(super) fn of_contract(json: &Value) -> Payload {
    serde_json::from_value(json.clone()).unwrap()
}

#[test]
fn a_contracts_checkpoint_covers_no_more_than_the_head_and_uses_no_loop_checkpoints_number() {
    let mut run = Run::claimed("a");
    let (_, journal_seq) = run.next();
    assert_eq!(run.add("c1", contracts(journal_seq.get())), Refused(Reason::Checkpoint), "it cannot cover itself");
    assert_eq!(run.add("c2", contracts(journal_seq.get())), Applied);
    assert_eq!(run.head.checkpoint_seq, 0);
}
