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
    pub(super) keyed: bool,
    pub(super) known: Vec<Known>,
    /// The attempts that were applied, and whether each was permitted.
    permitted: BTreeMap<u32, bool>,
    started: BTreeSet<u32>,
    /// When its effect started last, milliseconds.
    ran_at: Option<u64>,
    /// When a skip took the record of an attempt away.
    taken_at: BTreeMap<u32, u64>,
    /// When a skip took the decision away that permitted a start.
    revoked_at: Option<u64>,
}

/// A record of a call.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) at: (PartitionId, Offset),
    pub(super) millis: u64,
    pub(super) what: What,
}

/// What a record says of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It may start under this attempt, in this epoch.
    Starts(u32, u64),
    /// It did not happen. Whether the decision may be about a process that may still write.
    NotDone { forced: bool },
    /// It has ended, by a result or by a decision.
    Ended { forced: bool },
    /// A refused result.
    Evidence(String, ContentHash),
    /// A record that a skip took away: the skipped record, or one that it displaced. It permits nothing that was not permitted
    /// beside it.
    Taken,
}

impl History {
    /// Whether a further start is permitted; otherwise when the permission ended, if there was one.
    fn is_cleared(&self) -> Result<(), Option<u64>> {
        let mut cleared = Err(self.revoked_at);
        for known in &self.known {
            match known.what {
                What::NotDone { .. } => cleared = Ok(()),
                What::Starts(..) | What::Evidence(..) | What::Taken if cleared.is_ok() => {
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
            What::Starts(_, epoch) => Some(epoch),
            _ => None,
        })
    }

    /// The last decision or end since the last start.
    fn decided(&self) -> Option<&Known> {
        let mut since = self.known.iter().rev().take_while(|known| !matches!(known.what, What::Starts(..)));
        since.find(|known| !matches!(known.what, What::Evidence(..) | What::Taken))
    }

    /// Whether its effect started, and no decision since then says that it did not happen.
    pub(super) fn may_have_happened(&self) -> bool {
        let decided = self.known.iter().rev().find(|known| matches!(known.what, What::NotDone { .. }));
        self.ran_at.is_some_and(|ran_at| decided.is_none_or(|decided| decided.millis <= ran_at))
    }

    /// Continues a history from before a skip. Its records that are not here any more permit nothing. A decision that is refused now, and
    /// was not skipped itself, is as if it had never been made.
    pub(super) fn continue_from(&mut self, before: Self, is_skipped: impl Fn((PartitionId, Offset)) -> bool) {
        let now = ambient::elapsed_millis();
        let was_cleared = before.is_cleared().is_ok();
        let Self { keyed, known, permitted, started, ran_at, mut taken_at, revoked_at } = before;
        (self.keyed, self.started, self.ran_at, self.revoked_at) = (self.keyed || keyed, started, ran_at, revoked_at);
        self.permitted.extend(permitted);
        for known in known {
            let is_refused = matches!(known.what, What::NotDone { .. }) && !is_skipped(known.at);
            if is_refused || self.known.iter().any(|here| here.at == known.at) {
                continue;
            }
            if let What::Starts(attempt, _) = known.what {
                taken_at.entry(attempt).or_insert(now);
            }
            self.known.push(Known { what: What::Taken, ..known });
        }
        self.taken_at = taken_at;
        self.known.sort_by_key(|known| known.at);
        if was_cleared && self.is_cleared().is_err() {
            self.revoked_at = Some(now);
        }
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
                // After a skip took an earlier request under this id away, its effect may have run.
                history.permitted.insert(1, !history.may_have_happened());
                history.taken_at.remove(&1);
                history.push(at, What::Starts(1, epoch));
            }
            Payload::ToolCallAttempt(attempt) if applied => self.attempted(at, record, attempt),
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
    fn attempted(&mut self, at: (PartitionId, Offset), record: &JournalRecord, attempt: &ToolCallAttempt) {
        let (request, epoch) = (attempt.request_record_id.as_str(), record.place.writer_epoch.get());
        let Some(history) = self.histories.get(request) else { return };
        let (keyed, cleared) = (history.keyed, history.is_cleared());
        let permitted = keyed || cleared.or_else(|since| self.was_unchecked(since, record, request)).is_ok();
        if let Some(history) = self.histories.get_mut(request) {
            let is_taken = history.taken_at.contains_key(&attempt.attempt);
            if cleared.is_ok() || keyed && is_taken {
                // A skip has given the number of an earlier attempt back.
                history.started.remove(&attempt.attempt);
                history.taken_at.remove(&attempt.attempt);
            }
            history.permitted.insert(attempt.attempt, permitted);
            history.push(at, What::Starts(attempt.attempt, epoch));
        }
    }

    /// A client of the protocol sends a record, for the first time or again.
    pub(crate) fn sends(&mut self, record_id: &str, epoch: u64) {
        self.sent.entry((record_id.to_owned(), epoch)).or_insert_with(ambient::elapsed_millis);
    }

    /// When a record was first sent, so that no server checked it earlier. A handle's record has the time of its client.
    fn sent_at(&self, record: &JournalRecord) -> u64 {
        let key = (record.body.record_id.as_str().to_owned(), record.place.writer_epoch.get());
        self.sent.get(&key).copied().unwrap_or_else(|| ambient::since_begin(record.place.timestamp_millis))
    }

    /// At a version in which the judge does not check attempts, a permission may end between the check and the append.
    fn was_unchecked(&mut self, since: Option<u64>, record: &JournalRecord, request: &str) -> Result<(), Option<u64>> {
        let Some(ended) = since.filter(|_| !self.checks_attempts) else { return Err(since) };
        let epoch = record.place.writer_epoch.get();
        let claims = self.requests.get(request).and_then(|(run, _)| self.claims.get(run));
        let writes = claims.into_iter().flatten().filter(|claim| claim.epoch == epoch);
        let straight = |life: u32| self.lives.get(&life).is_some_and(|life| life.via == Via::Log);
        let is_straight = writes.filter_map(|claim| claim.life).any(straight);
        let (name, max, checked_from) = if is_straight {
            (excuses::UNCHECKED_BY_SERVER, excuses::CHECKED_BY_CLIENT, 0)
        } else {
            (excuses::UNCHECKED_BY_JUDGE, excuses::CHECKED_BY_SERVER, self.sent_at(record))
        };
        let now = ambient::elapsed_millis();
        if now - ended <= max && ended >= checked_from {
            self.excuse(name);
            return Ok(());
        }
        if self.was_deposed_since(now - max) {
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
        history.ran_at = Some(now);
        match history.permitted.get(&attempt) {
            _ if !is_first => return Some(format!("runs again under attempt {attempt}, and nothing allowed that")),
            None => return Some(format!("runs, and the journal has no attempt {attempt}")),
            Some(false) if !keyed => return Some("runs again, and nothing allowed that".to_owned()),
            Some(_) => {}
        }
        if let Some(taken_at) = history.taken_at.get(&attempt).copied() {
            let late = now - taken_at;
            if late <= excuses::DECIDED_WHILE_IT_STARTED_MAX {
                self.excuse(excuses::AFTER_SKIP);
            } else if self.was_deposed_since(now - excuses::DECIDED_WHILE_IT_STARTED_MAX) {
                self.excuse(excuses::DEPOSED_CHECK);
            } else {
                return Some(format!("starts {late} ms after a skip took its record away"));
            }
            return None;
        }
        let decided = history.decided()?;
        let (late, at) = (now - decided.millis, decided.millis);
        let may_be_old = at.max(now.saturating_sub(excuses::DECIDED_WHILE_IT_STARTED_MAX));
        let forced = match decided.what {
            // Its key permits a start in any case.
            What::NotDone { .. } if keyed => return None,
            What::NotDone { forced } | What::Ended { forced } => forced,
            What::Starts(..) | What::Evidence(..) | What::Taken => return None,
        };
        let max = if forced || fenced || self.has_ended(request) { excuses::DECIDED_WHILE_IT_STARTED_MAX } else { 0 };
        if late <= max {
            self.excuse(excuses::DECIDED_WHILE_IT_STARTED);
        } else if self.was_deposed_since(may_be_old) {
            self.excuse(excuses::DEPOSED_CHECK);
        } else {
            return Some(format!("starts {late} ms after its call was decided"));
        }
        None
    }

    /// Whether the run of a call has ended.
    fn has_ended(&self, request: &str) -> bool {
        self.requests.get(request).is_some_and(|(run, _)| self.has_run_ended(*run))
    }

    /// Whether a run has ended.
    pub(crate) fn has_run_ended(&self, run: u32) -> bool {
        self.recovery(run)["status"] != "open"
    }

    /// Whether a further start of a call is permitted, or no record of the call is known.
    pub(super) fn is_cleared(&self, request: &str) -> bool {
        self.histories.get(request).is_none_or(|history| history.is_cleared().is_ok())
    }

    /// Whether the last decision that a call did not happen was forced. A displaced request may have no history.
    pub(super) fn is_cleared_by_force(&self, request: &str) -> bool {
        let decisions = self.records.values().rev().filter_map(|landed| match &landed.record.payload {
            Payload::EffectResolution(resolution) if landed.outcome == "applied" => Some(resolution),
            _ => None,
        });
        let mut not_done = decisions.filter(|of| of.request_record_id.as_str() == request && of.decision == "not_done");
        not_done.next().and_then(|of| self.decision(of)).is_some_and(|decided| decided.forced)
    }

    /// The offset of a call's request.
    pub(super) fn requested_at(&self, request: &str) -> Option<Offset> {
        Some(self.histories.get(request)?.known.first()?.at.1)
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

    /// The call and the place of the nth evidence in a run.
    pub(crate) fn nth_evidence(&self, run: u32, nth: usize) -> Option<(String, (PartitionId, Offset))> {
        let of_run = |request: &String| self.requests.get(request).is_some_and(|(of, _)| *of == run);
        let mut all: Vec<_> = self
            .histories
            .iter()
            .filter(|(request, _)| of_run(request))
            .flat_map(|(request, history)| history.known.iter().map(move |known| (known.at, &known.what, request)))
            .filter(|(_, what, _)| matches!(what, What::Evidence(..)))
            .collect();
        all.sort_by_key(|(at, ..)| *at);
        all.get(nth.checked_sub(1)?).map(|(at, _, request)| ((*request).clone(), *at))
    }
}
