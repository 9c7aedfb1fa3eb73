//! Limits a credential without `resolve` to the epochs that its own principal claimed. Answers name the run's writer and epoch, so
//! knowing both proves nothing.
//!
//! In a run whose first record is a claim no process has epoch 0, so such a credential does not write under it either: its results would
//! be evidence about calls of others.
//!
//! Not limited: approvals by a credential with `approve`, epochs whose claim names no principal, runs that began without a claim, and
//! servers without authentication.

use super::origin::Origin;
use crate::auth::{Caller, permissions::Scope};
use runlog_projector::index::{
    error::Error,
    project::Changes,
    store::{self, Rows, records::ClaimRow, runs::RunRow},
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{Epoch, RunId},
    judge::Head,
    payload::{Payload, PayloadType},
    record::{JournalRecord, RecordKind},
};

/// The principal to write into a record, if the record is a claim.
pub(super) fn to_record<'o>(origin: &'o Origin, record: &JournalRecord) -> Option<&'o str> {
    origin.caller.principal().filter(|_| matches!(record.payload, Payload::RunClaim(_)))
}

/// The principal of a caller that writes only under epochs that the principal claimed.
fn limited(caller: &Caller) -> Option<&str> {
    caller.principal().filter(|_| !caller.has(Scope::Resolve))
}

/// Checks the epoch of a record, and of each record of a batch.
///
/// Errors, before anything is appended:
/// * `Forbidden`: another principal claimed the epoch.
/// * `Stale`: an epoch whose claim this server has not read.
pub(super) fn check<R: Rows>(
    origin: &Origin,
    run_id: RunId<&str>,
    record: &JournalRecord,
    rows: &Changes<'_, R>,
) -> Result<(), Error> {
    let Some(principal) = limited(&origin.caller) else { return Ok(()) };
    // Whoever approves has not claimed the run of the agent.
    if origin.caller.has(Scope::Approve) && is_of_approvals(record) {
        return Ok(());
    }
    let mut epochs = vec![record.place.writer_epoch];
    match &record.payload {
        Payload::RunClaim(_) => return Ok(()),
        Payload::Batch(batch) => epochs.extend(batch.records.iter().map(|member| member.place.writer_epoch)),
        _ => {}
    }
    epochs.dedup();
    epochs
        .into_iter()
        .try_for_each(|epoch| match epoch {
            Epoch::ZERO if record.body.record_kind == RecordKind::Retraction => {
                check_retraction(principal, run_id, rows)
            }
            Epoch::ZERO if record.body.record_kind.unclaimed() => Ok(()),
            Epoch::ZERO => check_no_epoch(run_id, rows),
            epoch => check_epoch(principal, run_id, epoch, rows),
        })
        .map_err(|error| error.about_record(record.body.record_id.borrow()))
}

/// Refuses epoch 0 in a run whose first record is a claim. Two seeks, if the run is claimed.
fn check_no_epoch<R: Rows>(run_id: RunId<&str>, rows: &Changes<'_, R>) -> Result<(), Error> {
    let claim: Option<ClaimRow> = rows.get(&store::records::claim(run_id, Epoch::from(1)))?;
    let Some(claim) = claim else { return Ok(()) };
    if store::records::first_offset(rows.below(), run_id)? != Some(claim.offset) {
        return Ok(());
    }
    let message = format!(
        "run {run_id} began with a claim, so no process has epoch 0: claim the run before you append, or use a credential with the \
         scope {}; nothing was appended",
        Scope::Resolve.as_str()
    );
    Err(Error::new(ErrorKind::Forbidden, message))
}

/// Checks a retraction, which has no epoch: it is the writer's own word about its run, so it needs the run's last claim.
fn check_retraction<R: Rows>(principal: &str, run_id: RunId<&str>, rows: &Changes<'_, R>) -> Result<(), Error> {
    let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
    if run.head.epoch == Epoch::ZERO { Ok(()) } else { check_epoch(principal, run_id, run.head.epoch, rows) }
}

/// Whether a record, or each record of a batch, is about an approval.
fn is_of_approvals(record: &JournalRecord) -> bool {
    match &record.payload {
        Payload::Batch(batch) => !batch.records.is_empty() && batch.records.iter().all(is_of_approvals),
        _ => record.body.facts.payload_type == PayloadType::Approval,
    }
}

fn check_epoch<R: Rows>(
    principal: &str,
    run_id: RunId<&str>,
    epoch: Epoch,
    rows: &Changes<'_, R>,
) -> Result<(), Error> {
    let Some(claim): Option<ClaimRow> = rows.get(&store::records::claim(run_id, epoch))? else {
        let run: RunRow = rows.get(&store::runs::key(run_id))?.unwrap_or_default();
        return check_claim_read(run_id, epoch, &run.head);
    };
    if claim.claimant.as_deref().is_none_or(|claimant| claimant == principal) {
        return Ok(());
    }
    let message = format!(
        "another principal claimed epoch {epoch} of run {run_id}: claim the run before you append, or use a credential with the \
         scope {}; nothing was appended",
        Scope::Resolve.as_str()
    );
    Err(Error::new(ErrorKind::Forbidden, message))
}

/// Refuses an epoch whose claim this server has not read, as `Stale`: a deposed partition leader may have reported an old end of the
/// log. If a skip voided the claim of an epoch, its records are fenced, and its results are evidence.
pub(super) fn check_claim_read(run_id: RunId<&str>, epoch: Epoch, head: &Head) -> Result<(), Error> {
    if epoch <= head.epoch || head.unclaimed_until.is_some() {
        return Ok(());
    }
    let message = format!(
        "epoch {epoch} of run {run_id} is not claimed as far as this server has read; claim it in a request of its own, or retry; \
         nothing was appended"
    );
    Err(Error::new(ErrorKind::Stale, message))
}

/// Whether a caller may get the answer to a claim again: the claim is its own, or it is not limited.
pub(super) fn may_resume<R: Rows>(caller: &Caller, run_id: RunId<&str>, epoch: Epoch, rows: &R) -> Result<bool, Error> {
    let Some(principal) = limited(caller) else { return Ok(true) };
    let claim: Option<ClaimRow> = rows.get(&store::records::claim(run_id, epoch))?;
    let claimant = claim.and_then(|claim| claim.claimant);
    Ok(claimant.is_none_or(|claimant| claimant == principal))
}
