//! Attempts and decisions that do not name the state of their effect: checked against the newest state before the append.
//!
//! If the server writes schema version 3, it fills in the basis, and the judge refuses the record if the effect got another
//! record in between. Otherwise such a record is not noticed.

use crate::index::{
    Consistency, Error, Projector, query,
    store::{
        self, Rows as _, Store,
        effects::{EffectRow, happened},
        records::RecordRow,
        runs::RunRow,
    },
};
use runlog_schemas::{
    answer::ErrorKind,
    draft::Draft,
    id::{RecordId, RunId},
    judge::{Class, FirstJudgement},
    payload::{Payload, ToolCallAttempt},
    record::{Facts, JournalRecord, RecordKind},
};
use std::{sync::Arc, time::Duration};

/// Whether a record is an attempt without a basis.
fn is_attempt_without_basis(record: &JournalRecord) -> bool {
    record.body.facts.basis.is_none() && matches!(record.payload, Payload::ToolCallAttempt(_))
}

/// Whether a record is an attempt or a decision without a basis.
fn lacks_basis(record: &JournalRecord) -> bool {
    let decides = record.body.record_kind == RecordKind::EffectResolution;
    (decides && record.body.facts.basis.is_none()) || is_attempt_without_basis(record)
}

impl Projector {
    /// Checks attempts and decisions without a basis at `latest`, and fills the basis in. A record whose id is known gets the
    /// basis of the first record under the id, so that it stays a repeat.
    ///
    /// Errors, after which nothing was appended: `ReconcileRequired` for an attempt on a call that must be decided first;
    /// `Invalid` for an attempt with another number than the next, for an attempt in a batch, and for a decision on a state that
    /// the effect does not have.
    pub(super) async fn with_bases(
        self: &Arc<Self>,
        run_id: RunId<&str>,
        mut drafts: Vec<Draft>,
        deadline: Duration,
    ) -> Result<Vec<Draft>, Error> {
        for draft in &drafts {
            if let Payload::Batch(batch) = &draft.record.payload
                && let Some(attempt) = batch.records.iter().find(|record| is_attempt_without_basis(record))
            {
                let message = "an attempt is judged by the newest state of its call: send it alone, not in a batch";
                return Err(Error::new(ErrorKind::Invalid, message).about_record(attempt.body.record_id.borrow()));
            }
        }
        if !drafts.iter().any(|draft| lacks_basis(&draft.record)) {
            return Ok(drafts);
        }
        self.wait(self.partition_of(run_id), Consistency::Latest, deadline).await?;
        let fill = move |projector: &Self, run_id: RunId<&str>| {
            let store = projector.store(projector.partition_of(run_id));
            let writes_basis = projector.shared.config.writes_basis();
            for draft in drafts.iter_mut().filter(|draft| lacks_basis(&draft.record)) {
                fill_basis(&store, run_id, &mut draft.record, writes_basis)
                    .map_err(|error| error.about_record(draft.record.body.record_id.borrow()))?;
            }
            Ok(drafts)
        };
        self.blocking(run_id, fill).await
    }
}

fn fill_basis(store: &Store, run_id: RunId<&str>, record: &mut JournalRecord, writes_basis: bool) -> Result<(), Error> {
    if let Some(first) = store::seen(run_id, record.body.record_id.borrow(), |key| store.get(key))? {
        let facts = facts_of(store, run_id, &first)?;
        (record.body.facts.basis, record.body.facts.attempt) = (facts.basis, facts.attempt);
        return Ok(());
    }
    let Some(effect) = record.body.facts.answers.clone() else { return Ok(()) };
    let Some(row) = store::effects::pending_one(run_id, effect.borrow(), |key| store.get(key))? else { return Ok(()) };
    if let Payload::ToolCallAttempt(attempt) = &record.payload {
        let head = store.get::<RunRow>(&store::runs::key(run_id))?.unwrap_or_default().head;
        let place = &record.place;
        if place.writer_epoch != head.epoch || (place.writer_id != head.writer_id && !head.writer_id.is_none()) {
            // It is fenced.
            return Ok(());
        }
        check_attempt(&row, run_id, attempt)?;
        record.body.facts.attempt = writes_basis.then_some(attempt.attempt);
    } else {
        check_decision(&row, run_id, effect.borrow(), &record.body.facts, writes_basis)?;
        if record.body.facts.revision.is_some_and(|revision| revision < row.revision) {
            // The judge refuses it as stale. With the basis of now it would not be.
            return Ok(());
        }
    }
    record.body.facts.basis = writes_basis.then_some(row.newest);
    Ok(())
}

/// The facts of the first record under an id, applied or refused.
fn facts_of(store: &Store, run_id: RunId<&str>, first: &FirstJudgement) -> Result<Facts, Error> {
    let key = match first.refused {
        None => store::records::key(run_id, first.offset, first.index),
        Some(_) => store::deliveries::key(run_id, first.offset),
    };
    let row: Option<RecordRow> = store.get(&key)?;
    Ok(row.map(|row| query::envelope(&row.framed.0).map(|record| record.facts)).transpose()?.unwrap_or_default())
}

fn check_attempt(row: &EffectRow, run_id: RunId<&str>, attempt: &ToolCallAttempt) -> Result<(), Error> {
    let (call, number) = (&attempt.request_record_id, attempt.attempt);
    let (class, why) = row.class();
    if class != Class::RetrySafe {
        let message = format!(
            "call {call} of run {run_id} must be decided before it runs again: {why}; nothing was appended (POST \
             /v1/runs/{{run}}/effects/{{id}}/resolution)"
        );
        return Err(Error::new(ErrorKind::ReconcileRequired, message));
    }
    if Some(number) != row.attempts.checked_add(1) {
        let message = format!(
            "attempt {number} of call {call} of run {run_id}: it was started {} times; read its `attempts` and send the next \
             number; nothing was appended",
            row.attempts
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// Checks what the judge does not see in a decision without a basis. A revision that is too small is left to the judge.
fn check_decision(
    row: &EffectRow,
    run_id: RunId<&str>,
    effect: RecordId<&str>,
    facts: &Facts,
    writes_basis: bool,
) -> Result<(), Error> {
    if let Some(revision) = facts.revision.filter(|revision| *revision > row.revision) {
        let message = format!(
            "effect {effect} of run {run_id} has revision {}, not {revision}: read it again and decide anew; nothing was \
             appended",
            row.revision
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let (all, by_id) = (row.adoptable(false), row.adoptable(true));
    let Some(evidence) =
        all.filter(|all| !writes_basis && by_id.is_none_or(|by_id| by_id.content_hash != all.content_hash))
    else {
        return Ok(());
    };
    let id = &evidence.record_id;
    let why = match facts.status.as_deref() {
        Some("adopt") => "would adopt the first result under this id: decide `done` with the result that you saw",
        Some("not_done") if happened(&evidence.status) && facts.evidence.as_ref() != Some(id) => {
            "must name it, since it says that the effect happened"
        }
        _ => return Ok(()),
    };
    let message =
        format!("effect {effect} of run {run_id} has other evidence {id}, and a decision {why}; nothing was appended");
    Err(Error::new(ErrorKind::Invalid, message))
}
