//! The last checkpoint of a run, or why it cannot be had.

use crate::form;
use a3s_code_core::loop_checkpoint::LoopCheckpoint;
use runlog_ports::producer::{Error, Runlog, answer::ErrorKind};

/// Why a run's last checkpoint was not loaded. None of these says that there is none: a host that starts the run from nothing
/// for one of them does again what the run has done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The journal did not answer, or could not; its error says what to do.
    #[error("the journal does not say where run {run_id} stands")]
    Journal {
        /// The run.
        run_id: String,
        /// Why.
        #[source]
        source: Error,
    },
    /// The run had a later checkpoint than the one that is to be had: it was pruned, its content is missing or was taken away
    /// by retention, or the server does not know its form. `runlog recover` has what is missing.
    #[error("the last checkpoint of run {run_id} is not to be had: {last} were taken, and the latest answered is {}", found.map_or("none".into(), |seq| format!("number {seq}")))]
    NotTheLast {
        /// The run.
        run_id: String,
        /// The number of its last checkpoint.
        last: u64,
        /// The number of the one that would have been loaded instead.
        found: Option<u64>,
    },
    /// It was saved by a later version of a3s-code-core than this build has.
    #[error(
        "the last checkpoint of run {run_id} has schema version {schema_version}, and this build reads up to {}",
        form::SCHEMA_VERSION_MAX
    )]
    FutureVersion {
        /// The run.
        run_id: String,
        /// Its `schema_version`.
        schema_version: u32,
    },
    /// a3s-code-core refuses it: another run's or session's, or not consistent.
    #[error("the last checkpoint of run {run_id} is refused")]
    Refused {
        /// The run.
        run_id: String,
        /// What it says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The run's last checkpoint is not one of a3s-code-core: another agent's, or not whole.
    #[error("the last checkpoint of run {run_id} is not one of a3s-code-core")]
    NotTheirs {
        /// The run.
        run_id: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl LoadError {
    /// Whether it may pass by itself: the journal did not answer in time.
    pub fn passes(&self) -> bool {
        let Self::Journal { source, .. } = self else { return false };
        matches!(source.kind(), ErrorKind::Unavailable | ErrorKind::Stale)
    }

    pub(crate) fn journal(run_id: &str) -> impl Fn(Error) -> Self {
        move |source| Self::Journal { run_id: run_id.to_owned(), source }
    }
}

/// The run's last checkpoint; none where the log proves that it has none.
pub(crate) async fn load(runlog: &Runlog, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
    let journal = LoadError::journal(run_id);
    // Asked first: a checkpoint that is saved between the two questions is only a later one.
    let Some(run) = runlog.run(run_id).await.map_err(&journal)? else { return Ok(None) };
    let last = run.next_checkpoint_seq.saturating_sub(1);
    let answered = runlog.checkpoint(run_id, None).await.map_err(&journal)?;
    let found = answered.as_ref().map(|checkpoint| checkpoint.checkpoint_seq);
    if found.unwrap_or(0) < last {
        return Err(LoadError::NotTheLast { run_id: run_id.to_owned(), last, found });
    }
    answered.map_or(Ok(None), |checkpoint| form::checkpoint(run_id, &checkpoint))
}
