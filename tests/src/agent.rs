//! Records as an agent writes them, numbered here and not by the code under test.

use runlog_log::Entry;
use runlog_schemas::{
    codec,
    id::{Epoch, Illegal, JournalSeq, OrEmpty, PartitionId, RunId, WriterId, WriterSeq},
    json::Json,
    messages::{Change, MessageList},
    payload::{
        ConversationTurn, LoopCheckpoint, Payload, RunClaim, RunLifecycle, ToolCallCompleted, ToolCallFailed,
        ToolCallRequested,
    },
    record::{JournalRecord, Sequencing},
};
use serde_json::Value;
use std::str::FromStr;

/// One writer of one run. Its records' ids are `RUN/1`, `RUN/2` … across all of its epochs.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The run.
    pub run_id: String,
    writer_id: WriterId,
    epoch: Epoch,
    writer_seq: WriterSeq,
    journal_seq: JournalSeq,
    made: u64,
    checkpoints: u64,
}

impl Agent {
    /// The first writer of an unclaimed run.
    pub fn new(run_id: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            writer_id: id("writer-0"),
            epoch: Epoch::ZERO,
            writer_seq: WriterSeq::ZERO,
            journal_seq: JournalSeq::ZERO,
            made: 0,
            checkpoints: 0,
        }
    }

    /// A record with the next numbers.
    pub fn record(&mut self, payload: Payload) -> JournalRecord {
        self.made += 1;
        let (run_id, record_id) = (id::<RunId>(&self.run_id), id(format!("{}/{}", self.run_id, self.made)));
        let mut record = JournalRecord::new(run_id.borrow(), record_id, "agent", payload);
        let numbered = record.body.record_kind.numbered();
        self.journal_seq = self.journal_seq.saturating_add(numbered.into());
        self.writer_seq = self.writer_seq.saturating_add(1);
        record.place = Sequencing {
            writer_id: self.writer_id.clone().into(),
            writer_epoch: self.epoch,
            writer_seq: self.writer_seq,
            prev_hash: None,
            journal_seq: if numbered { self.journal_seq } else { JournalSeq::ZERO },
            timestamp_millis: 1_700_000_000_000 + self.made,
        };
        record
    }

    /// Continues after these last numbers, of the writer and of the run.
    pub fn continue_after(&mut self, writer_seq: WriterSeq, journal_seq: JournalSeq) {
        (self.writer_seq, self.journal_seq) = (writer_seq, journal_seq);
    }

    /// Takes the run over under another writer id.
    pub fn claim(&mut self) -> JournalRecord {
        self.epoch = self.epoch.saturating_add(1);
        self.writer_id = id(format!("writer-{}", self.epoch));
        let claim = RunClaim { writer_id: self.writer_id.clone(), epoch: self.epoch, claimed_by: "test".into() };
        let mut record = self.record(claim.into());
        (record.place.writer_seq, self.writer_seq) = (WriterSeq::ZERO, WriterSeq::ZERO);
        record
    }

    /// The start of the run (`started`), or its end.
    pub fn lifecycle(&mut self, status: &str) -> JournalRecord {
        self.record(RunLifecycle { status: status.into(), reason: String::new() }.into())
    }

    /// A conversation turn.
    pub fn turn(&mut self, content: &str) -> JournalRecord {
        let message_id = format!("message-{}", self.made);
        let content = Json::from(Value::from(content));
        let turn = ConversationTurn { message_id, parent_id: None, thread_id: None, kind: "user".into(), content };
        self.record(turn.into())
    }

    /// The request of a call.
    pub fn request(&mut self, tool: &str, arguments: &Value) -> JournalRecord {
        let request = ToolCallRequested {
            request_id: format!("request-{}", self.made),
            call_id: "call".into(),
            parent_id: None,
            vendor: None,
            tool_name: tool.into(),
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments: Some(Json::from(arguments.clone())),
        };
        self.record(request.seal().expect("arguments with a canonical form").into())
    }

    /// The result of a call.
    pub fn complete(&mut self, request_record_id: impl AsRef<str>, result: &Value) -> JournalRecord {
        let (request_record_id, result) = (id(request_record_id), Some(Json::from(result.clone())));
        self.record(ToolCallCompleted { request_record_id, result, latency_ms: Some(1) }.into())
    }

    /// The failure of a call.
    pub fn fail(&mut self, request_record_id: impl AsRef<str>, message: &str) -> JournalRecord {
        let (error_kind, error_message) = ("tool_error".to_owned(), message.to_owned());
        let request_record_id = id(request_record_id);
        self.record(ToolCallFailed { request_record_id, error_kind, error_message, latency_ms: None }.into())
    }

    /// A checkpoint of the loop that covers all records so far, with its whole message list.
    pub fn checkpoint(&mut self, messages: &[Value]) -> JournalRecord {
        let messages: Vec<Json> = messages.iter().cloned().map(Json::from).collect();
        let change = MessageList::default().change(&messages);
        self.changed(None, &change)
    }

    /// A checkpoint of the loop whose message list is a change of the list of `base`.
    pub fn changed(&mut self, base: Option<&str>, change: &Change) -> JournalRecord {
        self.checkpoints += 1;
        let mut checkpoint = LoopCheckpoint {
            checkpoint_id: format!("checkpoint-{}", self.checkpoints),
            checkpoint_seq: self.checkpoints,
            covers_journal_seq: self.journal_seq,
            base: base.filter(|_| change.on_base).map(str::to_owned),
            unanswered: Vec::new(),
            schema_version: 1,
            session_id: "session".into(),
            turn: self.checkpoints,
            messages: change.messages.clone(),
            spans: change.spans.clone(),
            total_usage: None,
            tool_calls_count: 0,
            verification_reports: Vec::new(),
            state: None,
            state_hash: String::new(),
            created_at_millis: 1_700_000_000_000 + self.made,
        };
        checkpoint.state_hash = checkpoint.hash_with(change.list.hashes());
        self.record(checkpoint.into())
    }
}

/// An id of a test.
pub fn id<T: FromStr<Err = Illegal>>(text: impl AsRef<str>) -> T {
    text.as_ref().parse().expect("an id that a test gives is legal")
}

/// The record as an entry of the log.
pub fn entry(record: &JournalRecord) -> Entry {
    Entry { key: record.body.run_id.as_str().into(), value: codec::encode(record), headers: Vec::new() }
}

/// A run id in a partition.
pub fn run_in(partition: impl Into<PartitionId>, partitions: u32, name: &str) -> String {
    let partition = partition.into();
    let candidates = (0_u32..).map(|number| format!("{name}-{number}"));
    let mut matching = candidates.filter(|run_id| {
        runlog_schemas::partition::partition_of(id::<RunId>(run_id).borrow(), partitions) == partition
    });
    matching.next().unwrap_or_default()
}
