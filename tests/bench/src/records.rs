//! Seeded records as agents write them: many concurrent runs in the shape of tau-bench's recorded runs.
//!
//! A run has a start, then rounds of turn, request and result, with a checkpoint after every fourth round, then its end.
//! Text consists of artificial words and is about as compressible as prose. Its lengths follow the quantiles below.

use anyhow::Context;
use runlog_log::Entry;
use runlog_schemas::{
    codec,
    datum::Sha256,
    id::{JournalSeq, OrEmpty, PartitionId, RecordId, RunId, WriterSeq},
    json::Json,
    messages,
    partition::partition_of,
    payload::{ConversationTurn, LoopCheckpoint, Payload, RunLifecycle, ToolCallCompleted, ToolCallRequested},
    record::JournalRecord,
};
use runlog_tests::random::Random;
use serde_json::json;
use std::collections::VecDeque;

/// Bytes of JSON at the quantiles 0.1, 0.25, 0.5, 0.75, 0.9 and 0.99 of the 577 calls and 1,401 turns of the first half of
/// tau-bench's recorded airline runs.
const ARGUMENTS: [u64; 6] = [27, 27, 31, 120, 286, 542];
const RESULTS: [u64; 6] = [5, 314, 677, 776, 939, 4057];
const TURNS: [u64; 6] = [57, 90, 147, 289, 611, 6155];

/// Concurrent runs.
const ACTIVE: usize = 64;

/// The tool of every call.
pub(crate) const TOOL: &str = "book_reservation";

/// An endless journal, the same for the same seed and length.
#[derive(Debug)]
pub(crate) struct Journal {
    random: Random,
    /// Rounds of a run.
    rounds: u64,
    active: VecDeque<Run>,
    made: u64,
}

#[derive(Debug)]
struct Run {
    id: RunId,
    writer: String,
    /// The writer's number of the last record.
    seq: u64,
    /// The journal number of the last numbered record.
    journal_seq: JournalSeq,
    rounds_left: u64,
    next: Next,
    /// The request without a result.
    request: Option<RecordId>,
    /// The new messages of the next checkpoint.
    messages: Vec<Json>,
    /// The hashes of the messages of all checkpoints so far.
    hashes: Vec<Sha256>,
    checkpoints: u64,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Start,
    Turn,
    Request,
    Result,
    Checkpoint,
    End,
}

impl Journal {
    /// Runs with about `records_per_run` records.
    pub(crate) fn new(seed: u64, records_per_run: u64) -> Self {
        // A round has 3.25 records on average; the start and the end are two more.
        let rounds = (records_per_run.saturating_sub(2) * 4 / 13).max(1);
        Self { random: Random::new(seed), rounds, active: VecDeque::new(), made: 0 }
    }

    /// The next record, of a random active run.
    pub(crate) fn record(&mut self) -> anyhow::Result<JournalRecord> {
        while self.active.len() < ACTIVE {
            let run = self.run()?;
            self.active.push_back(run);
        }
        let at = usize::try_from(self.random.between(0, ACTIVE as u64))?;
        let mut run = self.active.swap_remove_back(at).context("an active run")?;
        let record = self.next_of(&mut run)?;
        let ended = matches!(record.payload, Payload::RunLifecycle(ref life) if life.status != "started");
        if !ended {
            self.active.push_back(run);
        }
        Ok(record)
    }

    fn run(&mut self) -> anyhow::Result<Run> {
        let bits = u128::from(self.random.number()) << 64 | u128::from(self.random.number());
        let id = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string();
        Ok(Run {
            writer: format!("writer-{}", &id[..8]),
            id: id.parse()?,
            seq: 0,
            journal_seq: JournalSeq::ZERO,
            rounds_left: self.rounds,
            next: Next::Start,
            request: None,
            messages: Vec::new(),
            hashes: Vec::new(),
            checkpoints: 0,
        })
    }

    fn next_of(&mut self, run: &mut Run) -> anyhow::Result<JournalRecord> {
        self.made += 1;
        run.seq += 1;
        let record_id: RecordId = format!("{:016x}", self.random.number()).parse()?;
        let (payload, next): (Payload, Next) = match run.next {
            Next::Start => (RunLifecycle { status: "started".into(), reason: String::new() }.into(), Next::Turn),
            Next::Turn => (self.make_turn(run).into(), Next::Request),
            Next::Request => {
                run.request = Some(record_id.clone());
                (self.request(run)?.into(), Next::Result)
            }
            Next::Result => {
                run.rounds_left = run.rounds_left.saturating_sub(1);
                let next = match run.rounds_left {
                    0 => Next::End,
                    left if left % 4 == 0 => Next::Checkpoint,
                    _ => Next::Turn,
                };
                (self.result(run)?.into(), next)
            }
            Next::Checkpoint => (checkpoint(run).into(), Next::Turn),
            Next::End => (RunLifecycle { status: "completed".into(), reason: String::new() }.into(), Next::End),
        };
        run.next = next;
        let mut record = JournalRecord::new(run.id.borrow(), record_id, "bench", payload);
        record.place.writer_id = run.writer.parse()?;
        record.place.writer_seq = WriterSeq::ZERO.saturating_add(run.seq);
        if record.body.record_kind.numbered() {
            run.journal_seq = run.journal_seq.saturating_add(1);
            record.place.journal_seq = run.journal_seq;
        }
        record.place.timestamp_millis = 1_700_000_000_000 + self.made;
        Ok(record)
    }

    fn make_turn(&mut self, run: &mut Run) -> ConversationTurn {
        let content = Json::from(json!(self.text(&TURNS)));
        run.messages.push(Json::from(json!({ "role": "assistant", "content": content.to_value() })));
        ConversationTurn {
            message_id: format!("m{}", run.seq),
            parent_id: None,
            thread_id: None,
            kind: "assistant".into(),
            content,
        }
    }

    fn request(&mut self, run: &Run) -> anyhow::Result<ToolCallRequested> {
        let call = ToolCallRequested {
            request_id: format!("q{}", run.seq),
            call_id: format!("c{}", run.seq),
            parent_id: None,
            vendor: None,
            tool_name: TOOL.into(),
            args_sha256: String::new(),
            fingerprint: OrEmpty::NONE,
            arguments: Some(Json::from(json!({ "n": run.seq, "text": self.text(&ARGUMENTS) }))),
        };
        Ok(call.seal()?)
    }

    fn result(&mut self, run: &mut Run) -> anyhow::Result<ToolCallCompleted> {
        let result = Json::from(json!({ "ok": self.text(&RESULTS) }));
        run.messages.push(result.clone());
        let request_record_id = run.request.take().context("a request")?;
        Ok(ToolCallCompleted { request_record_id, result: Some(result), latency_ms: None })
    }

    /// Words with the length of a recorded text.
    fn text(&mut self, quantiles: &[u64; 6]) -> String {
        // Picks two adjacent quantiles by a uniform number, then a uniform length between them.
        let share = self.random.between(0, 100);
        let (from, to) = match share {
            0..10 => (1, quantiles[0]),
            10..25 => (quantiles[0], quantiles[1]),
            25..50 => (quantiles[1], quantiles[2]),
            50..75 => (quantiles[2], quantiles[3]),
            75..90 => (quantiles[3], quantiles[4]),
            _ => (quantiles[4], quantiles[5]),
        };
        let wanted = usize::try_from(self.random.between(from, to + 1)).unwrap_or(1);
        let mut text = String::with_capacity(wanted + 8);
        while text.len() < wanted {
            // With 4,096 words, the text compresses about as well as prose.
            let mut word = Random::new(self.random.between(0, 4096)).number();
            for _ in 0..3 + word % 6 {
                word = word.rotate_left(5);
                text.push(char::from(b'a' + u8::try_from(word % 26).unwrap_or(0)));
            }
            text.push(' ');
        }
        text.truncate(wanted);
        text
    }
}

/// A checkpoint with the new messages, based on the last checkpoint.
fn checkpoint(run: &mut Run) -> LoopCheckpoint {
    run.checkpoints += 1;
    let name = |nth: u64| format!("checkpoint-{nth}");
    run.hashes.extend(run.messages.iter().map(messages::hash));
    let mut checkpoint = LoopCheckpoint {
        checkpoint_id: name(run.checkpoints),
        checkpoint_seq: run.checkpoints,
        covers_journal_seq: run.journal_seq,
        base: (run.checkpoints > 1).then(|| name(run.checkpoints - 1)),
        messages: std::mem::take(&mut run.messages),
        turn: run.checkpoints,
        unanswered: Vec::new(),
        schema_version: 1,
        session_id: String::new(),
        spans: Vec::new(),
        total_usage: None,
        tool_calls_count: run.checkpoints * 4,
        verification_reports: Vec::new(),
        state: None,
        state_hash: String::new(),
        created_at_millis: 1_700_000_000_000,
    };
    checkpoint.state_hash = checkpoint.hash_with(&run.hashes);
    checkpoint
}

/// The partition of a record's run, and the entry to append.
pub(crate) fn entry(record: &JournalRecord, partitions: u32) -> anyhow::Result<(PartitionId, Entry)> {
    let run_id = record.body.run_id.borrow().context("a record of a run")?;
    let entry = Entry { key: run_id.as_str().into(), value: codec::encode(record), headers: Vec::new() };
    Ok((partition_of(run_id, partitions), entry))
}

/// A record of exactly 500 encoded bytes with incompressible text.
pub(crate) fn of_500_bytes(random: &mut Random, seq: u64) -> anyhow::Result<JournalRecord> {
    let make = |filling: String| -> anyhow::Result<JournalRecord> {
        let turn = ConversationTurn {
            message_id: format!("m{seq:09}"),
            parent_id: None,
            thread_id: None,
            kind: "user".into(),
            content: Json::from(json!(filling)),
        };
        let run_id: RunId = format!("{:08x}-0000-4000-8000-000000000000", seq % 1000).parse()?;
        let mut record = JournalRecord::new(run_id.borrow(), format!("r{seq:015}").parse()?, "bench", turn.into());
        record.place.writer_id = "writer-bench".parse()?;
        record.place.writer_seq = WriterSeq::ZERO.saturating_add(1_000 + seq % 1_000);
        record.place.timestamp_millis = 1_700_000_000_000 + seq;
        Ok(record)
    };
    // The length prefix takes two bytes for any text from 64 to 8,191 bytes, so also for the filler.
    let bare = codec::encode(&make("x".repeat(100))?).len() - 100;
    make(incompressible(random, 500 - bare))
}

/// Random text with six bits per byte: LZ4 hardly finds four repeated bytes in its window of 64 kB.
pub(crate) fn incompressible(random: &mut Random, bytes: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes + 10);
    while text.len() < bytes {
        let number = random.number();
        text.extend((0..10).map(|nth| char::from(DIGITS[(number >> (6 * nth) & 63) as usize])));
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_500_bytes_has_500_bytes() {
        for seq in [0, 1, 999_999] {
            assert_eq!(codec::encode(&of_500_bytes(&mut Random::new(1), seq).unwrap()).len(), 500);
        }
    }
}
