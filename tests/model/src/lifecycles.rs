//! Items with a key that move from state to state, by the table in the specification; and their current states.
//!
//! ```text
//!   absent ─▶ open, never backwards ─▶ ended   (after an end only the states of `may_follow`)
//! ```

use crate::{
    effects,
    record::{self, number, payload_type, same_payload, text},
    rule::{Rule, Rules},
    run::{Reason, Run},
};
use serde_json::Value;
use std::sync::Arc;

/// A row of the table.
#[derive(Debug, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// The open states, in their order; the states of a group are equal.
    open: &'static [&'static [&'static str]],
    ended: &'static [&'static str],
    /// The rule that refuses a record which contradicts an end.
    rule: Rule,
}

/// The ends of the contract's effects.
const EFFECT_ENDS: &[&str] = &["completed", "failed", "timed_out", "cancelled", "denied_before_execution"];

/// The table.
const FAMILIES: [Family; 9] = [
    Family { name: "effect", open: &[&["intent"], &["unknown"]], ended: EFFECT_ENDS, rule: Rule::EffectTransition },
    Family {
        name: "tool",
        open: &[&["requested", "request_modified"], &["intent_recorded"], &["unknown"], &["recovery_required"]],
        ended: &["completed", "failed", "timed_out", "cancelled", "denied_before_execution", "result_rewritten"],
        rule: Rule::ToolTransition,
    },
    Family {
        name: "output_delivery",
        open: &[&["requested"], &["reconciliation_needed"]],
        ended: &["completed", "failed", "deduped", "host_configuration_needed", "policy_denied", "skipped_optional"],
        rule: Rule::DeliveryTransition,
    },
    Family {
        name: "approval",
        open: &[&["requested"], &["dispatch_intent_recorded"], &["dispatched"], &["recovery_required"]],
        ended: &["approved", "approved_for_session", "denied", "timed_out", "cancelled", "dispatcher_unavailable"],
        rule: Rule::ApprovalTransition,
    },
    Family {
        name: "wake",
        open: &[&["registered"]],
        ended: &["triggered", "timed_out", "cancelled", "failed"],
        rule: Rule::WakeTransition,
    },
    Family {
        name: "run_message",
        open: &[&["accepted"]],
        ended: &["delivered", "responded", "failed", "timed_out", "expired", "cancelled"],
        rule: Rule::MessageTransition,
    },
    Family { name: "write_back", open: &[&["staged"]], ended: &["committed", "rejected"], rule: Rule::StagedOnce },
    Family {
        name: "code_edit_proposal",
        open: &[&["pending"], &["approved"]],
        ended: &["denied", "applied", "reverted"],
        rule: Rule::ProposalTransition,
    },
    Family {
        name: "agent_pool",
        open: &[&["created"], &["run_joined"]],
        ended: &["run_left"],
        rule: Rule::PoolReturned,
    },
];

impl Family {
    /// The rank of an open state in the order; `None` for other words.
    pub(crate) fn rank(&self, state: &str) -> Option<usize> {
        self.open.iter().position(|group| group.contains(&state))
    }

    pub(crate) fn ends(&self, state: &str) -> bool {
        self.ended.contains(&state)
    }

    fn knows(&self, state: &str) -> bool {
        self.rank(state).is_some() || self.ends(state)
    }

    /// Whether the state `to` may follow the end `from`.
    pub(crate) fn may_follow(&self, from: &str, to: &str) -> bool {
        match self.name {
            "tool" => to == "result_rewritten" && matches!(from, "completed" | "failed" | "result_rewritten"),
            "output_delivery" => from == to || (from == "completed" && to == "deduped"),
            "approval" => from == to,
            "run_message" => {
                (from == "delivered" && self.ends(to))
                    || (from == "responded" && matches!(to, "delivered" | "responded"))
            }
            "write_back" => to == "rejected",
            "code_edit_proposal" => {
                (from == "denied" && to == "denied") || (from != "denied" && matches!(to, "applied" | "reverted"))
            }
            "agent_pool" => self.knows(to),
            _ => false,
        }
    }

    /// Whether a legal record with the state `to` moves an item in the state `from`.
    pub(crate) fn moves(&self, rules: &Rules, from: Option<&str>, to: &str) -> bool {
        if rules.fires(Rule::UnknownWord, !self.knows(to)) {
            return false;
        }
        let Some(from) = from else { return true };
        match (self.name, from, to) {
            ("write_back", "committed", "rejected") => !rules.fires(Rule::CommitStands, true),
            ("run_message", "responded", "delivered")
            | ("agent_pool", "run_left", "created")
            | ("output_delivery", "completed", "deduped") => false,
            ("agent_pool", "run_left", "run_joined") => rules.fires(Rule::PoolReturned, true),
            _ => {
                let back = self.rank(to) < self.rank(from) && self.rank(to).is_some();
                !rules.fires(Rule::NeverBack, back)
            }
        }
    }
}

/// A key within a run: an id, and for a write-back the epoch, in which transactions count from 0 again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) epoch: Option<u64>,
}

/// The state change that a record states.
#[derive(Debug)]
pub(crate) struct StateChange {
    pub(crate) family: &'static Family,
    pub(crate) key: Key,
    pub(crate) state: String,
}

/// The state change that a record states; `None` if it states none.
pub(crate) fn state_change(rules: &Rules, record: &Value) -> Option<StateChange> {
    let (name, id, state) = words(record)?;
    let taken_back = record::value_at(record, "/validity/is_valid") == Some(&Value::Bool(false));
    if name == "code_edit_proposal" && rules.fires(Rule::ProposalTakenBack, taken_back) {
        return None;
    }
    let family = FAMILIES.iter().find(|family| family.name == name)?;
    let epoch = (name == "write_back").then(|| number(record, "/writer_epoch"));
    (!id.is_empty()).then_some(StateChange { family, key: Key { id, epoch }, state })
}

/// Family, id and state, from the payload type's own members.
fn words(record: &Value) -> Option<(&'static str, String, String)> {
    let of = |name: &'static str, id: &str, state: &str| {
        Some((name, text(record, id).to_owned(), text(record, state).to_owned()))
    };
    let is = |name: &'static str, id: &str, state: &str| Some((name, text(record, id).to_owned(), state.to_owned()));
    match payload_type(record) {
        "effect_intent" => is("effect", "/payload/effect_id", "intent"),
        "effect_result" | "terminal_result" => of("effect", "/payload/effect_id", "/payload/terminal_status"),
        "tool" => of("tool", "/payload/tool_call_id", "/payload/status"),
        "output_delivery" => {
            let id = "/payload/record/delivery_id";
            match text(record, "/payload/record_type") {
                "intent" => is("output_delivery", id, "requested"),
                "result" => of("output_delivery", id, "/payload/record/dispatch_status"),
                "dedupe" => of("output_delivery", id, "/payload/record/current_status"),
                "reconciliation" => of("output_delivery", id, "/payload/record/terminal_status"),
                _ => None,
            }
        }
        "approval" => {
            let id = "/payload/record/request_id";
            match text(record, "/payload/record_type") {
                "requested" => is("approval", "/payload/record/request/approval_request_id", "requested"),
                "dispatch_intent" => is("approval", id, "dispatch_intent_recorded"),
                "dispatch_result" => of("approval", id, "/payload/record/lifecycle_status"),
                "responded" => of("approval", id, "/payload/record/decision/decision"),
                "denied" => is("approval", id, "denied"),
                _ => None,
            }
        }
        "wake" => of("wake", "/payload/condition_id", "/payload/trigger_status"),
        "run_message" => of("run_message", "/payload/message_id", "/payload/delivery_status"),
        phase @ ("write_back_staged" | "write_back_committed" | "write_back_rejected") => {
            let txn = number(record, "/payload/txn").to_string();
            Some(("write_back", txn, phase.trim_start_matches("write_back_").to_owned()))
        }
        "code_edit_proposal" => of("code_edit_proposal", "/payload/request_id", "/payload/status"),
        "agent_pool" => of("agent_pool", "/payload/pool_id", "/payload/lifecycle_status"),
        _ => None,
    }
}

/// The current state of an item. Numbers are indices of the run's entries.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) family: &'static Family,
    pub(crate) key: Key,
    pub(crate) state: String,
    pub(crate) began: usize,
    pub(crate) set_by: usize,
}

impl Item {
    pub(crate) fn ended(&self) -> bool {
        self.family.ends(&self.state)
    }
}

/// The current state of every item that is no effect, in the order of the first records.
pub(crate) fn run_items(rules: &Rules, run: &Run) -> Arc<Vec<Item>> {
    run.items.over(run.entries.len(), || walk(rules, run))
}

fn walk(rules: &Rules, run: &Run) -> Vec<Item> {
    let mut all: Vec<Item> = Vec::new();
    for (at, entry) in run.entries.iter().enumerate().filter(|(_, entry)| entry.counts()) {
        let Some(change) = state_change(rules, &entry.record).filter(|change| !effects::is_effect(change.family))
        else {
            continue;
        };
        let own = all.iter().position(|other| other.family == change.family && other.key == change.key);
        let Some(found) = own.or_else(|| left_open(rules, &all, &change)) else {
            if change.family.moves(rules, None, &change.state) {
                all.push(Item { family: change.family, key: change.key, state: change.state, began: at, set_by: at });
            }
            continue;
        };
        let item = &mut all[found];
        let again =
            item.ended() && item.state == change.state && same_payload(&run.entries[item.set_by].record, &entry.record);
        let rejects = change.family.name == "write_back" && change.state == "rejected";
        let lost = rejects && !rules.fires(Rule::RejectionTaken, true);
        if !again && !lost && change.family.moves(rules, Some(&item.state), &change.state) {
            item.state = change.state;
            item.set_by = at;
        }
    }
    all
}

/// The newest open write-back of a number that a rejection of another epoch ends.
fn left_open(rules: &Rules, all: &[Item], change: &StateChange) -> Option<usize> {
    if change.family.name != "write_back" || change.state != "rejected" {
        return None;
    }
    let same = |other: &Item| other.family == change.family && other.key.id == change.key.id && !other.ended();
    let open = all.iter().enumerate().filter(|(_, other)| same(other));
    let newest = open.max_by_key(|(_, other)| other.key.epoch)?.0;
    rules.fires(Rule::SuccessorRejects, true).then_some(newest)
}

/// An item for judging: its state, whether that is an end, and the entry that set it.
type ItemState = Option<(String, bool, usize)>;

fn item_state(rules: &Rules, run: &Run, change: &StateChange) -> ItemState {
    if effects::is_effect(change.family) {
        return effects::effect_state(rules, run, change);
    }
    let all = run_items(rules, run);
    let item = all.iter().find(|other| other.family == change.family && other.key == change.key)?;
    Some((item.state.clone(), item.ended(), item.set_by))
}

/// Refuses a record that contradicts an end, or that commits a write-back which is not staged.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let change = state_change(rules, record)?;
    let commits = change.family.name == "write_back" && change.state == "committed";
    let Some((state, ended, set_by)) = item_state(rules, run, &change) else {
        return (commits && rules.fires(Rule::NotStaged, true)).then_some(Reason::NotStaged);
    };
    if !ended || !change.family.knows(&change.state) || change.family.may_follow(&state, &change.state) {
        return None;
    }
    let again = state == change.state && same_payload(&run.entries[set_by].record, record);
    let marks = payload_type(record) == "terminal_result" && state == change.state;
    if rules.fires(Rule::SameCompletion, again) || rules.fires(Rule::TerminalMarker, marks && !again) {
        return None;
    }
    let (rule, reason) = match commits {
        true => (Rule::NotStaged, Reason::NotStaged),
        false => (change.family.rule, Reason::Transition),
    };
    rules.fires(rule, true).then_some(reason)
}
