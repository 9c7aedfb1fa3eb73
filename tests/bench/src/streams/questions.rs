//! A filled topic, questions about its records, and the server's answers.

use anyhow::{Context, ensure};
use reqwest::Client;
use runlog_log::{
    Log,
    kafka::{KafkaConfig, KafkaLog},
};
use runlog_schemas::{id::PartitionId, payload::Payload, record::JournalRecord};
use runlog_tests::{
    random::Random,
    server::{Server, client},
};
use serde_json::Value;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    records::TOOL,
    served::{LONG, PARTITIONS, append_journal},
};

/// Questions of each kind.
const CALLS: usize = 600;
const PENDING: usize = 200;
const CHECKPOINTS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    /// The newest call of a run with a fingerprint.
    Call { run: String, fingerprint: String },
    /// The calls of a run without a result.
    Pending { run: String },
    /// The newest checkpoint of a run.
    Checkpoint { run: String },
}

impl Question {
    /// The line that the Kafka Streams application reads.
    fn line(&self) -> String {
        match self {
            Self::Call { run, fingerprint } => format!("calls\t{run}\t{fingerprint}"),
            Self::Pending { run } => format!("pending\t{run}"),
            Self::Checkpoint { run } => format!("checkpoints\t{run}"),
        }
    }
}

/// A filled topic, and its questions.
#[derive(Debug)]
pub(super) struct Journal {
    pub topic: KafkaConfig,
    /// All records of the topic, including each partition's genesis record.
    pub records: u64,
    questions: Vec<Question>,
    /// A line for each question.
    pub questions_file: PathBuf,
}

/// The contents of the filled topic.
#[derive(Debug, Default)]
struct Filled {
    runs: Vec<String>,
    /// Run and fingerprint of each call.
    calls: Vec<(String, String)>,
    /// The last request without a result, of each run.
    open: HashMap<String, String>,
}

impl Filled {
    fn add(&mut self, record: &JournalRecord) {
        let run = record.body.run_id.as_str();
        match &record.payload {
            Payload::RunLifecycle(life) if life.status == "started" => self.runs.push(run.to_owned()),
            Payload::ToolCallRequested(call) => {
                self.calls.push((run.to_owned(), call.fingerprint.as_str().to_owned()));
                self.open.insert(run.to_owned(), record.body.record_id.to_string());
            }
            Payload::ToolCallCompleted(_) => _ = self.open.remove(run),
            _ => {}
        }
    }

    fn questions(&self) -> Vec<Question> {
        let mut random = Random::new(8);
        let mut any = |count: usize| usize::try_from(random.between(0, count as u64)).unwrap_or(0);
        let mut questions = Vec::new();
        for nth in 0..CALLS {
            let (run, fingerprint) = &self.calls[any(self.calls.len())];
            // One of ten questions looks up a call in another run.
            let run = if nth % 10 == 0 { &self.runs[any(self.runs.len())] } else { run };
            questions.push(Question::Call { run: run.clone(), fingerprint: fingerprint.clone() });
        }
        // Few runs have a pending call, so all of them are queried.
        let mut open: Vec<&String> = self.open.keys().collect();
        open.sort();
        let runs = open.into_iter().take(PENDING).cloned();
        questions.extend(runs.map(|run| Question::Pending { run }));
        while questions.len() < CALLS + PENDING {
            questions.push(Question::Pending { run: self.runs[any(self.runs.len())].clone() });
        }
        for _ in 0..CHECKPOINTS {
            questions.push(Question::Checkpoint { run: self.runs[any(self.runs.len())].clone() });
        }
        questions
    }
}

impl Journal {
    /// Fills a topic that contains only its genesis records. Writes the file of questions to `dir`.
    pub(super) async fn fill(topic: KafkaConfig, count: u64, dir: &Path) -> anyhow::Result<Self> {
        let mut filled = Filled::default();
        append_journal(&topic, 7, count, |record| {
            filled.add(record);
            Ok(())
        })
        .await?;
        ensure!(!filled.calls.is_empty() && !filled.open.is_empty(), "{count} records are too few for all questions");
        let (log, mut records) = (KafkaLog::connect(topic.clone())?, 0);
        for partition in PartitionId::all(PARTITIONS) {
            let bounds = log.bounds(partition, LONG).await?;
            records += bounds.end.get() - bounds.start.get();
        }
        ensure!(records >= count, "{records} records are in the topic, and {count} were appended");
        let (questions, questions_file) = (filled.questions(), dir.join("questions.txt"));
        fs::write(&questions_file, questions.iter().map(|question| question.line() + "\n").collect::<String>())?;
        Ok(Self { topic, records, questions, questions_file })
    }

    /// The number of questions.
    pub(super) fn questions(&self) -> usize {
        self.questions.len()
    }

    /// The server's answers.
    pub(super) async fn answers(&self, server: &Server) -> anyhow::Result<Vec<Answer>> {
        let (client, mut answers) = (client()?, Vec::new());
        for question in &self.questions {
            answers.push(ask(&client, server, question).await.with_context(|| format!("{question:?}"))?);
        }
        // Fails if most answers are empty: equal empty answers show little.
        let answered =
            |from: usize, count: usize| answers[from..from + count].iter().filter(|answer| answer.is_some()).count();
        let counts = [answered(0, CALLS), answered(CALLS, PENDING), answered(CALLS + PENDING, CHECKPOINTS)];
        ensure!(
            counts[0] > CALLS / 2 && counts[1] > 0 && counts[2] > CHECKPOINTS / 2,
            "too few questions have an answer: {counts:?}"
        );
        Ok(answers)
    }

    /// Fails unless the application's answers are the server's.
    pub(super) fn compare(&self, theirs: &[String], ours: &[Answer]) -> anyhow::Result<()> {
        ensure!(theirs.len() == ours.len(), "{} answers and not {}", theirs.len(), ours.len());
        for ((question, line), ours) in self.questions.iter().zip(theirs).zip(ours) {
            let theirs = answer(line);
            ensure!(theirs == *ours, "{question:?}: Streams answers {theirs:?}, Runlog {ours:?}");
        }
        Ok(())
    }
}

/// `None` if there is no such call, effect or checkpoint.
pub(super) type Answer = Option<Vec<Value>>;

/// Parses a line of the application: JSON texts or other texts, separated by tabs.
fn answer(line: &str) -> Answer {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    (!line.is_empty() && line != "unknown").then(|| line.split('\t').map(value).collect())
}

async fn ask(client: &Client, server: &Server, question: &Question) -> anyhow::Result<Answer> {
    let path = match question {
        Question::Call { run, fingerprint } => {
            format!("runs/{run}/lookup?tool={TOOL}&fingerprint={fingerprint}")
        }
        Question::Pending { run } => format!("runs/{run}/recovery"),
        Question::Checkpoint { run } => format!("runs/{run}/checkpoints/latest"),
    };
    let answered = client.get(format!("{}/v1/{path}", server.url)).send().await?;
    let status = answered.status().as_u16();
    let body: Value = answered.json().await?;
    // The run has no checkpoint.
    if status == 404 && matches!(question, Question::Checkpoint { .. }) {
        return Ok(None);
    }
    ensure!(status == 200, "{status}: {body}");
    let text = |field: &str| body[field].as_str().map(str::to_owned).with_context(|| format!("{field} in {body}"));
    let texts: Vec<String> = match question {
        Question::Call { .. } => {
            let payloads = ["arguments", "result"].map(|field| &body[field]).into_iter().filter(|json| !json.is_null());
            let json = payloads.map(Value::to_string);
            match text("status")?.as_str() {
                "unknown" => Vec::new(),
                status => [status.to_owned(), text("tool_name")?].into_iter().chain(json).collect(),
            }
        }
        Question::Pending { .. } => {
            let pending = body["pending"].as_array().context("pending calls")?;
            let mut ids: Vec<_> = pending.iter().filter_map(|call| call["id"].as_str()).map(str::to_owned).collect();
            ids.sort_unstable();
            ids
        }
        Question::Checkpoint { .. } => {
            let numbers = ["checkpoint_seq", "covers_journal_seq"].map(|field| body[field].to_string());
            let messages = body["messages"].as_array().context("messages")?.iter().map(Value::to_string);
            [text("checkpoint_id")?].into_iter().chain(numbers).chain(messages).collect()
        }
    };
    // Parsed like the application's line, so that an id of digits is a number in both.
    Ok(answer(&texts.join("\t")))
}
