//! Converts a run's events to the journal records that its agent would have appended at epoch 0, without a claim.
//!
//! The records depend only on the run's id and content, so that a second conversion results in the same bytes. The journal
//! recognises each record by its id and does not apply it twice.

use runlog_schemas::datum::Sha256;
use runlog_schemas::id::{Epoch, Illegal, JournalSeq, PrevHash, RecordId, WriterId, WriterSeq};
use runlog_schemas::json::Json;
use runlog_schemas::messages;
use runlog_schemas::payload::{
    ConversationTurn, LOOP_CHECKPOINT_SCHEMA_VERSION, LoopCheckpoint, Payload, RunLifecycle, ToolCallCompleted,
    ToolCallFailed,
};
use runlog_schemas::record::{JournalRecord, Sequencing};
use std::str::FromStr;
use uuid::Uuid;

use super::plan::{Event, ImportedRun, Outcome, message_id};

#[cfg(test)]
mod tests;

/// The name space of writer ids: UUIDv5 of the URL name space and `urn:runlog:import`. Do not change it: the journal would not
/// recognise records that were imported before.
const WRITERS: Uuid = Uuid::from_u128(0x6df3_0fc6_9cf9_57b3_b934_a4c4_1cef_8feb);

/// The tag of observed calls.
const OBSERVED: &str = "observed";

/// Interval of the records of a source without times. They start at the Unix epoch, which is obviously not a real time.
const MILLIS_PER_EVENT: u64 = 1000;

/// Returns the run's records lazily, one per event, in order.
pub(crate) fn records(run: &ImportedRun) -> impl Iterator<Item = JournalRecord> {
    let writer = Uuid::new_v5(&WRITERS, run.run_id.as_bytes());
    let mut run_writer = RunWriter {
        run,
        writer,
        prev_hash: None,
        journal_seq: JournalSeq::ZERO,
        last_checkpoint: LastCheckpoint::default(),
        answered: 0,
        rounds: 0,
        in_round: false,
    };
    run.events.iter().zip(0..).map(move |(event, index)| run_writer.write(index, event))
}

/// The state of the run's writer between two records.
struct RunWriter<'a> {
    run: &'a ImportedRun,
    writer: Uuid,
    /// The content hash of the last record.
    prev_hash: Option<PrevHash>,
    /// The last assigned `journal_seq`.
    journal_seq: JournalSeq,
    last_checkpoint: LastCheckpoint,
    /// Number of answered calls.
    answered: u64,
    /// Tool rounds before the last checkpoint.
    rounds: u64,
    /// Whether a call was answered since the last checkpoint.
    in_round: bool,
}

/// The data of the last checkpoint.
#[derive(Default)]
struct LastCheckpoint {
    /// The number of the checkpoint.
    seq: u64,
    /// The hashes of the checkpoint's messages.
    hashes: Vec<Sha256>,
}

impl RunWriter<'_> {
    fn write(&mut self, index: u64, event: &Event) -> JournalRecord {
        let time = usize::try_from(index).ok().and_then(|index| self.run.times.get(index));
        let timestamp_millis = time.copied().unwrap_or(index * MILLIS_PER_EVENT);
        let payload = self.payload(event, timestamp_millis);
        let mut record =
            JournalRecord::new(self.run.run_id.borrow(), self.record_id(index), &self.run.agent_id, payload);
        if let Event::CallObserved(call) = event {
            record.body.tags.push(OBSERVED.to_owned());
            record.body.session_id = Some(call.session_id.clone());
        }
        let numbered = record.body.record_kind.numbered();
        self.journal_seq = self.journal_seq.saturating_add(numbered.into());
        record.place = Sequencing {
            writer_id: id::<WriterId>(self.writer).into(),
            writer_epoch: Epoch::ZERO,
            writer_seq: WriterSeq::from(1).saturating_add(index),
            prev_hash: self.prev_hash,
            journal_seq: if numbered { self.journal_seq } else { JournalSeq::ZERO },
            timestamp_millis,
        };
        self.prev_hash = Some(record.content_hash().into());
        record
    }

    /// Returns the UUIDv5 of run id (through the writer's) and index.
    fn record_id(&self, index: impl ToString) -> RecordId {
        id(Uuid::new_v5(&self.writer, index.to_string().as_bytes()))
    }

    fn payload(&mut self, event: &Event, timestamp_millis: u64) -> Payload {
        match event {
            Event::RunStarted => RunLifecycle { status: "started".to_owned(), reason: String::new() }.into(),
            Event::RunEnded { outcome, reason } => {
                let status = match outcome {
                    Outcome::Completed => "completed",
                    Outcome::Failed => "failed",
                };
                RunLifecycle { status: status.to_owned(), reason: reason.clone() }.into()
            }
            Event::Turn { role, message, content } => ConversationTurn {
                message_id: message_id(*message),
                parent_id: message.checked_sub(1).map(message_id),
                thread_id: None,
                kind: role.clone(),
                content: content.clone(),
            }
            .into(),
            Event::CallRequested(request) => request.clone().into(),
            Event::CallObserved(call) => call.clone().into(),
            Event::CallCompleted { request, result } => ToolCallCompleted {
                request_record_id: self.answer(*request),
                result: Some(result.clone()),
                latency_ms: None,
            }
            .into(),
            Event::CallFailed { request, message } => ToolCallFailed {
                request_record_id: self.answer(*request),
                error_kind: "tool_error".to_owned(),
                error_message: message.clone(),
                latency_ms: None,
            }
            .into(),
            Event::Checkpoint { messages, unanswered } => {
                self.checkpoint(*messages, unanswered, timestamp_millis).into()
            }
        }
    }

    /// Records that the request is answered. Returns its record id.
    fn answer(&mut self, request: usize) -> RecordId {
        self.answered += 1;
        self.in_round = true;
        self.record_id(request)
    }

    /// Builds a checkpoint. A run's messages only grow, so each checkpoint has the previous one as its base and adds messages.
    fn checkpoint(&mut self, count: usize, unanswered: &[usize], created_at_millis: u64) -> LoopCheckpoint {
        let base = (self.last_checkpoint.seq > 0).then(|| checkpoint_id(self.last_checkpoint.seq));
        self.last_checkpoint.seq += 1;
        self.rounds += u64::from(std::mem::take(&mut self.in_round));
        let own = self.run.messages.iter().take(count).skip(self.last_checkpoint.hashes.len());
        let own: Vec<Json> = own.cloned().collect();
        self.last_checkpoint.hashes.extend(own.iter().map(messages::hash));
        let mut checkpoint = LoopCheckpoint {
            checkpoint_id: checkpoint_id(self.last_checkpoint.seq),
            checkpoint_seq: self.last_checkpoint.seq,
            covers_journal_seq: self.journal_seq,
            base,
            unanswered: unanswered.iter().map(|request| self.record_id(request)).collect(),
            schema_version: LOOP_CHECKPOINT_SCHEMA_VERSION,
            session_id: String::new(),
            turn: self.rounds,
            messages: own,
            spans: Vec::new(),
            total_usage: None,
            tool_calls_count: self.answered,
            verification_reports: Vec::new(),
            state: None,
            state_hash: String::new(),
            created_at_millis,
        };
        checkpoint.state_hash = checkpoint.hash_with(&self.last_checkpoint.hashes);
        checkpoint
    }
}

/// Converts a UUID to an id. It is always valid: not empty, and far below the length limit.
fn id<T: FromStr<Err = Illegal>>(uuid: Uuid) -> T {
    uuid.to_string().parse().expect("a UUID is an id")
}

fn checkpoint_id(seq: u64) -> String {
    format!("checkpoint-{seq}")
}
