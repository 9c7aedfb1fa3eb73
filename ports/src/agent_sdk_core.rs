//! agent-sdk-core's journal and checkpoint store: [`RunJournal`], [`RunJournalReader`] and [`CheckpointStore`], of the
//! published 0.1.0-alpha.4.
//!
//! ```text
//!   append(record) ─▶ is its number next? ─▶ written, read back as applied ─▶ cursor journal.N
//!                        │                      └ unknown: the same record again, until its outcome is known
//!                        └ no: the same record was written before ─▶ its cursor;  otherwise InvalidStateTransition
//!   save(checkpoint) ─▶ a loop checkpoint of Runlog, without a number, whose state is the SDK's
//! ```
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use runlog_ports::{agent_sdk_core::Journal, producer};
//! let at = producer::Journal::parse("http://127.0.0.1:7070", None).ok_or("no journal's URL")?;
//! let connect = || Journal::connect(producer::Config::new(at, "my-platform"));
//! // AgentRuntime::builder().journal(connect()?)
//! # let _ = connect; Ok(())
//! # }
//! ```
//!
//! **Answers of an append.** A cursor: the record is in the log and takes effect. An error: it is not, and never will be,
//! except in two cases that the error names: the journal was unavailable for longer than the port's patience
//! ([`Journal::with_patience`]), or another process has the run. So a recovery marker may follow a result whose append
//! failed, at once and under the same number. If the result is in the log after all, the marker is refused as
//! [`InvalidStateTransition`](AgentErrorKind::InvalidStateTransition): the effect's end is in the journal.
//!
//! **Numbers.** A run's first record has `journal_seq` 1, and each record the next number. The SDK's own `AgentRuntime`
//! numbers all its runs with one counter, so the port also accepts the successor of the last number that this value
//! accepted for any run. Within a run numbers always grow. A process that continues such a counter passes its last
//! number to [`Journal::numbered_from`]. Runlog numbers each run densely. Both numbers are equal if a run has its own
//! counter and no record was refused. Saved checkpoints use no number.
//!
//! **One writer per run.** The first append or save claims the run. The next append or save of a process that had the run
//! before fails with `JournalFailure`, not retryable. Reading claims nothing.
//!
//! **Errors.**
//!
//! | the journal says | kind | retry |
//! |---|---|---|
//! | the number is not next; the record contradicts the run's records; another record has its id; the id is invalid | `InvalidStateTransition` | `RepairNeeded` |
//! | unavailable, timed out | `JournalFailure` | `Retryable`; `RepairNeeded` if the record may be in the journal |
//! | another process has the run | `JournalFailure` | `NotRetryable` |
//! | content is missing; a record that was read is not one of the SDK's | `RecoveryRepairNeeded` | `RepairNeeded` |
//! | a partition is stopped; too large; wrong configuration | `HostConfigurationNeeded` | `HostConfigurationNeeded` |

use crate::{
    blocking::{Blocking, ConnectError},
    writer_pool::WriterPool,
};
#[cfg(doc)]
use ::agent_sdk_core::AgentErrorKind;
use ::agent_sdk_core::{
    AgentError, CheckpointPrunePolicy, CheckpointPruneReport, CheckpointSaveOutcome, CheckpointStore, JournalCursor,
    JournalRecord, RunCheckpoint, RunId, RunJournal, RunJournalReader,
};
use runlog_producer::{Config, RecordFilter, id};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

mod append;
mod checkpoints;
mod inner;
mod numbers;
mod record;
mod sdk_error;

use inner::Inner;

/// Default for how long a write whose outcome is unknown is retried.
const PATIENCE: Duration = Duration::from_secs(120);

/// The SDK's journal and checkpoint store; the module states its guarantees. Cheap to clone: clones share one counter.
///
/// The methods block the calling thread, which may belong to a runtime. They may be called from any number of threads.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

impl Journal {
    /// Connects; see [`Blocking::connect`]. A write whose outcome is unknown is retried for [`Config::operation`].
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let patience = config.operation;
        Ok(Self::on(Blocking::connect(config)?).with_patience(patience))
    }

    /// The same on an existing connection.
    pub fn on(blocking: Blocking) -> Self {
        let writers = WriterPool::new(blocking.runlog().clone());
        let inner = Inner {
            blocking,
            writers,
            prefix: String::new(),
            patience: PATIENCE,
            runs: Mutex::default(),
            tried: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Another journal value, with its own counter, whose run ids get `prefix` in the log: for platforms whose tenants use the
    /// same run ids.
    #[must_use]
    pub fn with_run_prefix(&self, prefix: impl Into<String>) -> Self {
        self.but(|inner| inner.prefix = prefix.into())
    }

    /// Another journal value that retries a write whose outcome is unknown for `patience`. Default 120 s.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        self.but(|inner| inner.patience = patience)
    }

    /// Another journal value, for a counter of several runs whose last number is `last`.
    #[must_use]
    pub fn numbered_from(&self, last: u64) -> Self {
        self.but(|inner| inner.tried = Mutex::new(Some(last)))
    }

    fn but(&self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            blocking: self.inner.blocking.clone(),
            writers: WriterPool::new(self.inner.blocking.runlog().clone()),
            prefix: self.inner.prefix.clone(),
            patience: self.inner.patience,
            runs: Mutex::default(),
            tried: Mutex::default(),
        };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// The run's id in the log, as `runlog recover` accepts it.
    ///
    /// Errors: `InvalidStateTransition` for an invalid id: empty, too long, or with control characters.
    pub fn run_in_log(&self, run_id: &RunId) -> Result<id::RunId, AgentError> {
        self.inner.run_id(run_id)
    }
}

impl RunJournal for Journal {
    fn append(&self, record: JournalRecord) -> Result<JournalCursor, AgentError> {
        let inner = self.inner.clone();
        self.inner.blocking.wait(async move { inner.append(record).await })
    }
}

impl RunJournalReader for Journal {
    /// As they were appended, with every member. Without the records that are not the SDK's: saved checkpoints and claims.
    fn records_for_run(&self, run_id: &RunId) -> Result<Vec<JournalRecord>, AgentError> {
        let (inner, run_id) = (self.inner.clone(), self.inner.run_id(run_id)?);
        let records = self.inner.blocking.wait(async move { inner.read(&run_id, &RecordFilter::default()).await })?;
        records.iter().filter(|record| record.body.record_kind.of_contract()).map(record::theirs).collect()
    }
}

impl CheckpointStore for Journal {
    fn save(&self, checkpoint: RunCheckpoint, latest_journal_seq: u64) -> Result<CheckpointSaveOutcome, AgentError> {
        checkpoint.validate_against_latest_seq(latest_journal_seq)?;
        let inner = self.inner.clone();
        self.inner.blocking.wait(async move { inner.save(checkpoint).await })
    }

    fn load_latest(&self, run_id: &RunId) -> Result<Option<RunCheckpoint>, AgentError> {
        let (inner, run_id) = (self.inner.clone(), self.inner.run_id(run_id)?);
        let checkpoints = self.inner.blocking.wait(async move { inner.checkpoints(&run_id).await })?;
        Ok(checkpoints::latest(&checkpoints, u64::MAX).cloned())
    }

    fn load_at_or_before(&self, run_id: &RunId, cursor: &JournalCursor) -> Result<Option<RunCheckpoint>, AgentError> {
        let (inner, run_id) = (self.inner.clone(), self.inner.run_id(run_id)?);
        let checkpoints = self.inner.blocking.wait(async move { inner.checkpoints(&run_id).await })?;
        Ok(checkpoints::latest(&checkpoints, numbers::number_of_cursor(cursor)).cloned())
    }

    fn prune(&self, run_id: &RunId, policy: CheckpointPrunePolicy) -> Result<CheckpointPruneReport, AgentError> {
        let (inner, run_id) = (self.inner.clone(), run_id.clone());
        self.inner.blocking.wait(async move { inner.prune(run_id, policy).await })
    }
}
