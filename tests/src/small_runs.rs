//! Many concurrent runs of small records, for tests that need many records rather than realistic records.

use crate::random::Random;
use runlog_schemas::{
    id::{JournalSeq, OrEmpty, RunId, WriterSeq},
    json::Json,
    payload::{ConversationTurn, Payload, RunLifecycle, ToolCallCompleted, ToolCallRequested},
    record::JournalRecord,
};

/// An endless journal, the same for the same seed: a third each of turns, requests and results, each with a text of
/// words. Run ids are UUIDs.
#[derive(Debug)]
pub struct SmallRuns {
    random: Random,
    shape: Shape,
    runs: Vec<Run>,
    made: u64,
}

/// The shape of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Records of a run.
    pub of_a_run: u64,
    /// Concurrent runs. They are written in turns until all of them end.
    pub at_a_time: u64,
    /// Bytes of each text. With 0, record ids have no random part, so that the journal compresses well.
    pub text_bytes: usize,
}

#[derive(Debug)]
struct Run {
    id: RunId,
    records: u64,
    request: String,
}

impl SmallRuns {
    /// A journal before its first record.
    pub fn new(seed: u64, shape: Shape) -> Self {
        Self { random: Random::new(seed), shape, runs: Vec::new(), made: 0 }
    }

    /// The next record: the next one of its run.
    pub fn record(&mut self) -> JournalRecord {
        let Shape { of_a_run, at_a_time, text_bytes } = self.shape;
        if self.made.is_multiple_of(at_a_time * of_a_run) {
            let first_run = self.made / of_a_run;
            self.runs = (first_run..first_run + at_a_time).map(Run::new).collect();
        }
        let at = usize::try_from(self.made % at_a_time).expect("the number of a run");
        self.made += 1;
        self.runs[at].record(&mut self.random, text_bytes)
    }
}

impl Run {
    fn new(number: u64) -> Self {
        let id: RunId = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &number.to_be_bytes())
            .to_string()
            .parse()
            .expect("a run id");
        Self { id, records: 0, request: String::new() }
    }

    fn record(&mut self, random: &mut Random, text_bytes: usize) -> JournalRecord {
        self.records += 1;
        let number = self.records;
        let id = if text_bytes == 0 { 0 } else { random.number() };
        let id = format!("{id:016x}-{number}");
        let text = words(random, text_bytes);
        let payload: Payload = match number % 3 {
            _ if number == 1 => RunLifecycle { status: "started".into(), reason: text }.into(),
            2 => {
                self.request.clone_from(&id);
                let call = ToolCallRequested {
                    request_id: "q".into(),
                    call_id: id.clone(),
                    parent_id: None,
                    vendor: None,
                    tool_name: "book".into(),
                    args_sha256: String::new(),
                    fingerprint: OrEmpty::NONE,
                    arguments: Some(Json::from(serde_json::json!({ "n": number, "q": text }))),
                };
                call.seal().expect("plain arguments are canonical").into()
            }
            0 => ToolCallCompleted {
                request_record_id: self.request.parse().expect("a record id"),
                result: Some(Json::from(serde_json::json!({ "ok": text }))),
                latency_ms: Some(7),
            }
            .into(),
            _ => ConversationTurn {
                message_id: id.clone(),
                parent_id: None,
                thread_id: None,
                kind: "user".into(),
                content: Json::from(serde_json::json!(text)),
            }
            .into(),
        };
        let mut record = JournalRecord::new(self.id.borrow(), id.parse().expect("a record id"), "bench", payload);
        record.place.writer_id = "writer".parse().expect("a writer id");
        record.place.writer_seq = WriterSeq::ZERO.saturating_add(number);
        record.place.journal_seq = JournalSeq::ZERO.saturating_add(number);
        record.place.timestamp_millis = number;
        record
    }
}

fn words(random: &mut Random, bytes: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "co", "di", "fu", "ga", "he", "jo", "ki", "lu", "ma", "ne", "or", "pi", "qua", "ru", "se "];
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        let mut bits = random.number();
        for _ in 0..16 {
            text.push_str(SYLLABLES[(bits % 16) as usize]);
            bits /= 16;
        }
    }
    text.truncate(bytes);
    text
}
