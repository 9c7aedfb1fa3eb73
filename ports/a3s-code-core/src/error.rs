//! Why a checkpoint cannot be loaded.

use runlog_ports::producer::{Error, answer::ErrorKind};

/// The newest `schema_version` that the pinned version of a3s-code-core reads. Its constant is private.
pub(crate) const SCHEMA_VERSION_MAX: u32 = 2;

/// Why a run's last checkpoint was not loaded. No variant means that there is none: a host that starts the run from the
/// beginning after such an error repeats the run's effects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The journal did not answer, or failed; the error's kind and action say what to do.
    #[error("the last checkpoint of run {run_id} could not be read from the journal")]
    Journal {
        /// The run.
        run_id: String,
        /// Why.
        #[source]
        source: Error,
    },
    /// A later checkpoint of the run is not available: it was pruned, its content is missing or was removed by retention, or the
    /// server does not know its version. `runlog recover` shows the missing content.
    #[error("checkpoint {last} of run {run_id}, its last, is not available; the latest available is {}: `runlog recover RUN` shows why", found.map_or("none".into(), |seq| format!("number {seq}")))]
    NotTheLast {
        /// The run.
        run_id: String,
        /// The number of its last checkpoint.
        last: u64,
        /// The number of the checkpoint that would have been loaded instead.
        found: Option<u64>,
    },
    /// It was saved by a later version of a3s-code-core than this build contains.
    #[error(
        "the last checkpoint of run {run_id} has schema version {schema_version}; this build reads up to {}",
        SCHEMA_VERSION_MAX
    )]
    FutureVersion {
        /// The run.
        run_id: String,
        /// Its `schema_version`.
        schema_version: u32,
    },
    /// a3s-code-core refuses it: it belongs to another run or session, or is inconsistent.
    #[error("a3s-code-core refuses the last checkpoint of run {run_id}")]
    Refused {
        /// The run.
        run_id: String,
        /// Its reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The run's last checkpoint was not saved by a3s-code-core, or is incomplete.
    #[error("the last checkpoint of run {run_id} was not saved by a3s-code-core")]
    NotTheirs {
        /// The run.
        run_id: String,
        /// The error of parsing it.
        #[source]
        source: serde_json::Error,
    },
}

impl LoadError {
    /// Whether a later attempt may succeed: the journal did not answer in time.
    pub fn passes(&self) -> bool {
        let Self::Journal { source, .. } = self else { return false };
        matches!(source.kind(), ErrorKind::Unavailable | ErrorKind::Stale)
    }

    pub(crate) fn journal(run_id: &str) -> impl Fn(Error) -> Self {
        move |source| Self::Journal { run_id: run_id.to_owned(), source }
    }
}
