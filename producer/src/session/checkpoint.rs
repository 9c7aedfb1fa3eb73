//! Loop checkpoints: each record contains only the changes since the checkpoint before it.

use super::outcome::AckedRecord;
use crate::{
    config::Config,
    error::{Action, Error},
};
use runlog_schemas::{
    answer::{Checkpoint, ErrorKind, Position},
    id::{JournalSeq, RecordId, RunId},
    json::Json,
    messages::{MESSAGE_BYTES_MAX, MESSAGES_MAX, MessageList},
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint},
};

/// The state of an agent's loop between two tool rounds.
#[derive(Clone, Debug, Default)]
pub struct LoopState {
    /// The id of the session.
    pub session_id: String,
    /// The number of completed tool rounds.
    pub turn: u64,
    /// The message list that a resumed loop starts from. [`values::exact`](crate::values::exact) makes JSON that comes back as it is.
    pub messages: Vec<Json>,
    /// Any other state of the agent.
    pub state: Option<Json>,
    /// The number of tool calls so far.
    pub tool_calls_count: u64,
}

/// The last written checkpoint, the base of the next one. By default there is none: the next checkpoint is written with all
/// messages.
#[derive(Debug, Default)]
pub(crate) struct CheckpointBase {
    checkpoint_id: Option<String>,
    list: MessageList,
    state: Option<Json>,
    /// The checkpoint's position, once it is known.
    pub(crate) position: Option<Position>,
    /// The checkpoint's record, until it is known to be applied. Only an applied checkpoint may be a base.
    pub(crate) unconfirmed: Option<AckedRecord>,
}

impl CheckpointBase {
    /// Uses a checkpoint that was read with its messages; otherwise none.
    pub(crate) fn from_recovered(checkpoint: Option<&Checkpoint>) -> Self {
        let Some(checkpoint) = checkpoint else { return Self::default() };
        let Some(messages) = &checkpoint.messages else { return Self::default() };
        Self {
            checkpoint_id: Some(checkpoint.checkpoint_id.clone()),
            list: MessageList::new(messages.clone()),
            state: checkpoint.state.clone(),
            position: Some(checkpoint.position.clone()),
            unconfirmed: None,
        }
    }

    /// The position of this checkpoint, if it has the messages and the state of `state`.
    pub(crate) fn position_of(&self, config: &Config, state: &LoopState) -> Option<&Position> {
        let (messages, rest) = redacted(config, state);
        let same = self.list.change(&messages).list.hashes() == self.list.hashes() && rest == self.state;
        self.position.as_ref().filter(|_| same)
    }

    /// Builds the checkpoint record `id` of `state`, and the base for the checkpoint after it. The numbers are its
    /// `checkpoint_seq` and the `journal_seq` after the covered ones.
    ///
    /// Errors: `TooLarge` for a message list that exceeds the readers' limits.
    pub(crate) fn next_checkpoint(
        &self,
        config: &Config,
        run_id: RunId<&str>,
        id: &RecordId,
        (checkpoint_seq, next_journal_seq): (u64, JournalSeq),
        unanswered: Vec<RecordId>,
        state: &LoopState,
    ) -> Result<(LoopCheckpoint, Self), Error> {
        let (messages, rest) = redacted(config, state);
        let change = self.list.change(&messages);
        check_size(run_id, &change.list)?;
        let mut checkpoint = LoopCheckpoint {
            checkpoint_id: id.as_str().to_owned(),
            checkpoint_seq,
            covers_journal_seq: next_journal_seq.saturating_sub(1),
            base: if change.on_base { self.checkpoint_id.clone() } else { None },
            unanswered,
            schema_version: LOOP_CHECKPOINT_SCHEMA_VERSION,
            session_id: state.session_id.clone(),
            turn: state.turn,
            messages: change.messages,
            spans: change.spans,
            total_usage: None,
            tool_calls_count: state.tool_calls_count,
            verification_reports: Vec::new(),
            state: rest.clone(),
            state_hash: String::new(),
            created_at_millis: (config.clock)(),
        };
        checkpoint.state_hash = checkpoint.hash_with(change.list.hashes());
        let (checkpoint_id, list) = (Some(checkpoint.checkpoint_id.clone()), change.list);
        Ok((checkpoint, Self { checkpoint_id, list, state: rest, position: None, unconfirmed: None }))
    }
}

/// Redacts the messages and the state.
fn redacted(config: &Config, state: &LoopState) -> (Vec<Json>, Option<Json>) {
    let redact = |json: &Json| config.redacted(None, json);
    (state.messages.iter().map(redact).collect(), state.state.as_ref().map(redact))
}

/// Checks the limits that readers enforce.
fn check_size(run_id: RunId<&str>, list: &MessageList) -> Result<(), Error> {
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
