//! Which records about an effect are refused, and why.

use super::{Effect, Evidence, KINDS, answered_effect, run_effects, skips};
use crate::{
    record::{hidden, number, payload_type, same_payload, text, value_at},
    rule::{Rule, Rules},
    run::{Reason, Run},
};
use serde_json::Value;

/// Refuses a record that answers an absent or finished request.
pub(crate) fn refusal(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let kind = payload_type(record);
    let rule = match kind {
        "tool_call_requested" => return not_requestable(rules, run, record),
        "effect_resolution" => Rule::ResolutionTransition,
        "tool_call_attempt" | "tool_call_completed" | "tool_call_failed" => Rule::CallTransition,
        _ => return None,
    };
    let effects = run_effects(rules, run);
    let effect = answered_effect(rules, &effects, record).map(|at| &effects[at]);
    let ended_by = effect.filter(|effect| !effect.pending()).map(|effect| &run.entries[effect.set_by].record);
    let result = matches!(kind, "tool_call_completed" | "tool_call_failed");
    let again = result && ended_by.is_some_and(|first| same_payload(first, record));
    if rules.fires(Rule::SameCompletion, again) {
        return None;
    }
    let adopts_nothing = kind == "effect_resolution"
        && text(record, "/payload/decision") == "adopt"
        && effect.is_some_and(|effect| effect.adoptable(rules, record).is_none());
    let answers_nothing = effect.is_none_or(|effect| !effect.pending());
    if rules.fires(rule, answers_nothing || adopts_nothing) {
        return Some(Reason::Transition);
    }
    let effect = effect.filter(|effect| effect.pending())?;
    match kind {
        "tool_call_attempt" => not_permitted(rules, run, effect, record),
        _ if not_started_here(rules, run, effect, record) => Some(Reason::NotStartedHere),
        "effect_resolution" => not_as_seen(rules, run, effect, record),
        _ => None,
    }
}

/// Whether a record that is limited to its handle's own effects is about another handle's effect.
fn not_started_here(rules: &Rules, run: &Run, effect: &Effect, record: &Value) -> bool {
    let limited = value_at(record, "/facts/only_own") == Some(&Value::Bool(true));
    let void = rules.fires(Rule::SkippedStartIsForeign, effect.void_start);
    if !limited || effect.kind != KINDS[0] || (!void && effect.last_epoch >= run.handle_since(rules)) {
        return false;
    }
    let any_handle =
        rules.fires(Rule::UncommittedStart, !effect.committed) || rules.fires(Rule::Observed, effect.observed);
    rules.fires(Rule::NotStartedHere, !any_handle)
}

/// Refuses a request under the id of a call that a skip left, and one that waits for undecided calls.
fn not_requestable(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    let id = text(record, "/record_id");
    let known =
        skips::has_skip(run) && run_effects(rules, run).iter().any(|effect| effect.kind == KINDS[0] && effect.id == id);
    if rules.fires(Rule::RequestOfVoidCall, known) {
        return Some(Reason::Transition);
    }
    unresolved(rules, run, record)
}

/// Refuses a request that waits for undecided calls of earlier epochs, while such a call exists.
fn unresolved(rules: &Rules, run: &Run, record: &Value) -> Option<Reason> {
    if text(record, "/facts/unresolved") != "refuse" {
        return None;
    }
    let epoch = run.writer().epoch;
    let waits = |effect: &Effect| {
        let undecided = effect.kind == KINDS[0] && effect.pending() && !effect.retry_safe(rules);
        let void = rules.fires(Rule::SkippedStartIsForeign, effect.void_start && effect.last_epoch == epoch);
        undecided && !rules.fires(Rule::IntentOfEpoch, effect.last_epoch == epoch && !void)
    };
    let refuses = run_effects(rules, run).iter().any(waits);
    rules.fires(Rule::IntentRefuses, refuses).then_some(Reason::Unresolved)
}

/// Refuses an attempt with a basis if the call may not run again.
fn not_permitted(rules: &Rules, run: &Run, effect: &Effect, record: &Value) -> Option<Reason> {
    let basis = value_at(record, "/facts/basis").and_then(Value::as_str)?;
    let given = number(record, if hidden(record) { "/facts/attempt" } else { "/payload/attempt" });
    let refused = rules.fires(Rule::AttemptPermitted, !effect.retry_safe(rules))
        || rules.fires(Rule::AttemptBasis, basis != effect.newest)
        || rules.fires(Rule::NothingBeforeSkip, effect.is_before_skip(run))
        || rules.fires(Rule::AttemptNumber, given != u64::from(effect.starts) + 1);
    refused.then_some(Reason::Transition)
}

/// Refuses a decision that was made at another state of its effect. A decision that names no state applies to any
/// state.
fn not_as_seen(rules: &Rules, run: &Run, effect: &Effect, record: &Value) -> Option<Reason> {
    let fact = |name: &str| value_at(record, &format!("/facts/{name}"));
    let says = ["revision", "evidence", "epoch", "principal", "basis"].into_iter().any(|name| fact(name).is_some());
    let basis = fact("basis").and_then(Value::as_str);
    let revision = fact("revision").and_then(Value::as_u64);
    let late = revision.is_some_and(|revision| revision < effect.revision);
    let stale = if basis.is_some() { Rule::RevisionBesideBasis } else { Rule::StaleDecision };
    if rules.fires(Rule::NothingBeforeSkip, effect.is_before_skip(run))
        || rules.fires(Rule::DecisionAfterSkip, effect.void_newest && basis.is_none() && fact("revision").is_none())
        || rules.fires(Rule::DecisionBasis, basis.is_some_and(|basis| basis != effect.newest))
        || rules.fires(stale, late)
    {
        return Some(Reason::StaleDecision);
    }
    let adoptable = effect.adoptable(rules, record).map(|at| &effect.evidence[at]);
    let names =
        |evidence: &Evidence| fact("evidence").and_then(Value::as_str) == Some(text(&evidence.result, "/record_id"));
    let unnamed = says && !adoptable.is_some_and(names);
    let decision = text(record, "/payload/decision");
    let adopts = rules.fires(Rule::AdoptNamesEvidence, unnamed && decision == "adopt");
    let happened = adoptable.is_some_and(Evidence::happened);
    let denies = rules.fires(Rule::NotDoneNamesEvidence, unnamed && happened && decision == "not_done");
    (adopts || denies).then_some(Reason::Transition)
}
