//! Skips permit nothing. A skipped record, and each record that a skip displaces, may have been applied before the skip: the effects
//! that it is about keep a trace of it, and a start that it reports may have happened.

use super::{Effect, KINDS, Reached, effect_of_request, is_effect, new_effect, refused};
use crate::{
    hashes, lifecycles,
    record::{answers, number, payload_type, text},
    rule::{Rule, Rules},
    run::{Entry, Reason, Run, Traces, Verdict},
};
use serde_json::Value;
use std::sync::Arc;

/// Whether a refused record may have been applied before a skip: it is between the skip and the record that the skip voids.
pub(super) fn displaces(rules: &Rules, reached: Reached, entry: &Entry, reason: Reason) -> bool {
    let until = match reason {
        Reason::Batch | Reason::WrongPartition => None,
        reason if is_for_a_trace(reason) => reached.until,
        Reason::Fenced => {
            let unclaimed = reached.unclaimed_until.is_some_and(|until| entry.offset < until);
            let possible = unclaimed || number(&entry.record, "/writer_epoch") >= reached.until_epoch;
            reached.renumbered_until.filter(|_| possible)
        }
        _ => reached.renumbered_until,
    };
    let until = until.filter(|until| !rules.fires(Rule::SkipEnds, entry.offset >= *until));
    rules.fires(Rule::SkipDisplaces, until.is_some())
}

/// Whether a trace of a skipped or displaced record can be the reason.
fn is_for_a_trace(reason: Reason) -> bool {
    matches!(reason, Reason::Transition | Reason::StaleDecision | Reason::NotStartedHere | Reason::Unresolved)
}

impl Reached {
    /// Takes an entry that was skipped or refused. If the skip displaces a record that is refused for a trace, later records had other
    /// numbers before the skip.
    pub(super) fn passes(&mut self, rules: &Rules, entry: &Entry) {
        match entry.verdict {
            Verdict::Skipped { renumbers, by, .. } => {
                if self.until.is_none_or(|until| until <= entry.offset) {
                    self.until_epoch = self.epoch;
                }
                self.until = self.until.max(Some(by));
                self.renumbered_until = self.renumbered_until.max(Some(by).filter(|_| renumbers));
            }
            Verdict::Refused(reason) if is_for_a_trace(reason) && displaces(rules, *self, entry, reason) => {
                self.renumbered_until = self.renumbered_until.max(self.until);
            }
            _ => {}
        }
        self.unclaimed_until = self.unclaimed_until.max(claim_skipped_by(entry));
    }
}

/// The skip of an entry that is a claim.
pub(crate) fn claim_skipped_by(entry: &Entry) -> Option<u64> {
    match entry.verdict {
        Verdict::Skipped { traces: Traces::All, renumbers: true, by } if entry.kind == "run_claim" => Some(by),
        _ => None,
    }
}

/// What a skipped record leaves, and whether its skip takes a number back, by its judgement in `with`: the run up to the record as if it
/// was not skipped. Its entry is at `at`.
pub(crate) fn without_skip(rules: &Rules, with: &Run, at: usize) -> (Traces, bool) {
    let entry = &with.entries[at];
    let mut reached = Reached::default();
    for entry in &with.entries[..at] {
        if entry.counts() && entry.kind == "run_claim" {
            reached.epoch = number(&entry.record, "/writer_epoch");
        }
        reached.passes(rules, entry);
    }
    let refused_for = |reason| {
        if displaces(rules, reached, entry, reason) {
            return Traces::All;
        }
        let evidence = matches!(reason, Reason::Fenced | Reason::Ended | Reason::NotStartedHere);
        if reason == Reason::Batch {
            return Traces::Uncounted;
        }
        let is_kept = reason != Reason::WrongPartition;
        if evidence || rules.fires(Rule::SkipOfLaterEvidence, is_kept) { Traces::Results } else { Traces::Nothing }
    };
    let traces = match entry.verdict {
        Verdict::Refused(reason) => refused_for(reason),
        Verdict::Repeat(first) => match with.entries[first].verdict {
            Verdict::Refused(reason) if displaces(rules, reached, entry, reason) => Traces::All,
            _ => Traces::Nothing,
        },
        _ => Traces::All,
    };
    let renumbers = match entry.verdict {
        Verdict::Refused(reason) => !reason.may_be_resent() && reason != Reason::WrongPartition,
        Verdict::Repeat(_) => {
            let mut before = with.clone();
            before.entries.truncate(at);
            before.next_writer_seq(rules) != with.next_writer_seq(rules)
        }
        _ => true,
    };
    let traces = if rules.fires(Rule::SkipOfRefused, traces != Traces::All) { traces } else { Traces::All };
    (traces, renumbers)
}

/// The skip that voids an entry.
fn skipped_by(entry: &Entry) -> Option<u64> {
    match entry.verdict {
        Verdict::Skipped { by, .. } => Some(by),
        _ => None,
    }
}

/// Whether a record of the run was skipped.
pub(super) fn has_skip(run: &Run) -> bool {
    run.entries.iter().any(|entry| skipped_by(entry).is_some())
}

/// Leaves the traces of a record that was skipped or displaced. The results of a displaced record are evidence instead; its records
/// count in their order.
pub(super) fn leave_traces(rules: &Rules, effects: &mut Vec<Effect>, run: &Run, (at, reached): (usize, Reached)) {
    let entry = &run.entries[at];
    for (index, record) in (0..).zip(entry.records()) {
        if text(record, "/run_id") != text(&entry.record, "/run_id") {
            continue;
        }
        let result = refused::result_of(rules, record).is_some();
        let leaves = match entry.verdict {
            Verdict::Skipped { traces: Traces::Uncounted, .. } => {
                leave_uncounted_trace(rules, effects, &entry.content(index, record), record);
                false
            }
            Verdict::Skipped { traces, .. } => traces == Traces::All || (traces == Traces::Results && result),
            Verdict::Refused(reason) => {
                let is_new = refused::keep(rules, effects, run, (at, index), record, (reason, true));
                if result {
                    leave_trace_of_end(rules, effects, (reached, entry.content(index, record)), record, is_new);
                }
                !result
            }
            _ => !result,
        };
        if leaves {
            let one = Entry { index, record: record.clone().into(), ..entry.clone() };
            leave_trace(rules, effects, run, (at, reached), &one);
        }
    }
}

/// A result in a malformed batch was skipped. Only decisions and attempts with a basis are judged by its trace.
fn leave_uncounted_trace(rules: &Rules, effects: &mut [Effect], content: &str, record: &Value) {
    let Some((kind, id, _)) = refused::result_of(rules, record) else { return };
    let of_result = |effect: &&mut Effect| effect.kind == kind && effect.id == id && effect.pending();
    if let Some(effect) = effects.iter_mut().find(of_result)
        && rules.fires(Rule::SkipOfBatch, true)
    {
        effect.newest = effect.basis_after(rules, hashes::skipped(content));
        effect.not_done = effect.not_done && !rules.fires(Rule::SkipRevokes, effect.not_done);
    }
}

/// A displaced result may have ended its effect. `is_new`: it is evidence that was not known, so it counts.
fn leave_trace_of_end(
    rules: &Rules,
    effects: &mut [Effect],
    (reached, content): (Reached, String),
    record: &Value,
    is_new: bool,
) {
    let Some((kind, id, _)) = refused::result_of(rules, record) else { return };
    let of_result = |effect: &&mut Effect| effect.kind == kind && effect.id == id && effect.pending();
    let Some(effect) = effects.iter_mut().find(of_result) else { return };
    if !is_new {
        if rules.fires(Rule::SkipPermitsNothing, true) {
            effect.newest = effect.basis_after(rules, content);
        }
        effect.revision += u64::from(rules.fires(Rule::SkippedCounts, true));
    }
    effect.void_newest |= rules.fires(Rule::SkipPermitsNothing, true);
    effect.void_until = reached.until;
    effect.not_done = effect.not_done && !rules.fires(Rule::SkipRevokes, effect.not_done);
}

/// Leaves the trace of one record, which is `one`, in the entry at `at`.
fn leave_trace(rules: &Rules, effects: &mut Vec<Effect>, run: &Run, (at, reached): (usize, Reached), one: &Entry) {
    let record = &one.record;
    let kind = payload_type(record);
    let change = lifecycles::state_change(rules, record).filter(|change| is_effect(change.family));
    let id = match kind {
        "tool_call_requested" => text(record, "/record_id").to_owned(),
        "tool_call_attempt" | "tool_call_completed" | "tool_call_failed" | "effect_resolution" => {
            answers(record).to_owned()
        }
        _ => match &change {
            Some(change) => change.key.id.clone(),
            None => return,
        },
    };
    let newest = hashes::skipped(&one.content(one.index, record));
    let starts = number(record, "/writer_epoch").min(reached.epoch);
    for effect in
        effects.iter_mut().filter(|effect| effect.id == id && effect.pending() && KINDS.contains(&effect.kind))
    {
        if rules.fires(Rule::SkipPermitsNothing, true) {
            effect.newest = effect.basis_after(rules, newest.clone());
            effect.void_newest = true;
        }
        effect.void_until = reached.until;
        effect.revision += u64::from(rules.fires(Rule::SkippedCounts, true));
        effect.not_done = effect.not_done && !rules.fires(Rule::SkipRevokes, effect.not_done);
        if kind == "tool_call_attempt" {
            effect.void_start = true;
            if starts >= effect.last_epoch {
                effect.last_epoch = starts;
                (effect.committed, effect.observed) = (true, false);
            }
        }
    }
    let knows = |name: &str| effects.iter().any(|effect| effect.kind == name && effect.id == id);
    let begun = match &change {
        _ if kind == "tool_call_requested" && !knows(KINDS[0]) => effect_of_request(effects, at, one),
        Some(change) if !knows(change.family.name) => {
            let may_have_happened = change.family.rank(&change.state).is_some()
                && !(change.family.name == "tool" && matches!(change.state.as_str(), "requested" | "request_modified"));
            if !may_have_happened {
                return;
            }
            Effect { status: change.state.clone(), ..new_effect(change.family, &id, at, one) }
        }
        _ => return,
    };
    if rules.fires(Rule::SkipKeepsStart, true) {
        let seq = run.next_journal_seq_after(rules, at + 1);
        let (committed, unapplied) = (true, Some(Arc::new(one.clone())));
        let (void_start, void_newest) = (true, true);
        let void_until = reached.until;
        let void = Effect { void_start, void_newest, void_until, newest, unapplied, ..begun };
        effects.push(Effect { seq, last_epoch: starts, committed, ..void });
    }
}
