//! The core of a handle on a run. Operations run one at a time; each first settles dropped calls and held results of
//! earlier operations. Only intents do not wait for each other; see [`intents`].
//!
//! ```text
//!   operation ─▶ lock ─▶ make_ready: wait for intents in flight, reopen if a checkpoint stopped the handle
//!                           │        settle dropped calls, record released results
//!                           └─▶ append
//! ```

use crate::{
    error::{Action, Error, SideEffect},
    read::{self, Read},
    transport::{in_flight::SharedPermit, request::RecordFilter},
};
use appender::RunAppender;
use checkpoint::{CheckpointBase, LoopState};
use client::RunClient;
use intents::{Admitted, Intent, Intents, Reply};
use open::{OnDivergence, OpenOptions};
use reopen::Reopened;
use replay::Replay;
use runlog_schemas::{
    answer::{ErrorKind, Position, Recovery},
    id::RecordId,
    payload::{CheckpointPrune, Payload, RunLifecycle},
    record::JournalRecord,
};
use shared::Busy;
use state::SessionState;
use std::sync::Arc;
use tokio::{
    sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, oneshot::error::TryRecvError},
    time::timeout,
};
use writer_state::WriterState;

pub(crate) mod appender;
pub(crate) mod checkpoint;
pub(crate) mod claim;
pub(crate) mod client;
pub(crate) mod in_flight;
pub(crate) mod intents;
pub(crate) mod marker;
pub(crate) mod numbering;
pub(crate) mod open;
mod outbox;
pub(crate) mod outcome;
pub(crate) mod reopen;
pub(crate) mod replay;
pub(crate) mod sent_at;
pub(crate) mod shared;
pub(crate) mod state;
pub(crate) mod taken_call;
mod unjudged;
pub(crate) mod writer_state;

/// Records that are searched for a run's end. A run has one end, and few records of that kind.
const ENDS_MAX: usize = 100;

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
    pub(crate) client: RunClient,
    pub(crate) allow_unresolved: bool,
    pub(crate) on_divergence: OnDivergence,
    state: Mutex<SessionState>,
    /// A permit for each call that may be in flight.
    call_slots: Arc<Semaphore>,
}

impl Session {
    /// A session of a run that was claimed, or has ended.
    fn new(appender: RunAppender, options: &OpenOptions, recovery: &Recovery) -> Self {
        let client = appender.client.clone();
        let calls_max = client.config.calls_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            client,
            allow_unresolved: options.allow_unresolved,
            on_divergence: options.on_divergence,
            call_slots: Arc::new(Semaphore::new(calls_max)),
            state: Mutex::new(SessionState {
                appender,
                replay: Replay::new(recovery).with_receipts(options.receipts),
                checkpoint_base: CheckpointBase::from_recovered(recovery.checkpoint.as_ref()),
                intents: Intents::default(),
            }),
        }
    }

    /// Runs an operation for at most [`Config::operation`](crate::Config::operation), then cancels it.
    pub(crate) fn time_limited<'a, T: 'a>(
        &'a self,
        operation: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        self.client.config.time_limited(self.client.id(), SideEffect::Unknown, operation)
    }

    /// Waits for earlier operations. Fails after the deadline, without any effect.
    pub(crate) async fn lock(&self) -> Result<MutexGuard<'_, SessionState>, Error> {
        let mut state = self.client.lock(&self.state).await?;
        let resumes_at_checkpoint = self.client.shared.lock().resumes_at_checkpoint;
        if resumes_at_checkpoint {
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
        let RunClient { config, run_id, .. } = &self.client;
        let deadline = config.deadline;
        let full = || {
            let message = format!(
                "timed out after {} waiting for one of the {} calls in flight on run {run_id} to end",
                humantime::format_duration(deadline),
                config.calls_max
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
        let is_due = cancelled || state.shared().outbox.is_due();
        if is_due || state.appender.check_ready().is_err() {
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
            let message = format!("run {}: an intent was given up without an answer", self.client.run_id);
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
        let permit = match self.client.transport.try_permit(record) {
            Some(permit) => permit,
            None => {
                state.drain_intents().await;
                state.appender.check_results()?;
                self.client.transport.permit(record).await?
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
        Ok(state.append_record(record).await?.position)
    }

    /// Appends a batch and waits for its outcome. Returns the positions of its records `ids`, in order.
    pub(crate) async fn append_batch(&self, batch: JournalRecord, ids: &[RecordId]) -> Result<Vec<Position>, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let acked = state.append_record(batch).await?;
        state.appender.positions(&acked, ids).await
    }

    /// Appends a checkpoint of a state that is as old as `busy`. A run that has ended accepts only its last one again.
    pub(crate) async fn checkpoint(&self, loop_state: &LoopState, busy: Busy) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        let ready = self.make_ready(&mut state).await;
        if let Some(ended) = state.ended_or(ready)? {
            return state.checkpoint_base.position_of(&self.client.config, loop_state).cloned().ok_or(ended);
        }
        self.confirm_base(&mut state).await?;
        // A process that starts at the run's beginning lists the covered calls whose answers it has not requested.
        state.find_covered(&None).await?;
        let SessionState { appender, replay, checkpoint_base, .. } = &mut *state;
        let RunClient { config, run_id, .. } = &self.client;
        let id = config.record_id()?;
        let numbers = (appender.numbers.checkpoint_seq, appender.numbers.journal_seq);
        let unanswered = replay.unanswered(busy.period());
        let (checkpoint, mut next) =
            checkpoint_base.next_checkpoint(config, run_id.borrow(), &id, numbers, unanswered, loop_state)?;
        let acked = appender.append(id, checkpoint.into()).await?;
        appender.numbers.checkpoint_seq = appender.numbers.checkpoint_seq.saturating_add(1);
        next.position = Some(acked.position.clone());
        next.unconfirmed = (!acked.applied).then(|| acked.clone());
        *checkpoint_base = next;
        replay.expect_no_call();
        appender.confirm_results().await.map_err(|error| error.with_side_effect(SideEffect::Unknown))?;
        Ok(acked.position)
    }

    /// Checks whether the last checkpoint was applied, if the acknowledgement did not report it. A checkpoint that
    /// builds on a refused one would be refused too, and so would all later ones. If the check fails, the next
    /// checkpoint is written whole.
    async fn confirm_base(&self, state: &mut SessionState) -> Result<(), Error> {
        let Some(acked) = state.checkpoint_base.unconfirmed.clone() else { return Ok(()) };
        let Err(error) = self.client.read_back(&acked).await else {
            state.checkpoint_base.unconfirmed = None;
            return Ok(());
        };
        state.checkpoint_base = CheckpointBase::default();
        match error.kind() {
            ErrorKind::Fenced => Err(state.appender.lose(error)),
            ErrorKind::Conflict => {
                // If its numbers are wrong, the next record's numbers are wrong, too.
                tracing::warn!(run = self.client.run_id.as_str(), %error, "the last checkpoint was refused; the next one is whole");
                state.appender.stop_for_checkpoint(error);
                self.make_ready(state).await
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn prune_checkpoints(&self, prune: CheckpointPrune) -> Result<Position, Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let acked = state.appender.append(self.client.config.record_id()?, prune.into()).await?;
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
            self.client.ask_for_results().await?;
        }
        // Last: a refusal is reported once, so nothing may fail or be cancelled between taking it and returning it.
        loop {
            let refused = self.client.shared.lock().results.take_refused();
            let Some(refused) = refused else { return Ok(done) };
            state.appender.mark_reported(&refused.record_id);
            done.refused_results.push((refused.call, refused.outcome.and_then(|outcome| outcome.reason)));
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), Error> {
        let mut state = self.lock().await?;
        self.make_ready(&mut state).await?;
        let appender = &mut state.appender;
        let Some(last) = appender.last_acked.clone() else { return appender.check_writer().await };
        let answer = appender.read_back(&last).await?;
        appender.confirm_results().await?;
        if !appender.is_writer_since(appender.numbers.epoch, &answer) {
            return Err(appender.not_writer_in(answer.epoch));
        }
        let base = &mut state.checkpoint_base;
        base.unconfirmed = base.unconfirmed.take().filter(|acked| acked.record_id != last.record_id);
        Ok(())
    }

    /// Appends a `run_lifecycle` record and waits until it is applied. Any status but `started` ends the run.
    pub(crate) async fn lifecycle(&self, status: &str) -> Result<Position, Error> {
        let lifecycle = RunLifecycle { status: status.to_owned(), reason: String::new() };
        let mut state = self.lock().await?;
        let ready = self.make_ready(&mut state).await;
        if let Some(ended) = state.ended_or(ready)? {
            return self.same_end(&lifecycle, ended).await;
        }
        let record = self.client.build_record(self.client.config.record_id()?, lifecycle.into(), None).await?;
        let acked = state.appender.send(record.clone()).await?;
        // Stays set until the run's end is known to be applied or not. If this is cancelled, the handle is stopped.
        state.appender.unacknowledged = Some(record);
        let applied = state.appender.read_back(&acked).await;
        if applied.is_ok()
            && let Err(error) = self.client.ask_for_results().await
        {
            // Stops the handle until the outcome is known, as after a cancellation.
            return Err(state.appender.stop(error).with_side_effect(SideEffect::Unknown));
        }
        if applied.as_ref().err().is_none_or(|error| matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Fenced)) {
            state.appender.unacknowledged = None;
        }
        applied?;
        state.appender.check_results().map_err(|error| error.with_side_effect(SideEffect::Unknown))?;
        if status != "started" {
            state.end(status);
        }
        Ok(acked.position)
    }

    /// Returns the position of the record that ended the run in the same way. Otherwise returns an error that begins
    /// with `ended`.
    async fn same_end(&self, wanted: &RunLifecycle, ended: Error) -> Result<Position, Error> {
        let (family, kind) = (Some("run".to_owned()), Some(wanted.status.clone()));
        let filter = RecordFilter { family, kind, ..RecordFilter::default() };
        let ends = self.client.transport.records(self.client.id(), &filter, None, ENDS_MAX).await?;
        let same = |read: &Read| match &read.record {
            Ok(record) => matches!(&record.payload, Payload::RunLifecycle(found) if found == wanted),
            // Retention removed the reason.
            Err(removed) => removed.kind() == ErrorKind::NotFound,
        };
        let position =
            ends.map(read::page).unwrap_or_default().records.into_iter().find(same).map(|read| read.position);
        position.ok_or_else(|| {
            ended.map_message(|ended| format!("{ended}; it did not end as {} without a reason", wanted.status))
        })
    }
}
