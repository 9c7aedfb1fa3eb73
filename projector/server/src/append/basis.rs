//! Checks attempts and decisions that do not name the state of their effect, and decisions about effects whose process
//! is alive. The check runs when they are numbered, at `latest`, while the run is locked.
//!
//! If the server writes schema version 3, it fills in the basis. The judge then refuses the record if another record of
//! the effect came in between. Before version 3, a record that another server appended in between goes unnoticed.
//!
//! The check reads only facts: payloads can be encrypted or stored elsewhere.

use super::{
    claimants::check_claim_read,
    decisions::{check_equal_calls, check_own_decision, is_own_decision, is_own_effect},
    origin::Origin,
};
use crate::auth::permissions::Scope;
use runlog_projector::index::{
    error::Error,
    project::Changes,
    query,
    store::{
        self, Rows,
        effects::{EffectRow, EvidenceRow, happened},
        records::RecordRow,
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    draft::Draft,
    id::{ContentHash, RecordId, RunId},
    judge::{Class, FirstJudgement, lifecycle::EffectKind},
    payload::{Payload, PayloadType},
    record::{Body, Facts, JournalRecord, RecordKind},
};
use std::{borrow::Cow, collections::HashMap};

/// Whether a record is checked against the state of its effect before it is appended.
pub(super) fn is_checked(record: &JournalRecord) -> bool {
    is_decision(record) || lacks_basis(record)
}

/// Whether a record is an attempt or a decision without a basis.
fn lacks_basis(record: &JournalRecord) -> bool {
    record.body.facts.basis.is_none() && (is_attempt(record) || is_decision(record))
}

fn is_attempt(record: &JournalRecord) -> bool {
    record.body.facts.payload_type == PayloadType::ToolCallAttempt
}

fn is_decision(record: &JournalRecord) -> bool {
    record.body.record_kind == RecordKind::EffectResolution
}

/// The bases that were filled into records of a request.
#[derive(Default)]
pub(super) struct Bases(HashMap<RecordId, (Option<ContentHash>, Option<u32>)>);

impl Bases {
    /// Remembers the basis of a record.
    pub(super) fn note(&mut self, record: &JournalRecord) {
        let Body { record_id, facts, .. } = &record.body;
        if facts.basis.is_some() {
            self.0.insert(record_id.clone(), (facts.basis, facts.attempt));
        }
    }

    /// Gives a draft the basis of the first record under its id, so that the draft stays a repeat. The first record is
    /// in the request or in the log.
    pub(super) fn as_first<'a, R: Rows>(
        &self,
        draft: &'a Draft,
        run_id: RunId<&str>,
        first: Option<&FirstJudgement>,
        log: &R,
    ) -> Result<Cow<'a, Draft>, Error> {
        let Some(first) = first.filter(|_| lacks_basis(&draft.record)) else { return Ok(Cow::Borrowed(draft)) };
        let (basis, attempt) = match self.0.get(&draft.record.body.record_id) {
            Some(filled) => *filled,
            None => {
                let key = match first.refused {
                    None => store::records::key(run_id, first.offset, first.index),
                    Some(_) => store::deliveries::key(run_id, first.offset),
                };
                let row: Option<RecordRow> = log.get(&key)?;
                let facts = row.map(|row| query::envelope(&row.framed.0).map(|first| first.facts)).transpose()?;
                facts.map_or((None, None), |facts| (facts.basis, facts.attempt))
            }
        };
        let mut draft = draft.clone();
        (draft.record.body.facts.basis, draft.record.body.facts.attempt) = (basis, attempt);
        Ok(Cow::Owned(draft))
    }
}

/// Refuses decisions, and attempts without a basis, in a batch.
pub(super) fn check_batch(batch: &JournalRecord) -> Result<(), Error> {
    let Payload::Batch(records) = &batch.payload else { return Ok(()) };
    let Some(member) = records.records.iter().find(|record| is_checked(record)) else { return Ok(()) };
    let message =
        "attempts and decisions are judged by the newest state of their effect: send each alone, not in a batch";
    Err(Error::new(ErrorKind::Invalid, message).about_record(member.body.record_id.borrow()))
}

/// The inputs of a check, in addition to the effect.
pub(super) struct Check<'a> {
    /// The caller, and the basis that the author saw.
    pub(super) origin: &'a Origin,
    /// Whether the server fills in the basis.
    pub(super) writes_basis: bool,
    /// The run's state before the record.
    pub(super) run: &'a RunRow,
    /// The log's time, milliseconds since the Unix epoch.
    pub(super) now: i64,
}

impl Check<'_> {
    /// Checks an attempt or a decision, and fills the basis in if it has none.
    ///
    /// Errors, after which nothing was appended:
    /// * `Conflict`: a decision about an effect whose process is alive, or a `not_done` as [`check_equal_calls`] describes.
    /// * `Conflict`: a decision that does not name all evidence of the effect; `ReconcileRequired` if it is the writer's own.
    /// * `Forbidden`: a writer's own decision on an effect that the writer cannot vouch for.
    /// * `Invalid`: an attempt whose number is not the next; a decision at a revision that the effect does not have.
    /// * `ReconcileRequired`: an attempt on a call that must be decided first.
    /// * `Fenced`: an attempt of an epoch whose claim a skip voids.
    /// * `Stale`: an attempt of an epoch whose claim this server has not read.
    pub(super) fn check<R: Rows>(
        &self,
        record: &mut JournalRecord,
        run_id: RunId<&str>,
        changes: &Changes<'_, R>,
    ) -> Result<(), Error> {
        let Some(effect) = record.body.facts.answers.clone().filter(|_| is_checked(record)) else { return Ok(()) };
        if is_decision(record) {
            self.decision(record, run_id, effect.borrow(), changes)
        } else {
            self.attempt(record, run_id, effect.borrow(), changes)
        }
    }

    fn attempt<R: Rows>(
        &self,
        record: &mut JournalRecord,
        run_id: RunId<&str>,
        call: RecordId<&str>,
        changes: &Changes<'_, R>,
    ) -> Result<(), Error> {
        let (place, head) = (&record.place, &self.run.head);
        let epoch = place.writer_epoch;
        check_claim_read(run_id, epoch, head)?;
        if epoch > head.epoch {
            let message = format!(
                "epoch {epoch} of run {run_id} is not claimed any more, because a skip voids its claim: claim the run again; nothing \
                 was appended"
            );
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        if !head.is_writer(epoch, place.writer_id.borrow()) {
            // The judge refuses it as fenced.
            return Ok(());
        }
        let row = store::effects::pending_one(run_id, call, None, |key| changes.get(key))?;
        // Only calls have attempts.
        let Some(row) = row.filter(|row| row.kind == EffectKind::ToolCall) else { return Ok(()) };
        let given = match &record.payload {
            Payload::ToolCallAttempt(attempt) => Some(attempt.attempt),
            _ => record.body.facts.attempt,
        };
        let next = check_attempt(&row, run_id, call, given)?;
        if self.writes_basis {
            (record.body.facts.attempt, record.body.facts.basis) = (Some(next), Some(row.newest));
        }
        Ok(())
    }

    fn decision<R: Rows>(
        &self,
        record: &mut JournalRecord,
        run_id: RunId<&str>,
        effect: RecordId<&str>,
        changes: &Changes<'_, R>,
    ) -> Result<(), Error> {
        if is_own_decision(record) {
            let may_resolve = self.origin.caller.has(Scope::Resolve);
            let facts = &record.body.facts;
            // Such a decision names only the epoch of its writer, so the judge cannot tell whether the writer saw the effect's state.
            // Before version 3 a writer cannot prove that it has the handle that started the effect.
            // The judge refuses a decision of another epoch as fenced.
            let is_current = facts.epoch == Some(self.run.head.epoch);
            let is_blind = self.writes_basis && is_current && facts.basis.is_none() && facts.revision.is_none();
            if !may_resolve {
                check_own_decision(run_id, &record.body, changes)?;
            } else if is_blind && !is_own_effect(run_id, &record.body, changes)? {
                return Err(Error::new(ErrorKind::ReconcileRequired, blind(run_id, effect)).about_record(effect));
            }
        }
        // A record without a basis is judged by the first effect with the id.
        let basis = record.body.facts.basis.or(self.origin.basis.filter(|_| self.writes_basis));
        let row = store::effects::pending_one(run_id, effect, basis, |key| changes.get(key))?;
        let (Some(row), facts) = (row, &mut record.body.facts) else { return Ok(()) };
        if facts.epoch.is_none() && !self.origin.force {
            self.check_alive(&row, run_id, effect, changes)?;
            if facts.status.as_deref() == Some("not_done") {
                check_equal_calls(&row, run_id, effect, changes)?;
            }
        }
        check_revision(&row, run_id, effect, facts)?;
        if facts.basis.is_some() {
            return Ok(());
        }
        self.check_decision(&row, run_id, effect, facts)?;
        // The judge refuses a smaller revision as stale. With the current basis it would accept the decision.
        let is_stale = facts.revision.is_some_and(|revision| revision < row.revision);
        if self.writes_basis && !is_stale {
            facts.basis = Some(row.newest);
        }
        Ok(())
    }

    /// Refuses a decision while the process that started the effect last may still record the result.
    fn check_alive<R: Rows>(
        &self,
        row: &EffectRow,
        run_id: RunId<&str>,
        effect: RecordId<&str>,
        rows: &Changes<'_, R>,
    ) -> Result<(), Error> {
        let epoch = row.last_started_in;
        let is_running = || store::runs::runs_effects_of(run_id, self.run, epoch, self.now, |key| rows.get(key));
        if !is_running()? {
            return Ok(());
        }
        let age_millis = self.now.saturating_sub(self.run.wrote_at_millis).max(0).cast_unsigned();
        let message = format!(
            "the process that started effect {effect} wrote to run {run_id} {age_millis} ms ago, and may still record the \
             result: wait until it has not written for 30 s, take the run over, or decide with `force`; nothing was appended"
        );
        Err(Error::active(message, age_millis))
    }

    /// Checks a decision without a basis for changes that the judge cannot see. The judge itself refuses a revision
    /// that is too small.
    fn check_decision(
        &self,
        row: &EffectRow,
        run_id: RunId<&str>,
        effect: RecordId<&str>,
        facts: &mut Facts,
    ) -> Result<(), Error> {
        let seen = self.origin.basis;
        if seen.is_some_and(|seen| seen != row.newest) {
            let message = format!("effect {effect} of run {run_id} has changed; read it and decide again");
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        // A decision without a revision is the writer's own. Somebody else must decide.
        let kind = if facts.revision.is_some() { ErrorKind::Conflict } else { ErrorKind::ReconcileRequired };
        if row.is_newest_void && seen.is_none() {
            let message = format!(
                "a skip voids or displaces a record about effect {effect} of run {run_id}: read the effect again, and decide with \
                 its `basis` (POST /v1/runs/{{run}}/effects/{{id}}/resolution); nothing was appended"
            );
            return Err(Error::new(kind, message).about_record(effect));
        }
        if !row.is_newest_counted && seen.is_none() && facts.revision.is_some() {
            let message = format!(
                "effect {effect} of run {run_id} has a result that its revision does not count: \
                 read it again, and decide with its `basis` (POST /v1/runs/{{run}}/effects/{{id}}/resolution)"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let other = |evidence: &EvidenceRow, why: &str| {
            let id = &evidence.record_id;
            let message = format!(
                "effect {effect} of run {run_id} has other evidence {id}, and a decision {why}; nothing was appended"
            );
            Err(Error::new(kind, message))
        };
        let (all, by_id) = (row.adoptable(false), row.adoptable(true));
        let is_hidden = |all: &&EvidenceRow| by_id.is_none_or(|by_id| by_id.content_hash != all.content_hash);
        let Some(hidden) = all.filter(is_hidden).filter(|_| !self.writes_basis) else { return Ok(()) };
        match facts.status.as_deref() {
            Some("adopt") if happened(&hidden.status) => {
                other(hidden, "cannot adopt it at schema version 2: decide `done` with the result that you saw")
            }
            Some("adopt") => other(
                hidden,
                "cannot adopt it at schema version 2: decide `give_up`, which ends the effect as failed, or `not_done` if it \
                 did not happen",
            ),
            Some("not_done") if happened(&hidden.status) => {
                // The judge compares the name with the evidence that it reads.
                let read = by_id.filter(|read| happened(&read.status)).unwrap_or(hidden);
                let is_seen = seen.is_some() || read.record_id == hidden.record_id;
                // An author at the basis saw both: a client names the piece that `adopt` takes.
                let names = [Some(read), seen.map(|_| hidden)].into_iter().flatten();
                if is_seen && names.map(|one| &one.record_id).any(|id| facts.evidence.as_ref() == Some(id)) {
                    facts.evidence = Some(read.record_id.clone());
                    return Ok(());
                }
                let id = &read.record_id;
                other(
                    hidden,
                    &format!("must have the effect's `basis` and name {id}, which also says that the effect happened"),
                )
            }
            _ => Ok(()),
        }
    }
}

/// Returns the message for a decision that names only its writer's epoch, about an effect that the writer does not know.
fn blind(run_id: RunId<&str>, effect: RecordId<&str>) -> String {
    format!(
        "the decision on effect {effect} of run {run_id} names only its writer's epoch, but another handle started the effect or a \
         result has arrived: read the effect, and send the `basis` that it has there; nothing was appended"
    )
}

fn check_revision(row: &EffectRow, run_id: RunId<&str>, effect: RecordId<&str>, facts: &Facts) -> Result<(), Error> {
    let Some(revision) = facts.revision.filter(|revision| *revision > row.revision) else { return Ok(()) };
    let message = format!(
        "effect {effect} of run {run_id} has revision {}, not {revision}: read it and decide again; nothing was appended",
        row.revision
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Returns the number of the next attempt. `given` is absent if the payload hides it.
fn check_attempt(row: &EffectRow, run_id: RunId<&str>, call: RecordId<&str>, given: Option<u32>) -> Result<u32, Error> {
    let (class, why) = row.class();
    if class != Class::RetrySafe {
        let message = format!(
            "call {call} of run {run_id} must be decided before it runs again: {why}; nothing was appended (POST \
             /v1/runs/{{run}}/effects/{{id}}/resolution)"
        );
        return Err(Error::new(ErrorKind::ReconcileRequired, message).about_record(call));
    }
    let next = row.attempts.checked_add(1);
    next.filter(|next| given.is_none_or(|given| given == *next)).ok_or_else(|| {
        let message = format!(
            "attempt {} of call {call} of run {run_id}: it was started {} times; read its `attempts` and send the next \
             number; nothing was appended",
            given.unwrap_or(u32::MAX),
            row.attempts
        );
        Error::new(ErrorKind::Invalid, message)
    })
}
