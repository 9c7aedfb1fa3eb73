//! An agent that works on runs to their end despite faults of brokers, servers and itself: it reopens, retries and
//! reconciles. Its list has its acknowledgements, the [`EffectDesk`] has its effects.
//!
//! ```text
//!   open ─▶ reconcile ─▶ [ turn ─▶ reserve (with a key) and charge (without) ─▶ checkpoint, now and then ]* ─▶ end
//!     └────────────────────────── the run was lost: open it again ◀──────────────────┘
//! ```

use std::{
    fs::File,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use runlog_producer::{Action, Answer, Call, Error, Failure, Json, LoopState, Outcome, Run, Runlog, answer};
use runlog_schemas::{answer::ErrorKind, judge::RunStatus};
use serde_json::{Value, json};

use super::effect_desk::{EffectDesk, append_line};

/// How long an operation may keep failing.
const PATIENCE: Duration = Duration::from_secs(240);
/// The pause before a retry.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
/// Steps of a run, and between two checkpoints.
const STEPS: u64 = 6;
const CHECKPOINT_EVERY: u64 = 3;
/// Bytes of a turn that does not fit a record.
const LARGE_TURN_BYTES: usize = 1_100_000;

/// The acknowledgements: a file with a line for each.
#[derive(Debug)]
pub struct AckedList(File);

impl AckedList {
    /// The prefix of the names of these files.
    pub(crate) const PREFIX: &str = "acked-";

    /// Appends to the list of an agent in `folder`.
    pub fn open(folder: &Path, agent: &str) -> anyhow::Result<Self> {
        let path = folder.join(format!("{}{agent}", Self::PREFIX));
        Ok(Self(File::options().create(true).append(true).open(path)?))
    }

    fn note(&self, run: &str, what: &str, mut line: Value) -> anyhow::Result<()> {
        line["run"] = run.into();
        line["what"] = what.into();
        Ok(append_line(&self.0, &line)?)
    }
}

/// A worker and its connections.
#[derive(Debug)]
pub struct GateWorker<'a> {
    /// The producer.
    pub runlog: &'a Runlog,
    /// Sends decisions.
    pub http: reqwest::Client,
    /// The URL of the server that gets decisions.
    pub server: &'a str,
    /// The ledger of effects.
    pub desk: &'a EffectDesk,
    /// The acknowledgements.
    pub acked: &'a AckedList,
    /// Whether turns are too large for a record.
    pub large: &'a AtomicBool,
    /// Calls that were answered.
    pub answered: &'a AtomicU64,
}

/// The result of an attempt at a run.
enum Attempt {
    Ended,
    Lost,
}

impl GateWorker<'_> {
    /// Works on a run until it has ended. Does not change a run that has already ended.
    pub async fn live(&self, run_id: &str) -> anyhow::Result<()> {
        while let Attempt::Lost = self.attempt(run_id).await.with_context(|| run_id.to_owned())? {}
        Ok(())
    }

    async fn attempt(&self, run_id: &str) -> anyhow::Result<Attempt> {
        let run = self.open(run_id).await?;
        let recovery = run.recovery();
        if recovery.status != RunStatus::Open {
            return Ok(Attempt::Ended);
        }
        for pending in &recovery.pending {
            self.acked.note(run_id, "met", json!({ "class": pending.class }))?;
        }
        self.reconcile(run_id, &recovery.pending).await?;
        let state = recovery.checkpoint.as_ref().and_then(|checkpoint| checkpoint.state.as_ref());
        let first_step = state.and_then(|state| state.to_value()["step"].as_u64()).unwrap_or(0);
        for step in first_step..STEPS {
            if self.step(&run, step).await?.is_none() {
                return Ok(Attempt::Lost);
            }
        }
        // The next open shows whether the run has ended.
        match run.end(Outcome::Completed).await {
            Ok(position) => self.acked.note(run_id, "end", json!({ "position": position }))?,
            Err(_) => return Ok(Attempt::Lost),
        }
        Ok(Attempt::Ended)
    }

    async fn step(&self, run: &Run, step: u64) -> anyhow::Result<Option<()>> {
        let id = run.id().as_str();
        let mut content = format!("step {step} of process {}", std::process::id());
        if self.large.load(Ordering::Relaxed) {
            content.push_str(&" filler".repeat(LARGE_TURN_BYTES / 7));
        }
        let Some(position) = self.insist(run, async || run.turn("assistant", &content).await).await? else {
            return Ok(None);
        };
        if content.len() < LARGE_TURN_BYTES {
            self.acked.note(id, "turn", json!({ "position": position, "content": content }))?;
        }
        let key = format!("key {step}");
        let calls =
            tokio::try_join!(self.call(run, "reserve", step, Some(&key)), self.call(run, "charge", step, None))?;
        if calls.0.is_none() || calls.1.is_none() {
            return Ok(None);
        }
        let next = step + 1;
        if !next.is_multiple_of(CHECKPOINT_EVERY) {
            return Ok(Some(()));
        }
        let state = LoopState { state: Some(json!({ "step": next }).into()), ..LoopState::default() };
        let saved = self.insist(run, async || run.checkpoint(&state).await).await?;
        saved.map(|position| self.acked.note(id, "checkpoint", json!({ "position": position }))).transpose()
    }

    /// Opens a run. Retries, because an earlier claim may be appended between the read of the head and the new claim.
    async fn open(&self, run_id: &str) -> anyhow::Result<Run> {
        let started = Instant::now();
        loop {
            match self.runlog.open(run_id).await {
                Ok(run) => return Ok(run),
                Err(error) if error.action() == Action::FixTheInput => return Err(error.into()),
                Err(error) => ensure!(started.elapsed() < PATIENCE, "it does not open: {error}"),
            }
            tokio::time::sleep(AGAIN_PAUSE).await;
        }
    }

    /// Repeats an operation until it succeeds; returns `None` if another process has the run.
    async fn insist<T>(&self, run: &Run, operation: impl AsyncFn() -> Result<T, Error>) -> anyhow::Result<Option<T>> {
        let started = Instant::now();
        loop {
            let error = match operation().await {
                Ok(done) => return Ok(Some(done)),
                Err(error) => error,
            };
            self.acked.note(run.id().as_str(), "failed", json!({ "error": error.to_string() }))?;
            ensure!(started.elapsed() < PATIENCE, "it fails for {PATIENCE:?}: {error}");
            match (error.kind(), error.action()) {
                (ErrorKind::ReconcileRequired, _) => self.reconcile_call(run.id().as_str(), &error).await?,
                (_, Action::Stop) => return Ok(None),
                (_, Action::FixTheInput) => bail!("{:?}: {error}", error.kind()),
                (_, Action::Retry) => {}
                (_, Action::Reopen | Action::Operator) => match run.reopen().await {
                    Err(error) if error.action() == Action::Stop => return Ok(None),
                    _ => {}
                },
            }
            tokio::time::sleep(AGAIN_PAUSE).await;
        }
    }

    async fn call(&self, run: &Run, tool: &str, step: u64, key: Option<&str>) -> anyhow::Result<Option<()>> {
        let (id, args) = (run.id().as_str(), json!({ "step": step }));
        let once = async || {
            let call = run.tool(tool, &args);
            let call = if let Some(key) = key { call.idempotency_key(key) } else { call };
            call.once(|call| async { self.book(id, tool, &args, call) }).await
        };
        let Some(answer) = self.insist(run, once).await.with_context(|| format!("{tool} of step {step}"))? else {
            return Ok(None);
        };
        ensure!(answer.error.is_none(), "{tool} of step {step} in {id}: {:?}", answer.error);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.acked.note(id, "answer", answer_json(&answer)).map(Some)
    }

    /// The effect. Lists the intent as acknowledged first, because it was read back as applied.
    fn book(&self, id: &str, tool: &str, args: &Value, call: Call) -> Result<Json, Failure> {
        let noted = self.acked.note(id, "intent", json!({ "id": call.id }));
        let booked = noted.and_then(|()| self.desk.book(id, tool, args, &call));
        // A failed write at the desk is recorded as a failure of the call.
        booked.map(Json::from).map_err(|failed| Failure { kind: "desk".into(), message: failed.to_string() })
    }

    /// Decides only the call that an error names: the effect of another call may be about to happen in this process.
    async fn reconcile_call(&self, run_id: &str, error: &Error) -> anyhow::Result<()> {
        // If no server answers, the next operation fails as well.
        let Ok(Some(recovery)) = self.runlog.recovery(run_id).await else { return Ok(()) };
        let named = error.subject().record_id.as_ref();
        let pending: Vec<_> = recovery.pending.into_iter().filter(|pending| Some(&pending.id) == named).collect();
        self.reconcile(run_id, &pending).await
    }

    /// Decides pending calls by the desk's ledger, as an operator would. After a refused decision, the next operation
    /// requires it again.
    async fn reconcile(&self, run_id: &str, pending: &[answer::Pending]) -> anyhow::Result<()> {
        for pending in pending.iter().filter(|pending| pending.class == answer::Class::ReconcileRequired) {
            let mut body = match self.desk.booked(pending.id.as_str())? {
                Some(result) => json!({ "decision": "done", "result": result }),
                None => json!({ "decision": "not_done" }),
            };
            self.acked.note(run_id, "decided", json!({ "decision": body["decision"] }))?;
            // The call may belong to this process.
            (body["revision"], body["force"]) = (pending.revision.into(), true.into());
            (body["who"], body["why"]) = ("the worker".into(), "by the desk's ledger".into());
            let url = format!("{}/v1/runs/{run_id}/effects/{}/resolution", self.server, pending.id);
            drop(self.http.post(url).json(&body).send().await);
        }
        Ok(())
    }
}

/// The answer to a call, as a list or a test has it.
pub fn answer_json(answer: &Answer) -> Value {
    let result = answer.result.as_ref().map(Json::to_value);
    let failure = answer.error.as_ref().map(|error| error.kind.clone());
    json!({ "result": result, "failure": failure, "recorded": answer.recorded, "position": answer.position })
}
