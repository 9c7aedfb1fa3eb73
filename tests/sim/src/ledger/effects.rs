//! Effects: when they may run, the fate of their results, and the answers to their callers.

use super::{Claim, Effect, Landed, Ledger, batches::members, excuses, failure, run_id, skips, text};
use crate::{ambient, life, plan::Via};
use runlog_producer::{Answer, Error, SideEffect};
use runlog_schemas::{
    answer::Position,
    id::{Offset, PartitionId},
    payload::Payload,
    record::JournalRecord,
};
use std::{collections::BTreeSet, fmt};

/// How long after a skip of its run's claim an effect may start, milliseconds.
const START_MAX: u64 = excuses::DECIDED_WHILE_IT_STARTED_MAX;
/// How old the answer may be after which an effect starts, milliseconds.
const READ_BACK: u64 = life::READ_BACK.as_millis() as u64;
/// A process that may hold less than this may lack the capacity for a result.
const LITTLE_BYTES: usize = 1 << 20;

/// An effect that starts.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) life: u32,
    pub(crate) run: u32,
    pub(crate) step: u32,
    /// The id of its request.
    pub(crate) request: String,
}

/// An acknowledged record, to be judged.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) run: u32,
    pub(crate) life: u32,
    pub(crate) at: (PartitionId, Offset),
    /// The receiver and the subject of the acknowledgement.
    pub(crate) what: String,
}

impl Ledger {
    /// A process begins to work on a call, or no longer does.
    pub(crate) fn works(&mut self, life: u32, run: u32, step: u32, begins: bool) {
        if begins {
            self.busy.insert((life, run, step));
        } else {
            self.busy.remove(&(life, run, step));
        }
    }

    /// A process was killed.
    pub(crate) fn died(&mut self, life: u32) {
        self.busy.retain(|(busy, ..)| *busy != life);
        self.exits(life);
    }

    /// The first claim by another process after the last one of `life`; `None` if `life` has the run, `Err` if it
    /// never had.
    pub(super) fn lost_to(&self, run: u32, life: u32) -> Result<Option<&Claim>, ()> {
        let claims = self.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        let own = claims.iter().rposition(|claim| claim.life == Some(life)).ok_or(())?;
        Ok(claims[own + 1..].first())
    }

    /// An effect starts now: its number.
    pub(crate) fn starts(&mut self, started: Started, attempt: u32, happens: bool) -> usize {
        let Started { life, run, step, request } = started;
        let now = ambient::elapsed_millis();
        let what = format!("the effect of step {step} of run {run} (call {request}) in life {life}");
        let fenced = match self.lost_to(run, life) {
            Err(()) if self.lost_claim_at(run, life).is_some_and(|at| now - at <= START_MAX) => {
                self.excuse(excuses::AFTER_SKIP);
                true
            }
            Err(()) => {
                self.fail(format!("{what} runs, and that process never had the run"));
                false
            }
            Ok(None) => false,
            Ok(Some(claim)) => {
                // Beyond a journal's control: a pause between the read-back and the effect, and a deposed leader's
                // answer.
                let (late, at) = (now - claim.at, claim.at);
                let in_time = late <= READ_BACK;
                if !in_time && !self.was_deposed_since(at.max(now - READ_BACK)) {
                    let by = claim.life;
                    self.fail(format!("{what} runs {late} ms after life {by:?} took the run over"));
                } else {
                    self.excuse(if in_time { excuses::AFTER_TAKEOVER } else { excuses::DEPOSED_GATE });
                }
                true
            }
        };
        if self.requests.get(&request) != Some(&(run, step)) {
            let of = self.requests.get(&request);
            if of.is_some_and(|of| of.0 == run && self.indistinguishable(run, of.1).contains(&step)) {
                self.excuse(excuses::EQUAL_AFTER_SKIP);
                self.requests.insert(request.clone(), (run, step));
            } else {
                self.fail(format!("{what} runs under a request that is of {of:?}"));
            }
        }
        if let Some(later) = self.started_before(life, &request, attempt) {
            self.fail(format!("{what} runs after the effect of call {later}, whose request is later in the log"));
        }
        if let Some(taken) = self.taken_call(run, step, &request) {
            if self.is_cleared_by_force(&request) {
                self.excuse(excuses::EQUAL_BY_FORCE);
            } else {
                self.fail(format!("{what} runs, and it ran as call {taken}, which a skip took away"));
            }
        }
        let older = self.unresolved.get(&life).and_then(BTreeSet::first).filter(|_| attempt == 1);
        if let Some(older) = older.filter(|_| !self.lives.get(&life).is_some_and(|life| life.allow_unresolved)).cloned()
        {
            self.fail(format!("{what} is new and runs, and call {older} is unresolved"));
        }
        if let Some(why) = self.forbids(&request, attempt, fenced) {
            self.fail(format!("{what} {why}"));
        }
        self.calls.entry((run, step)).or_default().happened |= happens;
        self.effects.push(Effect { life, run, step, request, attempt, result: None, given_up: false });
        self.effects.len() - 1
    }

    /// The call of a handle whose effect has started, although its request is later in the log: effects start in the order of the
    /// calls. Further attempts have an order of their own.
    fn started_before(&self, life: u32, request: &str, attempt: u32) -> Option<String> {
        let has_handle =
            self.lives.get(&life).is_none_or(|life| life.via != Via::Protocol && !self.is_displaced(life.run));
        let own = self.requested_at(request).filter(|_| attempt == 1 && has_handle)?;
        let started = self.effects.iter().filter(|effect| effect.life == life && effect.attempt == 1);
        let later = started.map(|effect| &effect.request).find(|other| self.requested_at(other) > Some(own));
        later.cloned()
    }

    /// The steps that make the same call as `step`, as far as the journal can tell. Equal calls differ by the order of their requests
    /// alone, which a skip breaks.
    pub(super) fn indistinguishable(&self, run: u32, step: u32) -> Vec<u32> {
        let equal = self.equal.iter().filter(|((of, _), _)| *of == run && self.has_skip(run));
        let steps = equal.map(|(_, steps)| steps).find(|steps| steps.contains(&step));
        steps.cloned().unwrap_or_else(|| vec![step])
    }

    /// The result of a keyed call, whose receiver runs it once; `None` if it did not run yet.
    pub(crate) fn keyed_result(&self, run: u32, step: u32) -> Option<String> {
        self.calls.get(&(run, step)).and_then(|call| call.receipt.clone())
    }

    /// An effect will have this result.
    pub(crate) fn results_in(&mut self, run: u32, step: u32, result: &str) {
        let call = self.calls.entry((run, step)).or_default();
        call.receipt.get_or_insert_with(|| result.to_owned());
        call.results.push(result.to_owned());
    }

    /// An effect ended, and its process knows the result.
    pub(crate) fn ends(&mut self, effect: usize, result: String) {
        if let Some(effect) = self.effects.get_mut(effect) {
            effect.result = Some(result);
        }
    }

    /// A call failed.
    pub(crate) fn call_failed(&mut self, effect: Option<usize>, error: &Error) {
        let Some(effect) = effect.and_then(|effect| self.effects.get_mut(effect)) else { return };
        let what = format!("step {} of run {} in life {}", effect.step, effect.run, effect.life);
        let little = self.lives.get(&effect.life).is_some_and(|life| life.held_bytes < LITTLE_BYTES);
        match (error.side_effect(), effect.result.is_some()) {
            (SideEffect::Held | SideEffect::Evidence, true) | (SideEffect::Unrecorded, false) => {}
            // It holds another result, and lacks the capacity for this one.
            (SideEffect::Unrecorded, true) if little => {
                effect.given_up = true;
                self.excuse(excuses::LITTLE);
            }
            (side_effect, has_result) => {
                let result = if has_result { "known" } else { "unknown" };
                self.fail(format!("{what} ran, its result is {result}, and its caller got {side_effect:?}: {error}"));
            }
        }
    }

    /// A call was dropped. If its process may hold little and holds another result, this result is lost.
    pub(crate) fn call_dropped(&mut self, effect: Option<usize>) {
        let Some(effect) = effect.and_then(|effect| self.effects.get_mut(effect)) else { return };
        effect.given_up |= self.lives.get(&effect.life).is_some_and(|life| life.held_bytes < LITTLE_BYTES);
    }

    /// A call was answered.
    pub(crate) fn answered(&mut self, life: u32, run: u32, step: u32, effect: Option<usize>, answer: &Answer) {
        let what = format!("the answer of step {step} of run {run} in life {life}");
        let error = answer.error.as_ref().map(|error| failure(&error.kind, &error.message));
        let value = error.unwrap_or_else(|| text(&answer.result));
        if answer.recorded == effect.is_some() {
            self.fail(format!("{what} says recorded: {}, and the effect ran: {}", answer.recorded, effect.is_some()));
        }
        let has_result = |step| self.calls.get(&(run, step)).is_some_and(|call| call.results.contains(&value));
        if !self.indistinguishable(run, step).into_iter().any(has_result) {
            self.fail(format!("{what} is {value}, which no effect or decision produced"));
        }
        let Some(position) = &answer.position else { return self.fail(format!("{what} has no position")) };
        let at = (position.partition, position.offset);
        let Some(landed) = self.records.get(&at).cloned() else {
            return self.fail(format!("{what} is at {}:{}, which the log lacks", at.0, at.1));
        };
        let facts = &landed.record.body.facts;
        let request = facts.answers.as_ref().and_then(|id| self.requests.get(id.as_str()));
        let is_own = request.is_some_and(|of| of.0 == run && self.indistinguishable(run, of.1).contains(&step));
        if !is_own {
            return self.fail(format!("{what} is at {}:{}, which answers {request:?}", at.0, at.1));
        }
        let recorded = match &landed.record.payload {
            Payload::ToolCallCompleted(done) => Some(text(&done.result)),
            Payload::ToolCallFailed(failed) => Some(failure(&failed.error_kind, &failed.error_message)),
            Payload::EffectResolution(_) if answer.recorded => None,
            other => Some(format!("a {}", other.payload_type())),
        };
        if recorded.as_ref().is_some_and(|recorded| *recorded != value) {
            self.fail(format!("{what} is {value}, and the log has {recorded:?} at {}:{}", at.0, at.1));
        }
        if !answer.recorded {
            self.unjudged.push(Acknowledged { run, life, at, what });
            self.check_acknowledged();
        }
    }

    /// A client of the protocol returns this to its agent: a result, or a failure.
    pub(crate) fn returned(&mut self, life: u32, run: u32, step: u32, value: &str) {
        if !self.calls.get(&(run, step)).is_some_and(|call| call.results.iter().any(|result| result == value)) {
            self.fail(format!(
                "the answer of step {step} of run {run} in life {life} is {value}, which no effect or decision produced"
            ));
        }
    }

    /// Acknowledged records must be applied or be evidence.
    pub(super) fn check_acknowledged(&mut self) {
        for acknowledged in std::mem::take(&mut self.unjudged) {
            let Some(landed) = self.records.get(&acknowledged.at) else { continue };
            if landed.outcome.is_empty() {
                self.unjudged.push(acknowledged);
            } else if !self.counts(acknowledged.run, acknowledged.life, acknowledged.at.1, landed) {
                let (what, (partition, offset)) = (&acknowledged.what, acknowledged.at);
                let line = format!(
                    "{what} is Ok, and its record at {partition}:{offset} is {} {:?}",
                    landed.outcome, landed.reason
                );
                self.fail(line);
            }
        }
    }

    /// The seed ends.
    pub(crate) fn finish(&mut self) {
        let waiting: Vec<_> = self.waiting.iter().map(|(partition, offset)| format!("{partition}:{offset}")).collect();
        if !waiting.is_empty() {
            self.fail(format!("partitions are stopped; unjudged: {}", waiting.join(" ")));
        }
    }

    /// Whether the record of a result was applied, or is evidence because another process had claimed the run before.
    fn counts(&self, run: u32, life: u32, at: Offset, landed: &Landed) -> bool {
        match (landed.outcome.as_str(), landed.reason.as_deref()) {
            ("applied" | "repeat", None) => true,
            // The start that a skip displaced is no handle's own.
            (
                _,
                Some("fenced" | "gap" | "sequence" | "conflict" | "transition" | "checkpoint" | "not_started_here"),
            ) if self.displaced_since_opening(run, life) => true,
            (_, Some("fenced")) => self.lost_to(run, life).ok().flatten().is_some_and(|claim| claim.offset < at),
            _ if landed.was_skipped => true,
            // An operator's decision ended the call while it was in flight, and that is its answer.
            (_, Some("transition")) => self.is_decided(landed),
            _ => false,
        }
    }

    /// Whether a decision about the call that a record answers precedes it.
    fn is_decided(&self, landed: &Landed) -> bool {
        let Some(request) = &landed.record.body.facts.answers else { return false };
        self.decided.contains(request.as_str())
    }

    /// A life of a run, or its writer, got an acknowledgement for a record at this position.
    pub(crate) fn acknowledged(
        &mut self,
        (run, life): (u32, u32),
        what: &str,
        position: &Position,
        wanted: impl Fn(&JournalRecord) -> bool,
    ) {
        let at = (position.partition, position.offset);
        self.unjudged.push(Acknowledged { run, life, at, what: what.to_owned() });
        let member = |landed: &Landed| match &landed.record.payload {
            Payload::Batch(batch) => batch.records.get(position.index as usize).cloned(),
            _ => Some(landed.record.clone()),
        };
        match self.records.get(&at) {
            Some(landed) if member(landed).is_some_and(|record| wanted(&record)) => {}
            landed => {
                let record_id = landed.map(|landed| landed.record.body.record_id.clone());
                self.fail(format!("{what} was acknowledged at {}:{}, but the log has {record_id:?} there", at.0, at.1));
            }
        }
        self.check_acknowledged();
    }

    /// The number of a life's results that are neither in the log nor held by a call in flight.
    pub(crate) fn unsaved_results(&self, life: u32) -> usize {
        let effects = self.effects.iter().filter(|effect| effect.life == life && !effect.given_up);
        let idle = effects.filter(|effect| !self.busy.contains(&(life, effect.run, effect.step)));
        idle.filter(|effect| effect.result.as_ref().is_some_and(|result| !self.is_in_log(&effect.request, result)))
            .count()
    }

    /// A record was judged. Notes whether it keeps the result of a call.
    pub(super) fn keeps(&mut self, at: (PartitionId, Offset)) {
        let Some(landed) = self.records.get(&at) else { return };
        let is_evidence = skips::makes_evidence(landed.reason.as_deref());
        let applied = landed.reason.is_none() && matches!(landed.outcome.as_str(), "applied" | "repeat");
        if let Payload::EffectResolution(resolution) = &landed.record.payload
            && applied
            && resolution.decision != "not_done"
        {
            self.decided.insert(resolution.request_record_id.as_str().to_owned());
        }
        if is_evidence || applied {
            self.kept.extend(members(&landed.record).iter().filter_map(|record| match &record.payload {
                Payload::ToolCallCompleted(done) => {
                    Some((done.request_record_id.as_str().to_owned(), text(&done.result)))
                }
                Payload::ToolCallFailed(failed) => {
                    let error = failure(&failed.error_kind, &failed.error_message);
                    Some((failed.request_record_id.as_str().to_owned(), error))
                }
                _ => None,
            }));
        }
    }

    /// Whether a record with this id was applied in a run.
    pub(crate) fn has_applied_in(&self, run: u32, id: &str) -> bool {
        self.of_run(run, id).any(|landed| landed.outcome == "applied")
    }

    /// Whether a record with this id was applied.
    pub(crate) fn has_applied(&self, id: &str) -> bool {
        self.records.values().any(|landed| landed.record.body.record_id.as_str() == id && landed.outcome == "applied")
    }

    /// Whether a record with this id is in the log, of this run, applied or not.
    pub(crate) fn has_in(&self, run: u32, id: &str) -> bool {
        self.of_run(run, id).next().is_some()
    }

    /// The records of a run that have this id.
    pub(super) fn of_run(&self, run: u32, id: &str) -> impl Iterator<Item = &Landed> {
        let run = run_id(run);
        self.records.values().filter(move |landed| {
            landed.record.body.run_id.as_str() == run && landed.record.body.record_id.as_str() == id
        })
    }

    /// A handle reported that another process has its run.
    pub(crate) fn reported_lost(&mut self, run: u32, life: u32, error: impl fmt::Display) {
        if matches!(self.lost_to(run, life), Ok(None)) && !self.is_excused(run, life) {
            self.fail(format!("life {life} reported the loss of run {run}, which no other process claimed: {error}"));
        }
    }

    /// A process ended by itself with no result left: each of its effects is in the log.
    pub(crate) fn left(&mut self, life: u32) {
        self.exits(life);
        let run = self.lives.get(&life).map(|life| life.run);
        let lost: Vec<String> = self
            .effects
            .iter()
            .filter(|effect| effect.life == life && !effect.given_up)
            .filter(|effect| effect.result.as_ref().is_some_and(|result| !self.is_in_log(&effect.request, result)))
            .map(|effect| format!("step {} of run {} (call {})", effect.step, effect.run, effect.request))
            .collect();
        if lost.is_empty() || run.is_some_and(|run| self.is_excused(run, life)) {
            return;
        }
        for lost in lost {
            self.fail(format!(
                "the result of {lost} is not in the log, and life {life}, which knew it, ended by itself"
            ));
        }
    }

    /// Whether the result of a call was applied, or is kept as evidence, or may be, once its partition resumes.
    fn is_in_log(&self, request: &str, result: &str) -> bool {
        let waits =
            || self.waiting.iter().filter_map(|at| self.records.get(at)).any(|landed| result_of(landed, request));
        self.kept.contains(&(request.to_owned(), result.to_owned())) || waits()
    }

    /// How often a server began or ceased to read from a deposed leader, and whether one does.
    pub(crate) fn deposed_since(&self) -> (usize, bool) {
        (self.deposed.len(), self.deposed.iter().any(|window| window.2.is_none()))
    }
}

/// Whether a record is a result of this call.
fn result_of(landed: &Landed, request: &str) -> bool {
    members(&landed.record).iter().any(|record| match &record.payload {
        Payload::ToolCallCompleted(done) => done.request_record_id.as_str() == request,
        Payload::ToolCallFailed(failed) => failed.request_record_id.as_str() == request,
        _ => false,
    })
}
