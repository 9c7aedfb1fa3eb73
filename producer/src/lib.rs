//! The agent side of Runlog: take a run over, append durably, and let no effect happen twice.
//!
//! ```text
//!   Runlog::connect ─▶ open(run) ─▶ claim ─▶ recover behind the claim ─▶ Run
//!                                                                        │
//!   run.tool(name, args).once(effect):  intent ─▶ acknowledged ─▶ read back as applied ─▶ effect ─▶ result
//! ```
//!
//! An acknowledged append is in the log; whether it was *applied* is the projector's word. The gate therefore reads its
//! intent back before the effect runs, and with it who writes the run by then: a process that lost the run while it
//! slept learns it there, though its intent was applied. What no journal can fence is a process that is paused between
//! that read-back and the effect itself; receivers that take an idempotency key close that gap.
//!
//! A failed, unknown or cancelled append stops the handle until [`Run::reopen`]. What effects came to meanwhile is held, and
//! is in the log before anything else is: as the calls' results, or, where another process has the run, as evidence.
//!
//! Reading order: [`Runlog`], [`Run`], `gate`, `claim`, `resume` (which recorded call answers a call), `pen` (numbering),
//! `held` (what is owed), `reopen`. Who has a journal protocol of their own: [`Writer`], and to read without writing: [`Select`].

#![deny(missing_docs)]

mod active;
mod claim;
mod config;
mod error;
mod gate;
mod held;
mod meter;
mod pen;
mod read;
mod redact;
mod reopen;
mod resume;
mod room;
mod run;
mod saved;
mod standing;
mod transport;
mod write;
mod writer;

pub use config::{Config, Journal, failpoint};
pub use error::{Action, Active, Error, Happened};
pub use gate::{Answer, Call, Ended, Failure, Tool};
pub use meter::{Meter, metric};
pub use read::{Page, Read, Select};
pub use redact::{REDACTED, Redaction};
pub use reopen::Reopened;
pub use run::{LoopState, OpenOptions, Outcome, Run};
pub use runlog_content as content;
use runlog_schemas::id::{Illegal, RunId};
pub use runlog_schemas::{
    answer, draft, id, json, json::Json, original, payload, record, record::JournalRecord, refs, scalar,
};
pub use writer::{Writer, Wrote};

use std::{sync::Arc, time::Duration};
use tracing::Instrument;
use transport::Transport;

/// A connection to a journal. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runlog {
    transport: Arc<Transport>,
    config: Arc<Config>,
}

impl Runlog {
    /// Connects, and learns which journal it is.
    ///
    /// Errors: `Unavailable` where nobody answers within the deadline, `Invalid` where what answers is no journal.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let transport = Transport::connect(&config).await?;
        Ok(Self { transport: Arc::new(transport), config: Arc::new(config) })
    }

    /// The same on a log and a projector that this process has already; `config.journal` is not looked at.
    #[cfg(feature = "embedded")]
    pub fn embedded(config: Config, projector: Arc<runlog_projector::Projector>) -> Self {
        let transport = Transport::embedded(projector, &config);
        Self { transport: Arc::new(transport), config: Arc::new(config) }
    }

    /// Takes the run over and resumes at its latest checkpoint: [`Runlog::open_with`] with the defaults.
    pub async fn open(&self, run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Run, Error> {
        self.open_with(run_id, OpenOptions::default()).await
    }

    /// As [`Runlog::open`], but refuses to take the run over where its last record was appended within the time `within`.
    ///
    /// The age of that record is told by the journal: from when the log stamped it (the broker's append time on Kafka) to
    /// the server's time now, or the log's where that is inside a process. The clock of an agent has no part in it. Any
    /// applied record counts, an operator's decision too. A run that nobody wrote to, or that has ended, is opened.
    ///
    /// Errors: `Unavailable` with [`Error::active`], which names writer, epoch and age; nothing was appended. Otherwise as
    /// [`Runlog::open`]. A writer that appends between the look and the claim is taken over all the same: only claims
    /// decide who writes.
    pub async fn open_unless_active(
        &self,
        run_id: impl TryInto<RunId, Error: Into<Illegal>>,
        within: Duration,
    ) -> Result<Run, Error> {
        self.open_with(run_id, OpenOptions { unless_active: Some(within), ..OpenOptions::default() }).await
    }

    /// Takes the run over: reads its head at `latest`, claims the next epoch, waits until the claim is applied, and
    /// answers from there, so that nothing an older process still has in flight can change what was read.
    ///
    /// Errors: `ClaimLost` where another process was faster; `PartitionStopped` before anything is appended. An ended
    /// run gives a read-only handle and appends nothing. Cancelled, or past [`Config::operation`], it may have claimed the run.
    ///
    /// The id as a [`RunId`] or as text; `Usage` for text that is none, and for `.` and `..`, which no URL can name.
    pub async fn open_with(
        &self,
        run_id: impl TryInto<RunId, Error: Into<Illegal>>,
        options: OpenOptions,
    ) -> Result<Run, Error> {
        let run_id = named(run_id)?;
        let span = tracing::info_span!("open", run = run_id.as_str());
        let open = run::open(self.transport.clone(), self.config.clone(), run_id.borrow(), options).instrument(span);
        within(&self.config, run_id.borrow(), Happened::Unknown, Box::pin(open)).await
    }
}

/// The run of an id, unless nobody could ask for it over HTTP, whichever way this process has.
pub(crate) fn named(run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<RunId, Error> {
    let run_id = run_id.try_into().map_err(|illegal| Error::from(illegal.into()))?;
    match id::dots(run_id.as_str()) {
        Some(text) => Err(Illegal::Dots { what: "run id", text }.into()),
        None => Ok(run_id),
    }
}

/// An operation on a run within the time that one may take. Past it, it is cancelled, which leaves behind what `happened` says.
///
/// The operation is boxed before it is moved: a future that holds a record is large, and each layer around it would hold it twice.
pub(crate) fn within<'a, T: 'a>(
    config: &'a Config,
    run_id: RunId<&'a str>,
    happened: Happened,
    operation: impl Future<Output = Result<T, Error>> + 'a,
) -> impl Future<Output = Result<T, Error>> + 'a {
    let in_time = tokio::time::timeout(config.operation, Box::pin(operation));
    async move {
        let late = || {
            let message = format!("an operation on run {run_id} was not done within {:?}", config.operation);
            Error::new(answer::ErrorKind::Unavailable, Action::Reopen, message).left(happened)
        };
        in_time.await.unwrap_or_else(|_| Err(late()))
    }
}
