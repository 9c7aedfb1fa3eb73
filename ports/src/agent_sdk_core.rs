//! agent-sdk-core's journal and checkpoint store: [`RunJournal`], [`RunJournalReader`] and [`CheckpointStore`], of the
//! published 0.1.0-alpha.4.
//!
//! ```text
//!   append(record) ─▶ is its number next? ─▶ written, read back as applied ─▶ cursor journal.N
//!                        │                      └ unknown: the same record again, until it is known
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
//! **What an append's answer says.** A cursor: the record is in the log and takes effect. An error: it is not and never
//! will be, but for two cases that say so: the journal was out of reach for longer than the port's patience
//! ([`Journal::with_patience`]), and another process has the run. So a recovery marker may follow a result whose append
//! failed at once, under the same number. Where the result had landed after all, the marker is refused as
//! [`InvalidStateTransition`](AgentErrorKind::InvalidStateTransition): the effect's end is in the journal.
//!
//! **Numbers.** A run's first record has `journal_seq` 1, and each one the next. The SDK's own `AgentRuntime` counts all of
//! its runs with one counter, so the number behind the last one that this value took, of whatever run, is taken, too; within
//! a run they always grow. Where a process goes on with such a counter, [`Journal::numbered_from`] says where it stands.
//! Runlog numbers each run by itself, densely; the two are the same where a run has a counter of its own and nothing was
//! refused. Checkpoints that are saved consume no number.
//!
//! **One writer per run.** The first append or save claims the run. A process that had it before is told by its next one:
//! `JournalFailure`, not to be retried. Reading claims nothing.
//!
//! **Errors.**
//!
//! | the journal says | kind | retry |
//! |---|---|---|
//! | the number is not next; the record contradicts what the run's records say; another record has its id; no id of Runlog's | `InvalidStateTransition` | `RepairNeeded` |
//! | out of reach, late | `JournalFailure` | `Retryable`; `RepairNeeded` where the record may be in the journal |
//! | another process has the run | `JournalFailure` | `NotRetryable` |
//! | content cannot be had; what was read is no record of the SDK's | `RecoveryRepairNeeded` | `RepairNeeded` |
//! | a partition stands still; too large; wrong configuration | `HostConfigurationNeeded` | `HostConfigurationNeeded` |

use crate::{Blocking, Desks, Unconnected};
#[cfg(doc)]
use ::agent_sdk_core::AgentErrorKind;
use ::agent_sdk_core::{
    AgentError, CheckpointPrunePolicy, CheckpointPruneReport, CheckpointSaveOutcome, CheckpointStore, JournalCursor,
    JournalRecord, RunCheckpoint, RunId, RunJournal, RunJournalReader,
};
use runlog_producer::{Config, RecordFilter, Writer, id};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

mod append;
mod checkpoints;
mod failure;
mod numbers;
mod record;

use failure::failure;
use numbers::Numbers;

/// How long a write whose outcome is unknown is asked for again, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most runs whose numbers are kept; one that nobody uses makes room.
const RUNS_MAX: usize = 1024;

/// The SDK's journal and checkpoint store. Cheap to clone: clones are one journal, with one counter. See the module for what
/// it promises.
///
/// Its methods block the calling thread, which may belong to a runtime; they may be called from any number of threads.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    blocking: Blocking,
    desks: Desks,
    prefix: String,
    patience: Duration,
    runs: Mutex<BTreeMap<id::RunId, Seat>>,
    /// The greatest number that was written, or tried, of whatever run.
    tried: Mutex<Option<u64>>,
}

/// A run's numbers, once they were read; whoever writes the run holds them.
type Seat = Arc<tokio::sync::Mutex<Option<Known>>>;

/// A run's numbers, and the writer that they were read behind.
#[derive(Debug)]
struct Known {
    of: Weak<Writer>,
    numbers: Numbers,
}

impl Journal {
    /// Connects; see [`Blocking::connect`]. A write whose outcome is unknown is asked for again for [`Config::operation`].
    pub fn connect(config: Config) -> Result<Self, Unconnected> {
        let patience = config.operation;
        Ok(Self::on(Blocking::connect(config)?).with_patience(patience))
    }

    /// The same on a connection that is there.
    pub fn on(blocking: Blocking) -> Self {
        let desks = Desks::new(blocking.runlog().clone());
        let inner = Inner {
            blocking,
            desks,
            prefix: String::new(),
            patience: PATIENCE,
            runs: Mutex::default(),
            tried: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Another journal value, with its own counter, whose runs are in the log under `prefix` and their id: for platforms
    /// whose tenants name runs alike.
    #[must_use]
    pub fn with_run_prefix(&self, prefix: impl Into<String>) -> Self {
        self.but(|inner| inner.prefix = prefix.into())
    }

    /// Another journal value that asks for `patience` again for what became of a write. Default 120 s.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        self.but(|inner| inner.patience = patience)
    }

    /// Another journal value, for a counter of several runs that goes on behind `last`.
    #[must_use]
    pub fn numbered_from(&self, last: u64) -> Self {
        self.but(|inner| inner.tried = Mutex::new(Some(last)))
    }

    fn but(&self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            blocking: self.inner.blocking.clone(),
            desks: Desks::new(self.inner.blocking.runlog().clone()),
            prefix: self.inner.prefix.clone(),
            patience: self.inner.patience,
            runs: Mutex::default(),
            tried: Mutex::default(),
        };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// The run's id in the log, where `runlog recover` and the rest of Runlog know it by.
    ///
    /// Errors: `InvalidStateTransition` for what is no id there: empty, too long, or with control characters.
    pub fn run_in_log(&self, run_id: &RunId) -> Result<id::RunId, AgentError> {
        self.inner.run_id(run_id)
    }
}

impl Inner {
    fn run_id(&self, run_id: &RunId) -> Result<id::RunId, AgentError> {
        id::RunId::new(format!("{}{}", self.prefix, run_id.as_str()))
            .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))
    }

    fn seat(&self, run_id: &id::RunId) -> Seat {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if !runs.contains_key(run_id)
            && runs.len() >= RUNS_MAX
            && let Some(idle) = runs.iter().find(|(_, seat)| Arc::strong_count(seat) == 1).map(|(idle, _)| idle.clone())
        {
            runs.remove(&idle);
        }
        runs.entry(run_id.clone()).or_default().clone()
    }

    /// The records of a run that were `select`ed, all of them, in the log's order.
    async fn read(
        &self,
        run_id: &id::RunId,
        select: &RecordFilter,
    ) -> Result<Vec<runlog_producer::JournalRecord>, AgentError> {
        let (mut records, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = self.desks.runlog().records(run_id.clone(), select, cursor.as_deref(), record::PAGE);
            let page = page.await.map_err(|error| failure(&error, false))?;
            for read in page.records {
                records.push(read.record.map_err(|error| failure(&error, false))?);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(records);
            }
        }
    }
}

impl RunJournal for Journal {
    fn append(&self, record: JournalRecord) -> Result<JournalCursor, AgentError> {
        let inner = self.inner.clone();
        self.inner.blocking.wait(async move { inner.append(record).await })
    }
}

impl RunJournalReader for Journal {
    /// As they were appended, to the last member. Records of the run that are not the SDK's, such as checkpoints that were
    /// saved and claims, are not among them.
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
        let kept = self.inner.blocking.wait(async move { inner.checkpoints(&run_id).await })?;
        Ok(checkpoints::latest(&kept, u64::MAX).cloned())
    }

    fn load_at_or_before(&self, run_id: &RunId, cursor: &JournalCursor) -> Result<Option<RunCheckpoint>, AgentError> {
        let (inner, run_id) = (self.inner.clone(), self.inner.run_id(run_id)?);
        let kept = self.inner.blocking.wait(async move { inner.checkpoints(&run_id).await })?;
        Ok(checkpoints::latest(&kept, numbers::of_cursor(cursor)).cloned())
    }

    fn prune(&self, run_id: &RunId, policy: CheckpointPrunePolicy) -> Result<CheckpointPruneReport, AgentError> {
        let (inner, run_id) = (self.inner.clone(), run_id.clone());
        self.inner.blocking.wait(async move { inner.prune(run_id, policy).await })
    }
}
