//! Refused results: evidence while their effect is pending, afterwards contradictions of its end.

use super::{Effect, epoch, is_effect};
use crate::{
    lifecycles::{self, Family},
    record::{answers, payload_type, same_payload, text},
    rule::{Rule, Rules},
    run::{Entry, Reason, Run},
};
use serde_json::Value;
use std::collections::HashSet;

/// How much evidence is kept of one effect.
pub(crate) const EVIDENCE_MAX: usize = 16;

/// Results that say that an effect happened.
const HAPPENED: [&str; 3] = ["completed", "deduped", "result_rewritten"];

/// A refused result.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// The entry that it came in.
    pub(crate) entry: usize,
    /// Its index within the offset.
    pub(crate) index: u32,
    pub(crate) status: String,
    pub(crate) result: Value,
    pub(crate) content: String,
    /// Whether no other evidence that is kept has its id.
    pub(super) first: bool,
    /// The epoch of the start that its process made, if it made one.
    pub(super) start: Option<u64>,
}

impl Evidence {
    pub(super) fn happened(&self) -> bool {
        HAPPENED.contains(&self.status.as_str())
    }

    /// Whether another result is this one again: the same record id and content, unless only the other is of a process that started the
    /// effect.
    fn covers(&self, rules: &Rules, other: &Self) -> bool {
        let id = |one: &Self| text(&one.result, "/record_id").to_owned();
        let copied = self.start.is_none() && other.start.is_some();
        id(self) == id(other) && self.content == other.content && !rules.fires(Rule::EvidenceCopied, copied)
    }
}

impl Effect {
    /// A refused result that came after the end, and was not applied. It contradicts the end unless it was evidence before, or
    /// the effect was given up and it does not say that the effect happened.
    fn contradict(&mut self, rules: &Rules, result: Evidence) {
        let kept_before = self.evidence.iter().chain(&self.contradicting).any(|other| other.covers(rules, &result));
        if rules.fires(Rule::ContradictionKept, !kept_before && (!self.given_up || result.happened())) {
            self.add_contradiction(rules, result);
        }
    }

    fn add_contradiction(&mut self, rules: &Rules, result: Evidence) {
        self.contradictions += 1;
        self.contradicting.push(Evidence { first: false, ..result });
        make_room(rules, &mut self.contradicting, &self.start_epochs, false);
    }

    /// The result `record` has just ended the effect. Evidence that the effect happened contradicts it, unless the result could have been
    /// applied after that evidence.
    pub(super) fn contradict_by_evidence(&mut self, rules: &Rules, record: &Value, family: Option<&Family>) {
        for one in self.evidence.clone() {
            let marker = [record, &one.result].into_iter().any(|result| payload_type(result) == "terminal_result");
            let marks = marker && one.status == self.status;
            let follows = family.is_some_and(|family| family.may_follow(&one.status, &self.status));
            let agrees = marks || follows || same_payload(&one.result, record);
            if rules.fires(Rule::EvidenceContradicts, one.happened() && !agrees) {
                self.add_contradiction(rules, one);
            }
        }
    }
}

/// The epoch of the start that the writer of a result made: the result's own epoch, otherwise the last start in an epoch that the same
/// principal claimed.
fn start_of(rules: &Rules, effect: &Effect, entries: &[Entry], result: &Value) -> Option<u64> {
    let own = epoch(result);
    if effect.start_epochs.contains(&own) {
        return Some(own);
    }
    let claimant = |of: u64| {
        let claim = |entry: &&Entry| entry.counts() && entry.kind == "run_claim" && epoch(&entry.record) == of;
        entries.iter().rev().find(claim)?.claimant.clone()
    };
    let principal = claimant(own)?;
    let start = effect.start_epochs.iter().rev().copied().find(|start| claimant(*start).as_ref() == Some(&principal));
    start.filter(|_| rules.fires(Rule::EvidenceOfPrincipal, true))
}

/// The results that others never replace. Each start keeps one result of its process: the first that says that the effect
/// happened, otherwise the first failure.
fn protected_by_starts(results: &[Evidence], start_epochs: &[u64]) -> HashSet<usize> {
    let mut protected = HashSet::new();
    for by in start_epochs {
        let of_start = |at: &usize| results[*at].start == Some(*by) && !protected.contains(at);
        let own: Vec<usize> = (0..results.len()).filter(of_start).collect();
        protected.extend(own.iter().find(|at| results[**at].happened()).or(own.first()));
    }
    protected
}

/// Discards a result beyond the limit, among the first of each id or among the others. Results that say the effect
/// happened are discarded last, older ones first. A result of a start only leaves the first of each id. Returns whether one
/// was discarded.
fn make_room(rules: &Rules, results: &mut Vec<Evidence>, start_epochs: &[u64], first: bool) -> bool {
    if results.iter().filter(|one| one.first == first).count() <= EVIDENCE_MAX {
        return false;
    }
    let protected = protected_by_starts(results, start_epochs);
    let is_kept = |at: usize| protected.contains(&at) && rules.fires(Rule::EvidenceOfStart, true);
    let in_group = |at: &usize| results[*at].first == first && (first || !is_kept(*at));
    let of_group: Vec<usize> = (0..results.len()).filter(in_group).collect();
    if !rules.fires(Rule::EvidenceMakesRoom, of_group.len() > EVIDENCE_MAX) {
        return false;
    }
    let least = *of_group.iter().find(|at| !results[**at].happened()).unwrap_or(&of_group[0]);
    if is_kept(least) {
        results[least].first = false;
        return false;
    }
    results.remove(least);
    true
}

/// A refused result is kept: as evidence while its effect is pending, and where it contradicts the end. `after_skip`: in a run with a skip.
/// The result is the entry's record at `index`. Returns whether it is new evidence.
pub(super) fn keep(
    rules: &Rules,
    effects: &mut [Effect],
    run: &Run,
    (at, index): (usize, u32),
    record: &Value,
    (reason, after_skip): (Reason, bool),
) -> bool {
    if reason == Reason::WrongPartition || (reason == Reason::Batch && !rules.fires(Rule::EvidenceOfBatch, true)) {
        return false;
    }
    let entry = &run.entries[at];
    let Some((kind, id, status)) = result_of(rules, record) else { return false };
    let Some(effect) = effects.iter_mut().find(|effect| effect.kind == kind && effect.id == id) else { return false };
    let content = entry.content(index, record);
    let start = start_of(rules, effect, &run.entries[..at], record);
    let result = Evidence { entry: at, index, status, result: record.clone(), content, first: false, start };
    if effect.pending() {
        return evidence(rules, effect, (reason, after_skip), result);
    }
    let same =
        |other: &Entry| other.id == text(record, "/record_id") && other.content(0, &other.record) == result.content;
    let applied = run.entries[..at].iter().any(|other| other.counts() && same(other));
    let marks = payload_type(record) == "terminal_result" && result.status == effect.status;
    if !applied && !marks {
        effect.contradict(rules, result);
    }
    false
}

/// Keeps a refused result of a pending effect once, and returns whether it is new. It cancels a `not_done` decision. In a run without a skip, decisions without a basis
/// do not count a result that is refused for its numbers.
fn evidence(rules: &Rules, effect: &mut Effect, (reason, after_skip): (Reason, bool), mut result: Evidence) -> bool {
    let rule = match reason {
        Reason::Fenced => Rule::EvidenceFenced,
        Reason::Ended => Rule::EvidenceEnded,
        Reason::NotStartedHere => Rule::EvidenceNotStartedHere,
        Reason::Batch => Rule::EvidenceOfBatch,
        _ => Rule::EvidenceOfNumbers,
    };
    // A result in a malformed batch is never counted: versions 1 and 2 did not keep it.
    let of_batch = reason == Reason::Batch;
    let uncounted = of_batch || (rule == Rule::EvidenceOfNumbers && !rules.fires(Rule::EvidenceAfterSkip, after_skip));
    let same_id = |other: &Evidence| text(&other.result, "/record_id") == text(&result.result, "/record_id");
    let id_known = effect.evidence.iter().any(|other| other.first && same_id(other));
    let same = effect.evidence.iter().position(|other| other.covers(rules, &result));
    let is_known = same.is_some() && (id_known || uncounted);
    if is_known || (id_known && !rules.fires(Rule::EvidenceOfSameId, true)) || !rules.fires(rule, true) {
        return false;
    }
    if let Some(same) = same {
        effect.evidence.remove(same);
    }
    result.first = !uncounted && !rules.fires(Rule::EvidenceById, id_known);
    effect.revision += u64::from(result.first);
    effect.newest = effect.basis_after(rules, result.content.clone());
    effect.void_newest = effect.void_newest && of_batch;
    effect.evidence.push(result);
    for first in [true, false] {
        effect.discarded += u64::from(make_room(rules, &mut effect.evidence, &effect.start_epochs, first));
    }
    effect.take_back(rules);
    true
}

/// The result that a record states: the effect's kind, its id, the status.
pub(super) fn result_of(rules: &Rules, record: &Value) -> Option<(&'static str, String, String)> {
    match payload_type(record) {
        "tool_call_completed" => Some(("tool_call", answers(record).to_owned(), "completed".to_owned())),
        "tool_call_failed" => Some(("tool_call", answers(record).to_owned(), "failed".to_owned())),
        _ => {
            let change = lifecycles::state_change(rules, record)?;
            let ends = is_effect(change.family) && change.family.ends(&change.state);
            ends.then_some((change.family.name, change.key.id, change.state))
        }
    }
}
