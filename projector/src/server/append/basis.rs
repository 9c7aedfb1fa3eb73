//! Attempts and decisions that do not name the state of their effect: checked where they are numbered, against the run as it is
//! at `latest`, while the run is locked.
//!
//! If the server writes schema version 3, it fills in the basis, and the judge refuses the record if the effect got another
//! record in between. Otherwise a record of another server in between is not noticed.
//!
//! Only facts are read: payloads can be encrypted or stored elsewhere.

use super::Draft;
use crate::index::{
    Error,
    project::Changes,
    query,
    store::{
        self, Rows,
        effects::{EffectRow, EvidenceRow, happened},
        records::RecordRow,
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{ContentHash, RecordId, RunId},
    judge::{Class, FirstJudgement, Head},
    payload::{Payload, PayloadType},
    record::{Facts, JournalRecord, RecordKind},
};
use std::borrow::Cow;

/// Whether a record is an attempt or a decision without a basis.
pub(super) fn lacks_basis(record: &JournalRecord) -> bool {
    record.body.facts.basis.is_none() && (is_attempt(record) || is_decision(record))
}

fn is_attempt(record: &JournalRecord) -> bool {
    record.body.facts.payload_type == PayloadType::ToolCallAttempt
}

fn is_decision(record: &JournalRecord) -> bool {
    record.body.record_kind == RecordKind::EffectResolution
}

/// A draft with the basis of the first record under its id, so that it stays a repeat of that.
pub(super) fn as_first<'a, R: Rows>(
    draft: &'a Draft,
    run_id: RunId<&str>,
    first: Option<&FirstJudgement>,
    changes: &Changes<'_, R>,
) -> Result<Cow<'a, Draft>, Error> {
    let Some(first) = first.filter(|_| lacks_basis(&draft.record)) else { return Ok(Cow::Borrowed(draft)) };
    let key = match first.refused {
        None => store::records::key(run_id, first.offset, first.index),
        Some(_) => store::deliveries::key(run_id, first.offset),
    };
    let row: Option<RecordRow> = changes.get(&key)?;
    let Some(row) = row else { return Ok(Cow::Borrowed(draft)) };
    let facts = query::envelope(&row.framed.0)?.facts;
    let mut draft = draft.clone();
    (draft.record.body.facts.basis, draft.record.body.facts.attempt) = (facts.basis, facts.attempt);
    Ok(Cow::Owned(draft))
}

/// Refuses attempts and decisions without a basis in a batch.
pub(super) fn check_batch(batch: &JournalRecord) -> Result<(), Error> {
    let Payload::Batch(records) = &batch.payload else { return Ok(()) };
    let Some(member) = records.records.iter().find(|record| lacks_basis(record)) else { return Ok(()) };
    let message =
        "attempts and decisions are judged by the newest state of their effect: send each alone, not in a batch";
    Err(Error::new(ErrorKind::Invalid, message).about_record(member.body.record_id.borrow()))
}

/// What a server does with attempts and decisions without a basis.
pub(super) struct Check<'a> {
    /// Whether it fills the basis in.
    pub(super) writes_basis: bool,
    /// The basis that the author of a decision saw, of which the record says only the revision.
    pub(super) seen: Option<ContentHash>,
    /// The run before the record.
    pub(super) head: &'a Head,
}

impl Check<'_> {
    /// Checks a record and fills the basis in, if it is an attempt or a decision without one.
    ///
    /// Errors, after which nothing was appended: `ReconcileRequired` for an attempt on a call that must be decided first;
    /// `Invalid` for an attempt with another number than the next or of an epoch that is not claimed yet, and for a decision at a
    /// revision that the effect does not have; for a decision that does not name what is known of the effect `Conflict`, or
    /// `ReconcileRequired` if it is the writer's own.
    pub(super) fn check<R: Rows>(
        &self,
        record: &mut JournalRecord,
        run_id: RunId<&str>,
        changes: &Changes<'_, R>,
    ) -> Result<(), Error> {
        let Some(effect) = record.body.facts.answers.clone().filter(|_| lacks_basis(record)) else { return Ok(()) };
        let place = &record.place;
        if is_attempt(record) && place.writer_epoch > self.head.epoch {
            let epoch = place.writer_epoch;
            let message = format!("epoch {epoch} of run {run_id} is not claimed yet; nothing was appended");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if is_attempt(record) && !self.head.is_writer(place.writer_epoch, place.writer_id.borrow()) {
            // The judge refuses it as fenced.
            return Ok(());
        }
        let row = store::effects::pending_one(run_id, effect.borrow(), |key| changes.get(key))?;
        let Some(row) = row else { return Ok(()) };
        let facts = &mut record.body.facts;
        if facts.payload_type == PayloadType::ToolCallAttempt {
            let given = match &record.payload {
                Payload::ToolCallAttempt(attempt) => Some(attempt.attempt),
                _ => facts.attempt,
            };
            let next = check_attempt(&row, run_id, effect.borrow(), given)?;
            facts.attempt = self.writes_basis.then_some(next).or(facts.attempt);
        } else {
            self.check_decision(&row, run_id, effect.borrow(), facts)?;
            if facts.revision.is_some_and(|revision| revision < row.revision) {
                // The judge refuses it as stale. With the basis of now it would not be.
                return Ok(());
            }
        }
        facts.basis = self.writes_basis.then_some(row.newest);
        Ok(())
    }

    /// Checks what the judge does not see in a decision without a basis. A revision that is too small is left to the judge.
    fn check_decision(
        &self,
        row: &EffectRow,
        run_id: RunId<&str>,
        effect: RecordId<&str>,
        facts: &Facts,
    ) -> Result<(), Error> {
        if let Some(revision) = facts.revision.filter(|revision| *revision > row.revision) {
            let message = format!(
                "effect {effect} of run {run_id} has revision {}, not {revision}: read it again and decide anew; nothing was \
                 appended",
                row.revision
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if self.seen.is_some_and(|seen| seen != row.newest) {
            let message = format!("effect {effect} of run {run_id} has changed; read it again and decide anew");
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let other = |evidence: &EvidenceRow, why| {
            let id = &evidence.record_id;
            let message = format!(
                "effect {effect} of run {run_id} has other evidence {id}, and a decision {why}; nothing was appended"
            );
            // Whose own decision it is has no revision to read again: somebody else decides.
            let kind = if facts.epoch.is_some() { ErrorKind::ReconcileRequired } else { ErrorKind::Conflict };
            Err(Error::new(kind, message))
        };
        let uncounted = row.evidence.iter().find(|one| one.content_hash == row.newest && !one.is_first_of_id);
        if let Some(one) = uncounted.filter(|_| self.seen.is_none() && facts.revision.is_some()) {
            return other(one, "must name the effect's `basis`: a revision counts one result per record id");
        }
        let (all, by_id) = (row.adoptable(false), row.adoptable(true));
        let is_hidden = |all: &&EvidenceRow| by_id.is_none_or(|by_id| by_id.content_hash != all.content_hash);
        let Some(hidden) = all.filter(is_hidden).filter(|_| !self.writes_basis) else { return Ok(()) };
        match facts.status.as_deref() {
            Some("adopt") => {
                other(hidden, "would adopt the first result under this id: decide `done` with the result that you saw")
            }
            Some("not_done") if happened(&hidden.status) && facts.evidence.as_ref() != Some(&hidden.record_id) => {
                other(hidden, "must name it, since it says that the effect happened")
            }
            _ => Ok(()),
        }
    }
}

/// The number of an attempt, which is the next one. `given` is none where the payload hides it.
fn check_attempt(row: &EffectRow, run_id: RunId<&str>, call: RecordId<&str>, given: Option<u32>) -> Result<u32, Error> {
    let (class, why) = row.class();
    if class != Class::RetrySafe {
        let message = format!(
            "call {call} of run {run_id} must be decided before it runs again: {why}; nothing was appended (POST \
             /v1/runs/{{run}}/effects/{{id}}/resolution)"
        );
        return Err(Error::new(ErrorKind::ReconcileRequired, message));
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
