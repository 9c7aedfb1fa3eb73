//! A connection to a journal, from which runs are opened and read.

use crate::{
    config::Config,
    error::{Error, SideEffect},
    read::{self, Page},
    run::Run,
    session::open::OpenOptions,
    transport::{
        Transport,
        request::{RecordFilter, RecoveryQuery},
    },
    writer::Writer,
};
use runlog_schemas::{
    answer::{self, Checkpoint, ReadBack, Recovery},
    id::{self, Illegal, JournalSeq, RecordId, RunId},
};
use std::{sync::Arc, time::Duration};
use tracing::Instrument;

/// A connection to a journal. Cheap to clone.
///
/// Run ids are passed as [`RunId`] or as text. Errors: `Usage` for text that is not a run id, and for `.` and `..`, which no
/// URL can contain. Reads do not claim the run. Each read has consistency `latest`: it sees all records that were in the log at
/// the time of the request.
#[derive(Clone, Debug)]
pub struct Runlog {
    transport: Arc<Transport>,
    config: Arc<Config>,
}

impl Runlog {
    /// Connects to the journal and reads its identity.
    ///
    /// Errors: `Unavailable` without an answer within the deadline, `Invalid` if the answer does not come from a journal.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let transport = Transport::connect(&config).await?;
        Ok(Self { transport: Arc::new(transport), config: Arc::new(config) })
    }

    /// Connects to a projector in this process, and its log; `config.journal` is ignored.
    #[cfg(feature = "embedded")]
    pub fn embedded(config: Config, projector: Arc<runlog_projector::Projector>) -> Self {
        let transport = Transport::embedded(projector, &config);
        Self { transport: Arc::new(transport), config: Arc::new(config) }
    }

    /// Takes the run over and resumes at its latest checkpoint: [`Runlog::open_with`] with the defaults.
    pub async fn open(&self, run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Run, Error> {
        self.open_with(run_id, OpenOptions::default()).await
    }

    /// As [`Runlog::open`], but fails if the last record of an open run was appended within the time `within`.
    ///
    /// The journal measures the age of that record, from the log's timestamp (on Kafka the broker's append time) to the
    /// server's current time. In-process, the log provides both times. The agent's clock is not used. Every applied record
    /// counts, including an operator's decision. A run that has no records or has ended is opened.
    ///
    /// Over `http:`, if the server has the feature `only_if`, a writer whose record the server has applied since this check keeps the run:
    /// the claim is refused, and the check repeated. A record that reaches the log at the moment of the claim is not noticed, and its
    /// writer is taken over, as over `kafka:`, in this process and through an older server. Only claims decide which process writes.
    ///
    /// Errors: `Unavailable` with [`Error::active`], which names the writer, its epoch and the age; no record was appended.
    /// `Conflict` if the run got another record three times. Otherwise as [`Runlog::open`].
    pub async fn open_unless_active(
        &self,
        run_id: impl TryInto<RunId, Error: Into<Illegal>>,
        within: Duration,
    ) -> Result<Run, Error> {
        self.open_with(run_id, OpenOptions { unless_active: Some(within), ..OpenOptions::default() }).await
    }

    /// Takes the run over: reads its head at `latest`, claims the next epoch, waits until the claim is applied, and then reads
    /// the run. Records that an older process has in flight can no longer change that state.
    ///
    /// Errors: `ClaimLost` if another process was faster; `PartitionStopped` before anything is appended. A run that has ended
    /// is not claimed, and no record is appended: its handle answers recorded calls and accepts the same end. After a
    /// cancellation, or after [`Config::operation`], the run may have been claimed.
    pub async fn open_with(
        &self,
        run_id: impl TryInto<RunId, Error: Into<Illegal>>,
        options: OpenOptions,
    ) -> Result<Run, Error> {
        let run_id = valid(run_id)?;
        let span = tracing::info_span!("open", run = run_id.as_str());
        let open = Run::open(self.transport.clone(), self.config.clone(), run_id.borrow(), options).instrument(span);
        self.config.time_limited(run_id.borrow(), SideEffect::Unknown, Box::pin(open)).await
    }

    /// Takes the run over to write complete records: claims the next epoch, and appends nothing else. A run that has ended
    /// still accepts checkpoints, and records without a `journal_seq`.
    ///
    /// Errors: `ClaimLost` if another process was faster; `PartitionStopped` before anything is appended. After a
    /// cancellation, or after [`Config::operation`], the run may have been claimed.
    pub async fn writer(&self, run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Writer, Error> {
        let run_id = valid(run_id)?;
        let span = tracing::info_span!("writer", run = run_id.as_str());
        let open = Writer::open(self.transport.clone(), self.config.clone(), run_id.clone()).instrument(span);
        self.config.time_limited(run_id.borrow(), SideEffect::Unknown, Box::pin(open)).await
    }

    /// The run's current state. `None` if no record of it was ever applied.
    pub async fn run(&self, id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Option<answer::Run>, Error> {
        self.transport.run(valid(id)?.borrow()).await
    }

    /// The state that a process reads when it takes the run over: all pages, merged into one state of the run. `None` if no
    /// record of the run was ever applied. Content is resolved; `unclaimed` counts all calls that are listed as completed.
    ///
    /// Errors: `Internal` if the run exists on one page and not on the next.
    pub async fn recovery(&self, id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Option<Recovery>, Error> {
        self.transport.whole_recovery(valid(id)?.borrow(), RecoveryQuery::WHOLE).await
    }

    /// A tool call of a run, by the record id of its request, with its arguments and its recorded end. Its status is `unknown` for any
    /// other id.
    pub async fn call(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        request: &RecordId,
    ) -> Result<answer::Lookup, Error> {
        self.transport.call(valid(id)?.borrow(), request.borrow()).await
    }

    /// A page of up to `limit` (1 to 1000) records of a run, starting at `cursor` (a page's `next_cursor`) or at the first
    /// record. Empty for a run without records. Cursors stay valid while records are appended.
    ///
    /// Errors: `Usage` for a cursor of another query, or a limit out of range.
    pub async fn records(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        filter: &RecordFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, Error> {
        let lines = self.transport.records(valid(id)?.borrow(), filter, cursor, limit).await?;
        Ok(lines.map(read::page).unwrap_or_default())
    }

    /// The outcome of the first record with this id, and the run's current writer. `None` if the journal has neither applied
    /// such a record nor refused it because of its content. Much cheaper than reading the record.
    pub async fn landed(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        record_id: &RecordId,
    ) -> Result<Option<ReadBack>, Error> {
        self.transport.landed(valid(id)?.borrow(), record_id.borrow(), None).await
    }

    /// The latest valid checkpoint with `covers_journal_seq` up to `at_or_before` (inclusive), with all its messages. A
    /// checkpoint with missing content is not valid, so an older one is returned; [`Runlog::recovery`] and the run's
    /// `next_checkpoint_seq` show that. `None` if there is neither a valid checkpoint nor one with missing content.
    ///
    /// Errors: `MissingContent` if all checkpoints are invalid, and at least one because of missing content.
    pub async fn checkpoint(
        &self,
        id: impl TryInto<RunId, Error: Into<Illegal>>,
        at_or_before: Option<JournalSeq>,
    ) -> Result<Option<Checkpoint>, Error> {
        self.transport.checkpoint(valid(id)?.borrow(), at_or_before).await
    }
}

/// Validates a run id. Refuses ids that no URL can contain, for every backend.
fn valid(run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<RunId, Error> {
    let run_id = run_id.try_into().map_err(|illegal| Error::from(illegal.into()))?;
    match id::dots(run_id.as_str()) {
        Some(text) => Err(Illegal::Dots { what: "run id", text }.into()),
        None => Ok(run_id),
    }
}
