//! The runs of a connection, each claimed once, and the record of the answers that the client has.
//!
//! ```text
//!   answer received ─▶ dirty ─▶ saver: receipts, then a checkpoint that covers all calls but those without a receipt
//! ```
//!
//! So a process that takes the run over answers exactly the calls whose answers the client may lack.

use super::{
    calls::{Calls, Known},
    naming::Naming,
};
use runlog_producer::{Action, Error, Json, LoopState, OpenOptions, Run, Runlog};
use runlog_schemas::{
    answer::Recovery,
    hidden::is_blank,
    id::{Fingerprint, RecordId, RunId},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{Mutex as AsyncMutex, Notify, OnceCell};

/// Runs of one connection: threads of a client that share the server. Another run is refused.
const RUNS_MAX: usize = 256;

/// A run that this process has claimed.
#[derive(Debug)]
pub(crate) struct OpenRun {
    pub(crate) run: Run,
    calls: Mutex<Calls>,
    is_stopped: AtomicBool,
    /// Held while receipts are recorded, or while the handle is reopened.
    saving: AsyncMutex<()>,
    dirty: Notify,
}

/// The state in a checkpoint: the ids that the client gave to recent calls.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    #[serde(default)]
    mcp_calls: Vec<SavedCall>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedCall {
    call_id: String,
    fingerprint: String,
    request: RecordId,
}

impl OpenRun {
    fn new(run: Run) -> Self {
        // The process resumes at the checkpoint, which covers the calls whose answers the client has.
        let recovery = run.recovery();
        let saved = recovery.checkpoint.as_ref().and_then(|checkpoint| checkpoint.state.as_ref());
        let saved: Saved = saved.and_then(|state| serde_json::from_str(state.as_str()).ok()).unwrap_or_default();
        let identified = saved.mcp_calls.into_iter().filter_map(|SavedCall { call_id, fingerprint, request }| {
            Some(Known { call_id, fingerprint: Fingerprint::new(fingerprint).ok()?, call: request })
        });
        let mut calls = Calls::new(identified.collect());
        for (fingerprint, key) in keys(recovery) {
            calls.add_key(&fingerprint, key);
        }
        Self {
            run,
            calls: Mutex::new(calls),
            is_stopped: AtomicBool::new(false),
            saving: AsyncMutex::new(()),
            dirty: Notify::new(),
        }
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the error of an operation, which may have stopped the handle.
    pub(crate) fn note(&self, error: &Error) {
        if error.action() == Action::Reopen {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Makes the handle ready again if an earlier operation stopped it.
    ///
    /// Errors: another process writes the run, or the journal does not answer. Nothing ran.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        if !self.is_stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _guard = self.saving.lock().await;
        if self.is_stopped.load(Ordering::Relaxed) {
            self.run.reopen().await?;
            self.is_stopped.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Lets the saver record receipts.
    pub(crate) fn mark_dirty(&self) {
        self.dirty.notify_one();
    }

    /// Records which answers the client has. Failures are logged: a later receipt, or the next process, makes up for them, and until
    /// then a repeat of such a call gets its recorded answer.
    pub(crate) async fn save(&self) {
        let _guard = self.saving.lock().await;
        let received = self.calls().take_received();
        if received.is_empty() {
            return;
        }
        if let Err(error) = self.checkpoint(&received).await {
            self.note(&error);
            self.calls().put_back(received);
            tracing::warn!("cannot record which answers the client has: {error}");
        }
    }

    async fn checkpoint(&self, received: &[RecordId]) -> Result<(), Error> {
        self.run.received(received).await?;
        let save = |Known { call_id, fingerprint, call }: &Known| SavedCall {
            call_id: call_id.clone(),
            fingerprint: fingerprint.as_str().to_owned(),
            request: call.clone(),
        };
        let saved = Saved { mcp_calls: self.calls().identified().map(save).collect() };
        let state = LoopState {
            session_id: self.run.id().as_str().to_owned(),
            state: Json::of(&saved).ok(),
            ..LoopState::default()
        };
        self.run.checkpoint(&state).await.map(drop)
    }
}

/// The keys of calls that are not answered, oldest first. An older client may have recorded a blank key, which no call can have.
fn keys(recovery: &Recovery) -> Vec<(Fingerprint, String)> {
    let done = recovery.completed.iter().filter_map(|done| {
        Some(((done.journal_seq, done.occurrence), done.fingerprint.clone(), done.idempotency_key.clone()?))
    });
    let pending = recovery.pending.iter().filter_map(|pending| {
        let order = (pending.journal_seq, pending.occurrence);
        let key = pending.idempotency_key.clone().filter(|key| !is_blank(key));
        Some((order, pending.fingerprint.clone()?, key?))
    });
    let mut all: Vec<_> = done.chain(pending).collect();
    all.sort_by_key(|(order, ..)| *order);
    all.into_iter().map(|(_, fingerprint, key)| (fingerprint, key)).collect()
}

/// The runs of a connection.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) runlog: Runlog,
    pub(crate) naming: Naming,
    pub(crate) options: OpenOptions,
    open: Mutex<HashMap<RunId, Arc<OnceCell<Arc<OpenRun>>>>>,
}

impl Runs {
    pub(crate) fn new(runlog: Runlog, naming: Naming, options: OpenOptions) -> Self {
        Self { runlog, naming, options, open: Mutex::default() }
    }

    /// Claims a run, unless this process has it. Calls of one run wait for one claim.
    ///
    /// Errors: as [`Runlog::open_with`]; nothing ran.
    pub(crate) async fn open(&self, run_id: &RunId) -> Result<Arc<OpenRun>, String> {
        let cell = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() == RUNS_MAX && !open.contains_key(run_id) {
                return Err(format!("this gate has {RUNS_MAX} runs, its maximum: start another one"));
            }
            Arc::clone(open.entry(run_id.clone()).or_default())
        };
        let opened = cell.get_or_try_init(|| async {
            let run = self.runlog.open_with(run_id.clone(), self.options.clone()).await?;
            let open = Arc::new(OpenRun::new(run));
            let saver = Arc::clone(&open);
            tokio::spawn(async move {
                loop {
                    saver.dirty.notified().await;
                    saver.save().await;
                }
            });
            Ok::<_, Error>(open)
        });
        opened.await.cloned().map_err(|error| error.to_string())
    }

    /// The runs that are open.
    pub(crate) fn all(&self) -> Vec<Arc<OpenRun>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().filter_map(|cell| cell.get().cloned()).collect()
    }
}
