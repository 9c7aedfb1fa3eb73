//! Saved checkpoints: loop checkpoints of Runlog whose `state` is the SDK's checkpoint, and prunes of them.
//!
//! The store's content follows from its records in log order: a checkpoint replaces one with the same id, and a prune removes
//! checkpoints by its policy. Runlog's own `checkpoint` and `recover` read the same records. A terminal checkpoint that the
//! SDK's prune keeps and Runlog's prune hides is saved again after the prune.

use super::{
    append::retry_until_known,
    inner::Inner,
    numbers::Numbers,
    record,
    sdk_error::{foreign, sdk_error},
};
use crate::record_list::{self, List};
use ::agent_sdk_core::{
    AgentError, CheckpointPrunePolicy, CheckpointPruneReport, CheckpointSaveOutcome, RunCheckpoint, RunId,
};
use runlog_producer::{
    self as producer, Json, Writer,
    id::{self, JournalSeq, RecordId},
    payload::{CheckpointPrune, LoopCheckpoint, Payload},
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The list of a run's checkpoints and prunes.
fn checkpoint_list(run_id: &id::RunId) -> List {
    List::new("agent-sdk-core.checkpoints", &[run_id.as_str()])
}

/// The list of the saves of one checkpoint id.
fn saves_list(run_id: &id::RunId, checkpoint_id: &str) -> List {
    List::new("agent-sdk-core.checkpoint", &[run_id.as_str(), checkpoint_id])
}

/// Longer ids are not looked up.
const ID_BYTES_MAX: usize = 512;
/// A terminal checkpoint whose state is longer gets a long id from the start: saved again under a long id, its record would
/// exceed the record limit.
const LONG_ID_STATE_BYTES: usize = 512 << 10;
/// Random digits in the id of a checkpoint that is saved again after a prune; fewer than in a long id.
const RESAVE_DIGITS: usize = 12;
/// The member of a prune that holds the SDK's policy.
const POLICY: &str = "/payload/agent_sdk_core";

impl Inner {
    /// The run's checkpoints after all saves and prunes.
    pub(super) async fn checkpoints(&self, run_id: &id::RunId) -> Result<Vec<RunCheckpoint>, AgentError> {
        Ok(self.store(run_id).await?.checkpoints)
    }

    async fn store(&self, run_id: &id::RunId) -> Result<Store, AgentError> {
        let mut store = Store::default();
        for record in self.read(run_id, &checkpoint_list(run_id).filter()).await? {
            match &record.payload {
                Payload::LoopCheckpoint(saved) => store.put(sdk_checkpoint(saved)?, saved.covers_journal_seq),
                Payload::CheckpointPrune(prune) => store.prune(policy(&record)?, prune.prune_covered_before),
                _ => {}
            }
        }
        Ok(store)
    }

    pub(super) async fn save(&self, checkpoint: RunCheckpoint) -> Result<CheckpointSaveOutcome, AgentError> {
        let run_id = self.run_id(&checkpoint.run_id)?;
        let numbers = self.numbers(&run_id);
        let mut cached = numbers.lock().await;
        let writer = self.writers.writer(&run_id).await.map_err(|error| sdk_error(&error, false))?;
        let numbers = self.load_numbers(&run_id, &writer, &mut cached).await?;
        let record = self.save_record(&writer, numbers, &checkpoint, false).await?;
        let write = || {
            let (writer, record) = (writer.clone(), record.clone());
            async move { writer.write(record).await }
        };
        retry_until_known(self.patience, write).await?;
        Ok(CheckpointSaveOutcome {
            terminal_checkpoint: terminal(&checkpoint),
            covers_journal_seq: checkpoint.covers_journal_seq,
            checkpoint_ref: checkpoint.checkpoint_id,
        })
    }

    /// The record of a save, or of a save that repeats one `after_prune`. Its id is the SDK's, made unique if that was saved before.
    async fn save_record(
        &self,
        writer: &Writer,
        numbers: &Numbers,
        checkpoint: &RunCheckpoint,
        after_prune: bool,
    ) -> Result<producer::JournalRecord, AgentError> {
        let id = &checkpoint.checkpoint_id;
        let state = Json::of(checkpoint).map_err(|error| AgentError::contract_violation(error.to_string()))?;
        let needs_long_id = terminal(checkpoint) && state.as_str().len() > LONG_ID_STATE_BYTES;
        let free = !after_prune
            && !needs_long_id
            && (1..=ID_BYTES_MAX).contains(&id.len())
            && self.read(writer.id(), &saves_list(writer.id(), id).filter()).await?.is_empty();
        let unique = uuid::Uuid::new_v4();
        let digits = unique.simple().to_string();
        let mut loop_checkpoint = LoopCheckpoint {
            checkpoint_id: match (free, after_prune) {
                (true, _) => id.clone(),
                (_, true) => format!("{id}@{}", &digits[..RESAVE_DIGITS]),
                _ => format!("{id}@{unique}"),
            },
            checkpoint_seq: bounded(checkpoint.checkpoint_seq),
            covers_journal_seq: JournalSeq::new(numbers.ours(checkpoint.covers_journal_seq)).unwrap_or_default(),
            base: None,
            unanswered: Vec::new(),
            schema_version: 1,
            session_id: String::new(),
            turn: 0,
            messages: Vec::new(),
            spans: Vec::new(),
            total_usage: None,
            tool_calls_count: 0,
            verification_reports: Vec::new(),
            state: Some(state),
            state_hash: String::new(),
            created_at_millis: bounded(checkpoint.created_at_millis),
        };
        loop_checkpoint.state_hash = loop_checkpoint.content_hash();
        let mut record = writer.draft(None, loop_checkpoint).map_err(|error| sdk_error(&error, false))?;
        record_list::add(&mut record, &[checkpoint_list(writer.id()), saves_list(writer.id(), id)]);
        Ok(record)
    }

    pub(super) async fn prune(
        &self,
        sdk_run_id: RunId,
        policy: CheckpointPrunePolicy,
    ) -> Result<CheckpointPruneReport, AgentError> {
        let run_id = self.run_id(&sdk_run_id)?;
        let numbers = self.numbers(&run_id);
        let mut cached = numbers.lock().await;
        let before = report(&sdk_run_id, &self.store(&run_id).await?, policy);
        if before.is_nothing() {
            return Ok(before.report);
        }
        let writer = self.writers.writer(&run_id).await.map_err(|error| sdk_error(&error, false))?;
        let numbers = self.load_numbers(&run_id, &writer, &mut cached).await?;
        // After the claim, and once earlier writes are settled, no other process saves: the store is final.
        writer.next().await.map_err(|error| sdk_error(&error, false))?;
        let store = self.store(&run_id).await?;
        let pruning = report(&sdk_run_id, &store, policy);
        let covers = |checkpoint: &RunCheckpoint| numbers.ours(checkpoint.covers_journal_seq);
        let by_number = |checkpoint: &&RunCheckpoint| checkpoint.covers_journal_seq >= policy.prune_covered_before;
        // Runlog hides checkpoints that cover less than this. Terminal checkpoints that the SDK keeps are saved again.
        let mut least = pruning.checkpoints.iter().filter(by_number).map(covers).min();
        let mut records = Vec::new();
        if pruning.report.pruned_count > 0 {
            let all = store.checkpoints.iter().map(covers).max().unwrap_or_default() + 1;
            records.push(prune(&writer, *least.get_or_insert(all), policy)?);
        } else {
            least = None;
        }
        let hides = |checkpoint: &RunCheckpoint| {
            store.hidden.contains(&checkpoint.checkpoint_id) || least.is_some_and(|least| covers(checkpoint) < least)
        };
        for hidden in pruning.checkpoints.iter().filter(|checkpoint| hides(checkpoint)) {
            records.push(self.save_record(&writer, numbers, hidden, true).await?);
        }
        self.put(&writer, records).await?;
        Ok(pruning.report)
    }

    /// Writes records together, or one by one if they are too large for a batch. If that is interrupted, this store still
    /// returns the hidden checkpoints, and the next prune saves them again.
    async fn put(&self, writer: &Arc<Writer>, records: Vec<producer::JournalRecord>) -> Result<(), AgentError> {
        if records.is_empty() {
            return Ok(());
        }
        let id = RecordId::new(uuid::Uuid::new_v4().to_string())
            .map_err(|illegal| AgentError::contract_violation(illegal.to_string()))?;
        let write = || {
            let (writer, id, records) = (writer.clone(), id.clone(), records.clone());
            async move { writer.batch(id, records).await }
        };
        match retry_until_known(self.patience, write).await {
            Err(failed) if failed.is_too_large() => {}
            done => return Ok(done.map(drop)?),
        }
        for record in records {
            let write = || {
                let (writer, record) = (writer.clone(), record.clone());
                async move { writer.write(record).await }
            };
            retry_until_known(self.patience, write).await?;
        }
        Ok(())
    }
}

/// The store's content after a run's records.
#[derive(Debug, Default)]
struct Store {
    /// In the order of their saves.
    checkpoints: Vec<RunCheckpoint>,
    /// By id, Runlog's `covers_journal_seq`.
    covers: BTreeMap<String, JournalSeq>,
    /// Ids of checkpoints that a prune hid from Runlog's own answers and that were not saved again.
    hidden: BTreeSet<String>,
}

impl Store {
    fn put(&mut self, checkpoint: RunCheckpoint, covers: JournalSeq) {
        self.hidden.remove(&checkpoint.checkpoint_id);
        self.covers.insert(checkpoint.checkpoint_id.clone(), covers);
        put(&mut self.checkpoints, checkpoint);
    }

    fn prune(&mut self, policy: CheckpointPrunePolicy, before: JournalSeq) {
        apply_policy(&mut self.checkpoints, policy);
        let ids = self.checkpoints.iter().map(|checkpoint| &checkpoint.checkpoint_id);
        let below = ids.filter(|id| self.covers.get(*id).is_some_and(|covers| *covers < before));
        self.hidden.extend(below.cloned());
    }
}

/// The outcome of a prune.
struct Pruning {
    /// The checkpoints that remain.
    checkpoints: Vec<RunCheckpoint>,
    /// Whether a remaining checkpoint is hidden and must be saved again, even if the prune removes none.
    hidden: bool,
    report: CheckpointPruneReport,
}

impl Pruning {
    fn is_nothing(&self) -> bool {
        self.report.pruned_count == 0 && !self.hidden
    }
}

fn report(run_id: &RunId, store: &Store, policy: CheckpointPrunePolicy) -> Pruning {
    let mut checkpoints = store.checkpoints.clone();
    let preserved = apply_policy(&mut checkpoints, policy);
    let report = CheckpointPruneReport {
        run_id: run_id.clone(),
        pruned_count: store.checkpoints.len() - checkpoints.len(),
        retained_count: checkpoints.len(),
        preserved_terminal_checkpoint: preserved,
    };
    let hidden = checkpoints.iter().any(|checkpoint| store.hidden.contains(&checkpoint.checkpoint_id));
    Pruning { checkpoints, hidden, report }
}

/// A number of the SDK that is used for ordering only.
fn bounded(number: u64) -> u64 {
    number.min(i64::MAX.unsigned_abs())
}

fn prune(writer: &Writer, least: u64, policy: CheckpointPrunePolicy) -> Result<producer::JournalRecord, AgentError> {
    let prune_covered_before = JournalSeq::new(least).unwrap_or(JournalSeq::MAX);
    let prune = CheckpointPrune { prune_covered_before, preserve_latest_terminal: false };
    let mut record = writer.draft(None, prune).map_err(|error| sdk_error(&error, false))?;
    record_list::add(&mut record, &[checkpoint_list(writer.id())]);
    let policy = serde_json::to_value(policy).map_err(|error| AgentError::contract_violation(error.to_string()))?;
    record.body.unknown_fields = Some(Value::Object(Map::from_iter([(POLICY.to_owned(), policy)])).to_string());
    Ok(record)
}

fn policy(record: &producer::JournalRecord) -> Result<CheckpointPrunePolicy, AgentError> {
    let policy = record::sdk_members(record)?.remove(POLICY).unwrap_or_default();
    serde_json::from_value(policy).map_err(|error| foreign(&format!("prune {}", record.body.record_id), &error))
}

fn sdk_checkpoint(saved: &LoopCheckpoint) -> Result<RunCheckpoint, AgentError> {
    let state = saved.state.as_ref().map_or("null", Json::as_str);
    serde_json::from_str(state).map_err(|error| foreign(&format!("checkpoint {}", saved.checkpoint_id), &error))
}

/// The SDK's order.
fn rank(checkpoint: &RunCheckpoint) -> (u64, u64, u64) {
    (checkpoint.covers_journal_seq, checkpoint.checkpoint_seq, checkpoint.created_at_millis)
}

/// The latest checkpoint that covers up to `at` (inclusive); of equal checkpoints the last saved.
pub(super) fn latest(checkpoints: &[RunCheckpoint], at: u64) -> Option<&RunCheckpoint> {
    checkpoints
        .iter()
        .filter(|checkpoint| checkpoint.covers_journal_seq <= at)
        .max_by_key(|checkpoint| rank(checkpoint))
}

fn put(checkpoints: &mut Vec<RunCheckpoint>, checkpoint: RunCheckpoint) {
    checkpoints.retain(|other| other.checkpoint_id != checkpoint.checkpoint_id);
    checkpoints.push(checkpoint);
}

/// Removes checkpoints by the policy. Returns the id of the terminal checkpoint that is kept regardless.
fn apply_policy(checkpoints: &mut Vec<RunCheckpoint>, policy: CheckpointPrunePolicy) -> Option<String> {
    let terminals = || checkpoints.iter().filter(|checkpoint| policy.preserve_latest_terminal && terminal(checkpoint));
    let preserved = terminals().max_by_key(|checkpoint| rank(checkpoint)).map(|latest| latest.checkpoint_id.clone());
    checkpoints.retain(|checkpoint| {
        checkpoint.covers_journal_seq >= policy.prune_covered_before
            || preserved.as_ref() == Some(&checkpoint.checkpoint_id)
    });
    preserved
}

/// Whether the SDK counts the loop state as terminal.
fn terminal(checkpoint: &RunCheckpoint) -> bool {
    let state = checkpoint.loop_state.to_ascii_lowercase();
    state.starts_with("terminal:") || matches!(state.as_str(), "completed" | "failed" | "cancelled" | "terminal")
}
