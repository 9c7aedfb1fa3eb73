//! Runlog's store with the names and the helper methods that the SDK's tests use.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a test fails where its store does")]

use runlog_ports::{
    agent_sdk_core::Journal,
    producer::{self, Config, Token},
};
use sdk::{
    AgentError, AgentErrorKind, CheckpointPrunePolicy, CheckpointPruneReport, CheckpointSaveOutcome, CheckpointStore,
    JournalCursor, JournalRecord, RetryClassification, RunCheckpoint, RunId, RunJournal, RunJournalReader,
    testing::normalize_json_value,
};
use std::{
    env,
    ops::Deref,
    sync::{Arc, Mutex, OnceLock},
};

/// The environment variable with the journal's URL: `local:DIR`, `http://…`, `kafka:BROKERS`.
pub const JOURNAL: &str = "RUNLOG_CONTRACT_JOURNAL";
/// The environment variable with the URL of the query server, for `kafka:`.
pub const SERVER: &str = "RUNLOG_CONTRACT_SERVER";

/// The environment variable with the token for the server, if the server needs one.
pub const TOKEN: &str = "RUNLOG_CONTRACT_TOKEN";

/// A separate journal (its run ids have a prefix of their own) in the journal that all tests of the process share.
fn journal() -> Journal {
    static SHARED: OnceLock<Journal> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let (at, server) = (env::var(JOURNAL).expect(JOURNAL), env::var(SERVER).ok());
        let at = producer::Journal::parse(&at, server.as_deref()).expect("a journal's URL");
        let token = env::var(TOKEN).ok().map(|token| Token::new(&token).expect("a token"));
        Journal::connect(Config { token, ..Config::new(at, "contract") }).expect("the journal is reached")
    });
    shared.with_run_prefix(format!("{}/", uuid::Uuid::new_v4()))
}

/// Runlog's journal, read in the order of its numbers. A test can make its next append fail.
#[derive(Clone, Debug)]
pub struct FakeJournalStore {
    journal: Journal,
    runs: Arc<Mutex<Vec<RunId>>>,
    fail_next_append: Arc<Mutex<Option<String>>>,
}

impl Default for FakeJournalStore {
    fn default() -> Self {
        Self { journal: journal(), runs: Arc::default(), fail_next_append: Arc::default() }
    }
}

impl FakeJournalStore {
    /// All records, read from the journal.
    pub fn records(&self) -> Vec<JournalRecord> {
        let runs = self.runs.lock().expect("runs").clone();
        let of_run = |run: &RunId| self.journal.records_for_run(run).expect("the run is read");
        let mut records: Vec<_> = runs.iter().flat_map(of_run).collect();
        records.sort_by_key(|record| record.journal_seq);
        records
    }

    /// The same as JSON.
    pub fn normalized_records(&self) -> Vec<serde_json::Value> {
        let json = |record| normalize_json_value(serde_json::to_value(record).expect("a record is JSON"));
        self.records().into_iter().map(json).collect()
    }

    /// The next append does not reach the journal.
    pub fn fail_next_append(&self, message: impl Into<String>) {
        *self.fail_next_append.lock().expect("message") = Some(message.into());
    }
}

impl RunJournal for FakeJournalStore {
    fn append(&self, record: JournalRecord) -> Result<JournalCursor, AgentError> {
        if let Some(message) = self.fail_next_append.lock().expect("message").take() {
            return Err(AgentError::new(AgentErrorKind::JournalFailure, RetryClassification::RepairNeeded, message));
        }
        let run_id = record.run_id.clone();
        let cursor = self.journal.append(record)?;
        let mut runs = self.runs.lock().expect("runs");
        if !runs.contains(&run_id) {
            runs.push(run_id);
        }
        Ok(cursor)
    }
}

impl RunJournalReader for FakeJournalStore {
    fn records_for_run(&self, run_id: &RunId) -> Result<Vec<JournalRecord>, AgentError> {
        self.journal.records_for_run(run_id)
    }
}

/// Replaces the list of records in the journals that the SDK's tests define.
#[derive(Debug, Default)]
pub struct Records {
    store: FakeJournalStore,
    read: Vec<JournalRecord>,
}

impl Records {
    /// Appends to the journal, and reads it again. If the test's journal fails an append on purpose, its record does
    /// not reach this list, but the SDK has used the record's number.
    pub fn push(&mut self, record: JournalRecord) {
        if record.journal_seq > self.read.len() as u64 + 1 {
            self.store.journal = self.store.journal.numbered_from(record.journal_seq - 1);
        }
        self.store.append(record).expect("the record is accepted");
        self.read = self.store.records();
    }
}

impl Deref for Records {
    type Target = Vec<JournalRecord>;

    fn deref(&self) -> &Self::Target {
        &self.read
    }
}

/// Runlog's checkpoint store.
#[derive(Clone, Debug)]
pub struct InMemoryCheckpointStore {
    journal: Journal,
}

impl Default for InMemoryCheckpointStore {
    fn default() -> Self {
        Self { journal: journal() }
    }
}

#[allow(clippy::missing_errors_doc, reason = "the traits document the errors")]
impl InMemoryCheckpointStore {
    /// A separate store.
    pub fn new() -> Self {
        Self::default()
    }

    /// [`CheckpointStore::save`].
    pub fn save(&self, checkpoint: RunCheckpoint, latest: u64) -> Result<CheckpointSaveOutcome, AgentError> {
        self.journal.save(checkpoint, latest)
    }

    /// [`CheckpointStore::load_latest`].
    pub fn load_latest(&self, run_id: &RunId) -> Result<Option<RunCheckpoint>, AgentError> {
        self.journal.load_latest(run_id)
    }

    /// [`CheckpointStore::load_at_or_before`].
    pub fn load_at_or_before(
        &self,
        run_id: &RunId,
        cursor: &JournalCursor,
    ) -> Result<Option<RunCheckpoint>, AgentError> {
        self.journal.load_at_or_before(run_id, cursor)
    }

    /// [`CheckpointStore::prune`].
    pub fn prune(&self, run_id: &RunId, policy: CheckpointPrunePolicy) -> Result<CheckpointPruneReport, AgentError> {
        self.journal.prune(run_id, policy)
    }
}
