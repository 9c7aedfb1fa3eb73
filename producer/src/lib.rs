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
//! Reading order: [`Runlog`], [`Run`], `gate`, `resume` (which recorded call answers a call), `pen` (numbering).
//!
//! Not here yet: `reopen`. A failed or unknown append ends the handle; open the run again.

#![deny(missing_docs)]

mod config;
mod error;
mod gate;
mod pen;
mod resume;
mod run;
mod transport;

pub use config::{Config, Journal, failpoint};
pub use error::{Action, Error};
pub use gate::{Answer, Call, Failure, Tool};
pub use run::{LoopState, OpenOptions, Outcome, Run};
pub use runlog_content as content;
use runlog_schemas::id::{Illegal, RunId};
pub use runlog_schemas::{answer, id, json::Json};

use std::sync::Arc;
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

    /// Takes the run over and resumes at its latest checkpoint: [`Runlog::open_with`] with the defaults.
    pub async fn open(&self, run_id: impl TryInto<RunId, Error: Into<Illegal>>) -> Result<Run, Error> {
        self.open_with(run_id, OpenOptions::default()).await
    }

    /// Takes the run over: reads its head at `latest`, claims the next epoch, waits until the claim is applied, and
    /// answers from there, so that nothing an older process still has in flight can change what was read.
    ///
    /// Errors: `ClaimLost` where another process was faster; `PartitionStopped` before anything is appended. An ended
    /// run gives a read-only handle and appends nothing. Cancelled, it may have claimed the run.
    ///
    /// The id as a [`RunId`] or as text; `Usage` for text that is none.
    pub async fn open_with(
        &self,
        run_id: impl TryInto<RunId, Error: Into<Illegal>>,
        options: OpenOptions,
    ) -> Result<Run, Error> {
        let run_id = run_id.try_into().map_err(|illegal| Error::from(illegal.into()))?;
        run::open(self.transport.clone(), self.config.clone(), run_id.borrow(), options).await
    }
}
