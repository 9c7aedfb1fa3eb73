//! The core of a handle on a run. Operations run one at a time; each first settles dropped calls and held results of
//! earlier operations. Only intents do not wait for each other; see [`intents`].
//!
//! ```text
//!   operation ─▶ lock ─▶ make_ready: wait for intents in flight, reopen if a checkpoint stopped the handle
//!                           │        settle dropped calls, record released results
//!                           └─▶ append
//! ```

use crate::{
    config::{Config, failpoint},
    error::{Action, Error, SideEffect},
    transport::{Transport, in_flight::SharedPermit, request::RecoveryQuery, run_without_records},
};
use activity::{Activity, InFlight};
use appender::RunAppender;
use checkpoint::{CheckpointBase, LoopState};
use claim::{Claim, not_writer};
use intents::{Admitted, Intent, Intents, Reply};
use outbox::SharedOutbox;
use read_back::AckedRecord;
use reopen::Reopened;
use replay::Replay;
use runlog_schemas::{
    answer::{Done, ErrorKind, Feature, Position, Recovery},
    id::{Epoch, RecordId, RunId},
    judge::RunStatus,
    payload::{CheckpointPrune, Payload},
    record::JournalRecord,
};
use state::{SessionState, ends_run};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, oneshot::error::TryRecvError},
    time::timeout,
};
use unjudged::Unjudged;
use writer_state::WriterState;

pub(crate) mod activity;
pub(crate) mod appender;
pub(crate) mod build;
pub(crate) mod checkpoint;
pub(crate) mod claim;
mod end;
pub(crate) mod intents;
pub(crate) mod numbering;
pub(crate) mod outbox;
pub(crate) mod places;
pub(crate) mod read_back;
pub(crate) mod reopen;
pub(crate) mod replay;
pub(crate) mod sent_at;
pub(crate) mod state;
pub(crate) mod unjudged;
pub(crate) mod writer_state;

/// The options for opening a run.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Resumes at the start instead of at the latest checkpoint: the journal answers every recorded call again.
    pub from_start: bool,
    /// Runs new effects even while an older effect is `reconcile_required`.
    pub allow_unresolved: bool,
    /// Fails if a record was appended to the run within this time; see
    /// [`Runlog::open_unless_active`](crate::Runlog::open_unless_active). Default `None`: takes the run over from any writer.
    pub unless_active: Option<Duration>,
}

/// Releases a permit when it is dropped.
struct GiveBack(SharedPermit);

impl Drop for GiveBack {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A run that this process has claimed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) transport: Arc<Transport>,
    pub(crate) config: Arc<Config>,
    pub(crate) run_id: RunId,
    pub(crate) allow_unresolved: bool,
    state: Mutex<SessionState>,
    pub(crate) outbox: SharedOutbox,
    pub(crate) activity: Activity,
    /// Whether the process resumes at the checkpoint.
    pub(crate) recovery_read: AtomicBool,
    /// A permit for each call that may be in flight.
    call_slots: Arc<Semaphore>,
}

impl Session {
    /// Opens a run; see [`Runlog::open_with`](crate::Runlog::open_with). Returns the run's recovery after the claim.
    pub(crate) async fn open(
        transport: Arc<Transport>,
        config: Arc<Config>,
        run_id: RunId<&str>,
        options: OpenOptions,
    ) -> Result<(Self, Recovery), Error> {
        let seen = match options.unless_active {
            Some(within) => claim::check_inactive(&transport, run_id, within).await?,
            None => None,
        };
        let before = transport.recovery(run_id, RecoveryQuery { from_start: true, content: false }, None).await?;
        if options.unless_active.is_some() {
            claim::check_unchanged(run_id, seen.as_ref(), before.as_ref())?;
        }
        let whole = RecoveryQuery { from_start: options.from_start, content: true };
        // A run that has ended is not claimed.
        let claim = if before.as_ref().is_some_and(|before| before.status != RunStatus::Open) {
            None
        } else {
            (config.failpoints)(failpoint::HEAD_READ);
            let epoch = before.as_ref().map_or(Epoch::ZERO, |before| before.epoch);
            let secret = transport.has(Feature::Commitments).then(|| config.secret());
            let claim = Claim::after(epoch, None, secret, &config, run_id)?;
            claim.send(&transport, &config, run_id).await?;
            Some(claim)
        };
        let read = async |query| {
            let now = transport.whole_recovery(run_id, query).await?.ok_or_else(|| run_without_records(run_id))?;
            match &claim {
                Some(claim) if !claim.is_held_in(&now) => Err(not_writer(run_id, claim.epoch(), now.epoch)),
                // Otherwise this handle would act as the run's last writer without a claim.
                None if now.status == RunStatus::Open => Err(claim::before_its_end(run_id)),
                _ => Ok(now),
            }
        };
        let recovery = read(whole).await?;
        // Calls that the checkpoint covers are needed too: a key identifies its call forever, and a process may start
        // at the run's beginning.
        let ended = match &recovery.checkpoint {
            Some(_) => read(RecoveryQuery { from_start: true, content: false }).await?.completed,
            None => Vec::new(),
        };
        let is_new = claim.is_some() && recovery.next_journal_seq == 1.into();
        // The run may have ended between the read and the claim.
        let state = match &recovery.status {
            status if *status == RunStatus::Open => WriterState::Ready,
            status => WriterState::Ended(claim::ended(run_id, status.as_str())),
        };
        let mut appender = RunAppender::new(transport.clone(), config.clone(), run_id, Some(&recovery), state);
        (appender.has_claimed, appender.secret) = (claim.is_some(), claim.as_ref().and_then(Claim::secret));
        let session = Self::new(appender, &options, &recovery, &ended);
        if is_new {
            session.lifecycle("started").await?;
        }
        Ok((session, recovery))
    }

    fn new(appender: RunAppender, options: &OpenOptions, recovery: &Recovery, ended: &[Done]) -> Self {
        let outbox = SharedOutbox::new(appender.config.held_bytes_max);
        let calls_max = appender.config.calls_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            transport: appender.transport.clone(),
            config: appender.config.clone(),
            run_id: appender.run_id.clone(),
            allow_unresolved: options.allow_unresolved,
            outbox: outbox.clone(),
            activity: Activity::default(),
            recovery_read: AtomicBool::new(false),
            call_slots: Arc::new(Semaphore::new(calls_max)),
            state: Mutex::new(SessionState {
                appender,
                replay: Replay::new(recovery, ended),
                checkpoint_base: CheckpointBase::from_recovered(recovery.checkpoint.as_ref()),
                outbox,
                intents: Intents::default(),
            }),
        }
    }

    /// Runs an operation for at most [`Config::operation`], then cancels it.
    pub(crate) fn time_limited<'a, T: 'a>(
        &'a self,
        operation: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        self.config.time_limited(self.run_id.borrow(), SideEffect::Unknown, operation)
    }

    /// Waits for earlier operations. Fails after the deadline, without any effect.
    pub(crate) async fn lock(&self) -> Result<MutexGuard<'_, SessionState>, Error> {
        let mut state = lock(&self.state, &self.config, &self.run_id).await?;
        if self.recovery_read.load(Ordering::Relaxed) {
            state.replay.resume_at_checkpoint();
        }
        Ok(state)
    }

    /// Takes a slot for a call. Waits up to the deadline if all are taken.
    pub(crate) async fn call_slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(slot) = self.call_slots.clone().try_acquire_owned() {
            return Ok(slot);
        }
        // A stopped handle releases no slot, and a result that no caller waits for keeps its slot until it is recorded.
        let mut state = self.lock().await?;
        let ready = self.make_ready(&mut state).await;
        state.ended_or(ready)?;
        drop(state);
        let deadline = self.config.deadline;
        let full = || {
            let message = format!(
                "timed out after {} waiting for one of the {} calls in flight on run {} to end",
                humantime::format_duration(deadline),
                self.config.calls_max,
                self.run_id
            );
            Error::new(ErrorKind::Unavailable, Action::Retry, message)
        };
        timeout(deadline, self.call_slots.clone().acquire_owned()).await.ok().and_then(Result::ok).ok_or_else(full)
    }

    /// Makes the handle ready to append: waits for intents in flight, reopens the handle if a checkpoint stopped it,
    /// settles dropped calls, and records released results. Fails if the handle is stopped for another reason.
    pub(crate) async fn make_ready(&self, state: &mut SessionState) -> Result<(), Error> {
        state.drain_intents().await;
        if let Err(error) = state.appender.check_ready() {
            if state.appender.state.is_over() {
                // Results that cannot be appended now are kept for the next try.
                drop(state.append_all_evidence().await);
                // A run that has ended still answers calls.
                state.restore_interrupted();
                return Err(error);
            }
            if !matches!(state.appender.state, WriterState::Stopped { checkpoint: true, .. }) {
                return Err(error);
            }
            // Rare and large: kept out of every operation's future.
            Box::pin(reopen::reopen(state)).await?;
        }
        state.appender.check_results()?;
        state.settle().await
    }

    /// As [`Session::make_ready`], for an intent: other intents may be in flight, unless a record must be appended
    /// first.
    pub(crate) async fn make_ready_for_intent(&self, state: &mut SessionState) -> Result<(), Error> {
        let cancelled = state.intents.forget_cancelled();
        if cancelled || self.outbox.lock().is_due() || state.appender.check_ready().is_err() {
            return self.make_ready(state).await;
        }
        state.appender.check_results()?;
        state.restore_interrupted();
        Ok(())
    }

    /// Appends an intent after the earlier ones, and waits until it is acknowledged.
    pub(crate) async fn append_intent<'a>(
        &'a self,
        mut state: MutexGuard<'a, SessionState>,
        intent: Intent,
        mut reply: Reply,
    ) -> Result<Admitted, Error> {
        let given_up = || {
            let message = format!("run {}: an intent was given up without an answer", self.run_id);
            Error::new(ErrorKind::Internal, Action::Operator, message).with_side_effect(SideEffect::Unknown)
        };
        // Releases the permit if the call is cancelled.
        let _room = GiveBack(intent.permit.clone());
        state.intents.push(intent);
        loop {
            let ack = state.advance_intents();
            match reply.try_recv() {
                Ok(admitted) => return admitted,
                Err(TryRecvError::Closed) => return Err(given_up()),
                Err(TryRecvError::Empty) => {}
            }
            let Some(ack) = ack else {
                // The intent is not sent, because a result was refused.
                return Err(state.appender.check_results().err().unwrap_or_else(given_up));
            };
            drop(state);
            let locked = async {
                drop(ack.await);
                self.lock().await
            };
            state = tokio::select! {
                biased;
                admitted = &mut reply => return admitted.unwrap_or_else(|_| Err(given_up())),
                // The first task to get the lock applies the outcome.
                state = locked => state.map_err(|error| error.with_side_effect(SideEffect::Unknown))?,
            };
        }
    }

    /// Waits for a permit for an intent. First drains the handle's own intents, so that it holds no permits while it
    /// waits for other handles.
    pub(crate) async fn permit(&self, state: &mut SessionState, record: &JournalRecord) -> Result<SharedPermit, Error> {
        let permit = match self.transport.try_permit(record) {
            Some(permit) => permit,
            None => {
                state.drain_intents().await;
                state.appender.check_results()?;
                self.transport.permit(record).await?
            }
        };
        Ok(SharedPermit::new(permit))
    }

    /// Appends a record with this payload.
    pub(crate) async fn append(&self, record_id: RecordId, payload: Payload) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        Ok(state.appender.append(record_id, payload).await?.position)
    }

    /// Appends a complete record and waits for its outcome.
    pub(crate) async fn append_record(&self, record: JournalRecord) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let status = ends_run(&record);
        let acked = state.appender.append_record(record).await?;
        if let Some(status) = status {
            state.end(status.as_str());
        }
        Ok(acked.position)
    }

    /// Appends a batch and waits for its outcome. Returns the positions of its records `ids`, in order.
    pub(crate) async fn append_batch(&self, batch: JournalRecord, ids: &[RecordId]) -> Result<Vec<Position>, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let status = ends_run(&batch);
        let acked = state.appender.append_record(batch).await?;
        if let Some(status) = status {
            state.end(status.as_str());
        }
        state.appender.positions(&acked, ids).await
    }

    /// Appends a checkpoint of a state that is as old as `in_flight`. A run that has ended accepts only its last one again.
    pub(crate) async fn checkpoint(&self, loop_state: &LoopState, in_flight: InFlight) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        let ready = self.make_ready(&mut state).await;
        if let Some(ended) = state.ended_or(ready)? {
            return state.checkpoint_base.position_of(&self.config, loop_state).cloned().ok_or(ended);
        }
        self.confirm_base(&mut state).await?;
        let SessionState { appender, replay, checkpoint_base, .. } = &mut *state;
        let id = self.config.record_id()?;
        let numbers = (appender.next_checkpoint_seq, appender.next_journal_seq);
        let unanswered = replay.unanswered(in_flight.period());
        let run_id = self.run_id.borrow();
        let (checkpoint, mut next) =
            checkpoint_base.next_checkpoint(&self.config, run_id, &id, numbers, unanswered, loop_state)?;
        let acked = appender.append(id, checkpoint.into()).await?;
        appender.next_checkpoint_seq = appender.next_checkpoint_seq.saturating_add(1);
        next.position = Some(acked.position.clone());
        next.unconfirmed = (!acked.applied).then(|| acked.clone());
        *checkpoint_base = next;
        appender.confirm_results().await.map_err(|error| error.with_side_effect(SideEffect::Unknown))?;
        Ok(acked.position)
    }

    /// Checks whether the last checkpoint was applied, if the acknowledgement did not report it. A checkpoint that
    /// builds on a refused one would be refused too, and so would all later ones. If the check fails, the next
    /// checkpoint is written whole.
    async fn confirm_base(&self, state: &mut SessionState) -> Result<(), Error> {
        let Some(acked) = state.checkpoint_base.unconfirmed.clone() else { return Ok(()) };
        let Err(error) = self.read_back(&acked, &state.appender.unjudged).await else {
            state.checkpoint_base.unconfirmed = None;
            return Ok(());
        };
        state.checkpoint_base = CheckpointBase::default();
        match error.kind() {
            ErrorKind::Fenced => Err(state.appender.lose(error)),
            ErrorKind::Conflict => {
                // If its numbers are wrong, the next record's numbers are wrong, too.
                tracing::warn!(run = self.run_id.as_str(), %error, "the last checkpoint was refused; the next one is whole");
                state.appender.stop_for_checkpoint(error);
                self.make_ready(state).await
            }
            _ => Ok(()),
        }
    }

    async fn read_back(&self, acked: &AckedRecord, unjudged: &Unjudged) -> Result<(), Error> {
        let answer = read_back::read_back(&self.transport, &self.config, self.run_id.borrow(), acked, unjudged);
        answer.await.map(drop)
    }

    pub(crate) async fn prune_checkpoints(&self, prune: CheckpointPrune) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let acked = state.appender.append(self.config.record_id()?, prune.into()).await?;
        state.checkpoint_base = CheckpointBase::default();
        Ok(acked.position)
    }

    pub(crate) async fn reopen(&self) -> Result<Reopened, Error> {
        let mut state = self.lock().await?;
        state.drain_intents().await;
        let mut done = Box::pin(reopen::reopen(&mut state)).await?;
        if state.appender.state.is_ready() {
            match state.settle().await {
                // For example, an operator decided a call that was cancelled here. Reopening reads the decision.
                Err(error) if error.action() == Action::Reopen => {
                    done.add(Box::pin(reopen::reopen(&mut state)).await?);
                    state.settle().await?;
                }
                settled => settled?,
            }
            state.appender.ask_for_results().await?;
        }
        // Last: a refusal is reported once, so nothing may fail or be cancelled between taking it and returning it.
        while let Some(refused) = state.appender.unjudged.take_refused() {
            state.appender.mark_reported(&refused.record_id);
            done.refused_results.push((refused.call, refused.outcome.and_then(|outcome| outcome.reason)));
        }
        Ok(done)
    }

    pub(crate) async fn flush(&self) -> Result<(), Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let appender = &mut state.appender;
        let Some(last) = appender.last_acked.clone() else { return appender.check_writer().await };
        let answer = appender.read_back(&last).await?;
        appender.confirm_results().await?;
        if !appender.is_writer_since(appender.epoch, &answer) {
            return Err(appender.not_writer_in(answer.epoch));
        }
        let base = &mut state.checkpoint_base;
        base.unconfirmed = base.unconfirmed.take().filter(|acked| acked.record_id != last.record_id);
        Ok(())
    }
}

/// Locks the state of a handle, after its earlier operations.
///
/// Errors: `Unavailable` after [`Config::deadline`].
pub(crate) async fn lock<'a, T>(
    state: &'a Mutex<T>,
    config: &Config,
    run_id: &RunId,
) -> Result<MutexGuard<'a, T>, Error> {
    let deadline = config.deadline;
    timeout(deadline, state.lock()).await.map_err(|_| {
        let waited = humantime::format_duration(deadline);
        let message = format!("timed out after {waited} waiting for an earlier operation on run {run_id}");
        Error::new(ErrorKind::Unavailable, Action::Retry, message)
    })
}
