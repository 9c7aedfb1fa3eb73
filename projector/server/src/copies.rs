//! Copies a run's checkpoints, messages and host payloads into another run.
//!
//! ```text
//!   plan (nothing appended) ──▶ check the first records ──▶ append a part ──▶ … ──▶ answer
//! ```
//!
//! Records keep their ids, so a repeated request continues after the records that are already copied. They are appended
//! in the name of the writer that the request names, by the rules of any append: a writer that lost the target copies
//! no more records.

use super::{
    app::App,
    append::{check::check, outcomes::AnswerAt},
    auth::permissions::Scope,
    body::Text,
    memory_limits::COPIES_MAX,
    parameters::{Ask, Patience},
    problem::Refusal,
    runs::no_run,
    strict_json::parsed,
};
use axum::{
    Json,
    extract::{Path, Query},
};
use runlog_projector::index::{
    error::Error,
    projector::Consistency,
    query::{self, copies},
};
use runlog_schemas::{
    answer::{Copied, Disposition, ErrorKind, Outcome, Position},
    draft::Draft,
    id::{Epoch, JournalSeq, PartitionId, RunId, WriterId},
    judge::Reason,
    record::JournalRecord,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Limits of one append: number of records, and their bytes.
const PART_RECORDS_MAX: usize = 256;
const PART_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CopyBody {
    /// The run to copy from.
    from: RunId,
    /// The target's writer, as its claim returned it. Without one, the target must never have been claimed.
    writer_id: Option<WriterId>,
    /// The writer's epoch.
    #[serde(default)]
    writer_epoch: Epoch,
}

/// A copy in progress.
#[derive(Debug)]
struct Copying {
    target: RunId,
    body: CopyBody,
    partition: PartitionId,
    plan: copies::Plan,
    until: Instant,
}

pub(super) async fn append(
    app: App,
    Path(target): Path<RunId>,
    Query(patience): Query<Patience>,
    Text(body): Text,
) -> Result<Json<Copied>, Refusal> {
    let body: CopyBody = parsed(&body, "a copy")?;
    app.caller.require(Scope::ReadContent)?;
    if body.from == target {
        return Err(Error::new(ErrorKind::Conflict, format!("run {target} cannot be copied into itself")).into());
    }
    let _permit = app.limits.copies.try_acquire().map_err(|_| {
        let message = format!("{} copies are in progress; nothing was copied", COPIES_MAX);
        Error::new(ErrorKind::Overloaded, message)
    })?;
    app.audit_content(body.from.borrow()).await?;
    let until = Instant::now() + patience.deadline();
    let ask = Ask { consistency: None, deadline_ms: patience.deadline_ms };
    let partition = app.wait_to_continue(body.from.borrow(), &ask).await?;
    let from = body.from.clone();
    let (plan, as_of) = app.read(move |app| plan_copy(app, from.borrow(), partition)).await?;
    let copying = Arc::new(Copying { target, body, partition, plan, until });
    copy(&app, &copying).await?;
    let Copying { target, body, plan, .. } = &*copying;
    let records = plan.records.len() as u64;
    let (run_id, from) = (target.clone(), body.from.clone());
    Ok(Json(Copied { run_id, from, as_of, records, left_out: plan.left_out }))
}

/// Plans the copy of a run's current state. Returns the plan and the position of the run's last record. Blocking.
fn plan_copy(app: &App, from: RunId<&str>, partition: PartitionId) -> Result<(copies::Plan, Position), Error> {
    let (store, place) = (app.projector.store(partition)?, app.topic_partition(partition));
    let rows = app.rows(&store, from);
    let run = query::runs::get(&rows, place, from, app.projector.log_now())?.ok_or_else(|| no_run(from))?;
    let plan = copies::plan(&rows, place, from, run.position.offset)?;
    Ok((plan, run.position))
}

/// Appends the planned records, part by part.
async fn copy(app: &App, copying: &Arc<Copying>) -> Result<(), Error> {
    let mut done = 0;
    while let Some(end) = copying.part(done) {
        let work = Arc::clone(copying);
        let records =
            app.read(move |app| part(app, &work, done..end)).await.map_err(|error| mark_partial(done, error))?;
        let drafts: Vec<Draft> = records.into_iter().map(|record| copying.draft(record)).collect();
        let target = copying.target.borrow();
        if done == 0 {
            // If the target has other records, the copy must not append any record.
            let outcomes =
                check(&app.projector, target, drafts.clone(), (&app.caller).into(), copying.time_left()).await?;
            copying.check_judgements(&outcomes, "nothing was copied")?;
        }
        let judged = AnswerAt::Judged(Consistency::Eventual);
        let appended =
            app.appender.append_from(target, drafts, (&app.caller).into(), judged, copying.time_left()).await;
        let outcomes = appended.map_err(|error| mark_partial(done, error))?;
        app.metrics.appended(&outcomes);
        copying.check_judgements(&outcomes, &format!("{done} of its records are already copied"))?;
        done = end;
    }
    Ok(())
}

/// Reads a part of the copied records. Blocking.
fn part(app: &App, copying: &Copying, which: std::ops::Range<usize>) -> Result<Vec<JournalRecord>, Error> {
    let Copying { target, body, partition, plan, .. } = copying;
    let (store, place) = (app.projector.store(*partition)?, app.topic_partition(*partition));
    let (rows, contents) = (app.rows(&store, body.from.borrow()), app.projector.contents(copying.time_left()));
    let ids = (body.from.borrow(), target.borrow());
    let chosen = plan.records.get(which).unwrap_or_default();
    chosen.iter().map(|record| plan.copied(&rows, &contents, place, ids, record.at)).collect()
}

/// Marks the error of a copy that already appended `done` records.
fn mark_partial(done: usize, error: Error) -> Error {
    if done == 0 { error } else { error.after_a_part() }
}

impl Copying {
    fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the end (exclusive) of the part that begins at a record; `None` after the last record. A part has at least
    /// one record.
    fn part(&self, from: usize) -> Option<usize> {
        let mut bytes = 0;
        let mut fits = |record: &copies::Chosen| {
            bytes += record.bytes;
            bytes <= PART_BYTES_MAX
        };
        let left = self.plan.records.get(from..).filter(|left| !left.is_empty())?;
        let fitting = left.iter().take(PART_RECORDS_MAX).copied().take_while(|record| fits(record)).count();
        Some(from + fitting.max(1))
    }

    /// Makes the draft of a copied record, as the target's writer sends it. The draft keeps its journal number, so that
    /// a target with other records refuses it.
    fn draft(&self, mut record: JournalRecord) -> Draft {
        if let Some(writer_id) = &self.body.writer_id {
            record.place.writer_id = writer_id.clone().into();
        }
        record.place.writer_epoch = self.body.writer_epoch;
        Draft {
            has_record_id: true,
            has_journal_seq: record.place.journal_seq > JournalSeq::ZERO,
            has_writer_seq: false,
            has_writer_epoch: true,
            has_writer_id: self.body.writer_id.is_some(),
            has_timestamp: true,
            record,
        }
    }

    /// Checks the outcomes of a part: every record must be applied.
    ///
    /// Errors: `Fenced` if another writer has the target; `Conflict` if the target has other records.
    fn check_judgements(&self, outcomes: &[Outcome], so_far: &str) -> Result<(), Error> {
        let Some(refused) =
            outcomes.iter().find(|outcome| outcome.outcome == Disposition::Refused || outcome.reason.is_some())
        else {
            return Ok(());
        };
        let reason = refused.reason.as_ref().map_or("refused", |reason| reason.as_str());
        let (kind, what) = match refused.reason.as_ref().and_then(|reason| reason.known()) {
            Some(Reason::Fenced) => (ErrorKind::Fenced, "it has another writer"),
            _ => (ErrorKind::Conflict, "it has other records: copy into a new run"),
        };
        let message =
            format!("run {} cannot be copied into run {}: {what} ({reason}); {so_far}", self.body.from, self.target);
        Err(Error::new(kind, message).about_record(refused.record_id.borrow()))
    }
}
