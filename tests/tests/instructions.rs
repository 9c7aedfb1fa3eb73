//! The cost of writing, reading, folding and finding a record, in instructions: callgrind's count does not depend on
//! the machine's load.
//!
//! ```text
//!   this test ─▶ valgrind ─▶ this test again, 10 rounds over the records ──▶ a ─┐
//!            └─▶ valgrind ─▶ this test again, n more rounds ───────────────▶ b ─┴─▶ (b - a) / n / records
//! ```
//! `instructions.txt` contains the accepted counts. `make instructions` compares with it, in a release build, and
//! `RUNLOG_INSTRUCTIONS=write make instructions` writes it.
//! Counts depend on the compiler, so another compiler than the file's gets more slack. They depend a little on the
//! checkout's folder, by which the compiler divides the code. They also depend on malloc: one process of four
//! searches its free chunks longer, by 8 % of an encoded record, because hash tables are emptied in random order. So
//! a count over the accepted one is repeated, and the least count is used.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a test that fails")]

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    hint::black_box,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use runlog_log::Delivery;
use runlog_projector::{
    Contents,
    index::{
        fold::{Fold, Step},
        query::{TopicPartition, lookup},
        store::{
            self, Commit, Memory, Rows, Visit,
            anomalies::{self, AnomalyRow},
            meta,
        },
    },
};
use runlog_schemas::{
    codec::{self, Envelope, NoRegistry},
    datum::Sha256,
    id::{
        ContentHash, Epoch, Fingerprint, JournalSeq, Offset, OrEmpty, PartitionId, RecordId, RunId, WriterId, WriterSeq,
    },
    json::Json,
    payload::{
        ConversationTurn, Genesis, LoopCheckpoint, Payload, RunLifecycle, ToolCallCompleted, ToolCallFailed,
        ToolCallRequested,
    },
    record::{JournalRecord, Sequencing},
};
use serde_json::json;

const SLACK_PERCENT: u64 = 5;
/// The slack with another compiler or processor than the file's.
const SLACK_PERCENT_OTHER: u64 = 25;
/// How often a job over the accepted count is counted.
const COUNTS_MAX: u32 = 8;
/// Rounds in the first count of a job.
const ROUNDS_FEW: u64 = 10;
/// The run of all records.
const RUN: &str = "tau-bench:12:0";
const NAME: &str = "a_record_takes_no_more_instructions_than_are_accepted";

/// A job, its rounds between the two counts, and one round over all records. The number of rounds is so large that
/// the process's startup is less than a percent of the difference. Startup differs by some hundred thousand
/// instructions between processes, because hash tables are seeded at random.
type Job = (&'static str, u64, fn(&Prepared));

const JOBS: [Job; 6] = [
    ("encode", 2_000, |prepared| prepared.each(|record, _| drop(black_box(codec::encode(record))))),
    ("decode", 1_000, |prepared| {
        prepared.each(|_, framed| drop(black_box(codec::decode(codec::unframe(framed).unwrap()).unwrap())));
    }),
    ("envelope", 2_000, |prepared| {
        prepared.each(|_, framed| drop(black_box(Envelope::read(codec::unframe(framed).unwrap()).unwrap())));
    }),
    // Reads the envelope and checks the payload to its last byte, as the projector does.
    ("read", 1_000, |prepared| prepared.each(|_, framed| drop(black_box(codec::read(framed).unwrap())))),
    // Reads, judges, projects, and builds one batch, which is discarded.
    ("fold", 200, |prepared| drop(black_box(folded(&prepared.empty, &prepared.deliveries)))),
    // As many lookups as records, so that the count per record is the count per lookup.
    ("lookup", 200, |prepared| prepared.each(|_, _| drop(black_box(prepared.lookup())))),
];

/// The input of the jobs.
struct Prepared {
    records: Vec<(JournalRecord, Vec<u8>)>,
    deliveries: Vec<Delivery>,
    /// Rows of a journal with only a genesis, which discard every batch.
    empty: Arc<Discarding>,
    /// Rows of a journal with the records.
    filled: Arc<Memory>,
    fingerprint: Fingerprint,
}

/// Rows that batches do not change.
#[derive(Debug)]
struct Discarding(Memory);

impl Rows for Discarding {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
        self.0.row(key)
    }

    fn scan(
        &self,
        prefix: &[u8],
        start: &[u8],
        direction: rocksdb::Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), store::Error> {
        self.0.scan(prefix, start, direction, visit)
    }
}

impl Commit for Discarding {
    fn commit<'a>(&self, rows: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Result<(), store::Error> {
        rows.for_each(|row| {
            black_box(row);
        });
        Ok(())
    }
}

fn delivery(offset: u64, value: Vec<u8>) -> Delivery {
    let offset = Offset::ZERO.saturating_add(offset);
    Delivery { partition: PartitionId::ZERO, offset, timestamp_millis: 0, key: Vec::new(), value, headers: Vec::new() }
}

/// Folds the deliveries into a store.
fn folded<S: Commit>(store: &Arc<S>, deliveries: &[Delivery]) -> Step {
    let journal = meta::Journal { journal_id: "instructions".into(), partitions: 1 };
    Fold::resume(PartitionId::ZERO, journal, store.clone(), Arc::new(NoRegistry))
        .unwrap()
        .apply_batch(deliveries)
        .unwrap()
}

impl Prepared {
    fn new() -> Self {
        let genesis = Genesis { journal_id: "instructions".into(), partitions: 1 };
        let genesis = JournalRecord::of_partition("genesis".parse().unwrap(), "tau-bench", genesis.into());
        let genesis = [delivery(0, codec::encode(&genesis))];
        let framed = |record: JournalRecord| {
            let framed = codec::encode(&record);
            (record, framed)
        };
        let records: Vec<_> = records().into_iter().map(framed).collect();
        let deliveries: Vec<_> =
            (1..).zip(&records).map(|(offset, (_, framed))| delivery(offset, framed.clone())).collect();
        let (empty, filled) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
        assert_eq!(folded(&empty, &genesis), Step::Applied);
        assert_eq!((folded(&filled, &genesis), folded(&filled, &deliveries)), (Step::Applied, Step::Applied));
        // A refused record costs less, so all must be applied.
        let (anomalies, mut refused) = (anomalies::prefix(), None);
        let visit = &mut |key: &[u8], row: &[u8]| {
            refused = Some(store::decode::<AnomalyRow>(key, row)?);
            Ok(ControlFlow::Break(()))
        };
        filled.scan(anomalies.bytes(), anomalies.bytes(), rocksdb::Direction::Forward, visit).unwrap();
        assert_eq!(refused, None);
        let fingerprint = records.iter().find_map(|(record, _)| match &record.payload {
            Payload::ToolCallRequested(call) => call.fingerprint.0.clone(),
            _ => None,
        });
        let empty = Arc::new(Discarding(Arc::into_inner(empty).unwrap()));
        Self { records, deliveries, empty, filled, fingerprint: fingerprint.unwrap() }
    }

    fn each(&self, job: impl Fn(&JournalRecord, &[u8])) {
        self.records.iter().for_each(|(record, framed)| job(black_box(record), black_box(framed)));
    }

    fn lookup(&self) -> runlog_schemas::answer::Lookup {
        let (run_id, place) =
            (RunId::new(RUN).unwrap(), TopicPartition { topic: "t", partition: PartitionId::ZERO, log: None });
        let answer =
            lookup::get(&*self.filled, &Contents::none(), place, run_id, self.fingerprint.borrow(), None).unwrap();
        assert!(answer.result.is_some(), "{answer:?}");
        answer
    }
}

/// Resembles the records of an imported run of tau-bench: their kinds, ids and text lengths.
fn records() -> Vec<JournalRecord> {
    let id = |n: u64| format!("{n:08x}-4f3c-5a2e-9d71-0c6b8e2f{n:04x}");
    let text = |length: usize| Json::from(json!("a word, and more. ".repeat(1 + length / 18)[..length].to_owned()));
    let turn = |kind: &str, length: usize| ConversationTurn {
        message_id: "message-12".into(),
        parent_id: Some("message-11".into()),
        thread_id: None,
        kind: kind.into(),
        content: text(length),
    };
    let requested = ToolCallRequested {
        request_id: "request-6".into(),
        call_id: "call_f3KQ9wTz1LxYbN6dRm0aHc2v".into(),
        parent_id: Some("message-12".into()),
        vendor: None,
        tool_name: "get_booking_details".into(),
        args_sha256: String::new(),
        fingerprint: OrEmpty(None),
        arguments: Some(Json::from(json!({ "booking_id": "B7QX21" }))),
    };
    let checkpoint = LoopCheckpoint {
        checkpoint_id: "checkpoint-6".into(),
        checkpoint_seq: 6,
        covers_journal_seq: 8.into(),
        base: None,
        unanswered: Vec::new(),
        schema_version: 1,
        session_id: String::new(),
        turn: 4,
        messages: vec![text(300), text(900)],
        spans: Vec::new(),
        total_usage: None,
        tool_calls_count: 4,
        verification_reports: Vec::new(),
        state: None,
        state_hash: "0".repeat(64),
        created_at_millis: 22_000,
    };
    let failing =
        ToolCallRequested { request_id: "request-7".into(), tool_name: "cancel_booking".into(), ..requested.clone() };
    let of = |n: u64| RecordId::new(id(n)).unwrap();
    let latency_ms = None;
    let payloads: [Payload; 9] = [
        RunLifecycle { status: "started".into(), reason: String::new() }.into(),
        turn("user", 120).into(),
        turn("assistant", 350).into(),
        requested.seal().unwrap().into(),
        ToolCallCompleted { request_record_id: of(4), result: Some(text(700)), latency_ms }.into(),
        failing.seal().unwrap().into(),
        ToolCallFailed {
            request_record_id: of(6),
            error_kind: "tool_error".into(),
            error_message: "x".repeat(60),
            latency_ms,
        }
        .into(),
        turn("tool", 700).into(),
        checkpoint.into(),
    ];
    let placed = |(payload, n): (Payload, u64)| {
        let (run_id, record_id) = (RunId::new(RUN).unwrap(), RecordId::new(id(n)).unwrap());
        let mut record = JournalRecord::new(run_id, record_id, "tau-bench", payload);
        record.place = Sequencing {
            writer_id: WriterId::new(id(99)).unwrap().into(),
            writer_epoch: Epoch::ZERO,
            writer_seq: WriterSeq::new(n).unwrap(),
            prev_hash: Some(ContentHash(Sha256::of(b"the one before")).into()),
            journal_seq: JournalSeq::new(if record.body.record_kind.numbered() { n } else { 0 }).unwrap(),
            timestamp_millis: n * 1000,
        };
        record
    };
    payloads.into_iter().zip(1..).map(placed).collect()
}

/// Runs the counted process: `work` is a job and a number of rounds.
fn work(work: &str) {
    let (job, rounds) = work.split_once(' ').unwrap();
    let (_, _, take) = JOBS.iter().find(|(name, ..)| *name == job).unwrap();
    let prepared = Prepared::new();
    for _ in 0..rounds.parse::<u64>().unwrap() {
        take(black_box(&prepared));
    }
}

/// A copy of this program without debug information: valgrind 3.19 fails on the debug information of newer compilers.
fn stripped(dir: &Path) -> PathBuf {
    let copy = dir.join("instructions");
    let output =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(env::current_exe().unwrap()).output();
    let output = output.expect("strip does not start; scripts/setup.sh build installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    copy
}

/// Counts the instructions of a process of `program` that does `job` for `rounds` rounds.
fn count(program: &Path, job: &str, rounds: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command.args(["--exact", NAME, "--test-threads=1"]).env("RUNLOG_WORK", format!("{job} {rounds}"));
    let output = command.output().expect("valgrind does not start; scripts/setup.sh test installs it");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}\n{}", String::from_utf8_lossy(&output.stdout));
    let collected = stderr.lines().find_map(|line| line.split_once("Collected : "));
    collected.unwrap_or_else(|| panic!("no count: {stderr}")).1.trim().parse().unwrap()
}

fn compiler() -> String {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc does not start").stdout;
    let version = String::from_utf8(version).unwrap();
    let line = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    format!("rustc {} for {}", line("release:"), line("host:"))
}

#[test]
fn a_record_takes_no_more_instructions_than_are_accepted() {
    if let Ok(job) = env::var("RUNLOG_WORK") {
        return work(&job);
    }
    let records = records().len() as u64;
    let dir = tempfile::tempdir().unwrap();
    let program = stripped(dir.path());
    let counted = |job: &str, rounds: u64| {
        let (few, many) = (count(&program, job, ROUNDS_FEW), count(&program, job, ROUNDS_FEW + rounds));
        (many - few) / rounds / records
    };
    let least = |job: &str, rounds: u64, limit: u64| {
        let mut least = u64::MAX;
        for _ in 0..COUNTS_MAX {
            least = least.min(counted(job, rounds));
            if least <= limit {
                break;
            }
        }
        least
    };
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.txt");
    if env::var("RUNLOG_INSTRUCTIONS").as_deref() == Ok("write") {
        let mut text = format!("# Instructions per record. See instructions.rs.\ncompiler {}\n", compiler());
        JOBS.iter().for_each(|(job, rounds, _)| writeln!(text, "{job} {}", least(job, *rounds, 0)).unwrap());
        return fs::write(&file, text).unwrap();
    }
    let text = fs::read_to_string(&file).unwrap();
    let accepted: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let slack = if accepted["compiler"] == compiler() { SLACK_PERCENT } else { SLACK_PERCENT_OTHER };
    let mut over = String::new();
    for (job, rounds, _) in JOBS {
        let accepted: u64 = accepted[job].parse().unwrap();
        let limit = accepted * (100 + slack) / 100;
        let count = least(job, rounds, limit);
        println!("{job}: {count} instructions per record, accepted {accepted}");
        if count > limit {
            writeln!(over, "{job}: {count} instructions per record, accepted {accepted} and {slack} % more").unwrap();
        }
    }
    assert!(
        over.is_empty(),
        "{over}accepted by {}, counted with {}. If it is meant, accept it and commit {}:\n  \
         RUNLOG_INSTRUCTIONS=write make instructions",
        accepted["compiler"],
        compiler(),
        file.display()
    );
}
