//! What permits an effect. Each start has a record of its own: the request for the first one, an attempt for each
//! further one. An attempt of a call without a key needs a permission, by the log alone:
//!
//! ```text
//!   request, attempt ─▶ none      `not_done` ─▶ permitted      evidence that is new ─▶ none
//! ```
//!
//! The author of a decision, and the process that the decision is about, do not matter: a decision about a living
//! process permits one further start, and no more.

use super::{Ledger, excuses};
use crate::{ambient, plan::Via};
use runlog_schemas::{
    id::{ContentHash, Offset, PartitionId},
    payload::{Payload, ToolCallAttempt},
    record::JournalRecord,
};
use std::collections::{BTreeMap, BTreeSet};

/// The records of one call, in the order of the log, and its starts.
#[derive(Debug, Default)]
pub(super) struct History {
    keyed: bool,
    known: Vec<Known>,
    /// The attempts that were applied, and whether each was permitted.
    permitted: BTreeMap<u32, bool>,
    started: BTreeSet<u32>,
}

/// A record of a call.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) at: (PartitionId, Offset),
    millis: u64,
    pub(super) what: What,
}

/// What a record says of its call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It may start, in this epoch.
    Starts(u64),
    /// It did not happen. Whether the decision may be about a process that may still write.
    NotDone { forced: bool },
    /// It has ended, by a result or by a decision.
    Ended { forced: bool },
    /// A refused result.
    Evidence(String, ContentHash),
    /// A record that was skipped. It permits nothing that was not permitted beside it.
    Skipped,
}

impl History {
    /// Whether a further start is permitted; otherwise when the permission ended, if there was one.
    fn is_cleared(&self) -> Result<(), Option<u64>> {
        let mut cleared = Err(None);
        for known in &self.known {
            match known.what {
                What::NotDone { .. } => cleared = Ok(()),
                What::Starts(_) | What::Evidence(..) | What::Skipped if cleared.is_ok() => {
                    cleared = Err(Some(known.millis))
                }
                _ => {}
            }
        }
        cleared
    }

    /// The epoch of the last start.
    fn last_epoch(&self) -> Option<u64> {
        self.known.iter().rev().find_map(|known| match known.what {
            What::Starts(epoch) => Some(epoch),
            _ => None,
        })
    }

    /// The last decision or end since the last start.
    fn decided(&self) -> Option<&Known> {
        let mut since = self.known.iter().rev().take_while(|known| !matches!(known.what, What::Starts(_)));
        since.find(|known| !matches!(known.what, What::Evidence(..) | What::Skipped))
    }

    fn push(&mut self, at: (PartitionId, Offset), what: What) {
        // The same evidence again is no news.
        let is_known = matches!(what, What::Evidence(..)) && self.known.iter().any(|known| known.what == what);
        if !is_known {
            self.known.push(Known { at, millis: ambient::elapsed_millis(), what });
        }
    }
}

impl Ledger {
    /// A record of a call was judged.
    pub(super) fn note(
        &mut self,
        at: (PartitionId, Offset),
        record: &JournalRecord,
        (applied, is_evidence): (bool, bool),
    ) {
        let id = record.body.record_id.as_str();
        let epoch = record.place.writer_epoch.get();
        match &record.payload {
            Payload::ToolCallRequested(_) if applied => {
                let history = self.histories.entry(id.to_owned()).or_default();
                history.keyed = record.body.idempotency_key.as_deref().is_some_and(|key| !key.is_empty());
                history.permitted.insert(1, true);
                history.push(at, What::Starts(epoch));
            }
            Payload::ToolCallAttempt(attempt) if applied => self.attempted(at, attempt, epoch),
            Payload::ToolCallCompleted(_) | Payload::ToolCallFailed(_) => {
                let Some(request) = record.body.facts.answers.as_ref() else { return };
                let Some(history) = self.histories.get_mut(request.as_str()) else { return };
                if applied {
                    history.push(at, What::Ended { forced: false });
                } else if is_evidence {
                    history.push(at, What::Evidence(id.to_owned(), record.content_hash()));
                }
            }
            Payload::EffectResolution(resolution) if applied => {
                let forced = self.decision(resolution).is_some_and(|decided| decided.forced);
                let Some(history) = self.histories.get_mut(resolution.request_record_id.as_str()) else { return };
                let not_done = resolution.decision == "not_done";
                history.push(at, if not_done { What::NotDone { forced } } else { What::Ended { forced } });
            }
            _ => {}
        }
    }

    /// An attempt was applied. It uses its call's permission up.
    fn attempted(&mut self, at: (PartitionId, Offset), attempt: &ToolCallAttempt, epoch: u64) {
        let request = attempt.request_record_id.as_str();
        let Some(history) = self.histories.get(request) else { return };
        let (keyed, cleared) = (history.keyed, history.is_cleared());
        let permitted = keyed || cleared.or_else(|since| self.was_unchecked(since, (request, epoch))).is_ok();
        if let Some(history) = self.histories.get_mut(request) {
            history.permitted.insert(attempt.attempt, permitted);
            history.push(at, What::Starts(epoch));
        }
    }

    /// At a version in which the judge does not check attempts, a permission may end between the check and the append.
    fn was_unchecked(&mut self, since: Option<u64>, (request, epoch): (&str, u64)) -> Result<(), Option<u64>> {
        let Some(ended) = since.filter(|_| !self.checks_attempts) else { return Err(since) };
        let claims = self.requests.get(request).and_then(|(run, _)| self.claims.get(run));
        let writes = claims.into_iter().flatten().filter(|claim| claim.epoch == epoch);
        let straight = |life: u32| self.lives.get(&life).is_some_and(|life| life.via == Via::Log);
        let is_straight = writes.filter_map(|claim| claim.life).any(straight);
        let (name, max) = if is_straight {
            (excuses::UNCHECKED_BY_SERVER, excuses::CHECKED_BY_CLIENT)
        } else {
            (excuses::UNCHECKED_BY_JUDGE, excuses::CHECKED_BY_SERVER)
        };
        if ambient::elapsed_millis() - ended <= max {
            self.excuse(name);
            return Ok(());
        }
        if self.was_deposed_since(ended) {
            self.excuse(excuses::DEPOSED_CHECK);
            return Ok(());
        }
        Err(since)
    }

    /// Whether a server read from a deposed leader since then.
    pub(super) fn was_deposed_since(&self, millis: u64) -> bool {
        self.deposed.iter().any(|(_, _, to)| to.is_none_or(|to| to >= millis))
    }

    /// The effect of an attempt starts now, in a process that was fenced if `fenced`. Returns what forbids it.
    pub(super) fn forbids(&mut self, request: &str, attempt: u32, fenced: bool) -> Option<String> {
        let now = ambient::elapsed_millis();
        let history = self.histories.get_mut(request)?;
        let is_first = history.started.insert(attempt);
        let keyed = history.keyed;
        match history.permitted.get(&attempt) {
            _ if !is_first => return Some(format!("runs again under attempt {attempt}, and nothing allowed that")),
            None => return Some(format!("runs, and the journal has no attempt {attempt}")),
            Some(false) if !keyed => return Some("runs again, and nothing allowed that".to_owned()),
            Some(_) => {}
        }
        let decided = history.decided()?;
        let (late, at) = (now - decided.millis, decided.millis);
        let forced = match decided.what {
            // Its key permits a start in any case.
            What::NotDone { .. } if keyed => return None,
            What::NotDone { forced } | What::Ended { forced } => forced,
            What::Starts(_) | What::Evidence(..) | What::Skipped => return None,
        };
        let max = if forced || fenced { excuses::DECIDED_WHILE_IT_STARTED_MAX } else { 0 };
        if late <= max {
            self.excuse(excuses::DECIDED_WHILE_IT_STARTED);
        } else if self.was_deposed_since(at) {
            self.excuse(excuses::DEPOSED_CHECK);
        } else {
            return Some(format!("starts {late} ms after its call was decided"));
        }
        None
    }

    /// The last write of the process that started an effect last, if that process has the run: the epoch, and when.
    pub(super) fn alive(&self, request: &str) -> Option<(u64, u64)> {
        let (run, _) = self.requests.get(request)?;
        let claim = self.claims.get(run)?.last()?;
        let started = self.histories.get(request)?.last_epoch()?;
        let (epoch, millis) = *self.written.get(run)?;
        (claim.epoch == started && epoch == started).then_some((epoch, millis))
    }

    /// The news of a call between two offsets of its partition.
    pub(super) fn news(&self, request: &str, from: (PartitionId, Offset), to: Offset) -> Option<&Known> {
        let mut known = self.histories.get(request)?.known.iter();
        known.find(|known| {
            let between = known.at.0 == from.0 && known.at.1 >= from.1 && known.at.1 < to;
            between && !matches!(known.what, What::NotDone { .. } | What::Ended { .. })
        })
    }

    /// The offset of some evidence of a call.
    pub(crate) fn evidence_of(&self, request: &str) -> Option<(PartitionId, Offset)> {
        let known = &self.histories.get(request)?.known;
        let is_evidence = |known: &&Known| matches!(known.what, What::Evidence(..));
        known.iter().rev().find(is_evidence).map(|known| known.at)
    }

    /// Evidence was skipped: everything that was judged after it counts as if it had never been in the log, but for permissions.
    pub(super) fn rejudge(&mut self, partition: PartitionId) {
        let Some(model) = &self.model else { return };
        let of_partition =
            self.records.iter_mut().filter(|((at, _), landed)| *at == partition && !landed.outcome.is_empty());
        let mut in_force = Vec::new();
        for ((_, offset), landed) in of_partition {
            if landed.record.body.run_id.borrow().is_none() {
                continue;
            }
            let row = model.outcome(partition.get(), offset.get(), 0, landed.record.body.record_id.as_str());
            let text = |name: &str| row[name].as_str().map(str::to_owned);
            landed.was_skipped = text("outcome").is_none();
            if landed.outcome == "refused"
                && text("outcome").as_deref() == Some("applied")
                && let Payload::EffectResolution(resolution) = &landed.record.payload
            {
                in_force.push(((partition, *offset), resolution.clone()));
            }
            (landed.outcome, landed.reason) = (text("outcome").unwrap_or_else(|| "skipped".to_owned()), text("reason"));
        }
        let here = |known: &Known| known.at.0 == partition;
        let times: BTreeMap<Offset, u64> = self
            .histories
            .values()
            .flat_map(|history| &history.known)
            .filter(|known| here(known))
            .map(|known| (known.at.1, known.millis))
            .collect();
        let old: BTreeMap<String, History> = std::mem::take(&mut self.histories);
        let (moved, kept) =
            old.into_iter().partition::<BTreeMap<_, _>, _>(|(_, history)| history.known.first().is_some_and(here));
        self.histories = kept;
        let records: Vec<_> = self
            .records
            .range((partition, Offset::ZERO)..)
            .take_while(|((at, _), _)| *at == partition)
            .map(|(at, landed)| (*at, landed.clone()))
            .collect();
        for (at, landed) in records {
            let is_evidence =
                landed.outcome == "refused" && matches!(landed.reason.as_deref(), Some("fenced" | "ended"));
            self.note(at, &landed.record, (landed.outcome == "applied", is_evidence));
            if landed.outcome == "applied"
                && let Payload::EffectResolution(resolution) = &landed.record.payload
            {
                // It may have been refused until now.
                self.close_call(resolution.request_record_id.as_str());
                self.results_of_decision(resolution);
            }
        }
        for (request, before) in moved {
            let Some(history) = self.histories.get_mut(&request) else { continue };
            history.started = before.started;
            history.permitted.extend(before.permitted);
            let skipped =
                before.known.iter().filter(|known| self.records.get(&known.at).is_some_and(|at| at.was_skipped));
            history.known.extend(skipped.map(|known| Known { what: What::Skipped, ..*known }));
            history.known.sort_by_key(|known| known.at);
            for known in &mut history.known {
                known.millis = times.get(&known.at.1).copied().unwrap_or(known.millis);
            }
        }
        for (at, resolution) in in_force {
            self.check_in_force(at, &resolution);
        }
    }
}
