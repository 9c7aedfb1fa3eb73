//! The handle on a run.

use crate::{
    Action, Config, Error, failpoint,
    gate::Tool,
    pen::{Pen, refused},
    resume::{Recorded, Resume},
    transport::{AppendFailed, Ask, Transport},
};
use runlog_schemas::{
    answer::{Done, ErrorKind, Position, Recovery},
    id::{Epoch, JournalSeq, RecordId, RunId, WriterId},
    json::Json,
    messages::{MESSAGE_BYTES_MAX, MESSAGES_MAX, MessageList},
    payload::{
        CheckpointPrune, ConversationTurn, LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload, RunClaim,
        RunLifecycle,
    },
    record::JournalRecord,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// How a run is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Resume at the start instead of at the latest checkpoint: every recorded call is answered from the journal again.
    pub from_start: bool,
    /// Let the gate run new effects while an older one is `reconcile_required`.
    pub allow_unresolved: bool,
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
/// Its methods take `&self` and may be called concurrently; appends are in the order of the calls.
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
    effects: std::sync::Mutex<Effects>,
}

/// Effects of this process, noted where nobody can wait.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Under way now.
    pub(crate) running: BTreeSet<RecordId>,
    /// Given up before they ended: whether they happened is unknown. With the tool and the key that they were made with.
    pub(crate) abandoned: Vec<(Recorded, Option<(String, String)>)>,
    /// Recorded calls that were taken and whose answer did not arrive.
    pub(crate) returned: Vec<Recorded>,
}

/// Calls given up in their middle, each with its tool and key; recorded calls whose answer did not arrive.
pub(crate) type Notes = (Vec<(Recorded, Option<(String, String)>)>, Vec<Recorded>);

impl Effects {
    /// What was noted since, abandoned and returned.
    pub(crate) fn take_notes(&mut self) -> Notes {
        (std::mem::take(&mut self.abandoned), std::mem::take(&mut self.returned))
    }
}

impl Shared {
    pub(crate) fn effects(&self) -> std::sync::MutexGuard<'_, Effects> {
        self.effects.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What taking a call and enqueueing its intent change together.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pen: Pen,
    pub(crate) resume: Resume,
    pub(crate) saved: Saved,
}

/// The last checkpoint that was written, which the next one builds on.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    checkpoint_id: Option<String>,
    list: MessageList,
}

impl Saved {
    fn of(recovery: &Recovery) -> Self {
        let Some(checkpoint) = &recovery.checkpoint else { return Self::default() };
        let Some(messages) = &checkpoint.messages else { return Self::default() };
        Self { checkpoint_id: Some(checkpoint.checkpoint_id.clone()), list: MessageList::new(messages.clone()) }
    }
}

/// Whether readers take a list of this size.
fn fits(run_id: RunId<&str>, list: &MessageList) -> Result<(), Error> {
    let (messages, bytes) = (list.len() as u64, list.bytes() as u64);
    if messages <= MESSAGES_MAX && bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "a checkpoint of run {run_id} has {messages} messages of {bytes} bytes, more than {MESSAGES_MAX} or \
         {MESSAGE_BYTES_MAX}; compact them"
    );
    Err(Error::new(ErrorKind::TooLarge, Action::FixTheInput, message))
}

/// Opens a run; see [`crate::Runlog::open_with`].
pub(crate) async fn open(
    transport: Arc<Transport>,
    config: Arc<Config>,
    run_id: RunId<&str>,
    options: OpenOptions,
) -> Result<Run, Error> {
    let before = transport.recovery(run_id, Ask { from_start: true, content: false }, None).await?;
    if let Some(ended) = before.as_ref().filter(|before| before.status != "open") {
        let pen = pen(&transport, &config, run_id, ended, Some(read_only(run_id, &ended.status)));
        return Ok(handle(transport, config, run_id, &options, pen, ended.clone(), &[]));
    }
    (config.failpoints)(failpoint::HEAD_READ);
    let epoch = before.as_ref().map_or(Epoch::ZERO, |before| before.epoch).next().ok_or_else(|| {
        let message = format!("run {run_id} was claimed as often as can be counted");
        Error::new(ErrorKind::Conflict, Action::Operator, message)
    })?;
    let writer_id = WriterId::new((config.ids)())?;
    claim(&transport, &config, run_id, writer_id.borrow(), epoch).await?;
    let ask = Ask { from_start: options.from_start, content: true };
    let recovery = whole_recovery(&transport, run_id, ask).await?;
    if recovery.epoch != epoch || recovery.writer_id.borrow() != Some(writer_id.borrow()) {
        return Err(claim_lost(run_id));
    }
    // A key stands for its call however long ago that was: those that the checkpoint covers are taken along.
    let keyed = if recovery.checkpoint.is_some() {
        whole_recovery(&transport, run_id, Ask { from_start: true, content: false }).await?.completed
    } else {
        Vec::new()
    };
    let fresh = recovery.next_journal_seq == 1.into();
    // It may have ended between the read and the claim.
    let over = (recovery.status != "open").then(|| read_only(run_id, &recovery.status));
    let pen = pen(&transport, &config, run_id, &recovery, over);
    let run = handle(transport, config, run_id, &options, pen, recovery, &keyed);
    if fresh {
        run.lifecycle("started", "").await?;
    }
    Ok(run)
}

fn read_only(run_id: RunId<&str>, status: &str) -> Error {
    let message = format!("run {run_id} is {status}: this handle only reads");
    Error::new(ErrorKind::Conflict, Action::FixTheInput, message)
}

fn claim_lost(run_id: RunId<&str>) -> Error {
    Error::new(ErrorKind::ClaimLost, Action::Reopen, format!("another process claimed run {run_id} first"))
}

fn pen(
    transport: &Arc<Transport>,
    config: &Arc<Config>,
    run_id: RunId<&str>,
    recovery: &Recovery,
    over: Option<Error>,
) -> Pen {
    Pen {
        transport: transport.clone(),
        config: config.clone(),
        run_id: run_id.to_owned(),
        writer_id: recovery.writer_id.clone(),
        epoch: recovery.epoch,
        next_writer_seq: recovery.next_writer_seq,
        next_journal_seq: recovery.next_journal_seq,
        prev_hash: Some(recovery.hash.into()),
        next_checkpoint_seq: recovery.next_checkpoint_seq,
        over,
        under_way: false,
    }
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
    let state = State { pen, resume: Resume::new(&recovery, keyed), saved: Saved::of(&recovery) };
    let shared = Shared {
        transport,
        config,
        run_id: run_id.to_owned(),
        allow_unresolved: options.allow_unresolved,
        state: Mutex::new(state),
        effects: std::sync::Mutex::default(),
    };
    Run { shared: Arc::new(shared), recovery }
}

/// Appends the claim and waits until it is judged.
async fn claim(
    transport: &Transport,
    config: &Config,
    run_id: RunId<&str>,
    writer_id: WriterId<&str>,
    epoch: Epoch,
) -> Result<(), Error> {
    let claim = RunClaim { writer_id: writer_id.to_owned(), epoch, claimed_by: config.claimed_by.clone() };
    let mut record = JournalRecord::new(run_id, config.record_id()?, &config.agent_id, Payload::RunClaim(claim));
    record.place.writer_id = writer_id.to_owned().into();
    record.place.writer_epoch = epoch;
    record.place.timestamp_millis = (config.clock)();
    let appended = transport.append(&record).await.map_err(|AppendFailed { error, .. }| error)?;
    let outcome = match appended.outcome {
        Some(outcome) => outcome,
        None => {
            let id = record.body.record_id.borrow();
            transport.read_back(run_id, &appended.position, Some(id), config.deadline).await?.outcome
        }
    };
    match (outcome.outcome.as_str(), outcome.reason.as_deref()) {
        ("applied", _) => Ok(()),
        (_, Some("fenced")) => Err(claim_lost(run_id)),
        _ => Err(refused(run_id, Some(record.body.record_id.borrow()), &outcome)),
    }
}

/// The run's recovery with all pages of completed calls and of missing content.
async fn whole_recovery(transport: &Transport, run_id: RunId<&str>, ask: Ask) -> Result<Recovery, Error> {
    let gone = || {
        let message = format!("run {run_id} was claimed and has no record: the index is not of this log");
        Error::new(ErrorKind::Internal, Action::Operator, message)
    };
    let mut recovery = transport.recovery(run_id, ask, None).await?.ok_or_else(gone)?;
    while let Some(cursor) = recovery.next_cursor.take() {
        let page = transport.recovery(run_id, ask, Some(&cursor)).await?.ok_or_else(gone)?;
        // Behind our claim nobody else's record changes the run: the pages are of one state.
        recovery.completed.extend(page.completed);
        recovery.missing_content.extend(page.missing_content);
        recovery.resumable &= page.resumable;
        recovery.reason = recovery.reason.or(page.reason);
        recovery.next_cursor = page.next_cursor;
    }
    recovery.unclaimed = recovery.completed.len() as u64;
    Ok(recovery)
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
    pub async fn turn<C: serde::Serialize + ?Sized>(&self, kind: &str, content: &C) -> Result<Position, Error> {
        let content = Json::of(content).map_err(|error| {
            Error::new(ErrorKind::Invalid, Action::FixTheInput, format!("the content does not serialise: {error}"))
        })?;
        let record_id = self.shared.config.record_id()?;
        let turn = ConversationTurn {
            message_id: record_id.as_str().to_owned(),
            parent_id: None,
            thread_id: None,
            kind: kind.to_owned(),
            content,
        };
        self.append(record_id, turn.into()).await
    }

    /// Records where the loop stands, and returns its position in the log. What was asked for and not yet answered is
    /// listed in it, so that a process that resumes here still finds those answers.
    ///
    /// The message list is given whole; only what the last checkpoint did not have is written, wherever in the list it
    /// stands. Keep the [`Json`] values of messages that stay: they are known again without being read.
    ///
    /// An error never says that the run is lost: go on; where the handle is over, the next call says so. One of kind
    /// `TooLarge` says that new messages and state together do not fit a record, or that the list is beyond
    /// [`MESSAGES_MAX`] or [`MESSAGE_BYTES_MAX`].
    pub async fn checkpoint(&self, state: &LoopState) -> Result<Position, Error> {
        let mut guard = self.shared.state.lock().await;
        let State { pen, resume, saved } = &mut *guard;
        let id = self.shared.config.record_id()?;
        let change = saved.list.change(&state.messages);
        fits(self.shared.run_id.borrow(), &change.list)?;
        let mut checkpoint = LoopCheckpoint {
            checkpoint_id: id.as_str().to_owned(),
            checkpoint_seq: pen.next_checkpoint_seq,
            covers_journal_seq: pen.next_journal_seq.saturating_sub(1),
            base: if change.on_base { saved.checkpoint_id.clone() } else { None },
            unanswered: resume.unanswered(),
            schema_version: LOOP_CHECKPOINT_SCHEMA_VERSION,
            session_id: state.session_id.clone(),
            turn: state.turn,
            messages: change.messages,
            spans: change.spans,
            total_usage: None,
            tool_calls_count: state.tool_calls_count,
            verification_reports: Vec::new(),
            state: state.state.clone(),
            state_hash: String::new(),
            created_at_millis: (self.shared.config.clock)(),
        };
        checkpoint.state_hash = checkpoint.hash_with(change.list.hashes());
        let written = pen.append(id.clone(), checkpoint.into(), None).await?;
        pen.next_checkpoint_seq += 1;
        *saved = Saved { checkpoint_id: Some(id.into()), list: change.list };
        Ok(written.position)
    }

    /// Hides this run's checkpoints that cover less than `covered_before` from answers; with `preserve_latest_terminal`
    /// not the latest that was taken behind the run's end. Their messages stay where a later one has them.
    ///
    /// The next checkpoint is written whole.
    pub async fn prune_checkpoints(
        &self,
        covered_before: JournalSeq,
        preserve_latest_terminal: bool,
    ) -> Result<Position, Error> {
        let prune = CheckpointPrune { prune_covered_before: covered_before, preserve_latest_terminal };
        let mut guard = self.shared.state.lock().await;
        let written = guard.pen.append(self.shared.config.record_id()?, prune.into(), None).await?;
        guard.saved = Saved::default();
        Ok(written.position)
    }

    /// Ends the run, and waits until that is applied. Only reads follow.
    pub async fn end(&self, outcome: Outcome) -> Result<Position, Error> {
        let status = match outcome {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        self.lifecycle(status, "").await
    }

    async fn lifecycle(&self, status: &str, reason: &str) -> Result<Position, Error> {
        let payload = RunLifecycle { status: status.to_owned(), reason: reason.to_owned() };
        let read_back = self.shared.config.read_back;
        let mut guard = self.shared.state.lock().await;
        let written = guard.pen.append(self.shared.config.record_id()?, payload.into(), None).await?;
        guard.pen.read_back(&written, read_back).await?;
        if status != "started" {
            guard.pen.over = Some(read_only(self.shared.run_id.borrow(), status));
        }
        Ok(written.position)
    }

    async fn append(&self, record_id: RecordId, payload: Payload) -> Result<Position, Error> {
        let mut guard = self.shared.state.lock().await;
        Ok(guard.pen.append(record_id, payload, None).await?.position)
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
