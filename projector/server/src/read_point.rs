//! The state that a query about a run reads: the index at the requested freshness, or the run as of a position.

use super::{
    app::{App, PastPermits},
    parameters::Ask,
};
use axum::Json;
use runlog_projector::index::{
    as_of::{self, Limits, RunAsOf, RunRows},
    content::Contents,
    error::Error,
    projector::Consistency,
    query::{self, TopicPartition},
    store::Store,
};
use runlog_schemas::{
    answer::{ErrorKind, Lookup},
    id::{Offset, PartitionId, RunId, split_log},
};
use std::time::Duration;
use tokio::time::Instant;

/// The partition and the time of a query about a run.
#[derive(Debug)]
pub(super) struct ReadPoint {
    /// The run's partition.
    pub(super) partition: PartitionId,
    /// As of this offset, inclusive; absent for now.
    pub(super) as_of: Option<Offset>,
    until: Instant,
    permits: Option<PastPermits>,
}

/// The inputs of an answer about a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadContext<'a> {
    pub(super) rows: &'a RunRows<'a>,
    pub(super) contents: &'a Contents,
    pub(super) place: TopicPartition<'a>,
    pub(super) run_id: RunId<&'a str>,
}

impl ReadPoint {
    /// Waits for the state that a query about a run reads. With `as_of` it waits until that position is applied. At
    /// `eventual`, a stopped partition that has applied the position still answers.
    ///
    /// Errors: `Usage` if `as_of` is not a position of the run's partition; errors of the wait.
    pub(super) async fn wait(app: &App, run_id: RunId<&str>, ask: &Ask, as_of: Option<&str>) -> Result<Self, Error> {
        let Some(as_of) = as_of else {
            let partition = app.wait_for_run(run_id, ask).await?;
            return Ok(Self { partition, as_of: None, until: Instant::now() + ask.deadline(), permits: None });
        };
        let (partition, until) = (app.projector.partition_of(run_id), Instant::now() + ask.deadline());
        let offset = offset(run_id, partition, as_of)?;
        let at_offset = Consistency::AtLeast(partition, offset);
        let requested = ask.consistency(at_offset)?;
        app.projector.wait(partition, requested, ask.deadline()).await?;
        match app.projector.wait(partition, at_offset, until.saturating_duration_since(Instant::now())).await {
            Err(error) if error.kind() == ErrorKind::PartitionStopped && requested == Consistency::Eventual => {
                if app.projector.progress(partition)?.applied <= offset {
                    return Err(error);
                }
            }
            waited => waited?,
        }
        Ok(Self { partition, as_of: Some(offset), until, permits: None })
    }

    /// Waits as [`Self::wait`] does, and also for permits to fold a past state. Needed before [`Self::rows`].
    ///
    /// Errors: `Unavailable` if no permit is free in time.
    pub(super) async fn wait_with_permits(
        app: &App,
        run_id: RunId<&str>,
        ask: &Ask,
        as_of: Option<&str>,
    ) -> Result<Self, Error> {
        let mut read_point = Self::wait(app, run_id, ask, as_of).await?;
        if read_point.as_of.is_some() {
            let busy = || Error::new(ErrorKind::Unavailable, "past states of other runs are being folded; try again");
            read_point.permits = Some(app.past_permits(read_point.until).await.ok_or_else(busy)?);
        }
        Ok(read_point)
    }

    /// Waits as [`Self::wait_with_permits`] does, for an answer by which an agent continues the run. Past states are shown to people.
    ///
    /// Errors: `ReconcileRequired` for the current state of a run that a lost home may have continued.
    pub(super) async fn wait_to_continue(
        app: &App,
        run_id: RunId<&str>,
        ask: &Ask,
        as_of: Option<&str>,
    ) -> Result<Self, Error> {
        let read_point = Self::wait_with_permits(app, run_id, ask, as_of).await?;
        if as_of.is_none() {
            app.check_doubt(run_id).await?;
        }
        Ok(read_point)
    }

    /// Answers with content from the run's rows at this point, off the network threads. The point comes from
    /// [`Self::wait_with_permits`].
    pub(super) async fn answer_audited<T: Send + 'static>(
        self,
        app: &App,
        run_id: RunId,
        answer: impl FnOnce(ReadContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        app.audit_content(run_id.borrow()).await?;
        self.answer(app, run_id, answer).await
    }

    async fn answer<T: Send + 'static>(
        self,
        app: &App,
        run_id: RunId,
        answer: impl FnOnce(ReadContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let read = move |app: &App| {
            let (store, place) = (app.projector.store(self.partition)?, app.topic_partition(self.partition));
            let rows = self.rows(app, &store, run_id.borrow())?;
            answer(ReadContext {
                rows: &rows,
                contents: &app.projector.contents(self.time_left()),
                place,
                run_id: run_id.borrow(),
            })
        };
        app.read(read).await
    }

    /// Answers a lookup of one call, as [`Self::answer_audited`] does. Reads on this thread if memtables and cached blocks
    /// have all rows.
    pub(super) async fn answer_lookup(
        self,
        app: &App,
        run_id: RunId,
        answer: impl Fn(ReadContext<'_>) -> Result<Lookup, Error> + Send + 'static,
    ) -> Result<Json<Lookup>, Error> {
        app.audit_content(run_id.borrow()).await?;
        if let Some(cached) = cached_lookup(app, &self, run_id.borrow(), &answer) {
            return Ok(Json(cached));
        }
        self.answer(app, run_id, answer).await.map(Json)
    }

    /// The remaining time of the query.
    pub(super) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the rows to read. With a position, it folds the run up to that position, which takes time.
    pub(super) fn rows<'s>(&self, app: &App, store: &'s Store, run_id: RunId<&str>) -> Result<RunRows<'s>, Error> {
        let offset = match self.as_of {
            Some(offset) if app.caller.sees(run_id) => offset,
            _ => return Ok(app.rows(store, run_id)),
        };
        let view = store.view();
        let mut run = RunAsOf::new(run_id.to_owned(), self.partition, app.projector.journal().partitions);
        run.fold(&view, offset, Limits { bytes: as_of::BYTES_MAX, until: Some(self.until) })?;
        Ok(RunRows::AsOf(run))
    }
}

/// Looks up a call in memory. Returns `None` if it needs the disk or the content store, or fails.
fn cached_lookup(
    app: &App,
    read_point: &ReadPoint,
    run_id: RunId<&str>,
    answer: impl Fn(ReadContext<'_>) -> Result<Lookup, Error>,
) -> Option<Lookup> {
    if read_point.as_of.is_some() || app.projector.executor().is_caller() {
        return None;
    }
    let (store, place) = (app.projector.store(read_point.partition).ok()?, app.topic_partition(read_point.partition));
    let rows = app.rows_in(store.cached_view()?, run_id);
    let lookup = answer(ReadContext { rows: &rows, contents: &Contents::none(), place, run_id }).ok()?;
    lookup.missing_content.is_empty().then_some(lookup)
}

/// Parses a position of a run's partition.
fn offset(run_id: RunId<&str>, partition: PartitionId, as_of: &str) -> Result<Offset, Error> {
    let usage = |message: String| Error::new(ErrorKind::Usage, message);
    // The log was compared before the request came here.
    let place = split_log(as_of).0.split_once(':').and_then(|(at, offset)| {
        let at: PartitionId = query::number(at)?;
        Some((at, query::number(offset)?))
    });
    match place {
        Some((at, offset)) if at == partition => Ok(offset),
        Some((at, _)) => Err(usage(format!("run {run_id} is in partition {partition}, not in {at}"))),
        None if is_time(as_of) => Err(usage(format!(
            "as_of {as_of:?} is a time, and the state of a run, such as its checkpoint, has no valid time: as_of must be \
             PARTITION:OFFSET"
        ))),
        None => Err(usage(format!("as_of {as_of:?} is not PARTITION:OFFSET"))),
    }
}

/// Whether a text begins with an RFC 3339 date.
fn is_time(text: &str) -> bool {
    let date = text.as_bytes();
    date.len() >= 10 && date[4] == b'-' && date[7] == b'-' && date[..4].iter().all(u8::is_ascii_digit)
}
