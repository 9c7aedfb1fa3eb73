//! What a checkpoint record carries: what the one before it did not have.

use crate::{Action, Config, Error, LoopState, pen::Written};
use runlog_schemas::{
    answer::{Checkpoint, ErrorKind},
    id::{JournalSeq, RecordId, RunId},
    json::Json,
    messages::{MESSAGE_BYTES_MAX, MESSAGES_MAX, MessageList},
    payload::{LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint},
};

/// The last checkpoint that was written, which the next one builds on; by default none, and the next one is written whole.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    checkpoint_id: Option<String>,
    list: MessageList,
    /// Its record, until it is known that it was applied: only then another one may build on it.
    pub(crate) unconfirmed: Option<Written>,
}

impl Saved {
    /// One that was answered, with its messages.
    pub(crate) fn of(checkpoint: Option<&Checkpoint>) -> Self {
        let Some(checkpoint) = checkpoint else { return Self::default() };
        let Some(messages) = &checkpoint.messages else { return Self::default() };
        let list = MessageList::new(messages.clone());
        Self { checkpoint_id: Some(checkpoint.checkpoint_id.clone()), list, unconfirmed: None }
    }

    /// The checkpoint `id` of `state`, with its `checkpoint_seq` and the `journal_seq` behind what it covers; and what the one
    /// after it builds on, once it is written.
    ///
    /// Errors: `TooLarge` for a list that no reader takes.
    pub(crate) fn next(
        &self,
        config: &Config,
        run_id: RunId<&str>,
        id: &RecordId,
        (checkpoint_seq, next_journal_seq): (u64, JournalSeq),
        unanswered: Vec<RecordId>,
        state: &LoopState,
    ) -> Result<(LoopCheckpoint, Self), Error> {
        let messages: Vec<Json> = state.messages.iter().map(|message| config.redacted(None, message)).collect();
        let change = self.list.change(&messages);
        fits(run_id, &change.list)?;
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
            state: state.state.as_ref().map(|state| config.redacted(None, state)),
            state_hash: String::new(),
            created_at_millis: (config.clock)(),
        };
        checkpoint.state_hash = checkpoint.hash_with(change.list.hashes());
        let next = Self { checkpoint_id: Some(checkpoint.checkpoint_id.clone()), list: change.list, unconfirmed: None };
        Ok((checkpoint, next))
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
