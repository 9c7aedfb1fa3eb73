//! The handle on a run.

use crate::{
    config::Config,
    error::{Action, Error},
    session::{
        Session,
        checkpoint::LoopState,
        client::RunClient,
        open::{self, OpenOptions},
        outcome::{refused, took_effect},
        reopen::Reopened,
        shared::Busy,
    },
    tool_call::Tool,
    transport::Transport,
    values,
};
use runlog_schemas::{
    answer::{ErrorKind, Position, Recovery},
    id::{JournalSeq, RecordId, RunId},
    payload::{
        CheckpointPrune, ConversationTurn, Payload, PayloadType,
        wrapped::{BATCH_RECORDS_MAX, Batch},
    },
    record::{JournalRecord, RecordKind},
};
use std::{sync::Arc, time::Duration};

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the contract's terminal statuses")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

/// A run that this process has claimed. Dropping the handle does not end the run. Another process may take the run over at any
/// time.
///
/// The methods take `&self` and may be called concurrently; records are appended in the order of the calls. Each method is
/// cancelled after [`Config::operation`]. Its error is then `Unavailable` with
/// [`SideEffect::Unknown`](crate::SideEffect::Unknown), unless the method documents another side effect.
#[derive(Debug)]
pub struct Run {
    session: Arc<Session>,
    recovery: Recovery,
}

impl Run {
    /// Opens a run; see [`Runlog::open_with`](crate::Runlog::open_with).
    pub(crate) async fn open(
        transport: Arc<Transport>,
        config: Arc<Config>,
        run_id: RunId<&str>,
        options: OpenOptions,
    ) -> Result<Self, Error> {
        let (session, recovery) = open::open(RunClient::new(transport, config, run_id), options).await?;
        Ok(Self { session: Arc::new(session), recovery })
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.session.client.run_id
    }

    /// The run's state after the claim: the checkpoint to resume at, completed calls, and calls that may have happened.
    ///
    /// A process that reads it resumes at the checkpoint: later calls without a key are new, even if the checkpoint covers the
    /// same call. A process that makes calls without reading it starts at the beginning of the run, as with
    /// [`OpenOptions::from_start`](crate::OpenOptions::from_start): the journal answers those calls.
    pub fn recovery(&self) -> &Recovery {
        self.session.client.shared.lock().resumes_at_checkpoint = true;
        &self.recovery
    }

    /// Prepares a call of `tool` with `args`; nothing happens before [`Tool::once`].
    ///
    /// Two calls are the same call if their arguments have the same JSON, up to the order of members and the spelling of
    /// numbers. So `args` must serialise identically in every process: a `BTreeSet` does, and a `HashSet` in a struct with
    /// [`values::sorted`](crate::values::sorted). [`Tool::once`] refuses NaN, the infinities and a type with a `HashSet` among its
    /// parameters, before anything is appended. It cannot see a `HashSet` that is a field of a struct, nor
    /// a number that is null already, in a `Value` or a `RawValue`.
    pub fn tool<'a, A: serde::Serialize + ?Sized>(&'a self, tool: &str, args: &A) -> Tool<'a> {
        Tool::new(&self.session, tool, values::exact(args).map_err(|error| error.to_string()))
    }

    /// Records a message of the conversation.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn turn<C: serde::Serialize + ?Sized>(&self, kind: &str, content: &C) -> Result<Position, Error> {
        let content = values::exact(content).map_err(|error| {
            let message = format!("the content of a turn of run {} does not serialise: {error}", self.id());
            self.invalid(message)
        })?;
        let content = self.session.client.config.redacted(None, &content);
        let record_id = self.session.client.config.record_id()?;
        let turn = ConversationTurn {
            message_id: record_id.as_str().to_owned(),
            parent_id: None,
            thread_id: None,
            kind: kind.to_owned(),
            content,
        };
        self.session.time_limited(self.session.append(record_id, turn.into())).await
    }

    /// Records the state of the loop, and returns the record's position. The checkpoint lists unanswered requests, so that a
    /// process that resumes here still finds their answers.
    ///
    /// Pass the complete message list: only messages that the last checkpoint does not contain are written, at any place in the
    /// list. Keep the [`Json`](runlog_schemas::json::Json) values of unchanged messages: they are recognised without being parsed.
    ///
    /// If no call is in flight, `state` must contain the answers of all calls that have returned. The checkpoint covers those
    /// calls: a process that resumes here would run the effect of a missing one again. While calls are in flight, `state` may
    /// lack answers, for example in an autosave. The checkpoint then also lists the calls that were answered since no call was
    /// in flight, and the journal answers them once more. Calls that are answered after this method is called are always
    /// listed.
    ///
    /// A process that has not read [`Run::recovery`] starts at the beginning of the run: its checkpoints list all calls without
    /// a key whose answers it has not requested.
    ///
    /// An error here should not end the agent's loop. If the append failed or was cancelled, the next operation reopens the
    /// handle, which writes the checkpoint. If another process writes the run, that operation fails with that error.
    ///
    /// `TooLarge`: new messages and state do not fit a record, or the list exceeds
    /// [`MESSAGES_MAX`](runlog_schemas::messages::MESSAGES_MAX) or
    /// [`MESSAGE_BYTES_MAX`](runlog_schemas::messages::MESSAGE_BYTES_MAX). `Conflict`: the run has ended, and its last
    /// checkpoint has other messages or another state. If that checkpoint is equal, its position is returned.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub fn checkpoint<'a>(&'a self, state: &'a LoopState) -> impl Future<Output = Result<Position, Error>> + Send + 'a {
        // Starts when it is called, not when it is polled: calls may be answered in between.
        let busy = Busy::begin(&self.session.client.shared);
        async move { self.session.time_limited(self.session.checkpoint(state, busy)).await }
    }

    /// Confirms that the agent has the answers of these calls, for a run opened with
    /// [`OpenOptions::receipts`](crate::OpenOptions::receipts): later checkpoints do not list them. Unknown ids are ignored. Nothing is
    /// appended before the next [`Run::checkpoint`].
    ///
    /// Errors: `Unavailable` if earlier operations take longer than [`Config::deadline`](crate::Config::deadline).
    pub async fn received(&self, calls: &[RecordId]) -> Result<(), Error> {
        let mut state = self.session.lock().await?;
        calls.iter().for_each(|call| state.replay.mark_received(call.borrow()));
        Ok(())
    }

    /// Hides the checkpoints of this run that cover less than `covered_before` (exclusive) from answers. With
    /// `preserve_latest_terminal` the latest checkpoint after the run's end stays visible. Messages that a later checkpoint
    /// refers to stay available.
    ///
    /// The next checkpoint is written with all its messages.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn prune_checkpoints(
        &self,
        covered_before: JournalSeq,
        preserve_latest_terminal: bool,
    ) -> Result<Position, Error> {
        let prune = CheckpointPrune { prune_covered_before: covered_before, preserve_latest_terminal };
        self.session.time_limited(self.session.prune_checkpoints(prune)).await
    }

    /// Ends the run, and waits until its end is applied. After that, recorded calls are answered and nothing else is recorded:
    /// new calls, attempts and records are `Conflict`, and no effect runs. Results of calls in flight are kept as evidence.
    ///
    /// If the run has already ended with the same status and without a reason, returns the position of its end. `Conflict` if
    /// the run ended differently.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn end(&self, outcome: Outcome) -> Result<Position, Error> {
        let status = match outcome {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        self.session.time_limited(self.session.lifecycle(status)).await
    }

    /// Builds a record of this run with a new id and Runlog's defaults around `payload`. Its `body` may be changed before it is
    /// appended: subject, correlation, tags, the event index projection.
    pub fn draft(&self, payload: impl Into<Payload>) -> Result<JournalRecord, Error> {
        let config = &self.session.client.config;
        Ok(JournalRecord::new(self.session.client.id(), config.record_id()?, &config.agent_id, payload.into()))
    }

    /// Appends a record under the handle's next numbers, and waits until it is applied. If any process wrote the same id and
    /// content before, nothing happens, and the first record's position is returned.
    ///
    /// Errors: `Invalid` for a record of another run, or of a kind that another method writes; `TooLarge`. In these cases no
    /// number was used, and the handle stays ready. `Conflict` or `Fenced` if the record was refused. After any other error, or
    /// a cancellation, [`Run::reopen`] finds the record or sends it again.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn record(&self, record: JournalRecord) -> Result<Position, Error> {
        let record = self.check_record(record)?;
        self.session.time_limited(self.session.append_record(record)).await
    }

    /// Appends 1 to [`BATCH_RECORDS_MAX`] records as one record of the log, which is applied completely or not at all, and
    /// waits for that. None of them may have its payload in the content store. Returns their positions, in order. A record that
    /// was written before is not applied again; its position is the first record's, if its kind has a `journal_seq`.
    ///
    /// If one record is refused, all are refused. A repeated record before a new one also refuses the batch, if both have a
    /// `journal_seq`: the repeat uses no number, so the new record's number is wrong.
    ///
    /// Errors and cancellation as with [`Run::record`]: after an unknown append [`Run::reopen`] finds all of them, or sends all
    /// of them again.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn batch(&self, records: Vec<JournalRecord>) -> Result<Vec<Position>, Error> {
        let count = records.len();
        if !(1..=BATCH_RECORDS_MAX).contains(&count) {
            let message = format!("a batch of run {} has {count} records, not 1 to {BATCH_RECORDS_MAX}", self.id());
            return Err(self.invalid(message));
        }
        let records: Result<Vec<_>, _> = records.into_iter().map(|record| self.check_record(record)).collect();
        let records = records?;
        let ids: Vec<_> = records.iter().map(|record| record.body.record_id.clone()).collect();
        let batch = self.draft(Batch { records })?;
        self.session.time_limited(self.session.append_batch(batch, &ids)).await
    }

    fn invalid(&self, message: String) -> Error {
        Error::new(ErrorKind::Invalid, Action::FixTheInput, message).about_run(self.id().borrow())
    }

    fn invalid_record(&self, id: &RecordId, what: &str) -> Error {
        let message = format!("record {id} cannot be appended to run {}: it {what}", self.id());
        self.invalid(message).about_record(id.borrow())
    }

    /// Checks and redacts a record before it is appended.
    fn check_record(&self, mut record: JournalRecord) -> Result<JournalRecord, Error> {
        let (run_id, id) = (self.id(), &record.body.record_id);
        if record.body.run_id.borrow() != Some(run_id.borrow()) {
            return Err(self.invalid_record(id, &format!("belongs to run {}", record.body.run_id)));
        }
        if let Some(how) = written_by_other(&record) {
            return Err(self.invalid_record(id, &format!("is a {}, which is {how}", record.payload.payload_type())));
        }
        self.session.client.config.redact_record(&mut record)?;
        Ok(record)
    }

    /// Makes a stopped handle ready again after a failed, unknown or cancelled append. It claims the epoch after the handle's
    /// own, then reads which records are in the log, and appends the others with the same ids and content. Held results are
    /// recorded. Intents whose effect never started are recorded as not done, and may be requested again. If the server refuses
    /// that record, the call stays pending, and new effects wait until an operator decides. Recorded calls that have already
    /// answered a call are not offered again. A ready handle is unchanged.
    ///
    /// Errors: `ClaimLost` if another process took the run over in the meantime, however briefly; the log then already contains
    /// held results, as evidence for that process. `Conflict` if the run has ended; held results are evidence, too.
    /// `Forbidden`, `Invalid`, `MissingContent`, `TooLarge` or `Usage` for a record that is not in the log and that the server
    /// never accepts: the record is dropped, unless it is a result; call `reopen` again. After `Unavailable`, `Stale`,
    /// `PartitionStopped` or a cancellation call it again: held results are kept, and the run may have been claimed.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn reopen(&self) -> Result<Reopened, Error> {
        self.session.time_limited(self.session.reopen()).await
    }

    /// Records held results, and waits until the handle's last record is applied.
    ///
    /// Acknowledged records are in the log without this. It confirms that the handle still writes the run and that its sequence
    /// numbers are right.
    ///
    /// Errors: as [`Run::reopen`] if the handle is stopped; `ClaimLost` if another process writes the run; `Conflict` or
    /// `Fenced` if the last record was refused; `Stale` after `Config::read_back`. It may be called again; a cancellation
    /// changes nothing.
    #[tracing::instrument(skip_all, fields(run = self.session.client.run_id.as_str()))]
    pub async fn flush(&self) -> Result<(), Error> {
        self.session.time_limited(self.session.flush()).await
    }

    /// The number of results that are not recorded yet, and their bytes.
    pub fn held(&self) -> (usize, usize) {
        self.session.client.shared.lock().outbox.count_and_bytes()
    }

    /// Waits for the outcome of a record, at a position that this handle returned.
    ///
    /// Errors: `Conflict` or `Fenced` if the record was refused.
    pub async fn applied(&self, position: &Position, deadline: Duration) -> Result<(), Error> {
        let run_id = self.session.client.id();
        let outcome = self.session.client.transport.read_back(run_id, position, None, &[], deadline).await?.outcome;
        if took_effect(&outcome) { Ok(()) } else { Err(refused(run_id, None, &outcome)) }
    }
}

/// How a record of this sort is written, if not by [`Run::record`].
fn written_by_other(record: &JournalRecord) -> Option<&'static str> {
    Some(match (record.body.record_kind, record.payload.payload_type()) {
        (
            _,
            PayloadType::ToolCallRequested
            | PayloadType::ToolCallAttempt
            | PayloadType::ToolCallCompleted
            | PayloadType::ToolCallFailed,
        ) => "written by Run::tool",
        (RecordKind::LoopCheckpoint, _) => "written by Run::checkpoint",
        (RecordKind::CheckpointPrune, _) => "written by Run::prune_checkpoints",
        (RecordKind::Run, PayloadType::RunLifecycle) => "written by opening a run and by Run::end",
        (RecordKind::Batch, _) => "written by Run::batch, and never inside another batch",
        (RecordKind::RunClaim, _) => "written by opening a run",
        (kind, _) if kind.of_partition() => "not a record of a run",
        (kind, _) if kind.unclaimed() => "written by operators: use `runlog publish`",
        (_, PayloadType::StoredPayload) => "made from a payload that is too large",
        _ => return None,
    })
}
