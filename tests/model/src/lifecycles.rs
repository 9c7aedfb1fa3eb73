//! What has a key and goes through states: approvals, wakes, run messages, proposals, and write-backs.
//!
//! ```text
//! approval     requested → dispatch_intent → dispatch_result, then or before: responded | denied
//! wake         registered → triggered | timed_out | cancelled | failed
//! run_message  accepted → delivered, then or before: responded | failed | timed_out | expired | cancelled
//! proposal     pending → approved → applied → reverted;  pending → denied
//! write_back   staged → committed | rejected;  a rejection of anything else is evidence
//! ```

use crate::{
    record::{payload_type, same_payload, text},
    rule::{Rule, Rules},
    run::{Entry, Reason, Run},
};
use serde_json::Value;

/// A family of lifecycles: its payload type and the rule of its steps.
const FAMILIES: [(&str, Rule); 4] = [
    ("approval", Rule::ApprovalTransition),
    ("wake", Rule::WakeTransition),
    ("run_message", Rule::MessageTransition),
    ("code_edit_proposal", Rule::ProposalTransition),
];

/// The key and the state that a record gives it.
pub(crate) fn key_and_state(record: &Value) -> (&str, &str) {
    let pointers = match payload_type(record) {
        "approval" => {
            let requested = "/payload/record/request/approval_request_id";
            let key = if text(record, "/payload/record_type") == "requested" {
                requested
            } else {
                "/payload/record/request_id"
            };
            [key, "/payload/record_type"]
        }
        "wake" => ["/payload/condition_id", "/payload/trigger_status"],
        "run_message" => ["/payload/message_id", "/payload/delivery_status"],
        _ => ["/payload/request_id", "/payload/status"],
    };
    (text(record, pointers[0]), text(record, pointers[1]))
}

/// Whether `to` may follow `from`; empty is before the first state.
fn legal(family: &str, from: &str, to: &str) -> bool {
    match family {
        "approval" => match to {
            "requested" => from.is_empty(),
            "dispatch_intent" => from == "requested",
            "dispatch_result" => from == "dispatch_intent",
            _ => matches!(from, "requested" | "dispatch_intent" | "dispatch_result"),
        },
        "wake" => from == if to == "registered" { "" } else { "registered" },
        "run_message" => match to {
            "accepted" => from.is_empty(),
            "delivered" => from == "accepted",
            _ => matches!(from, "accepted" | "delivered"),
        },
        _ => match to {
            "pending" => from.is_empty(),
            "approved" | "denied" => from == "pending",
            "applied" => from == "approved",
            _ => from == "applied",
        },
    }
}

/// The states of a family in a run: the last record of each key, in the order of the first ones.
pub(crate) fn states<'a>(run: &'a Run, family: &str) -> Vec<(&'a str, &'a Entry)> {
    let mut states: Vec<(&str, &Entry)> = Vec::new();
    for entry in run.of_type(family) {
        let key = key_and_state(&entry.record).0;
        match states.iter_mut().find(|(known, _)| *known == key) {
            Some(state) => state.1 = entry,
            None => states.push((key, entry)),
        }
    }
    states
}

/// Whether a record is an illegal step of its lifecycle. The same step again is none.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let (family, rule) = *FAMILIES.iter().find(|(family, _)| *family == payload_type(record))?;
    let (key, to) = key_and_state(record);
    let last = states(run, family).into_iter().find(|(known, _)| *known == key).map(|(_, entry)| &entry.record);
    let from = last.map_or("", |last| key_and_state(last).1);
    let again = last.is_some_and(|last| same_payload(last, record));
    rules.fires(rule, !again && !legal(family, from, to)).then_some(Reason::Transition)
}

/// A transaction's key: the number is the session's.
pub(crate) fn transaction(record: &Value) -> (&str, u64) {
    (text(record, "/session_id"), crate::record::number(record, "/payload/txn"))
}

/// Which record staged the transaction, and whether it is still open.
pub(crate) fn staged<'a>(rules: &Rules, run: &'a Run, key: (&str, u64)) -> Option<(&'a Entry, bool)> {
    let mut staged = None;
    let write_backs = run.applied().filter(|entry| entry.kind.starts_with("write_back_"));
    for entry in write_backs.filter(|entry| transaction(&entry.record) == key) {
        match (entry.kind.as_str(), &mut staged) {
            ("write_back_staged", none @ None) => *none = Some((entry, true)),
            ("write_back_committed", Some((_, open))) => *open = false,
            ("write_back_rejected", Some((_, open))) if rules.fires(Rule::RejectionTaken, true) => *open = false,
            _ => {}
        }
    }
    staged
}

/// Staged once, and committed only while open.
pub(crate) fn write_back_refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let known = || staged(rules, run, transaction(record));
    match payload_type(record) {
        "write_back_staged" => rules.fires(Rule::StagedOnce, known().is_some()).then_some(Reason::Transition),
        "write_back_committed" => {
            let open = known().is_some_and(|(_, open)| open);
            rules.fires(Rule::NotStaged, !open).then_some(Reason::NotStaged)
        }
        _ => None,
    }
}

/// The entries that staged what is still open, in log order.
pub(crate) fn open_write_backs<'a>(rules: &Rules, run: &'a Run) -> Vec<&'a Entry> {
    let mut open = Vec::new();
    for entry in run.of_type("write_back_staged") {
        let state = staged(rules, run, transaction(&entry.record));
        if state.is_some_and(|(first, is_open)| is_open && std::ptr::eq(first, entry)) {
            open.push(entry);
        }
    }
    open
}
