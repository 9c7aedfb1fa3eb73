//! The sink.

use crate::{error::LoadError, form, load::load};
use a3s_code_core::loop_checkpoint::{LoopCheckpoint, LoopCheckpointSink};
use runlog_ports::{
    WriterPool,
    producer::{Error, LoopState, Runlog, id::RunId},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

/// Default for how long a save may delay its round.
const SAVE_WAIT: Duration = Duration::from_secs(30);
/// Default for how long `load_latest` waits for a journal that does not answer.
const LOAD_WAIT: Duration = Duration::from_secs(120);
/// The pauses between attempts of `load_latest`: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Keeps the loop checkpoints of any number of runs in a journal, under the same run ids (up to 1024 bytes).
///
/// The first save of a run claims it for this process. If another process claims it after that, saves here are lost: this process
/// no longer writes the run, and only [`CheckpointSink::resume`] takes it back. One handle writes a run at a time: a host that has
/// a [`Run`](runlog_ports::producer::Run) of the same id open and saves here takes the run over from itself. Use another id, or
/// save with [`Run::checkpoint`](runlog_ports::producer::Run::checkpoint).
///
/// The methods may be called concurrently; saves of a run are written one after another. Up to 1024 runs are kept open, each with
/// its message list; [`CheckpointSink::forget`] closes one.
pub struct CheckpointSink {
    writers: WriterPool,
    save_wait: Duration,
    load_wait: Duration,
    lost: AtomicU64,
    last: Mutex<Option<Lost>>,
}

/// A checkpoint that was lost.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The run.
    pub run_id: String,
    /// The round.
    pub turn: usize,
    /// The reason.
    pub error: Arc<SaveError>,
}

/// Why a checkpoint was not saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// a3s-code-core would refuse to load it. The checkpoint before it stays the last.
    #[error("the checkpoint was not saved: a3s-code-core would refuse to load it")]
    NotLoadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It does not serialise.
    #[error("the checkpoint was not saved: it does not serialise")]
    Form(#[from] serde_json::Error),
    /// The journal failed or refused it. With [`ClaimLost`](runlog_ports::producer::answer::ErrorKind::ClaimLost) or
    /// [`Fenced`](runlog_ports::producer::answer::ErrorKind::Fenced) another process has the run.
    #[error("the checkpoint was not saved in the journal")]
    Journal(#[from] Error),
    /// It was not applied in time. It may be in the log.
    #[error("the checkpoint was not applied within {} s; it may be in the log", .0.as_secs())]
    Late(Duration),
}

impl CheckpointSink {
    /// A sink on an existing connection.
    pub fn new(runlog: Runlog) -> Self {
        Self {
            writers: WriterPool::new(runlog),
            save_wait: SAVE_WAIT,
            load_wait: LOAD_WAIT,
            lost: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// How long a save may delay its round. After that the checkpoint counts as lost. Default 30 s.
    #[must_use]
    pub fn save_wait(self, save_wait: Duration) -> Self {
        Self { save_wait, ..self }
    }

    /// How long `load_latest` retries when the journal does not answer, before it panics. The last attempt may take
    /// [`Config::deadline`](runlog_ports::producer::Config::deadline) longer. Default 120 s.
    #[must_use]
    pub fn load_wait(self, load_wait: Duration) -> Self {
        Self { load_wait, ..self }
    }

    /// The journal.
    pub fn runlog(&self) -> &Runlog {
        self.writers.runlog()
    }

    /// Saves a checkpoint and returns once it is applied. As [`save_checkpoint`](LoopCheckpointSink::save_checkpoint), but with an
    /// error, and without a log message. If cancelled, the checkpoint may be in the log; the next save finds out.
    pub async fn try_save(&self, checkpoint: &LoopCheckpoint) -> Result<(), SaveError> {
        checkpoint.ensure_loadable().map_err(|error| SaveError::NotLoadable(error.into()))?;
        let state = form::state(checkpoint)?;
        self.write(&checkpoint.run_id, &state).await
    }

    async fn write(&self, run_id: &str, state: &LoopState) -> Result<(), SaveError> {
        let run_id = RunId::new(run_id.to_owned()).map_err(Error::from)?;
        let save = async { self.writers.writer(&run_id).await?.checkpoint(state).await };
        timeout(self.save_wait, save).await.map_err(|_| SaveError::Late(self.save_wait))??;
        Ok(())
    }

    /// As [`CheckpointSink::try_save`]; stores the error.
    pub(crate) async fn save(&self, checkpoint: &LoopCheckpoint) -> Result<(), Arc<SaveError>> {
        let (run_id, turn) = (checkpoint.run_id.as_str(), checkpoint.turn);
        let saved = self.try_save(checkpoint).await.map_err(Arc::new);
        let mut last = self.last();
        match &saved {
            Ok(()) => *last = last.take().filter(|lost| lost.run_id != run_id),
            Err(error) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                *last = Some(Lost { run_id: run_id.to_owned(), turn, error: error.clone() });
            }
        }
        saved
    }

    /// Deletes the run's checkpoints, because it ended: loads return `None` until another checkpoint is saved. The log
    /// keeps the records. Writes nothing for a run without checkpoints.
    ///
    /// Errors: as [`CheckpointSink::try_save`].
    pub async fn delete(&self, run_id: &str) -> Result<(), SaveError> {
        match self.try_load(run_id).await {
            Ok(None) => {}
            Err(LoadError::Journal { source, .. }) => return Err(source.into()),
            // A checkpoint that cannot be loaded is deleted too.
            Ok(Some(_)) | Err(_) => self.write(run_id, &form::deleted(run_id)).await?,
        }
        self.forget(run_id).await;
        Ok(())
    }

    /// The run's last checkpoint. `None` only if the log proves that the run has no checkpoint: it was never saved, or
    /// [`CheckpointSink::delete`] followed. Sees all saves that ended before this call. Claims nothing; any process may call it.
    pub async fn try_load(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        load(self.runlog(), run_id).await
    }

    /// As [`CheckpointSink::try_load`], but refuses a checkpoint of another session.
    pub async fn try_load_owned(&self, run_id: &str, session_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let last = self.try_load(run_id).await?;
        if let Some(checkpoint) = &last {
            let owned = checkpoint.ensure_owned_by(run_id, session_id);
            owned.map_err(|error| LoadError::Refused { run_id: run_id.to_owned(), source: error.into() })?;
        }
        Ok(last)
    }

    /// Takes the run over for this process, also from itself, and loads its last checkpoint. Saves of other processes that are still
    /// in flight have no effect after that.
    ///
    /// Errors: `Journal` of kind `ClaimLost` if another process was faster. If cancelled, it may have claimed the run.
    pub async fn resume(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let journal = LoadError::journal(run_id);
        let id = RunId::new(run_id.to_owned()).map_err(|illegal| journal(illegal.into()))?;
        self.writers.forget(&id).await;
        self.writers.writer(&id).await.map_err(&journal)?;
        self.try_load(run_id).await
    }

    /// Closes a run and drops its message list. A later save claims the run again.
    pub async fn forget(&self, run_id: &str) {
        if let Ok(run_id) = RunId::new(run_id.to_owned()) {
            self.writers.forget(&run_id).await;
        }
    }

    /// Returns the last lost checkpoint. `None` without a lost checkpoint, or after a later save of the same run.
    pub fn last_error(&self) -> Option<Lost> {
        self.last().clone()
    }

    /// The number of lost checkpoints.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Lost>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries until the journal answers, within the bound.
    async fn load_in_time(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let (start, (mut pause, longest)) = (Instant::now(), PAUSES);
        loop {
            match self.try_load(run_id).await {
                Err(error) if error.passes() && start.elapsed() + pause < self.load_wait => {
                    tracing::warn!(
                        run = run_id,
                        error = chain(&error),
                        "cannot load the last checkpoint yet; trying again"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
                answer => return answer,
            }
        }
    }
}

#[async_trait::async_trait]
impl LoopCheckpointSink for CheckpointSink {
    /// Returns when the checkpoint is applied or lost. A loss is logged as a warning and kept as [`CheckpointSink::last_error`].
    /// Takes at most [`CheckpointSink::save_wait`]. Cancellation is as with [`CheckpointSink::try_save`].
    async fn save_checkpoint(&self, checkpoint: &LoopCheckpoint) {
        if let Err(error) = self.save(checkpoint).await {
            let (run, turn) = (checkpoint.run_id.as_str(), checkpoint.turn);
            tracing::warn!(run, turn, error = chain(&error), "a loop checkpoint is lost; the run continues");
        }
    }

    /// As [`CheckpointSink::try_load`], retried for up to [`CheckpointSink::load_wait`] while the journal does not answer.
    ///
    /// # Panics
    ///
    /// For every other error, and after the bound: for its caller `None` is a run that has done nothing, which would be run from the
    /// beginning.
    async fn load_latest(&self, run_id: &str) -> Option<LoopCheckpoint> {
        match self.load_in_time(run_id).await {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                tracing::error!(run = run_id, error = chain(&error), "cannot load the last checkpoint");
                panic!("{}; it must not start from nothing, so it does not start", chain(&error));
            }
        }
    }
}

impl fmt::Debug for CheckpointSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { save_wait, load_wait, .. } = self;
        let (lost, last) = (self.lost(), self.last_error());
        f.debug_struct("CheckpointSink")
            .field("save_wait", save_wait)
            .field("load_wait", load_wait)
            .field("lost", &lost)
            .field("last_error", &last)
            .finish_non_exhaustive()
    }
}

/// An error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += ": ";
        text += &error.to_string();
        source = error.source();
    }
    text
}
