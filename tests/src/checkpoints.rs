//! Runs with a checkpoint after every turn: measures their cost, and checks that each checkpoint is read back identical.

use std::{cell::Cell, collections::HashSet, ops::ControlFlow, sync::Arc};

use anyhow::{Context, ensure};
use rocksdb::Direction;
use runlog_log::Delivery;
use runlog_projector::{
    Contents,
    index::{
        bulk,
        fold::{Fold, Step},
        query,
        store::{self, Budget, INDICES, Rows, Store, Visit, checkpoints, horizons::Horizons, meta},
    },
};
use runlog_schemas::{
    codec,
    datum::Sha256,
    id::{JournalSeq, Offset, PartitionId, RunId},
    json::Json,
    messages::MessageList,
    payload::{Genesis, LoopCheckpoint},
    record::JournalRecord,
};

use crate::{
    agent::{Agent, id},
    checkpoints::stories::{Story, Telling},
    random::Random,
    recorded,
};

pub mod stories;

/// The topic and partition of positions.
const PLACE: query::TopicPartition<'_> =
    query::TopicPartition { topic: "test", partition: PartitionId::ZERO, log: None };

/// A journal of one partition, folded as the projector does it, without a server.
pub struct Journal {
    store: Arc<Store>,
    fold: Fold,
    log: Vec<Delivery>,
    /// The number of folded records of the log.
    folded: usize,
    /// Holds the rows.
    _folder: tempfile::TempDir,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal of {} records", self.log.len())
    }
}

impl Journal {
    /// An empty journal.
    pub fn new() -> anyhow::Result<Self> {
        let genesis = Genesis { journal_id: "test".into(), partitions: 1 };
        let mut journal = Self::over(Vec::new())?;
        journal.append(&JournalRecord::of_partition(id("genesis"), "test", genesis.into()));
        Ok(journal)
    }

    fn over(log: Vec<Delivery>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Store::open(folder.path(), &Budget::new(64 << 20))?);
        let identity = meta::Journal { journal_id: "test".into(), partitions: 1 };
        let fold = Fold::resume(PartitionId::ZERO, identity, store.clone(), Arc::new(codec::NoRegistry))?;
        Ok(Self { store, fold, log, folded: 0, _folder: folder })
    }

    /// Appends a record and returns its size in the log, bytes.
    pub fn append(&mut self, record: &JournalRecord) -> u64 {
        let value = codec::encode(record);
        let bytes = value.len() as u64;
        let (partition, offset) = (PartitionId::ZERO, Offset::ZERO.saturating_add(self.log.len() as u64));
        let (key, headers) = (Vec::new(), Vec::new());
        self.log.push(Delivery { partition, offset, timestamp_millis: 0, key, value, headers });
        bytes
    }

    /// Folds the appended records, in batches of `batch` records.
    pub fn fold(&mut self, batch: usize) -> anyhow::Result<()> {
        for records in self.log[self.folded..].chunks(batch) {
            let step = self.fold.apply_batch(records)?;
            ensure!(step == Step::Applied, "{step:?}");
        }
        self.folded = self.log.len();
        Ok(())
    }

    /// The rows.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The reasons of the refused records, in order.
    pub fn refused(&self) -> anyhow::Result<Vec<String>> {
        let mut reasons = Vec::new();
        let prefix = store::anomalies::prefix();
        self.store.scan(prefix.bytes(), prefix.bytes(), Direction::Forward, &mut |key, row| {
            let row: store::anomalies::AnomalyRow = store::decode(key, row)?;
            reasons.push(format!("{} {}", row.record_id, row.reason.as_str()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(reasons)
    }

    /// Count and digest of each index.
    pub fn digests(&self) -> anyhow::Result<Vec<(u64, Sha256)>> {
        INDICES.into_iter().map(|index| Ok(bulk::digest(&*self.store, index)?)).collect()
    }

    /// The same log folded again from its first record, in batches of another size.
    pub fn rebuilt(&self, batch: usize) -> anyhow::Result<Self> {
        let mut rebuilt = Self::over(self.log.clone())?;
        rebuilt.fold(batch)?;
        Ok(rebuilt)
    }

    /// Rows of the index `checkpoints` without the messages: their count, their bytes with keys, and the largest row, bytes.
    pub fn list_rows(&self) -> anyhow::Result<(u64, u64, u64)> {
        let (mut rows, mut bytes, mut largest) = (0, 0, 0);
        let prefix = [checkpoints::INDEX.byte];
        let messages = store::checkpoints::message_prefix(RunId::new("any")?);
        self.store.scan(&prefix, &prefix, Direction::Forward, &mut |key, row| {
            // The second byte is the row family.
            if key[1] != messages.bytes()[1] {
                (rows, bytes) = (rows + 1, bytes + (key.len() + row.len()) as u64);
                largest = largest.max(row.len() as u64);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((rows, bytes, largest))
    }

    /// Rows of messages: their count, and their bytes with keys.
    pub fn message_rows(&self) -> anyhow::Result<(u64, u64)> {
        let (mut rows, mut bytes) = (0, 0);
        let messages = store::checkpoints::message_prefix(RunId::new("any")?);
        let prefix = &messages.bytes()[..2];
        self.store.scan(prefix, prefix, Direction::Forward, &mut |key, row| {
            (rows, bytes) = (rows + 1, bytes + (key.len() + row.len()) as u64);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((rows, bytes))
    }

    /// A checkpoint by id, with its messages, and the cost of reading it.
    pub fn load(&self, run_id: &str, id: &str) -> anyhow::Result<(Option<LoopCheckpoint>, Read)> {
        let counted = Counted { rows: &self.store, read: Cell::default() };
        let loaded = match query::checkpoint::load(
            &counted,
            &Contents::none(),
            &Horizons::default(),
            PLACE,
            RunId::new(run_id)?,
            id,
        )? {
            query::checkpoint::Loaded::Valid(_, checkpoint) => Some(*checkpoint),
            query::checkpoint::Loaded::Invalid => None,
            query::checkpoint::Loaded::Lost(lost) => anyhow::bail!("{lost:?}"),
        };
        Ok((loaded, counted.read.get()))
    }
}

impl Journal {
    /// Id and messages of the latest checkpoint that covers at most `at_or_before`.
    pub fn latest(&self, run_id: &str, at_or_before: u64) -> anyhow::Result<Option<(String, Vec<Json>)>> {
        let loaded = query::checkpoint::latest(
            &*self.store,
            &Contents::none(),
            PLACE,
            RunId::new(run_id)?,
            Some(JournalSeq::ZERO.saturating_add(at_or_before)),
        )?;
        Ok(loaded.checkpoint.map(|(row, checkpoint)| (row.checkpoint_id, checkpoint.messages)))
    }
}

/// Counts of reads of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// Rows.
    pub rows: u64,
    /// Their bytes, without keys.
    pub bytes: u64,
    /// Seeks, of single rows and of scans.
    pub seeks: u64,
}

struct Counted<'a> {
    rows: &'a Store,
    read: Cell<Read>,
}

impl Counted<'_> {
    fn count(&self, rows: u64, bytes: usize, seeks: u64) {
        let read = self.read.get();
        let (rows, bytes, seeks) = (read.rows + rows, read.bytes + bytes as u64, read.seeks + seeks);
        self.read.set(Read { rows, bytes, seeks });
    }
}

impl Rows for Counted<'_> {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, store::Error> {
        let row = self.rows.row(key)?;
        self.count(u64::from(row.is_some()), row.as_ref().map_or(0, Vec::len), 1);
        Ok(row)
    }

    fn scan(&self, prefix: &[u8], start: &[u8], backend: Direction, visit: &mut Visit<'_>) -> Result<(), store::Error> {
        self.count(0, 0, 1);
        self.rows.scan(prefix, start, backend, &mut |key, row| {
            self.count(1, row.len(), 0);
            visit(key, row)
        })
    }
}

/// The costs of a run's checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Turns, each with a checkpoint.
    pub turns: u64,
    /// Bytes of the distinct messages of all lists.
    pub messages: u64,
    /// Bytes of all lists: the cost of checkpoints without a base.
    pub naive: u64,
    /// Bytes of the checkpoint records in the log.
    pub log: u64,
    /// Bytes of the messages in the log's records; repeated messages count each time.
    pub brought: u64,
    /// Bytes of the rows of messages.
    pub message_rows: u64,
    /// Bytes of the rows that describe the lists.
    pub list_rows: u64,
    /// Bytes of the largest row that describes a list.
    pub list_row_max: u64,
    /// Rows other than its messages that one load read, at most.
    pub rows_read_beyond_max: u64,
    /// Bytes other than its messages that one load read, at most.
    pub bytes_read_beyond_max: u64,
    /// Seeks of one load at most.
    pub seeks_max: u64,
}

/// Runs `story` for `turns` turns, saves a checkpoint after each, and loads every checkpoint.
pub fn measure(story: Story, turns: u64, seed: u64) -> anyhow::Result<Costs> {
    let mut journal = Journal::new()?;
    let mut costs = Costs::default();
    let mut writer = Writer::new("run");
    let mut telling = Telling::new(story, Random::new(seed));
    for _ in 0..turns {
        writer.save(telling.add_turn(), &mut journal, &mut costs);
    }
    finish(&mut journal, &mut costs)?;
    let mut telling = Telling::new(story, Random::new(seed));
    for turn in 1..=turns {
        check(&journal, "run", turn, telling.add_turn(), &mut costs).with_context(|| format!("{story:?}"))?;
    }
    Ok(costs)
}

/// The costs of all runs of a file.
#[derive(Debug)]
pub struct Recorded {
    /// The number of runs.
    pub runs: usize,
    /// Their costs together.
    pub costs: Costs,
}

/// Saves the checkpoints of the recorded runs of a file, and loads every checkpoint.
pub fn recorded_file(format: &str, file: &std::path::Path) -> anyhow::Result<Recorded> {
    let runs = recorded::read(format, file)?;
    let mut journal = Journal::new()?;
    let mut costs = Costs::default();
    let lists: Vec<Vec<Json>> = runs.iter().map(|run| run.messages.iter().cloned().map(Json::from).collect()).collect();
    for (run, list) in runs.iter().zip(&lists) {
        let mut writer = Writer::new(&run.id);
        run.checkpoints.iter().for_each(|count| writer.save(&list[..*count], &mut journal, &mut costs));
    }
    finish(&mut journal, &mut costs)?;
    for (run, list) in runs.iter().zip(&lists) {
        for (number, count) in (1..).zip(&run.checkpoints) {
            check(&journal, &run.id, number, &list[..*count], &mut costs)?;
        }
    }
    Ok(Recorded { runs: runs.len(), costs })
}

/// Writes a run's checkpoints, each based on the previous one.
struct Writer {
    agent: Agent,
    list: MessageList,
    before: Option<String>,
    known: HashSet<Json>,
}

impl Writer {
    fn new(run_id: &str) -> Self {
        Self { agent: Agent::new(run_id), list: MessageList::default(), before: None, known: HashSet::new() }
    }

    fn save(&mut self, messages: &[Json], journal: &mut Journal, costs: &mut Costs) {
        let change = self.list.change(messages);
        costs.turns += 1;
        costs.naive += change.list.bytes() as u64;
        for message in &change.messages {
            let bytes = message.as_str().len() as u64;
            costs.brought += bytes;
            costs.messages += if self.known.insert(message.clone()) { bytes } else { 0 };
        }
        let record = self.agent.changed(self.before.as_deref(), &change);
        costs.log += journal.append(&record);
        self.before.clone_from(&record.body.facts.checkpoint_id);
        self.list = change.list;
    }
}

/// Folds, and measures the rows.
fn finish(journal: &mut Journal, costs: &mut Costs) -> anyhow::Result<()> {
    journal.fold(1024)?;
    ensure!(journal.refused()?.is_empty(), "refused: {:?}", journal.refused()?);
    let (_, list_rows, largest) = journal.list_rows()?;
    (costs.list_rows, costs.list_row_max) = (list_rows, largest);
    costs.message_rows = journal.message_rows()?.1;
    Ok(())
}

/// Compares a loaded checkpoint with the saved messages, and counts the cost of the load.
fn check(journal: &Journal, run_id: &str, number: u64, expected: &[Json], costs: &mut Costs) -> anyhow::Result<()> {
    let (loaded, read) = journal.load(run_id, &format!("checkpoint-{number}"))?;
    let loaded = loaded.with_context(|| format!("checkpoint {number} of {run_id} is not valid"))?;
    ensure!(loaded.messages == expected, "checkpoint {number} of {run_id} has other messages than were saved");
    let bytes: u64 = expected.iter().map(|message| message.as_str().len() as u64).sum();
    costs.rows_read_beyond_max = costs.rows_read_beyond_max.max(read.rows.saturating_sub(expected.len() as u64));
    costs.bytes_read_beyond_max = costs.bytes_read_beyond_max.max(read.bytes.saturating_sub(bytes));
    costs.seeks_max = costs.seeks_max.max(read.seeks);
    Ok(())
}
