//! Tests the transitions of all lifecycles except Runlog's own calls.

use super::{
    super::{lifecycle::Family, *},
    Applied, NoOp, Refused, Run, Word, resolution,
};
use crate::{
    draft::Draft,
    id::{Epoch, JournalSeq},
};
use serde_json::{Value, json};

/// Parses a record of `payload`, with the members of `envelope`.
fn typed(run: &Run, id: &str, payload: &Value, envelope: &Value) -> crate::record::JournalRecord {
    let mut record = json!({ "run_id": "run", "record_id": id, "agent_id": "agent", "payload": payload });
    record.as_object_mut().unwrap().extend(envelope.as_object().unwrap().clone());
    let mut made = Draft::parse(&record.to_string()).unwrap().record;
    made.place = run.next_record(id, made.payload.clone()).place;
    made.place.journal_seq =
        if made.body.record_kind.numbered() { run.head.next_journal_seq } else { JournalSeq::ZERO };
    made
}

/// Returns a family's payload that reports `status` for the object `key`.
fn says(family: Family, key: &str, status: &str) -> Value {
    let refs = json!({ "kind": "tool_call", "id": "c", "privacy": "internal" });
    let source = json!({ "kind": "sdk", "id": "s", "trust": "trusted", "privacy": "internal" });
    let destination = json!({ "kind": "tool", "id": "t", "privacy": "internal", "retention": "durable" });
    let result = json!({ "effect_id": "e", "terminal_status": "completed", "redacted_summary": "" });
    match (family, status) {
        (Family::Effect, "intent") => json!({ "type": "effect_intent", "effect_id": key, "kind": "file_write",
            "subject_ref": refs, "source": source, "redacted_summary": "" }),
        (Family::Effect, _) => json!({ "type": "effect_result", "effect_id": key, "terminal_status": status,
            "redacted_summary": "" }),
        (Family::Tool, _) => json!({ "type": "tool", "tool_call_id": key, "run_id": "run", "capability_id": "c",
            "canonical_tool_name": "write", "namespace": "n", "source": source, "destination": destination,
            "effect_class": "Write", "risk_class": "High", "privacy": "internal", "retention": "durable",
            "redacted_args_summary": "", "status": status }),
        (Family::Delivery, _) => json!({ "type": "output_delivery", "record_type": "result", "record": {
            "delivery_id": key, "effect_result": result, "destination": destination, "sink_ref": "s",
            "dispatch_status": status, "redacted_summary": "", "retry_classification": "NotRetryable" } }),
        (Family::Approval, "responded") => json!({ "type": "approval", "record_type": "responded", "record": {
            "request_id": key, "decision": { "decision": "approved", "actor_ref": source } } }),
        (Family::Approval, _) => json!({ "type": "approval", "record_type": "dispatch_result", "record": {
            "request_id": key, "lifecycle_status": status, "effect_result": result } }),
        (Family::Wake, _) => json!({ "type": "wake", "condition_id": key, "run_id": "run",
            "event_filter_fingerprint": "f", "resume_policy": "none", "trigger_status": status,
            "idempotency_key": "i" }),
        (Family::Message, _) => json!({ "type": "run_message", "message_id": key, "source_run_id": "run",
            "address_target": { "type": "run", "run_id": "b" }, "content_ref": "c", "correlation": {},
            "delivery_status": status, "idempotency_key": "i" }),
        (Family::WriteBack, "staged") => json!({ "type": "write_back_staged", "txn": key.parse::<u64>().unwrap(),
            "at": "now", "op": { "op": "save" } }),
        (Family::WriteBack, "committed") => json!({ "type": "write_back_committed",
            "txn": key.parse::<u64>().unwrap(), "at": "now" }),
        (Family::WriteBack, _) => json!({ "type": "write_back_rejected", "txn": key.parse::<u64>().unwrap(),
            "at": "now", "reason": { "reason": "destructive_op" } }),
        (Family::Proposal, _) => json!({ "type": "code_edit_proposal", "request_id": key, "diffs": [],
            "status": status }),
        (Family::Pool, _) => json!({ "type": "agent_pool", "pool_id": key, "lifecycle_status": status }),
    }
}

impl Run {
    fn say(&mut self, family: Family, key: &str, status: &str) -> Word {
        // The tag distinguishes records with the same status. It is not part of the payload.
        let id = format!("{}", self.offset);
        let mut payload = says(family, key, status);
        vary(&mut payload, self.offset);
        let record = typed(self, &id, &payload, &json!({}));
        self.take(&record)
    }

    fn say_again(&mut self, family: Family, key: &str, status: &str) -> Word {
        let record = typed(self, &format!("{}", self.offset), &says(family, key, status), &json!({}));
        self.take(&record)
    }

    fn stands(&self, family: Family, key: &str) -> Option<(&str, bool)> {
        self.states.get(&(family, key.to_owned())).map(|state| (state.status.as_str(), state.ended))
    }
}

/// Returns other payload bytes with the same meaning.
fn vary(payload: &mut Value, number: u64) {
    let target = match payload.get_mut("record") {
        Some(record) => record,
        None => payload,
    };
    for name in ["redacted_summary", "redacted_args_summary", "idempotency_key", "at", "commit_hash"] {
        if target.get(name).is_some() || name == "commit_hash" && target.get("diffs").is_some() {
            target[name] = json!(format!("{number}"));
        }
    }
    if target.get("pool_id").is_some() {
        target["topics"] = json!([format!("{number}")]);
    }
    if let Some(result) = target.get_mut("effect_result") {
        result["redacted_summary"] = json!(format!("{number}"));
    }
}

const ENDS: [(Family, &str, &[&str]); 8] = [
    (Family::Effect, "intent", &["completed", "failed", "timed_out", "cancelled", "denied_before_execution"]),
    (
        Family::Tool,
        "intent_recorded",
        &["completed", "failed", "timed_out", "cancelled", "denied_before_execution", "result_rewritten"],
    ),
    (
        Family::Delivery,
        "requested",
        &["completed", "failed", "deduped", "host_configuration_needed", "policy_denied", "skipped_optional"],
    ),
    (
        Family::Approval,
        "dispatched",
        &["approved", "approved_for_session", "denied", "timed_out", "cancelled", "dispatcher_unavailable"],
    ),
    (Family::Wake, "registered", &["triggered", "timed_out", "cancelled", "failed"]),
    (Family::Message, "accepted", &["delivered", "responded", "failed", "timed_out", "expired", "cancelled"]),
    (Family::Proposal, "pending", &["denied", "applied", "reverted"]),
    (Family::Pool, "run_joined", &["run_left"]),
];

/// The pairs of end states whose second may follow the first.
fn may_follow(family: Family, first: &str, second: &str) -> bool {
    match family {
        Family::Effect | Family::Wake | Family::WriteBack => false,
        Family::Tool => second == "result_rewritten" && matches!(first, "completed" | "failed" | "result_rewritten"),
        Family::Delivery => first == second || (first, second) == ("completed", "deduped"),
        Family::Approval | Family::Pool => first == second,
        Family::Message => {
            first == "delivered" || (first == "responded" && matches!(second, "delivered" | "responded"))
        }
        Family::Proposal => first == second || (first != "denied" && second != "denied"),
    }
}

#[test]
fn an_end_is_final_except_for_its_allowed_successors() {
    for (family, opened, ends) in ENDS {
        for first in ends {
            let mut base_run = Run::claimed("a");
            assert_eq!(base_run.say(family, "k", opened), Applied);
            assert_eq!(base_run.stands(family, "k"), Some((opened, false)), "{family:?}");
            assert_eq!(base_run.say(family, "k", opened), Applied, "an open state again");
            assert_eq!(base_run.say_again(family, "k", first), Applied, "{family:?} {first}");
            assert_eq!(base_run.stands(family, "k"), Some((*first, true)));
            for second in ends {
                let mut run = base_run.clone();
                let legal = may_follow(family, first, second);
                let word = if legal { Applied } else { Refused(Reason::Transition) };
                assert_eq!(run.say(family, "k", second), word, "{family:?}: {second} after {first}");
            }
            let again = base_run.clone().say_again(family, "k", first);
            assert_eq!(again, NoOp, "{family:?}: the same {first} again changes nothing and is no fault");
            let reopened = if family == Family::Pool { Applied } else { Refused(Reason::Transition) };
            assert_eq!(base_run.say(family, "k", opened), reopened, "{family:?}: {opened} after {first}");
            assert_eq!(base_run.say(family, "other", opened), Applied, "another key has a state of its own");
        }
    }
}

#[test]
fn an_end_without_a_beginning_is_accepted() {
    for (family, opened, ends) in ENDS {
        let mut run = Run::claimed("a");
        assert_eq!(run.say(family, "k", ends[0]), Applied, "{family:?}");
        assert_eq!(run.stands(family, "k"), Some((ends[0], true)));
        let late = if family == Family::Pool { Applied } else { Refused(Reason::Transition) };
        assert_eq!(run.say(family, "k", opened), late);
    }
}

#[test]
fn an_open_state_never_returns_to_an_earlier_state() {
    for (family, states) in [
        (Family::Effect, &["intent", "unknown"][..]),
        (Family::Tool, &["requested", "request_modified", "intent_recorded", "unknown", "recovery_required"]),
        (Family::Delivery, &["requested", "reconciliation_needed"]),
        (Family::Approval, &["requested", "dispatch_intent_recorded", "dispatched", "recovery_required"]),
        (Family::Proposal, &["pending", "approved"]),
    ] {
        let mut run = Run::claimed("a");
        for state in states {
            assert_eq!(run.say(family, "k", state), Applied, "{family:?} {state}");
            assert_eq!(run.stands(family, "k"), Some((*state, false)));
        }
        let furthest = *states.last().unwrap();
        assert_eq!(run.say(family, "k", states[0]), Applied, "{family:?}: said again, it is no contradiction");
        assert_eq!(run.stands(family, "k"), Some((furthest, false)), "{family:?}");
    }
}

#[test]
fn an_unknown_status_has_no_effect() {
    for (family, opened, ends) in ENDS {
        if family == Family::Proposal {
            continue; // Runlog's own: its words are closed.
        }
        let mut run = Run::claimed("a");
        assert_eq!(run.say(family, "k", "of_tomorrow"), Applied, "{family:?}");
        assert_eq!(run.stands(family, "k"), None);
        for status in [opened, ends[0]] {
            run.say(family, "k", status);
            let before = run.states.clone();
            assert_eq!(run.say(family, "k", "of_tomorrow"), Applied, "{family:?} after {status}");
            assert_eq!(run.states, before);
        }
    }
}

#[test]
fn a_message_to_several_is_delivered_and_answered_more_than_once() {
    let mut run = Run::claimed("a");
    for status in ["accepted", "delivered", "responded", "delivered", "responded"] {
        assert_eq!(run.say(Family::Message, "m", status), Applied, "{status}");
    }
    assert_eq!(run.stands(Family::Message, "m"), Some(("responded", true)));
    assert_eq!(run.say(Family::Message, "m", "failed"), Refused(Reason::Transition));
}

#[test]
fn a_result_and_a_response_of_an_approval_say_the_same_or_the_later_is_refused() {
    let mut run = Run::claimed("a");
    assert_eq!(run.say(Family::Approval, "k", "responded"), Applied);
    assert_eq!(run.stands(Family::Approval, "k"), Some(("approved", true)));
    assert_eq!(run.say(Family::Approval, "k", "approved"), Applied);
    assert_eq!(run.say(Family::Approval, "k", "denied"), Refused(Reason::Transition));
}

#[test]
fn only_a_staged_write_back_is_committed_and_a_rejection_is_always_accepted() {
    let family = Family::WriteBack;
    let mut run = Run::claimed("a");
    assert_eq!(run.say(family, "0", "committed"), Refused(Reason::NotStaged));
    assert_eq!(run.say(family, "0", "staged"), Applied);
    assert_eq!(run.say_again(family, "0", "committed"), Applied);
    assert_eq!(run.say_again(family, "0", "committed"), NoOp);
    assert_eq!(run.say(family, "0", "committed"), Refused(Reason::NotStaged));
    assert_eq!(run.say(family, "0", "staged"), Refused(Reason::Transition), "its number is taken");
    assert_eq!(run.say(family, "0", "rejected"), Applied);
    assert_eq!(
        run.stands(family, &lifecycle::write_back_key(Epoch::from(1), "0")),
        Some(("committed", true)),
        "a commit is final"
    );
    for before in [&[][..], &["staged"], &["rejected"]] {
        let key = format!("{}", run.offset + 100);
        before.iter().for_each(|status| assert_eq!(run.say(family, &key, status), Applied));
        assert_eq!(run.say(family, &key, "rejected"), Applied, "after {before:?}");
        assert_eq!(run.say(family, &key, "committed"), Refused(Reason::NotStaged));
    }
    // Transactions count from 0 again in every epoch.
    assert_eq!(run.say(family, "7", "staged"), Applied);
    run.take(&super::claim("c2", "b", 2));
    assert_eq!(run.say(family, "7", "committed"), Refused(Reason::NotStaged));
    assert_eq!(run.say(family, "0", "staged"), Applied);
    assert_eq!(run.say(family, "0", "committed"), Applied);
}

#[test]
fn a_retraction_does_not_change_the_state_of_a_proposal() {
    let mut run = Run::claimed("a");
    assert_eq!(run.say(Family::Proposal, "p", "denied"), Applied);
    let retracts = json!({ "validity": { "at": 5, "is_valid": false } });
    let record = typed(&run, "back", &says(Family::Proposal, "p", "applied"), &retracts);
    assert_eq!(run.take(&record), Applied);
    assert_eq!(run.stands(Family::Proposal, "p"), Some(("denied", true)));
}

fn marker(effect: &str, status: &str) -> Value {
    json!({ "type": "terminal_result", "effect_id": effect, "result_record_id": "r", "terminal_status": status })
}

#[test]
fn a_terminal_marker_agrees_with_its_effect_and_ends_the_run_by_the_runs_words() {
    let mut run = Run::claimed("a");
    run.say(Family::Effect, "e", "intent");
    run.say(Family::Effect, "e", "completed");
    let disagrees = typed(&run, "m1", &marker("e", "failed"), &json!({}));
    assert_eq!(run.take(&disagrees), Refused(Reason::Transition));
    let of_an_effect = typed(&run, "m2", &marker("f", "timed_out"), &json!({}));
    assert_eq!(run.take(&of_an_effect), Applied);
    assert_eq!(run.stands(Family::Effect, "f"), Some(("timed_out", true)));
    assert_eq!(run.head.status, RunStatus::Open);
    let agrees = typed(&run, "m3", &marker("e", "completed"), &json!({}));
    assert_eq!(run.take(&agrees), Applied);
    assert_eq!(run.head.status, RunStatus::Completed);
    assert_eq!(run.say(Family::Wake, "w", "registered"), Refused(Reason::Ended));
    // The contract's loop ends its turn after the marker.
    let turn =
        |status: &str| json!({ "type": "turn_lifecycle", "turn_id": "t", "status": status, "redacted_summary": "" });
    let begins = typed(&run, "t1", &turn("started"), &json!({}));
    assert_eq!(run.take(&begins), Refused(Reason::Ended));
    let ends = typed(&run, "t2", &turn("completed"), &json!({}));
    assert_eq!(run.take(&ends), Applied);
}

#[test]
fn the_contracts_longer_words_end_a_run_too() {
    for (word, status) in [
        ("run_completed", RunStatus::Completed),
        ("run_failed", RunStatus::Failed),
        ("run_cancelled", RunStatus::Cancelled),
    ] {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("end", lifecycle_of(word)), Applied);
        assert_eq!(run.head.status, status);
    }
}

fn lifecycle_of(status: &str) -> crate::payload::RunLifecycle {
    super::lifecycle(status)
}

#[test]
fn a_decision_on_a_contracts_effect_needs_it_to_be_pending() {
    for (family, opened, ended) in [
        (Family::Effect, "intent", "completed"),
        (Family::Tool, "intent_recorded", "failed"),
        (Family::Delivery, "requested", "completed"),
    ] {
        let mut run = Run::claimed("a");
        assert_eq!(run.add("r0", resolution("k", "not_done")), Refused(Reason::Transition), "the key is unknown");
        run.say(family, "k", opened);
        assert_eq!(run.add("r1", resolution("k", "not_done")), Applied, "{family:?}");
        assert_eq!(run.add("r2", resolution("k", "adopt")), Refused(Reason::Transition), "without evidence");
        run.states.get_mut(&(family, "k".into())).unwrap().has_counted_evidence = true;
        assert_eq!(run.add("r3", resolution("k", "adopt")), Applied);
        run.say(family, "k", ended);
        assert_eq!(run.add("r4", resolution("k", "done")), Refused(Reason::Transition));
    }
}
