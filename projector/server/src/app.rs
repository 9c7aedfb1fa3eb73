//! The state of every handler, with the checks, waits and reads that all of them share.

use super::{
    append::Appender,
    audit::{Action, Audit},
    auth::{Caller, permissions::Scope},
    expiry::Watched,
    memory_limits::MemoryLimits,
    metrics::Metrics,
    options::Options,
    parameters::Ask,
    shutdown::Shutdown,
};
use axum::{extract::FromRequestParts, http::request::Parts};
use futures_util::future::try_join_all;
use runlog_projector::index::{
    as_of::RunRows,
    error::Error,
    executor::NoResult,
    principal::Proofs,
    projector::{Consistency, Projector},
    query::{TopicPartition, timeline::Show, with_log},
    store::{Store, View},
};
use runlog_schemas::{
    answer::ErrorKind,
    id::{PartitionId, RunId},
};
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// The state of every handler. As an extractor it has the request's caller; the router's own state has the caller
/// `Nobody`.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) projector: Arc<Projector>,
    pub(super) appender: Arc<Appender>,
    pub(super) limits: Arc<MemoryLimits>,
    pub(super) shutdown: Shutdown,
    pub(super) metrics: Arc<Metrics>,
    /// The caller whose request this answers.
    pub(super) caller: Caller,
    pub(super) options: Arc<Options>,
}

/// Permits for a past state of a run in memory: the principal's share, if there are tokens, and the server's.
pub(super) type PastPermits = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl FromRequestParts<App> for App {
    type Rejection = Infallible;

    /// Makes the handler state for the request's caller.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_default();
        Ok(Self { caller, ..app.clone() })
    }
}

impl App {
    pub(super) fn new(projector: Arc<Projector>, options: Options, shutdown: Shutdown) -> Self {
        let refusals = options.authentication.as_ref().map(|authentication| authentication.refusals.clone());
        Self {
            limits: Arc::new(MemoryLimits::new(projector.executor())),
            shutdown,
            metrics: Arc::new(Metrics::new(refusals.unwrap_or_default())),
            caller: Caller::Nobody,
            options: Arc::new(options),
            appender: Arc::new(Appender::new(projector.clone())),
            projector,
        }
    }

    /// Waits for the consistency of a query about `run_id`. Returns the run's partition.
    pub(super) async fn wait_for_run(&self, run_id: RunId<&str>, ask: &Ask) -> Result<PartitionId, Error> {
        let partition = self.projector.partition_of(run_id);
        self.projector.wait(partition, ask.consistency(Consistency::Latest)?, ask.deadline()).await?;
        Ok(partition)
    }

    /// Waits as [`Self::wait_for_run`] does, for an answer by which an agent continues the run.
    ///
    /// Errors: `ReconcileRequired` for a run that a lost home may have continued.
    pub(super) async fn wait_to_continue(&self, run_id: RunId<&str>, ask: &Ask) -> Result<PartitionId, Error> {
        // To other callers the run is absent.
        if !self.caller.sees(run_id) {
            return self.wait_for_run(run_id, ask).await;
        }
        let consistency = ask.consistency(Consistency::Latest)?;
        self.projector.wait_to_continue(run_id, consistency, ask.deadline()).await
    }

    /// The credentials and certificates that may expire.
    pub(super) fn watched(&self) -> Watched {
        let (authentication, tls) = (self.options.authentication.clone(), self.options.tls.clone());
        Watched { authentication, tls, clock: self.projector.config().clock }
    }

    /// Why the server uses older certificates than their files contain.
    pub(super) fn certificates_failure(&self) -> Option<String> {
        self.options.tls.as_ref()?.failure()
    }

    /// Why the server uses older tokens than their file contains.
    pub(super) fn tokens_failure(&self) -> Option<String> {
        self.options.authentication.as_ref()?.failure()
    }

    /// The issuers whose keys are older than their file or URL has, and why.
    pub(super) fn key_failures(&self) -> Vec<(String, String)> {
        self.options.authentication.as_ref().map(|authentication| authentication.key_failures()).unwrap_or_default()
    }

    /// Proves and checks that a server authenticated the principal of a decision. Absent without a shared key.
    pub(super) fn proofs(&self) -> Option<Proofs> {
        self.caller.proofs(&self.projector.journal().journal_id)
    }

    /// Reads a run's current rows. For a caller that may not see the run it has none, as if the run did not exist.
    pub(super) fn rows<'s>(&self, store: &'s Store, run_id: RunId<&str>) -> RunRows<'s> {
        self.rows_in(store.view(), run_id)
    }

    /// Reads as [`Self::rows`] does, in an existing view.
    pub(super) fn rows_in<'s>(&self, view: View<'s>, run_id: RunId<&str>) -> RunRows<'s> {
        if self.caller.sees(run_id) { RunRows::Live(view) } else { RunRows::Absent }
    }

    /// Decides how records are shown, for one run or for all. Showing unmasked content is audited.
    ///
    /// Errors: `Forbidden` for content that the caller may not read; errors of the audit log.
    pub(super) async fn show(&self, raw: bool, whole: bool, run_id: Option<RunId<&str>>) -> Result<Show, Error> {
        if raw || whole {
            self.caller.require(Scope::ReadContent)?;
            self.audit_read(run_id, json!({ "what": "records" })).await?;
            return Ok(if whole { Show::Whole } else { Show::Raw });
        }
        Ok(if self.caller.has(Scope::ReadContent) { Show::Masked } else { Show::Hidden })
    }

    /// Waits for the consistency of a list of one run or of all runs. Returns the unavailable partitions of a list of all runs.
    pub(super) async fn wait_for_run_or_all(
        &self,
        run_id: Option<RunId<&str>>,
        ask: &Ask,
    ) -> Result<Vec<PartitionId>, Error> {
        let Some(run_id) = run_id else { return self.wait_for_all_runs(ask).await };
        self.wait_for_run(run_id, ask).await?;
        Ok(Vec::new())
    }

    /// Waits for the held partitions concurrently, so that they share the deadline. Returns the other partitions and the stopped ones,
    /// which the list must name.
    pub(super) async fn wait_for_all_runs(&self, ask: &Ask) -> Result<Vec<PartitionId>, Error> {
        self.wait_for_partitions(ask.consistency(Consistency::Eventual)?, ask.deadline()).await
    }

    /// Waits as [`Self::wait_for_all_runs`] does. At `at-least` only the partition that it names waits for the offset.
    pub(super) async fn wait_for_partitions(
        &self,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<Vec<PartitionId>, Error> {
        self.projector.check_partition_of(consistency)?;
        let stopped = self.projector.held_partitions().map(async |partition| {
            match self.projector.wait(partition, consistency.in_partition(partition), deadline).await {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == ErrorKind::PartitionStopped => Ok(Some(partition)),
                Err(error) => Err(error),
            }
        });
        let mut unavailable: Vec<_> = try_join_all(stopped).await?.into_iter().flatten().collect();
        unavailable.extend(self.projector.absent());
        unavailable.sort_unstable();
        Ok(unavailable)
    }

    /// Waits for all partitions concurrently, for an answer that needs each of them.
    ///
    /// Errors: `Unavailable` with the reason `not_here`, at once, if this server does not hold all partitions.
    pub(super) async fn wait_for_each_partition(&self, ask: &Ask) -> Result<(), Error> {
        let consistency = ask.consistency(Consistency::Eventual)?;
        self.projector.check_partition_of(consistency)?;
        self.projector.check_all_held()?;
        let waits = PartitionId::all(self.projector.journal().partitions)
            .map(|partition| self.projector.wait(partition, consistency.in_partition(partition), ask.deadline()));
        try_join_all(waits).await.map(drop)
    }

    pub(super) fn topic_partition(&self, partition: PartitionId) -> TopicPartition<'_> {
        self.projector.place(partition)
    }

    /// Refuses a call about a run that a lost home may have continued.
    ///
    /// Errors: `ReconcileRequired` with the reason `doubt`.
    pub(super) async fn check_doubt(&self, run_id: RunId<&str>) -> Result<(), Error> {
        // To other callers the run is absent.
        if !self.caller.sees(run_id) || self.projector.home().takeover().is_none() {
            return Ok(());
        }
        let run_id = run_id.to_owned();
        self.read(move |app| app.projector.check_doubt(run_id.borrow())).await
    }

    /// A cursor with the log to which it belongs, if the journal has a home.
    pub(super) fn with_log(&self, cursor: String) -> String {
        with_log(cursor, self.projector.home().tag())
    }

    /// Queues a read of the indices and of content, and runs it off the network threads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        self.projector.read(move || read(&app)).await.map_err(no_answer)?
    }

    /// Runs a read for a stream on one of few threads, since it may take much memory.
    pub(super) async fn read_ahead<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (app, executor) = (self.clone(), self.projector.executor());
        self.limits.stream_threads.run(executor, move || read(&app)).await.map_err(no_answer)?
    }

    /// Runs work off the network threads: work that may wait long for the log, or must not wait for reads.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        self.projector.executor().run(move || read(&app)).await.map_err(no_answer)?
    }

    /// Waits for permits to fold a past state of a run in memory. `None` if they are not free in time.
    pub(super) async fn past_permits(&self, until: Instant) -> Option<PastPermits> {
        // The principal's permit comes first: a request that waits for it holds no shared permit.
        let permits = async { (self.caller.past_permit().await, self.limits.pasts.clone().acquire_owned().await) };
        let (share, permit) = tokio::time::timeout_at(until, permits).await.ok()?;
        // The semaphore is never closed.
        permit.ok().map(|permit| (share, permit))
    }

    /// Records the caller's next action, if there is an audit log.
    ///
    /// Errors: `Unavailable` if the line cannot be written; the action must not happen then.
    pub(super) async fn audit(&self, action: Action, run_id: Option<RunId<&str>>, detail: Value) -> Result<(), Error> {
        let Some(audit) = self.options.audit.clone() else { return Ok(()) };
        let run_id = run_id.map(|run_id| run_id.to_owned());
        self.blocking(move |app| audit.record(app.caller.principal(), action, run_id, detail)).await
    }

    /// Records a read of content, unless the caller may append: agents' reads of their own runs are not audited.
    pub(super) async fn audit_content(&self, run_id: RunId<&str>) -> Result<(), Error> {
        if self.caller.has(Scope::Append) {
            return Ok(());
        }
        self.audit_read(Some(run_id), json!({ "what": "answers" })).await
    }

    /// Records a read. One line covers the equal reads of a minute.
    ///
    /// Errors: as of [`Self::audit`].
    pub(super) async fn audit_read(&self, run_id: Option<RunId<&str>>, detail: Value) -> Result<(), Error> {
        let has_read = |audit: &Arc<Audit>| audit.has_read(self.caller.principal(), run_id, &detail);
        if self.options.audit.as_ref().is_some_and(has_read) {
            return Ok(());
        }
        self.audit(Action::ReadContent, run_id, detail).await
    }
}

/// Maps a read without a result to an error.
pub(super) fn no_answer(error: NoResult) -> Error {
    match error.is_cancelled() {
        true => Error::new(ErrorKind::Unavailable, "the server is ending").because(error),
        false => Error::new(ErrorKind::Internal, "a query panicked").because(error),
    }
}
