//! The handle on a run.

use crate::{
    Action, Config, Error, Happened, active,
    claim::{Claim, claim_lost},
    failpoint,
    gate::Tool,
    held::Notes,
    pen::{self, Halt, Pen, refused},
    reopen::{Reopened, reopen},
    resume::Resume,
    saved::Saved,
    standing::slots,
    transport::{Ask, Transport},
    within,
};
use runlog_schemas::{
    answer::{Done, ErrorKind, Position, Recovery},
    id::{Epoch, JournalSeq, RecordId, RunId},
    json::Json,
    payload::{CheckpointPrune, ConversationTurn, Payload, RunLifecycle},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, Semaphore};

/// How a run is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Resume at the start instead of at the latest checkpoint: every recorded call is answered from the journal again.
    pub from_start: bool,
    /// Let the gate run new effects while an older one is `reconcile_required`.
    pub allow_unresolved: bool,
    /// Refuse to take the run over where a record was appended to it within this time; see
    /// [`crate::Runlog::open_unless_active`]. Default none: take it over from whoever has it.
    pub unless_active: Option<Duration>,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the contract's terminal statuses")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

/// What an agent's loop keeps between two tool rounds.
#[derive(Clone, Debug, Default)]
pub struct LoopState {
    /// The session.
    pub session_id: String,
    /// Completed tool rounds.
    pub turn: u64,
    /// The message list that a resumed loop starts from.
    pub messages: Vec<Json>,
    /// Whatever else the agent keeps.
    pub state: Option<Json>,
    /// Tool calls so far.
    pub tool_calls_count: u64,
}

/// A run, claimed by this process. Dropping it ends nothing: another process may take the run over at any time.
///
/// Its methods take `&self` and may be called concurrently; appends are in the order of the calls. Each is cancelled past
/// [`Config::operation`], and its error says then what it may have left behind: `Unavailable` with [`Happened::Unknown`], or as
/// the method says.
#[derive(Debug)]
pub struct Run {
    pub(crate) shared: Arc<Shared>,
    recovery: Recovery,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) transport: Arc<Transport>,
    pub(crate) config: Arc<Config>,
    pub(crate) run_id: RunId,
    pub(crate) allow_unresolved: bool,
    pub(crate) state: Mutex<State>,
    pub(crate) notes: std::sync::Mutex<Notes>,
    /// A permit for each call that may be under way.
    pub(crate) calls: Arc<Semaphore>,
}

/// What taking a call and enqueueing its intent change together.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pen: Pen,
    pub(crate) resume: Resume,
    pub(crate) saved: Saved,
}

impl Shared {
    /// An operation within the time that one may take; past it, it is as if its caller had cancelled it.
    pub(crate) fn within<'a, T: 'a>(
        &'a self,
        operation: impl Future<Output = Result<T, Error>> + 'a,
    ) -> impl Future<Output = Result<T, Error>> + 'a {
        within(&self.config, self.run_id.borrow(), Happened::Unknown, operation)
    }

    /// Whether the last checkpoint was applied, where the way did not tell: one that builds on a refused one would be refused
    /// as well, and so would all that follow. Where that cannot be known now, the next one is written whole.
    async fn confirm_base(&self, state: &mut State) -> Result<(), Error> {
        let Some(written) = state.saved.unconfirmed.clone() else { return Ok(()) };
        let answer =
            pen::read_back(&self.transport, &self.config, self.run_id.borrow(), &written, self.config.read_back).await;
        let Err(error) = answer else {
            state.saved.unconfirmed = None;
            return Ok(());
        };
        state.saved = Saved::default();
        match error.kind() {
            ErrorKind::Fenced => Err(state.pen.lose(error)),
            ErrorKind::Conflict => {
                // Its numbers may be at fault, and then so are those of what comes next.
                tracing::warn!(run = self.run_id.as_str(), %error, "the last checkpoint was refused; the next one is whole");
                state.pen.stop_for_checkpoint(error);
                self.ready(state).await
            }
            _ => Ok(()),
        }
    }
}

/// Opens a run; see [`crate::Runlog::open_with`].
pub(crate) async fn open(
    transport: Arc<Transport>,
    config: Arc<Config>,
    run_id: RunId<&str>,
    options: OpenOptions,
) -> Result<Run, Error> {
    let seen = match options.unless_active {
        Some(within) => active::look(&transport, run_id, within).await?,
        None => None,
    };
    let before = transport.recovery(run_id, Ask { from_start: true, content: false }, None).await?;
    if options.unless_active.is_some() {
        active::unchanged(run_id, seen.as_ref(), before.as_ref())?;
    }
    if let Some(ended) = before.as_ref().filter(|before| before.status != "open") {
        let over = Halt::Ended(read_only(run_id, &ended.status));
        let pen = Pen::new(transport.clone(), config.clone(), run_id, Some(ended), Some(over));
        let ask = Ask { from_start: options.from_start, content: true };
        let recovery = whole_recovery(&transport, run_id, ask).await?.ok_or_else(|| gone(run_id))?;
        return Ok(handle(transport, config, run_id, &options, pen, recovery, &[]));
    }
    (config.failpoints)(failpoint::HEAD_READ);
    let epoch = before.as_ref().map_or(Epoch::ZERO, |before| before.epoch);
    let claim = Claim::behind(epoch, &config, run_id)?;
    claim.send(&transport, &config, run_id).await?;
    let ask = Ask { from_start: options.from_start, content: true };
    let recovery = whole_recovery(&transport, run_id, ask).await?.ok_or_else(|| gone(run_id))?;
    if !claim.has(&recovery) {
        return Err(claim_lost(run_id));
    }
    // A key stands for its call however long ago that was: those that the checkpoint covers are taken along.
    let keyed = if recovery.checkpoint.is_some() {
        let ask = Ask { from_start: true, content: false };
        whole_recovery(&transport, run_id, ask).await?.ok_or_else(|| gone(run_id))?.completed
    } else {
        Vec::new()
    };
    let fresh = recovery.next_journal_seq == 1.into();
    // It may have ended between the read and the claim.
    let over = (recovery.status != "open").then(|| Halt::Ended(read_only(run_id, &recovery.status)));
    let pen = Pen::new(transport.clone(), config.clone(), run_id, Some(&recovery), over);
    let run = handle(transport, config, run_id, &options, pen, recovery, &keyed);
    if fresh {
        run.lifecycle("started", "").await?;
    }
    Ok(run)
}

pub(crate) fn read_only(run_id: RunId<&str>, status: &str) -> Error {
    let message = format!("run {run_id} is {status}: this handle only reads");
    Error::new(ErrorKind::Conflict, Action::FixTheInput, message)
}

fn handle(
    transport: Arc<Transport>,
    config: Arc<Config>,
    run_id: RunId<&str>,
    options: &OpenOptions,
    pen: Pen,
    recovery: Recovery,
    keyed: &[Done],
) -> Run {
    let saved = Saved::of(recovery.checkpoint.as_ref());
    let state = State { pen, resume: Resume::new(&recovery, keyed), saved };
    let calls = slots(config.calls_max);
    let shared = Shared {
        transport,
        config,
        run_id: run_id.to_owned(),
        allow_unresolved: options.allow_unresolved,
        state: Mutex::new(state),
        notes: std::sync::Mutex::default(),
        calls,
    };
    Run { shared: Arc::new(shared), recovery }
}

/// The run with all of its pending effects, and whatever else comes on their pages; none for a run without records. One that
/// is left out would look as if it had been decided.
pub(crate) async fn pending_recovery(transport: &Transport, run_id: RunId<&str>) -> Result<Option<Recovery>, Error> {
    let ask = Ask { from_start: true, content: false };
    let Some(mut recovery) = transport.recovery(run_id, ask, None).await? else { return Ok(None) };
    // Their pages come first: what comes behind them is on no page that they are left out of.
    while recovery.completed.is_empty()
        && let Some(cursor) = recovery.next_cursor.take()
    {
        let Some(page) = transport.recovery(run_id, ask, Some(&cursor)).await? else { return Ok(None) };
        recovery.pending.extend(page.pending);
        recovery.completed = page.completed;
        recovery.next_cursor = page.next_cursor;
    }
    Ok(Some(recovery))
}

/// The run, its pages put together; none for a run without records.
pub(crate) async fn whole_recovery(
    transport: &Transport,
    run_id: RunId<&str>,
    ask: Ask,
) -> Result<Option<Recovery>, Error> {
    let Some(mut recovery) = transport.recovery(run_id, ask, None).await? else { return Ok(None) };
    while let Some(cursor) = recovery.next_cursor.take() {
        let page = transport.recovery(run_id, ask, Some(&cursor)).await?.ok_or_else(|| gone(run_id))?;
        // Behind our claim nobody else's record changes the run: the pages are of one state.
        recovery.pending.extend(page.pending);
        recovery.completed.extend(page.completed);
        recovery.approvals.extend(page.approvals);
        recovery.wakes.extend(page.wakes);
        recovery.messages.extend(page.messages);
        recovery.write_backs.extend(page.write_backs);
        recovery.missing_content.extend(page.missing_content);
        recovery.resumable &= page.resumable;
        recovery.reason = recovery.reason.or(page.reason);
        recovery.next_cursor = page.next_cursor;
    }
    recovery.pending.sort_by_key(|pending| pending.journal_seq);
    recovery.unclaimed = recovery.completed.len() as u64;
    Ok(Some(recovery))
}

/// A run that is known to have records has none.
pub(crate) fn gone(run_id: RunId<&str>) -> Error {
    let message = format!("run {run_id} was claimed and has no record: the index is not of this log");
    Error::new(ErrorKind::Internal, Action::Operator, message)
}

impl Run {
    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.shared.run_id
    }

    /// What was known behind the claim: where the run stood, what is done, what may have happened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// A call of `tool` with `args`; nothing happens before [`Tool::once`].
    pub fn tool<'a, A: serde::Serialize + ?Sized>(&'a self, tool: &str, args: &A) -> Tool<'a> {
        Tool::new(self, tool, Json::of(args).map_err(|error| error.to_string()))
    }

    /// Records a message of the conversation.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn turn<C: serde::Serialize + ?Sized>(&self, kind: &str, content: &C) -> Result<Position, Error> {
        let content = Json::of(content).map_err(|error| {
            Error::new(ErrorKind::Invalid, Action::FixTheInput, format!("the content does not serialise: {error}"))
        })?;
        let content = self.shared.config.redacted(None, &content);
        let record_id = self.shared.config.record_id()?;
        let turn = ConversationTurn {
            message_id: record_id.as_str().to_owned(),
            parent_id: None,
            thread_id: None,
            kind: kind.to_owned(),
            content,
        };
        self.shared.within(self.append(record_id, turn.into())).await
    }

    /// Records where the loop stands, and returns its position in the log. What was asked for and not yet answered is
    /// listed in it, so that a process that resumes here still finds those answers.
    ///
    /// The message list is given whole; only what the last checkpoint did not have is written, wherever in the list it
    /// stands. Keep the [`Json`] values of messages that stay: they are known again without being read.
    ///
    /// It never ends the agent's loop: take an error as a report, and go on. Where its append failed, or was cancelled, what
    /// the handle does next reopens it first, and with it the checkpoint is in the log after all; where another process has
    /// the run, that says so. One of kind `TooLarge` says that new messages and state together do not fit a record, or that the list is beyond
    /// [`MESSAGES_MAX`](runlog_schemas::messages::MESSAGES_MAX) or
    /// [`MESSAGE_BYTES_MAX`](runlog_schemas::messages::MESSAGE_BYTES_MAX).
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn checkpoint(&self, state: &LoopState) -> Result<Position, Error> {
        self.shared.within(self.save(state)).await
    }

    async fn save(&self, state: &LoopState) -> Result<Position, Error> {
        let mut guard = self.shared.lock().await?;
        self.shared.ready(&mut guard).await?;
        self.shared.confirm_base(&mut guard).await?;
        let State { pen, resume, saved, .. } = &mut *guard;
        let id = self.shared.config.record_id()?;
        let numbers = (pen.next_checkpoint_seq, pen.next_journal_seq);
        let unanswered = resume.unanswered();
        let (checkpoint, mut next) =
            saved.next(&self.shared.config, self.shared.run_id.borrow(), &id, numbers, unanswered, state)?;
        let written = pen.append(id, checkpoint.into(), None).await?;
        pen.next_checkpoint_seq += 1;
        next.unconfirmed = (!written.applied).then(|| written.clone());
        *saved = next;
        Ok(written.position)
    }

    /// Hides this run's checkpoints that cover less than `covered_before` from answers; with `preserve_latest_terminal`
    /// not the latest that was taken behind the run's end. Their messages stay where a later one has them.
    ///
    /// The next checkpoint is written whole.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn prune_checkpoints(
        &self,
        covered_before: JournalSeq,
        preserve_latest_terminal: bool,
    ) -> Result<Position, Error> {
        let prune = CheckpointPrune { prune_covered_before: covered_before, preserve_latest_terminal };
        let append = async {
            let mut guard = self.shared.lock().await?;
            self.shared.ready(&mut guard).await?;
            let written = guard.pen.append(self.shared.config.record_id()?, prune.into(), None).await?;
            guard.saved = Saved::default();
            Ok(written.position)
        };
        self.shared.within(append).await
    }

    /// Ends the run, and waits until that is applied. Only reads follow.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn end(&self, outcome: Outcome) -> Result<Position, Error> {
        let status = match outcome {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        self.shared.within(self.lifecycle(status, "")).await
    }

    async fn lifecycle(&self, status: &str, reason: &str) -> Result<Position, Error> {
        let payload = RunLifecycle { status: status.to_owned(), reason: reason.to_owned() };
        let read_back = self.shared.config.read_back;
        let mut guard = self.shared.lock().await?;
        self.shared.ready(&mut guard).await?;
        let written = guard.pen.append(self.shared.config.record_id()?, payload.into(), None).await?;
        guard.pen.read_back(&written, read_back).await?;
        if status != "started" {
            guard.pen.halt = Some(Halt::Ended(read_only(self.shared.run_id.borrow(), status)));
        }
        Ok(written.position)
    }

    async fn append(&self, record_id: RecordId, payload: Payload) -> Result<Position, Error> {
        let mut guard = self.shared.lock().await?;
        self.shared.ready(&mut guard).await?;
        Ok(guard.pen.append(record_id, payload, None).await?.position)
    }

    /// Makes a handle that stands still usable again, behind a failed, unknown or cancelled append: claims this handle's own
    /// epoch + 1, finds out behind the claim what landed, and appends what did not, with the same record ids and content.
    /// Held results are recorded; intents whose effect never started are recorded as not done, and are safe to ask for
    /// again. Calls that were taken stay taken. A handle that does not stand still is left as it is.
    ///
    /// Errors: `ClaimLost` where another process took the run over meanwhile, however short: what effects came to is in the
    /// log by then, as evidence for that one. `Unavailable`, `Stale`, `PartitionStopped`: call it again, nothing that is
    /// held is lost by that; `Conflict` where the run has ended. Cancelled, it may have claimed the run, and can be called again.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn reopen(&self) -> Result<Reopened, Error> {
        let reopened = async {
            let mut guard = self.shared.lock().await?;
            let done = Box::pin(reopen(&self.shared, &mut guard)).await?;
            if guard.pen.halt.is_none() {
                self.shared.ready(&mut guard).await?;
            }
            Ok(done)
        };
        self.shared.within(reopened).await
    }

    /// Records what is still held, and waits until the handle's last record is applied.
    ///
    /// Everything that was acknowledged is in the log already, whatever becomes of this handle: this says that the handle
    /// still writes the run and that its numbers are right. Errors: as [`Run::reopen`] where the handle stands still; `Conflict` or `Fenced` where the last record was
    /// refused; `Stale` past `Config::read_back`. It may be called again, and changes nothing where it is cancelled.
    #[tracing::instrument(skip_all, fields(run = self.shared.run_id.as_str()))]
    pub async fn flush(&self) -> Result<(), Error> {
        self.shared.within(self.settled()).await
    }

    async fn settled(&self) -> Result<(), Error> {
        let mut guard = self.shared.lock().await?;
        self.shared.ready(&mut guard).await?;
        let Some(last) = guard.pen.last.clone() else { return Ok(()) };
        guard.pen.read_back(&last, self.shared.config.read_back).await?;
        let saved = &mut guard.saved;
        saved.unconfirmed = saved.unconfirmed.take().filter(|saved| saved.record_id != last.record_id);
        Ok(())
    }

    /// How many results of effects wait to be recorded, and their bytes.
    pub fn held(&self) -> (usize, usize) {
        self.shared.notes().held()
    }

    /// Waits until a position that this handle returned is judged. An error where it was refused.
    pub async fn applied(&self, position: &Position, deadline: Duration) -> Result<(), Error> {
        let outcome =
            self.shared.transport.read_back(self.shared.run_id.borrow(), position, None, deadline).await?.outcome;
        match outcome.outcome.as_str() {
            "refused" => Err(refused(self.shared.run_id.borrow(), None, &outcome)),
            _ => Ok(()),
        }
    }
}
