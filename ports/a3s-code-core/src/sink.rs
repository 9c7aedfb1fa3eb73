//! The sink itself.

use crate::{LoadError, form, load::load};
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

/// How long a save may hold up its round, unless told otherwise.
const SAVE_WAIT: Duration = Duration::from_secs(30);
/// How long `load_latest` waits for a journal that does not answer, unless told otherwise.
const LOAD_WAIT: Duration = Duration::from_secs(120);
/// Between two questions of `load_latest`: the first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Keeps the loop checkpoints of any number of runs in a journal; the run's id there is theirs, up to 1024 bytes.
///
/// The first save of a run claims it for this process. Where another process claims it after that, what this one saves is
/// lost, as it should be: it does not write the run any more, and does not take it back by itself ([`CheckpointSink::resume`]
/// does). A run is written by one of Runlog's handles at a time, so a host that has a [`Run`](runlog_ports::producer::Run) of
/// the same id open and saves here takes the run from itself: give it another id, or save with
/// [`Run::checkpoint`](runlog_ports::producer::Run::checkpoint).
///
/// Its methods may be called concurrently; of two saves of a run the one that got its turn later is the last. Up to 1024 runs
/// are kept open, each with its message list; [`CheckpointSink::forget`] lets go of one.
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
    /// Its run.
    pub run_id: String,
    /// Its round.
    pub turn: usize,
    /// Why.
    pub error: Arc<SaveError>,
}

/// Why a checkpoint was not saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// a3s-code-core itself would refuse to load it; the one before it stays the last.
    #[error("it could not be loaded again")]
    NotLoadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It does not serialise.
    #[error("it does not serialise")]
    Form(#[from] serde_json::Error),
    /// The journal did not take it. With [`ClaimLost`](runlog_ports::producer::answer::ErrorKind::ClaimLost) or
    /// [`Fenced`](runlog_ports::producer::answer::ErrorKind::Fenced) another process has the run.
    #[error("the journal did not take it")]
    Journal(#[from] Error),
    /// The journal did not take it in time. It may be in the log all the same.
    #[error("the journal did not take it within {0:?}")]
    Late(Duration),
}

impl CheckpointSink {
    /// A sink on a journal that was connected to.
    pub fn new(runlog: Runlog) -> Self {
        Self {
            writers: WriterPool::new(runlog),
            save_wait: SAVE_WAIT,
            load_wait: LOAD_WAIT,
            lost: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// How long a save may hold up the round that it follows; past it the checkpoint counts as lost. Default 30 s.
    #[must_use]
    pub fn save_wait(self, save_wait: Duration) -> Self {
        Self { save_wait, ..self }
    }

    /// How long `load_latest` asks a journal that does not answer, before it panics; the last question may take
    /// [`Config::deadline`](runlog_ports::producer::Config::deadline) beyond it. Default 120 s.
    #[must_use]
    pub fn load_wait(self, load_wait: Duration) -> Self {
        Self { load_wait, ..self }
    }

    /// The journal.
    pub fn runlog(&self) -> &Runlog {
        self.writers.runlog()
    }

    /// Saves a checkpoint, and says whether it was saved: it is in the log and applied then. What
    /// [`save_checkpoint`](LoopCheckpointSink::save_checkpoint) does, for callers that take an error; nothing is logged.
    /// Cancelled, it may be in the log; the next save finds out.
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

    /// As [`CheckpointSink::try_save`], and keeps the error.
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

    /// Says that the run has no checkpoint any more, because it came to its end: a load answers none then, until another one
    /// is saved. The log keeps what was saved. Nothing is written for a run that has none.
    ///
    /// Errors: as [`CheckpointSink::try_save`].
    pub async fn delete(&self, run_id: &str) -> Result<(), SaveError> {
        match self.try_load(run_id).await {
            Ok(None) => {}
            Err(LoadError::Journal { source, .. }) => return Err(source.into()),
            // One that cannot be loaded is deleted as well.
            Ok(Some(_)) | Err(_) => self.write(run_id, &form::deleted(run_id)).await?,
        }
        self.forget(run_id).await;
        Ok(())
    }

    /// The run's last checkpoint; none only where the log proves that the run has none: it never had one, or
    /// [`CheckpointSink::delete`] came behind it. What was saved before this was called is seen. It claims nothing, and can be called by anybody.
    pub async fn try_load(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        load(self.runlog(), run_id).await
    }

    /// As [`CheckpointSink::try_load`], and refuses the checkpoint of another session.
    pub async fn try_load_owned(&self, run_id: &str, session_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let found = self.try_load(run_id).await?;
        if let Some(checkpoint) = &found {
            let owned = checkpoint.ensure_owned_by(run_id, session_id);
            owned.map_err(|error| LoadError::Refused { run_id: run_id.to_owned(), source: error.into() })?;
        }
        Ok(found)
    }

    /// Takes the run over for this process, from whoever has it, this one included, and loads its last checkpoint. Nothing
    /// that another process still has in flight is saved behind what is loaded here.
    ///
    /// Errors: `Journal` of kind `ClaimLost` where another process was faster. Cancelled, it may have claimed the run.
    pub async fn resume(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let journal = LoadError::journal(run_id);
        let id = RunId::new(run_id.to_owned()).map_err(|illegal| journal(illegal.into()))?;
        self.writers.forget(&id).await;
        self.writers.writer(&id).await.map_err(&journal)?;
        self.try_load(run_id).await
    }

    /// Lets go of a run that is over, and of its message list. A later save claims it again.
    pub async fn forget(&self, run_id: &str) {
        if let Ok(run_id) = RunId::new(run_id.to_owned()) {
            self.writers.forget(&run_id).await;
        }
    }

    /// The checkpoint that was lost last; none where none was, and where a later one of the same run was saved.
    pub fn last_error(&self) -> Option<Lost> {
        self.last().clone()
    }

    /// How many checkpoints were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Lost>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until the journal answers, within the bound.
    async fn load_in_time(&self, run_id: &str) -> Result<Option<LoopCheckpoint>, LoadError> {
        let (begun, (mut pause, longest)) = (Instant::now(), PAUSES);
        loop {
            match self.try_load(run_id).await {
                Err(error) if error.passes() && begun.elapsed() + pause < self.load_wait => {
                    tracing::warn!(run = run_id, error = chain(&error), "where a run stands is asked for again");
                    sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
                answered => return answered,
            }
        }
    }
}

#[async_trait::async_trait]
impl LoopCheckpointSink for CheckpointSink {
    /// Returns when the checkpoint is in the log and applied, or is lost: that is warned of, and kept as
    /// [`CheckpointSink::last_error`]. It takes no longer than [`CheckpointSink::save_wait`]. Cancelled, as
    /// [`CheckpointSink::try_save`].
    async fn save_checkpoint(&self, checkpoint: &LoopCheckpoint) {
        if let Err(error) = self.save(checkpoint).await {
            let (run, turn) = (checkpoint.run_id.as_str(), checkpoint.turn);
            tracing::warn!(run, turn, error = chain(&error), "a loop checkpoint is lost; the run goes on");
        }
    }

    /// As [`CheckpointSink::try_load`]. It asks again where the journal does not answer, within
    /// [`CheckpointSink::load_wait`].
    ///
    /// # Panics
    ///
    /// For every other error, and past the bound. Its caller takes `None` for a run that has done nothing, and would do
    /// everything again.
    async fn load_latest(&self, run_id: &str) -> Option<LoopCheckpoint> {
        match self.load_in_time(run_id).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(run = run_id, error = chain(&error), "where a run stands is not known");
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

/// An error and what it came from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        said += ": ";
        said += &error.to_string();
        source = error.source();
    }
    said
}
