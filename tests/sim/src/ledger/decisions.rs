//! Decisions of operators: what they know, and the requirements for what is applied.

use super::{Ledger, excuses};
use crate::ambient;
use runlog_schemas::{
    id::{Offset, PartitionId},
    payload::EffectResolution,
};

/// A process counts as active for so long after its last record, milliseconds.
const ACTIVE: u64 = 30_000;

/// How the text of a failed effect begins, and the text of a decision that gives a call up.
const FAILED: [&str; 2] = ["refused: ", "given_up: "];

/// The decision that an operator is about to make.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) request: String,
    /// The log's end when its author's question was answered.
    pub(crate) seen: Offset,
    pub(crate) result: Option<String>,
    /// Whether it states a basis, and the basis is current.
    pub(crate) current: bool,
    /// Whether it is made although the effect's process may be alive.
    pub(crate) forced: bool,
    /// The epoch and the last write of the effect's process when the decision is sent, if that process has the run.
    pub(crate) alive: Option<(u64, u64)>,
}

/// An operator's knowledge about a call.
#[derive(Clone, Debug)]
pub(crate) struct Phoned {
    /// The process that has the run is at work on it.
    pub(crate) busy: bool,
    /// It happened, according to current knowledge.
    pub(crate) happened: bool,
    pub(crate) result: Option<String>,
}

impl Ledger {
    /// An operator decides. Returns the number by which the decision names its author.
    pub(crate) fn decides(&mut self, decided: Decided) -> usize {
        let alive = self.alive(&decided.request);
        self.decisions.push(Decided { alive, ..decided });
        self.decisions.len() - 1
    }

    /// The operator's decision that a record contains.
    pub(super) fn decision(&self, resolution: &EffectResolution) -> Option<&Decided> {
        // With tokens, the server adds the principal.
        let who = resolution.who.strip_prefix("operator (").and_then(|who| who.strip_suffix(')'));
        let number = who.unwrap_or(&resolution.who).strip_prefix("operator-")?.parse::<usize>().ok()?;
        self.decisions.get(number)
    }

    /// A decision's result is an answer of its call from now on.
    pub(super) fn results_of_decision(&mut self, resolution: &EffectResolution) {
        let Some(decided) = self.decision(resolution) else { return };
        let (logical, result) = (self.requests.get(&decided.request).copied(), decided.result.clone());
        if let Some(((run, step), result)) = logical.zip(result) {
            for step in self.indistinguishable(run, step) {
                let results = &mut self.calls.entry((run, step)).or_default().results;
                if !results.contains(&result) {
                    results.push(result.clone());
                }
            }
        }
    }

    /// An operator's decision was applied.
    pub(super) fn check_decision(&mut self, at: (PartitionId, Offset), resolution: &EffectResolution) {
        let Some(decided) = self.decision(resolution).cloned() else { return };
        if !decided.current {
            self.fail(format!("the decision at {}:{} was made at an older state, and was applied", at.0, at.1));
        }
        self.check_active(at, &decided);
        if resolution.decision == "not_done" {
            self.check_current(at, &decided);
        }
    }

    /// A skip must not put an operator's decision into force that was refused.
    pub(super) fn check_in_force(&mut self, at: (PartitionId, Offset), resolution: &EffectResolution) {
        if let Some(request) = self.decision(resolution).map(|decided| decided.request.clone()) {
            self.fail(format!(
                "the decision at {}:{} about call {request} was refused, and a skip put it into force",
                at.0, at.1
            ));
        }
    }

    /// An unforced decision must not take effect while the process that started the effect may still record its result.
    fn check_active(&mut self, at: (PartitionId, Offset), decided: &Decided) {
        let Some((epoch, wrote)) = decided.alive.filter(|_| !decided.forced) else { return };
        let Some((run, _)) = self.requests.get(&decided.request).copied() else { return };
        let has_run = self.claims.get(&run).and_then(|claims| claims.last()).is_some_and(|claim| claim.epoch == epoch);
        let is_open = self.recovery(run)["status"] == "open";
        let age = ambient::elapsed_millis() - wrote;
        // The process may have written later, too.
        if !has_run || !is_open || age >= ACTIVE {
            return;
        }
        if self.was_deposed_since(wrote) {
            return self.excuse(excuses::DEPOSED_CHECK);
        }
        if self.displaced_at(run).is_some_and(|at| at >= wrote) {
            return self.excuse(excuses::DISPLACED_PROCESS);
        }
        self.fail(format!(
            "the decision at {}:{} about call {} was applied, and its process wrote {age} ms ago and has the run",
            at.0, at.1, decided.request
        ));
    }

    /// A `not_done` decision must not take effect after news of the effect that its author had not seen.
    fn check_current(&mut self, at: (PartitionId, Offset), decided: &Decided) {
        let Some(unseen) = self.news(&decided.request, (at.0, decided.seen), at.1) else { return };
        let what = format!("{:?} at {}:{}", unseen.what, unseen.at.0, unseen.at.1);
        self.fail(format!(
            "the decision at {}:{} that call {} did not happen was applied after {what}, which its author had not seen",
            at.0, at.1, decided.request
        ));
    }

    /// The knowledge about the call of this request. `None` if the plan has no such call.
    pub(crate) fn phone(&self, request: &str) -> Option<Phoned> {
        let (run, step) = *self.requests.get(request)?;
        let writer = self.claims.get(&run).and_then(|claims| claims.last()).and_then(|claim| claim.life);
        let busy = writer.is_some_and(|life| self.busy.contains(&(life, run, step)));
        let ran = if self.has_skip(run) {
            // The step of the request is a guess.
            self.effects.iter().rev().find(|effect| effect.request == request).map(|effect| effect.step)
        } else {
            Some(step)
        };
        let call = ran.and_then(|step| self.calls.get(&(run, step)).cloned()).unwrap_or_default();
        // A failed attempt may precede the effect that happened. After a skip, so may a decision about an equal call.
        let is_failure = |result: &&String| FAILED.iter().any(|failed| result.starts_with(failed));
        let result = call.results.iter().find(|result| !is_failure(result)).or(call.results.first());
        Some(Phoned { busy, happened: call.happened, result: result.cloned() })
    }
}
