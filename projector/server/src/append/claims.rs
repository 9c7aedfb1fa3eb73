//! Claims runs for a client. A claim with a record id from its sender is appended once: a repeated request finds it by
//! the id.
//!
//! ```text
//!   request ─▶ the run at latest ─┬─▶ the record id is known ─────────────────────┐
//!                                 ├─▶ a record of the id was fenced ─▶ claim_lost ▼
//!                                 ├─▶ another head than `only_if` ─▶ conflict     ▼
//!                                 └─▶ append a claim of the next epoch ─▶ read the claim by its id
//! ```

use super::{
    appender::{Appender, draft_without_numbers},
    blocking::blocking,
    claimants::may_resume,
    origin::Origin,
    outcomes::AnswerAt,
};
use crate::{auth::Caller, strict_json::member};
use runlog_projector::index::{
    error::Error,
    projector::{Consistency, Projector},
    query,
    store::{self, Rows, runs::RunRow},
};
use runlog_schemas::{
    answer::{Claim, ErrorKind},
    datum::Sha256,
    id::{Epoch, RecordId, RunHash, RunId, Secret, WriterId, WriterSeq},
    payload::RunClaim,
    record::JournalRecord,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// A request to take over a run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewClaim")]
pub(crate) struct ClaimBody {
    /// Who claims the run, as a note for people.
    #[serde(default)]
    claimed_by: String,
    /// The claim's record id; random unless given. A repeated request with the same id appends nothing. It gets the
    /// first answer, or `claim_lost` if the run was claimed since.
    record_id: Option<RecordId>,
    /// The new writer's id; random unless given.
    writer_id: Option<WriterId>,
    /// Claims the run only if its head is still this one.
    #[serde(default, deserialize_with = "member")]
    #[schemars(with = "Option<ReadHead>")]
    only_if: Option<ReadHead>,
    /// The SHA-256 of 32 random bytes that only the claiming handle knows. The handle shows them with its next claim of the run.
    #[schemars(with = "Option<RunHash>")]
    commitment: Option<Sha256>,
    /// The bytes whose SHA-256 the handle's previous claim had as its `commitment`, as 64 hexadecimal digits. No answer returns them.
    #[schemars(with = "Option<RunHash>")]
    shown: Option<Secret>,
}

/// The head of a run, as `GET /v1/runs/{run}` returned it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadHead {
    /// The run hash, computed from every applied record of the run; 64 zeros for a run without records.
    hash: RunHash,
}

/// Takes over a run for a new writer of `caller`. Returns the applied claim and the head from which the writer continues.
///
/// Errors: `ReconcileRequired`, with nothing appended, if a lost home may have continued the run. `ClaimLost` if another claim was
/// applied before or after this one. `Conflict`, with nothing appended, if
/// the run has another record under the record id, or another head than `only_if` names. `Unavailable` or `Stale`
/// if the claim may be in the log: repeat the same request to find out.
///
/// A record that another server appends, or that has its own numbers, can be applied between the comparison with `only_if`
/// and the append. Another claim cannot: of two claims for one epoch, one is lost.
///
/// Cancellation: the claim continues in its own task.
pub(crate) async fn claim(
    appender: &Arc<Appender>,
    run_id: RunId<&str>,
    body: ClaimBody,
    caller: &Caller,
    deadline: Duration,
) -> Result<Claim, Error> {
    let late = format!(
        "timed out after {} waiting for the log to acknowledge a claim of run {run_id}: it may be in the log; send it again \
         with the same record_id, or, without one, claim again before you append",
        humantime::format_duration(deadline)
    );
    let (own, run_id, caller) = (Arc::clone(appender), run_id.to_owned(), caller.clone());
    let claim = async move { claim_once(&own, run_id.borrow(), &body, &caller, deadline).await };
    appender.detached(claim, deadline, late).await
}

async fn claim_once(
    appender: &Arc<Appender>,
    run_id: RunId<&str>,
    body: &ClaimBody,
    caller: &Caller,
    deadline: Duration,
) -> Result<Claim, Error> {
    let (started, partition) = (Instant::now(), appender.projector.partition_of(run_id));
    let projector = &appender.projector;
    let left = || deadline.saturating_sub(started.elapsed());
    // The index does not show a copy of this request that is not judged yet, so wait for the copy.
    let _only_copy = match &body.record_id {
        None => None,
        Some(record_id) => {
            let earlier = || format!("an earlier copy of claim {record_id}");
            Some(appender.claim_locks.lock(record_id.as_str(), left(), earlier).await?)
        }
    };
    // Appends that this server numbers wait for the run's lock. None of them lands between the comparison and the claim.
    let _no_append = match &body.only_if {
        None => None,
        Some(_) => {
            let earlier = || format!("an earlier append to run {run_id}");
            Some(appender.run_locks.lock(run_id.as_str(), left(), earlier).await?)
        }
    };
    projector.wait(partition, Consistency::Latest, left()).await?;
    let (requested, of) = (body.clone(), caller.clone());
    let read = move |projector: &Projector, run_id: RunId<&str>| {
        projector.check_doubt(run_id)?;
        // The head is read before the lookup by id. A copy that lands in between is then found by its id and does not
        // look like another head.
        let row: Option<RunRow> = projector.store(partition)?.get(&store::runs::key(run_id))?;
        let earlier = match &requested.record_id {
            Some(record_id) => earlier_claim(projector, run_id, record_id.borrow(), &requested, &of)?,
            None => None,
        };
        Ok((row.unwrap_or_default(), earlier))
    };
    let (RunRow { head, offset, index, .. }, earlier) = blocking(projector, run_id, read).await?;
    if let Some(claim) = earlier {
        return Ok(claim);
    }
    if body.only_if.as_ref().is_some_and(|read| read.hash != head.hash) {
        let message = format!(
            "run {run_id} has another head than the request names, and was not claimed: its hash is {}, its epoch {}, its next \
             journal_seq {}; read the run again",
            head.hash, head.epoch, head.next_journal_seq
        );
        return Err(Error::new(ErrorKind::Conflict, message).at(&projector.position(partition, offset, index)));
    }
    let epoch = head
        .epoch
        .next()
        .ok_or_else(|| Error::new(ErrorKind::Conflict, format!("run {run_id} has the largest possible epoch")))?;
    let random = || (projector.config().ids)();
    let writer_id = body.writer_id.clone().map_or_else(|| WriterId::new(random()), Ok)?;
    let record_id = body.record_id.clone().map_or_else(|| RecordId::new(random()), Ok)?;
    let record = claim_record(run_id, record_id.borrow(), (&writer_id, epoch), body);
    let at = AnswerAt::Judged(Consistency::Eventual);
    appender.append_locked(run_id, vec![draft_without_numbers(record)], Origin::from(caller), at, left()).await?;
    // A copy of the request may have been appended first, with another writer's id.
    let (requested, of) = (body.clone(), caller.clone());
    let read = move |projector: &Projector, run_id: RunId<&str>| {
        let landed = landed_claim(projector, run_id, record_id.borrow(), &requested, &of)?;
        landed.ok_or_else(|| lost(run_id, record_id.borrow()))
    };
    blocking(projector, run_id, read).await.map_err(Error::after_a_part)
}

/// Returns the claim that an earlier copy of the request appended. The index has no entry by id for a lost claim,
/// so the run's refused records are searched too.
fn earlier_claim(
    projector: &Projector,
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
    body: &ClaimBody,
    caller: &Caller,
) -> Result<Option<Claim>, Error> {
    let claim = landed_claim(projector, run_id, record_id, body, caller)?;
    let store = projector.store(projector.partition_of(run_id))?;
    if claim.is_none() && query::anomalies::has_fenced_claim(&store.view(), run_id, record_id)? {
        return Err(lost(run_id, record_id));
    }
    Ok(claim)
}

/// Returns the claim with this record id if it is applied, is the run's newest claim, and its writer has written nothing. Returns no
/// claim if no record with the id was judged.
fn landed_claim(
    projector: &Projector,
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
    body: &ClaimBody,
    caller: &Caller,
) -> Result<Option<Claim>, Error> {
    let partition = projector.partition_of(run_id);
    let store = projector.store(partition)?;
    let view = store.view();
    let Some(first) = store::seen(run_id, record_id, |key| view.get(key))? else { return Ok(None) };
    let position = projector.position(partition, first.offset, first.index);
    let (_, writer) = query::outcome::first_one(&view, run_id, &first)?;
    let writer = writer.and_then(|writer| Some(((*writer.writer_id).clone()?, writer.epoch)));
    let same = writer.filter(|(writer_id, epoch)| {
        let record = claim_record(run_id, record_id, (writer_id, *epoch), body);
        let is_own = body.writer_id.as_ref().is_none_or(|own| own == writer_id);
        is_own && first.refused.is_none() && first.content_hash == record.content_hash()
    });
    let own = same.map(|(writer_id, epoch)| {
        may_resume(caller, run_id, epoch, &view).map(|own| own.then_some((writer_id, epoch)))
    });
    let Some((writer_id, epoch)) = own.transpose()?.flatten() else {
        let message = format!(
            "run {run_id} has another record with the id {record_id}, or a claim with other members or of another principal; \
             claim with a new record_id"
        );
        return Err(Error::new(ErrorKind::Conflict, message).at(&position).about_record(record_id));
    };
    let head = view.get::<RunRow>(&store::runs::key(run_id))?.unwrap_or_default().head;
    if (head.epoch, head.writer_id.borrow()) != (epoch, Some(writer_id.borrow())) {
        let message = format!(
            "run {run_id} was claimed in epoch {epoch} by this request, and in epoch {} by another writer since; claim it with \
             a new record_id only if that writer must stop",
            head.epoch
        );
        return Err(Error::new(ErrorKind::ClaimLost, message).about_record(record_id));
    }
    // The sender learns the epoch from the answer, so a sender that resends a claim without an answer has written nothing under it.
    if head.next_writer_seq > WriterSeq::from(1) {
        let message = format!(
            "a process that has this claim of run {run_id} has already written under epoch {epoch}: another process uses the same \
             record_id, or this one did before it restarted; claim the run with a new random record_id"
        );
        return Err(Error::new(ErrorKind::ClaimLost, message).about_record(record_id));
    }
    Ok(Some(Claim { writer_id, epoch, position, next_journal_seq: head.next_journal_seq, hash: head.hash }))
}

fn lost(run_id: RunId<&str>, record_id: RecordId<&str>) -> Error {
    let message = format!(
        "another writer claimed run {run_id} first; claim it with a new record_id only if that writer must stop"
    );
    Error::new(ErrorKind::ClaimLost, message).about_record(record_id)
}

/// Makes a claim's record. Its content depends only on the arguments, so that a repeat is recognised.
fn claim_record(
    run_id: RunId<&str>,
    record_id: RecordId<&str>,
    (writer_id, epoch): (&WriterId, Epoch),
    body: &ClaimBody,
) -> JournalRecord {
    let claim = RunClaim { writer_id: writer_id.clone(), epoch, claimed_by: body.claimed_by.clone() };
    let mut record = JournalRecord::new(run_id, record_id.to_owned(), "runlog", claim.into());
    (record.body.facts.commitment, record.body.facts.shown) = (body.commitment, body.shown);
    record
}
