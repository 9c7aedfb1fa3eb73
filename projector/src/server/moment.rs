//! What a question about a run is asked of: the index as fresh as it asks, or the run as it was behind a position.

use super::{App, Ask};
use crate::index::{
    Consistency, Contents, Error,
    as_of::{self, Limits, RunAsOf, RunRows},
    query::{self, TopicPartition},
    store::Store,
};
use axum::Json;
use runlog_schemas::{
    answer::{ErrorKind, Lookup},
    id::{Offset, PartitionId, RunId},
};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Where and when a run is asked about.
#[derive(Debug)]
pub(super) struct Moment {
    /// The run's partition.
    pub(super) partition: PartitionId,
    /// As of this offset, inclusive; otherwise as of now.
    pub(super) as_of: Option<Offset>,
    until: Instant,
    /// Held while the past of a run is in memory: the principal's share, if there are tokens, and the server's.
    room: Option<(Option<OwnedSemaphorePermit>, OwnedSemaphorePermit)>,
}

impl App {
    /// Waits as a question about a run asks. As of a position it waits until that is applied; at `eventual` it is answered
    /// on a stopped partition too, if it is.
    ///
    /// Errors: `Usage` for what is no position of the run's partition; those of the wait.
    pub(super) async fn moment(&self, run_id: RunId<&str>, ask: &Ask, as_of: Option<&str>) -> Result<Moment, Error> {
        let Some(as_of) = as_of else {
            let partition = self.fresh(run_id, ask).await?;
            return Ok(Moment { partition, as_of: None, until: Instant::now() + ask.deadline(), room: None });
        };
        let (partition, until) = (self.0.partition_of(run_id), Instant::now() + ask.deadline());
        let offset = offset(run_id, partition, as_of)?;
        let there = Consistency::AtLeast(partition, offset);
        let asked = ask.consistency(there)?;
        self.0.wait(partition, asked, ask.deadline()).await?;
        match self.0.wait(partition, there, until.saturating_duration_since(Instant::now())).await {
            Err(error) if error.kind() == ErrorKind::PartitionStopped && asked == Consistency::Eventual => {
                if self.0.progress(partition).applied <= offset {
                    return Err(error);
                }
            }
            waited => waited?,
        }
        Ok(Moment { partition, as_of: Some(offset), until, room: None })
    }

    /// The same, with room to fold the run as of then: for whatever asks [`Moment::rows`].
    ///
    /// Errors: `Unavailable` where there is no room in time.
    pub(super) async fn then(&self, run_id: RunId<&str>, ask: &Ask, as_of: Option<&str>) -> Result<Moment, Error> {
        let mut moment = self.moment(run_id, ask, as_of).await?;
        if moment.as_of.is_some() {
            // Its own share first: a principal that waits for its share takes nothing from others.
            let room = async { (self.caller().past().await, self.1.pasts.clone().acquire_owned().await) };
            let busy = || Error::new(ErrorKind::Unavailable, "other runs are being folded as they were; try again");
            let (share, room) = tokio::time::timeout(moment.left(), room).await.map_err(|_| busy())?;
            // It is never closed.
            moment.room = room.ok().map(|room| (share, room));
        }
        Ok(moment)
    }

    /// Answers with content from the run's rows as of a moment that [`App::then`] waited for, off the network threads.
    pub(super) async fn answered<T: Send + 'static>(
        &self,
        moment: Moment,
        run_id: RunId,
        answer: impl FnOnce(Asked<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.audit_content(run_id.borrow()).await?;
        self.answer(moment, run_id, answer).await
    }

    async fn answer<T: Send + 'static>(
        &self,
        moment: Moment,
        run_id: RunId,
        answer: impl FnOnce(Asked<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let read = move |app: &Self| {
            let (store, place) = (app.0.store(moment.partition), app.place(moment.partition));
            let rows = moment.rows(app, &store, run_id.borrow())?;
            answer(Asked { rows: &rows, contents: &app.0.contents(moment.left()), place, run_id: run_id.borrow() })
        };
        self.read(read).await
    }

    /// As [`App::answered`], of one call: from memtables and cached blocks on this thread where they have all of it.
    pub(super) async fn answered_lookup(
        &self,
        moment: Moment,
        run_id: RunId,
        answer: impl Fn(Asked<'_>) -> Result<Lookup, Error> + Send + 'static,
    ) -> Result<Json<Lookup>, Error> {
        self.audit_content(run_id.borrow()).await?;
        if let Some(cached) = self.cached_lookup(&moment, run_id.borrow(), &answer) {
            return Ok(Json(cached));
        }
        self.answer(moment, run_id, answer).await.map(Json)
    }

    /// None where the disk or the content store has to be asked, or where this is an error.
    fn cached_lookup(
        &self,
        moment: &Moment,
        run_id: RunId<&str>,
        answer: impl Fn(Asked<'_>) -> Result<Lookup, Error>,
    ) -> Option<Lookup> {
        if moment.as_of.is_some() || self.0.shared.config.executor.is_caller() {
            return None;
        }
        let (store, place) = (self.0.store(moment.partition), self.place(moment.partition));
        let rows = self.rows_in(store.cached_view()?, run_id);
        let found = answer(Asked { rows: &rows, contents: &Contents::none(), place, run_id }).ok()?;
        found.missing_content.is_empty().then_some(found)
    }
}

/// What a question about a run is answered from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) rows: &'a RunRows<'a>,
    pub(super) contents: &'a Contents,
    pub(super) place: TopicPartition<'a>,
    pub(super) run_id: RunId<&'a str>,
}

impl Moment {
    /// How long the question may still take.
    pub(super) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The rows to ask. As of a position that takes as long as folding the run up to there.
    pub(super) fn rows<'s>(&self, app: &App, store: &'s Store, run_id: RunId<&str>) -> Result<RunRows<'s>, Error> {
        let offset = match self.as_of {
            Some(offset) if app.caller().sees(run_id) => offset,
            _ => return Ok(app.rows(store, run_id)),
        };
        let view = store.view();
        let mut then = RunAsOf::new(run_id.to_owned(), self.partition, app.0.journal().partitions);
        then.fold(&view, offset, Limits { bytes: as_of::BYTES_MAX, until: Some(self.until) })?;
        Ok(RunRows::AsOf(then))
    }
}

/// Reads a position of a run's partition.
fn offset(run_id: RunId<&str>, partition: PartitionId, as_of: &str) -> Result<Offset, Error> {
    let usage = |message: String| Error::new(ErrorKind::Usage, message);
    let place = as_of.split_once(':').and_then(|(at, offset)| {
        let at: PartitionId = query::number(at)?;
        Some((at, query::number(offset)?))
    });
    match place {
        Some((at, offset)) if at == partition => Ok(offset),
        Some((at, _)) => Err(usage(format!("run {run_id} is in partition {partition}, not in {at}"))),
        None if is_time(as_of) => Err(usage(format!(
            "as_of {as_of:?} is a time; what is known of a run, such as its checkpoint, holds at a position of the log \
             and has no valid time: as_of takes PARTITION:OFFSET"
        ))),
        None => Err(usage(format!("as_of {as_of:?} is not PARTITION:OFFSET"))),
    }
}

/// Whether a text begins as RFC 3339 has it.
fn is_time(text: &str) -> bool {
    let date = text.as_bytes();
    date.len() >= 10 && date[4] == b'-' && date[7] == b'-' && date[..4].iter().all(u8::is_ascii_digit)
}
