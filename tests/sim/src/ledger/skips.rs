//! Skips of records that were judged. A skip of an applied record takes its numbers away, and displaces the later records of the
//! run's writers: they are refused. The log is then judged as if the skipped record had never been in it, but what happened has
//! happened: an effect that ran must not run again without a decision, and a recovery must not call it safe to run.

use super::{Claim, Ledger, permissions::History};
use crate::{
    ambient,
    plan::{Kind, PUBLISHED, RUNS},
};
use runlog_schemas::{
    id::{Offset, PartitionId},
    payload::Payload,
    record::JournalRecord,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What skips took away from the runs.
#[derive(Debug, Default)]
pub(super) struct Displaced {
    /// When a skip last took an applied record of a run away, milliseconds.
    at: BTreeMap<u32, u64>,
    /// When a skip last took a refused record of a run away that had consumed a number, milliseconds.
    renumbered: BTreeMap<u32, u64>,
    /// Claims that were applied.
    claims: BTreeMap<u32, Vec<Claim>>,
    /// When each life first claimed a run.
    opened: BTreeMap<(u32, u32), u64>,
    /// Runs of which a record was skipped.
    skipped: BTreeSet<u32>,
    /// Lives that have claimed their run and have not ended.
    present: BTreeSet<(u32, u32)>,
}

fn is_of(record: &JournalRecord, kind: Kind) -> bool {
    match &record.payload {
        Payload::ToolCallAttempt(_) => kind == Kind::Attempt,
        Payload::EffectResolution(_) => kind == Kind::Decision,
        Payload::ToolCallRequested(_) => kind == Kind::Intent,
        Payload::RunClaim(_) => kind == Kind::Claim,
        Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) => kind == Kind::Result,
        Payload::LoopCheckpoint(_) => kind == Kind::Checkpoint,
        Payload::ConversationTurn(_) => kind == Kind::Turn,
        Payload::Batch(_) => kind == Kind::Batch,
        _ => false,
    }
}

/// Whether a result that is refused for this reason is kept.
pub(super) fn makes_evidence(reason: Option<&str>) -> bool {
    reason.is_some_and(|reason| reason != "wrong_partition")
}

impl Ledger {
    /// The applied record that precedes the nth applied record of a kind in a run by `back` applied records.
    pub(crate) fn nth_applied(&self, run: u32, kind: Kind, nth: usize, back: usize) -> Option<(PartitionId, Offset)> {
        let run = super::run_id(run);
        let of_run = |landed: &super::Landed| landed.outcome == "applied" && landed.record.body.run_id.as_str() == run;
        let applied: Vec<_> = self.records.iter().filter(|(_, landed)| of_run(landed)).collect();
        let of_kind = |at: &usize| is_of(&applied[*at].1.record, kind);
        let at = (0..applied.len()).filter(of_kind).nth(nth.checked_sub(1)?)?;
        Some(*applied.get(at.checked_sub(back)?)?.0)
    }

    /// Whether a partition has a skip at this offset or later.
    pub(crate) fn has_skip_from(&self, partition: PartitionId, offset: u64) -> bool {
        let of_partition = self.records.iter().filter(|((at, found), _)| *at == partition && found.get() >= offset);
        of_partition.map(|(_, landed)| &landed.record.payload).any(|payload| matches!(payload, Payload::Skip(_)))
    }

    /// Whether a run's records before `offset` end it.
    pub(crate) fn has_ended_before(&self, run: u32, partition: PartitionId, offset: Offset) -> bool {
        self.ends_before(run, (partition, offset)).any(|landed| landed.outcome == "applied")
    }

    /// Whether a record before `offset` would end a run.
    pub(crate) fn has_end_before(&self, run: u32, partition: PartitionId, offset: Offset) -> bool {
        self.ends_before(run, (partition, offset)).next().is_some()
    }

    fn ends_before(
        &self,
        run: u32,
        (partition, offset): (PartitionId, Offset),
    ) -> impl Iterator<Item = &super::Landed> {
        let (run, before) = (super::run_id(run), self.records.range((partition, Offset::ZERO)..(partition, offset)));
        before.map(|(_, landed)| landed).filter(move |landed| {
            let ends = matches!(&landed.record.payload, Payload::RunLifecycle(end) if end.status != "started");
            ends && landed.record.body.run_id.as_str() == run
        })
    }

    /// Whether a process of the run has claimed it and has not ended.
    pub(crate) fn has_process(&self, run: u32) -> bool {
        self.displaced.present.iter().any(|(of, _)| *of == run)
    }

    /// A life has claimed its run.
    pub(super) fn enters(&mut self, run: u32, life: u32) {
        self.displaced.present.insert((run, life));
        self.opens(run, life);
    }

    /// A life opens its run. It claims no run that has ended.
    pub(super) fn opens(&mut self, run: u32, life: u32) {
        self.displaced.opened.entry((run, life)).or_insert_with(ambient::elapsed_millis);
    }

    /// A life has ended.
    pub(super) fn exits(&mut self, life: u32) {
        self.displaced.present.retain(|(_, present)| *present != life);
    }

    /// Whether a record of a run was skipped.
    pub(super) fn has_skip(&self, run: u32) -> bool {
        self.displaced.skipped.contains(&run)
    }

    /// Whether a skip took an applied record of a run away.
    pub(super) fn is_displaced(&self, run: u32) -> bool {
        self.displaced.at.contains_key(&run)
    }

    /// When a skip last took an applied record of a run away, milliseconds.
    pub(super) fn displaced_at(&self, run: u32) -> Option<u64> {
        self.displaced.at.get(&run).copied()
    }

    /// Whether a skip took numbers of a life's run away since the life opened it.
    pub(super) fn displaced_since_opening(&self, run: u32, life: u32) -> bool {
        let at = self.displaced.at.get(&run).max(self.displaced.renumbered.get(&run));
        at.zip(self.displaced.opened.get(&(run, life))).is_some_and(|(at, opened)| opened <= at)
    }

    /// Whether a life may end in errors, because a skip took records of its run away.
    pub(crate) fn is_excused(&mut self, run: u32, life: u32) -> bool {
        let excused = self.displaced_since_opening(run, life);
        if excused {
            self.excuse(super::excuses::DISPLACED_PROCESS);
        }
        excused
    }

    /// Whether a skip displaced one of these records of a run. It stays refused under its id, although its agent sends it again.
    pub(crate) fn displaces_one_of(&mut self, run: u32, ids: &[String]) -> bool {
        let is_void = |landed: &super::Landed| landed.outcome == "refused" || run == PUBLISHED && landed.was_skipped;
        let refused = |id: &String| self.of_run(run, id).any(is_void) && !self.has_applied_in(run, id);
        let displaced = self.has_skip(run) && ids.iter().any(refused);
        if displaced {
            self.excuse(super::excuses::DISPLACED_PROCESS);
        }
        displaced
    }

    /// Whether an append was answered with `not_found` because an operator had skipped its record.
    pub(crate) fn was_skipped(&self, answer: &Value) -> bool {
        let skipped = (answer["partition"].as_u64(), answer["offset"].as_u64());
        let skips = |(at, landed): (&(PartitionId, Offset), &super::Landed)| match &landed.record.payload {
            Payload::Skip(skip) => skipped == (Some(at.0.get().into()), Some(skip.offset.get())),
            _ => false,
        };
        answer["kind"] == "not_found" && self.records.iter().any(skips)
    }

    /// Whether a claim was applied that a skip took away.
    pub(super) fn had_claim(&self, run: u32, writer: &str, epoch: u64) -> bool {
        let claims = self.displaced.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        claims.iter().any(|claim| (claim.epoch, claim.writer.as_str()) == (epoch, writer))
    }

    /// When a skip last took applied records of a run away, if it took a claim of this life.
    pub(super) fn lost_claim_at(&self, run: u32, life: u32) -> Option<u64> {
        let claims = self.displaced.claims.get(&run).map(Vec::as_slice).unwrap_or_default();
        self.displaced_at(run).filter(|_| claims.iter().any(|claim| claim.life == Some(life)))
    }

    /// A record was skipped: everything that was judged after it counts as if the record had never been in the log, but for
    /// permissions.
    pub(super) fn rejudge(&mut self, partition: PartitionId) {
        let Some(model) = &self.model else { return };
        let of_partition =
            self.records.iter_mut().filter(|((at, _), landed)| *at == partition && !landed.outcome.is_empty());
        let (mut in_force, mut lost, mut skipped) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut renumbered = BTreeSet::new();
        for ((_, offset), landed) in of_partition {
            if landed.record.body.run_id.borrow().is_none() {
                continue;
            }
            let row = model.outcome(partition.get(), offset.get(), 0, landed.record.body.record_id.as_str());
            let text = |name: &str| row[name].as_str().map(str::to_owned);
            landed.was_skipped = text("outcome").is_none();
            let consumed = !matches!(landed.reason.as_deref(), Some("fenced" | "gap" | "wrong_partition"));
            if landed.was_skipped && landed.outcome == "refused" && consumed {
                renumbered.insert(landed.record.body.run_id.as_str().to_owned());
            }
            if landed.was_skipped {
                skipped.insert(landed.record.body.run_id.as_str().to_owned());
            }
            let is_applied = text("outcome").as_deref() == Some("applied");
            if landed.outcome == "refused"
                && is_applied
                && let Payload::EffectResolution(resolution) = &landed.record.payload
            {
                in_force.push(((partition, *offset), resolution.clone()));
            }
            if landed.outcome == "applied" && !is_applied {
                lost.insert(landed.record.body.run_id.as_str().to_owned());
            }
            (landed.outcome, landed.reason) = (text("outcome").unwrap_or_else(|| "skipped".to_owned()), text("reason"));
        }
        self.displaced.skipped.extend(Self::runs().filter(|run| skipped.contains(&super::run_id(*run))));
        let now = ambient::elapsed_millis();
        let renumbered = Self::runs().filter(|run| renumbered.contains(&super::run_id(*run)));
        self.displaced.renumbered.extend(renumbered.map(|run| (run, now)));
        let lost: Vec<u32> = Self::runs().filter(|run| lost.contains(&super::run_id(*run))).collect();
        for run in &lost {
            self.displaced.at.insert(*run, now);
            self.count_again(*run);
        }
        self.note_again(partition);
        for run in lost {
            self.check_doubts(run);
        }
        for (at, resolution) in in_force {
            self.check_in_force(at, &resolution);
        }
    }

    /// Notes the records of a partition again, by their new verdicts.
    fn note_again(&mut self, partition: PartitionId) {
        let here = |history: &History| history.known.first().is_some_and(|known| known.at.0 == partition);
        let times: BTreeMap<Offset, u64> = self
            .histories
            .values()
            .flat_map(|history| &history.known)
            .filter(|known| known.at.0 == partition)
            .map(|known| (known.at.1, known.millis))
            .collect();
        let old: BTreeMap<String, History> = std::mem::take(&mut self.histories);
        let (moved, kept) = old.into_iter().partition::<BTreeMap<_, _>, _>(|(_, history)| here(history));
        self.histories = kept;
        // A decision about a call whose request is void is noted again, too.
        for (request, before) in &moved {
            self.histories.entry(request.clone()).or_default().keyed = before.keyed;
        }
        let records: Vec<_> = self
            .records
            .range((partition, Offset::ZERO)..)
            .take_while(|((at, _), _)| *at == partition)
            .map(|(at, landed)| (*at, landed.clone()))
            .collect();
        for (at, landed) in records {
            let is_evidence = landed.outcome == "refused" && makes_evidence(landed.reason.as_deref());
            for (record, applied) in self.judged_members(at, &landed.record, landed.outcome == "applied") {
                self.note(at, &record, (applied, is_evidence));
                self.knows_displaced(&record);
            }
            if landed.outcome == "applied"
                && let Payload::EffectResolution(resolution) = &landed.record.payload
            {
                // It may have been refused until now.
                self.close_call(resolution.request_record_id.as_str());
                self.results_of_decision(resolution);
            }
        }
        for (request, before) in moved {
            let history = self.histories.entry(request).or_default();
            let is_skipped = |at| self.records.get(&at).is_some_and(|landed| landed.was_skipped);
            history.continue_from(before, is_skipped);
            for known in &mut history.known {
                known.millis = times.get(&known.at.1).copied().unwrap_or(known.millis);
            }
        }
    }

    /// Notes the request of a call that a skip displaced, or put into force. Its call waits for a decision.
    pub(super) fn knows_displaced(&mut self, record: &JournalRecord) {
        let run = Self::runs().find(|run| record.body.run_id.as_str() == super::run_id(*run));
        if let Payload::ToolCallRequested(request) = &record.payload
            && let Some(run) = run.filter(|run| self.has_skip(*run))
            && let Some(like) = super::step_of(request)
        {
            self.requests.entry(record.body.record_id.as_str().to_owned()).or_insert((run, like));
        }
    }

    /// Counts the claims and the requests of a run again.
    fn count_again(&mut self, run: u32) {
        let id = super::run_id(run);
        let of_run = |landed: &super::Landed| landed.outcome == "applied" && landed.record.body.run_id.as_str() == id;
        let applied: Vec<_> = self
            .records
            .iter()
            .filter(|(_, landed)| of_run(landed))
            .map(|(at, landed)| (*at, landed.clone()))
            .collect();
        let before = self.claims.remove(&run).unwrap_or_default();
        self.request_counts.retain(|(of, _), _| *of != run);
        let mut claims: Vec<Claim> = Vec::new();
        let applied = applied.into_iter().flat_map(|(at, landed)| {
            let members = self.judged_members(at, &landed.record, true).into_iter();
            members.filter(|(_, applied)| *applied).map(move |(record, _)| (at.1, record)).collect::<Vec<_>>()
        });
        for (offset, record) in applied.collect::<Vec<_>>() {
            match &record.payload {
                Payload::RunClaim(claim) => {
                    let known = before.iter().find(|known| known.offset == offset).cloned();
                    claims.push(known.unwrap_or_else(|| Claim::new(claim, offset)));
                }
                Payload::ToolCallRequested(request) => {
                    if let Some(like) = super::step_of(request) {
                        *self.request_counts.entry((run, like)).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        let is_gone = |claim: &Claim| !claims.iter().any(|other| other.offset == claim.offset);
        let gone: Vec<Claim> = before.into_iter().filter(is_gone).collect();
        self.displaced.claims.entry(run).or_default().extend(gone);
        self.claims.insert(run, claims);
    }

    /// After a skip, the journal has each call whose effect may have happened: as ended, or in need of a decision.
    fn check_doubts(&mut self, run: u32) {
        if run >= RUNS && run != crate::plan::LETTER {
            return;
        }
        let effects = self.model.as_ref().map(|model| model.effects(false)).unwrap_or_default();
        let of_run =
            effects["effects"].as_array().into_iter().flatten().filter(|call| call["run_id"] == super::run_id(run));
        let calls: BTreeMap<&str, &Value> = of_run.filter_map(|call| Some((call["id"].as_str()?, call))).collect();
        let mut failures = Vec::new();
        for (request, history) in &self.histories {
            if history.keyed
                || !history.may_have_happened()
                || self.requests.get(request).is_none_or(|(of, _)| *of != run)
            {
                continue;
            }
            match calls.get(request.as_str()) {
                Some(call) if call["status"] == "pending" && call["class"] == "retry_safe" => failures.push(format!(
                    "after a skip call {request} of run {run} counts as safe to run, and its effect ran"
                )),
                None => failures.push(format!("after a skip run {run} lacks call {request}, whose effect ran")),
                Some(_) => {}
            }
        }
        failures.into_iter().for_each(|failure| self.fail(failure));
    }

    /// The call of this step whose effect may have happened, if a skip took it away: another call than `request`.
    pub(super) fn taken_call(&self, run: u32, step: u32, request: &str) -> Option<String> {
        let of_step = self.requests.iter().filter(|(id, of)| **of == (run, step) && id.as_str() != request);
        let happened =
            |id: &str| self.histories.get(id).is_some_and(|history| !history.keyed && history.may_have_happened());
        of_step.map(|(id, _)| id).find(|id| happened(id)).cloned()
    }
}
