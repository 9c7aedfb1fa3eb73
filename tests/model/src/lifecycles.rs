//! What goes from state to state by a key, as the table in the specification has it; and where it then stands.
//!
//! ```text
//!   nothing ─▶ open, ever further ─▶ ended      (behind an end only what `may_follow` says)
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
    /// The open states, in their order; those of one group are equal.
    open: &'static [&'static [&'static str]],
    ended: &'static [&'static str],
    /// What a record breaks that contradicts an end.
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
    /// The place of an open state in the order; none for other words.
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
    fn may_follow(&self, from: &str, to: &str) -> bool {
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

    /// Whether a legal record that says `to` moves what stands at `from`.
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

/// A key within a run: an id, and of a write-back the epoch, in which transactions count from 0 again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) epoch: Option<u64>,
}

/// What a record says of what.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) family: &'static Family,
    pub(crate) key: Key,
    pub(crate) state: String,
}

/// What a record says; none where it has no part in this.
pub(crate) fn said(rules: &Rules, record: &Value) -> Option<Said> {
    let (name, id, state) = words(record)?;
    let taken_back = record::at(record, "/validity/is_valid") == Some(&Value::Bool(false));
    if name == "code_edit_proposal" && rules.fires(Rule::ProposalTakenBack, taken_back) {
        return None;
    }
    let family = FAMILIES.iter().find(|family| family.name == name)?;
    let epoch = (name == "write_back").then(|| number(record, "/writer_epoch"));
    (!id.is_empty()).then_some(Said { family, key: Key { id, epoch }, state })
}

/// Family, id and state by payload type, from where each payload has them.
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

/// Where something stands. Numbers are indices of the run's entries.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) family: &'static Family,
    pub(crate) key: Key,
    pub(crate) state: String,
    pub(crate) began: usize,
    pub(crate) set_by: usize,
}

impl Standing {
    pub(crate) fn ended(&self) -> bool {
        self.family.ends(&self.state)
    }
}

/// Where everything stands that is no effect, in the order of the first records.
pub(crate) fn standing(rules: &Rules, run: &Run) -> Arc<Vec<Standing>> {
    run.standing.over(run.entries.len(), || walk(rules, run))
}

fn walk(rules: &Rules, run: &Run) -> Vec<Standing> {
    let mut all: Vec<Standing> = Vec::new();
    for (at, entry) in run.entries.iter().enumerate().filter(|(_, entry)| entry.counts()) {
        let Some(said) = said(rules, &entry.record).filter(|said| !effects::is_effect(said.family)) else { continue };
        let own = all.iter().position(|other| other.family == said.family && other.key == said.key);
        let Some(found) = own.or_else(|| left_behind(rules, &all, &said)) else {
            if said.family.moves(rules, None, &said.state) {
                all.push(Standing { family: said.family, key: said.key, state: said.state, began: at, set_by: at });
            }
            continue;
        };
        let known = &mut all[found];
        let again = known.ended()
            && known.state == said.state
            && same_payload(&run.entries[known.set_by].record, &entry.record);
        let rejects = said.family.name == "write_back" && said.state == "rejected";
        let lost = rejects && !rules.fires(Rule::RejectionTaken, true);
        if !again && !lost && said.family.moves(rules, Some(&known.state), &said.state) {
            known.state = said.state;
            known.set_by = at;
        }
    }
    all
}

/// What a rejection ends that its own epoch did not stage: the newest open one of that number.
fn left_behind(rules: &Rules, all: &[Standing], said: &Said) -> Option<usize> {
    if said.family.name != "write_back" || said.state != "rejected" {
        return None;
    }
    let same = |other: &Standing| other.family == said.family && other.key.id == said.key.id && !other.ended();
    let open = all.iter().enumerate().filter(|(_, other)| same(other));
    let newest = open.max_by_key(|(_, other)| other.key.epoch)?.0;
    rules.fires(Rule::SuccessorRejects, true).then_some(newest)
}

/// Where one thing stands for whoever judges: its state, whether that is an end, and which entry set it.
type Stands = Option<(String, bool, usize)>;

fn stands(rules: &Rules, run: &Run, said: &Said) -> Stands {
    if effects::is_effect(said.family) {
        return effects::stands(rules, run, said);
    }
    let all = standing(rules, run);
    let known = all.iter().find(|other| other.family == said.family && other.key == said.key)?;
    Some((known.state.clone(), known.ended(), known.set_by))
}

/// Whether a record contradicts an end, or commits what is not staged.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let said = said(rules, record)?;
    let commits = said.family.name == "write_back" && said.state == "committed";
    let Some((state, ended, set_by)) = stands(rules, run, &said) else {
        return (commits && rules.fires(Rule::NotStaged, true)).then_some(Reason::NotStaged);
    };
    if !ended || !said.family.knows(&said.state) || said.family.may_follow(&state, &said.state) {
        return None;
    }
    let again = state == said.state && same_payload(&run.entries[set_by].record, record);
    let marks = payload_type(record) == "terminal_result" && state == said.state;
    if rules.fires(Rule::SameCompletion, again) || rules.fires(Rule::TerminalMarker, marks && !again) {
        return None;
    }
    let (rule, reason) = match commits {
        true => (Rule::NotStaged, Reason::NotStaged),
        false => (said.family.rule, Reason::Transition),
    };
    rules.fires(rule, true).then_some(reason)
}
