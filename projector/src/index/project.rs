//! From a record to the rows that it changes. Pure: it reads rows and collects changes; nothing is written here.
//!
//! One file per index, named as in `store`; what only goes from state to state shares `evolving`. The order in [`record`] is the only coupling between them.

use crate::index::store::{
    self, Index, Key, Rows,
    anomalies::AnomalyRow,
    checkpoints::{CheckpointRow, by_id},
    meta,
    records::Bytes,
};
use runlog_schemas::{
    codec::{Envelope, Unreadable},
    datum::{Datum, Sha256},
    id::{ContentHash, Offset, PartitionId, RecordId, RunId},
    judge::{
        self, CallState, CheckpointState, Head, Reason, Seen, Verdict, View,
        lifecycle::{Family, State, Step},
    },
    partition::partition_of,
    record::RecordKind,
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
};

pub mod anomalies;
mod batch;
pub mod checkpoints;
pub mod contents;
pub mod dead_letters;
pub mod deliveries;
pub mod effects;
pub mod events;
mod evolving;
pub mod facts;
pub mod horizons;
pub mod keys;
pub mod markers;
pub mod pools;
pub mod records;
pub mod runs;
pub mod tool_calls;
pub mod turns;
pub mod write_backs;

/// A row as it is to be, or none where it is removed.
type Changed = Option<Vec<u8>>;

/// Rows as they will be once the collected changes are written.
pub struct Changes<'a, R> {
    rows: &'a R,
    pending: HashMap<Vec<u8>, Changed, foldhash::fast::RandomState>,
    /// Since [`Changes::begin`]: what stood where something was changed, oldest first.
    undo: Option<Vec<(Vec<u8>, Option<Changed>)>>,
}

impl<R> std::fmt::Debug for Changes<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes({})", self.pending.len())
    }
}

impl<'a, R: Rows> Changes<'a, R> {
    /// Nothing changed yet.
    pub fn new(rows: &'a R) -> Self {
        Self { rows, pending: HashMap::default(), undo: None }
    }

    /// From here on changes can be taken back.
    fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// What changed since [`Changes::begin`] stays.
    fn keep(&mut self) {
        self.undo = None;
    }

    /// Takes back what changed since [`Changes::begin`].
    fn rollback(&mut self) {
        for (key, before) in self.undo.take().unwrap_or_default().into_iter().rev() {
            match before {
                Some(before) => self.pending.insert(key, before),
                None => self.pending.remove(&key),
            };
        }
    }

    fn set(&mut self, key: Vec<u8>, row: Changed) {
        if let Some(undo) = &mut self.undo {
            let before = self.pending.insert(key.clone(), row);
            undo.push((key, before));
        } else {
            self.pending.insert(key, row);
        }
    }

    /// Reads a row, changes included.
    pub fn get<T: Datum>(&self, key: &Key) -> Result<Option<T>, store::Error> {
        match self.pending.get(key.bytes()) {
            Some(row) => row.as_deref().map(|row| store::decode(key.bytes(), row)).transpose(),
            None => self.rows.get(key),
        }
    }

    /// Whether there is a row, changes included.
    pub fn has(&self, key: &Key) -> Result<bool, store::Error> {
        match self.pending.get(key.bytes()) {
            Some(row) => Ok(row.is_some()),
            None => Ok(self.rows.row(key.bytes())?.is_some()),
        }
    }

    /// The rows whose keys start with `prefix`, changes included, in key order. One seek, a step per row, and one per
    /// change.
    pub fn under(&self, prefix: &Key) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, store::Error> {
        let mut found = BTreeMap::new();
        let prefix = prefix.bytes();
        self.rows.scan(prefix, prefix, rocksdb::Direction::Forward, &mut |key, row| {
            found.insert(key.to_vec(), row.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        for (key, row) in self.pending.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match row {
                Some(row) => found.insert(key.clone(), row.clone()),
                None => found.remove(key),
            };
        }
        Ok(found)
    }

    /// Sets a row.
    pub fn put<T: Datum>(&mut self, key: Key, row: &T) {
        self.set(key.into_bytes(), Some(row.to_bytes()));
    }

    /// Sets a row without content.
    pub fn mark(&mut self, key: Key) {
        self.set(key.into_bytes(), Some(Vec::new()));
    }

    /// Removes a row.
    pub fn remove(&mut self, key: Key) {
        self.set(key.into_bytes(), None);
    }

    /// What changed, in key order: neighbours in the memtable are inserted one after another, which finds their place
    /// from the last one's.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rows: Vec<_> = self.pending.iter().map(|(key, row)| (key.as_slice(), row.as_deref())).collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows.into_iter()
    }

    /// How many rows changed.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

/// Where a record stands, and the bytes that it came in.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The partition.
    pub partition: PartitionId,
    /// The offset.
    pub offset: Offset,
    /// The index within the offset.
    pub index: u32,
    /// When the log took it, milliseconds since the Unix epoch.
    pub logged_at_millis: i64,
    /// The record as an Avro single object; of what cannot be read, the bytes as they are.
    pub framed: &'a [u8],
}

/// A record that belongs to a run, and that run.
#[derive(Clone, Copy, Debug)]
pub struct OfRun<'e, 'd> {
    /// The run.
    pub run_id: RunId<&'d str>,
    record: &'e Envelope<'d>,
}

impl<'e, 'd> OfRun<'e, 'd> {
    /// None for a record that belongs to its partition.
    pub fn new(record: &'e Envelope<'d>) -> Option<Self> {
        record.run_id.map(|run_id| Self { run_id, record })
    }
}

impl<'d> std::ops::Deref for OfRun<'_, 'd> {
    type Target = Envelope<'d>;
    fn deref(&self) -> &Envelope<'d> {
        self.record
    }
}

/// What became of a run's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It took effect.
    Applied,
    /// It was judged before.
    Repeat {
        /// Where, and what came of it then.
        first: Seen,
        /// Whether it consumed a number all the same.
        numbered: bool,
    },
    /// It has no effect but an anomaly.
    Refused(Reason),
}

impl Effect {
    /// Why the record, or the one that it repeats, was refused.
    fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Applied => None,
            Self::Repeat { first, .. } => first.refused,
            Self::Refused(reason) => Some(*reason),
        }
    }

    /// Whether it did something, and does not stand as one applied record of its own where it is of this kind.
    fn is_kept_apart(&self, kind: RecordKind) -> bool {
        match self {
            Self::Applied => kind == RecordKind::Batch,
            Self::Repeat { first, numbered } => *numbered || first.refused.is_some(),
            Self::Refused(_) => true,
        }
    }
}

/// Takes in a run's record of a journal of `partitions`.
pub fn record<R: Rows>(
    record: OfRun<'_, '_>,
    at: At<'_>,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    if partition_of(record.run_id, partitions) != at.partition {
        anomalies::refused(record, at, Reason::WrongPartition, changes)?;
        return Ok(Effect::Refused(Reason::WrongPartition));
    }
    let effect = match record.kind {
        RecordKind::Batch => batch::record(record, at, changes)?,
        _ => one(record, at, changes)?,
    };
    if effect.is_kept_apart(record.kind) {
        deliveries::kept(record, at, changes);
    }
    Ok(effect)
}

/// Takes in a record, alone or of a batch.
fn one<R: Rows>(record: OfRun<'_, '_>, at: At<'_>, changes: &mut Changes<'_, R>) -> Result<Effect, store::Error> {
    let verdict = judge::judge(&record, &mut RunView { run_id: record.run_id, changes })?;
    settle(record, at, verdict, changes)
}

/// Does what a verdict says.
fn settle<R: Rows>(
    record: OfRun<'_, '_>,
    at: At<'_>,
    verdict: Verdict,
    changes: &mut Changes<'_, R>,
) -> Result<Effect, store::Error> {
    match verdict {
        Verdict::Applied { head, no_op } => {
            runs::applied(record, at, head, changes);
            records::applied(record, at, changes);
            contents::kept(record, at, changes);
            events::applied(record, at, changes);
            if no_op {
                facts::repeated(record, at, changes)?;
            } else {
                indexed(record, at, changes)?;
            }
            Ok(Effect::Applied)
        }
        Verdict::Repeat { first, head } => {
            let numbered = runs::numbered(record, head, changes)?;
            anomalies::repeated(record, at, &first, changes);
            Ok(Effect::Repeat { first, numbered })
        }
        Verdict::Refused { reason, head } => {
            runs::numbered(record, head, changes)?;
            anomalies::refused(record, at, reason, changes)?;
            if matches!(reason, Reason::Fenced | Reason::Ended) {
                effects::evidence(record, at, reason, changes)?;
            }
            Ok(Effect::Refused(reason))
        }
    }
}

/// The indices of what the record speaks of.
fn indexed<R: Rows>(record: OfRun<'_, '_>, at: At<'_>, changes: &mut Changes<'_, R>) -> Result<(), store::Error> {
    match record.kind {
        RecordKind::ToolCall | RecordKind::EffectResolution => {
            tool_calls::applied(record, at, changes)?;
            effects::applied(record, at, changes)?;
            if record.facts.payload_type == "tool_call_requested" {
                keys::requested(record, at, changes);
            }
        }
        RecordKind::LoopCheckpoint | RecordKind::CheckpointPrune => checkpoints::applied(record, at, changes)?,
        RecordKind::ConversationTurn => turns::applied(record, at, changes),
        RecordKind::Retraction => facts::retracted(record, at, changes)?,
        _ if record.facts.payload_type == "recovery" => markers::applied(record, at, changes),
        _ => match Step::of(&record) {
            Some(step) => stepped(record, &step, at, changes)?,
            None => facts::repeated(record, at, changes)?,
        },
    }
    Ok(())
}

/// The index of what goes from state to state.
fn stepped<R: Rows>(
    record: OfRun<'_, '_>,
    step: &Step<'_>,
    at: At<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    match (step.family, evolving::index(step.family)) {
        (_, None) => effects::stepped(record, step, at, changes),
        (Family::WriteBack, _) => write_backs::applied(record, step, at, changes),
        (Family::Pool, _) => pools::applied(record, step, at, changes),
        (_, Some(index)) => evolving::applied(index, record, step, at, changes),
    }
}

/// Takes in bytes that cannot be read and do not stop the partition.
pub fn dead_letter<R: Rows>(at: At<'_>, why: &Unreadable, changes: &mut Changes<'_, R>) {
    dead_letters::unreadable(at, why, changes);
}

/// The judge's questions, answered from the rows of one run.
struct RunView<'v, 'a, R> {
    run_id: RunId<&'v str>,
    changes: &'v mut Changes<'a, R>,
}

impl<R: Rows> View for RunView<'_, '_, R> {
    type Error = store::Error;

    fn head(&mut self) -> Result<Head, store::Error> {
        let row: Option<store::runs::RunRow> = self.changes.get(&store::runs::key(self.run_id))?;
        Ok(row.map(|row| row.head).unwrap_or_default())
    }

    fn seen(&mut self, record_id: RecordId<&str>) -> Result<Option<Seen>, store::Error> {
        store::seen(self.run_id, record_id, |key| self.changes.get(key))
    }

    fn seen_again(&mut self, record_id: RecordId<&str>, content: ContentHash) -> Result<Option<Seen>, store::Error> {
        self.changes.get(&store::anomalies::by_content(self.run_id, record_id, content))
    }

    fn call(&mut self, request_record_id: RecordId<&str>) -> Result<Option<CallState>, store::Error> {
        let row: Option<store::tool_calls::CallRow> =
            self.changes.get(&store::tool_calls::key(self.run_id, request_record_id))?;
        Ok(row.map(|row| row.state()))
    }

    fn state(&mut self, family: Family, key: &str) -> Result<Option<State>, store::Error> {
        match evolving::index(family) {
            Some(index) => Ok(evolving::row(index, self.run_id, key, self.changes)?.map(|row| row.state)),
            None => effects::state(family, self.run_id, key, self.changes),
        }
    }

    fn checkpoint(&mut self, checkpoint_id: &str) -> Result<Option<CheckpointState>, store::Error> {
        let row: Option<CheckpointRow> = self.changes.get(&by_id(self.run_id, checkpoint_id))?;
        Ok(row.map(|row| CheckpointState { messages: row.list.messages, pruned: row.pruned }))
    }

    fn message_bytes(&mut self, checkpoint_id: &str, from: u64, count: u64) -> Result<u64, store::Error> {
        let row: Option<CheckpointRow> = self.changes.get(&by_id(self.run_id, checkpoint_id))?;
        row.map_or(Ok(0), |row| checkpoints::bytes_of(self.changes, self.run_id, &row.list, from, count))
    }
}

/// The bytes of a record as a row keeps them.
fn framed(at: At<'_>) -> Bytes {
    Bytes(at.framed.to_vec())
}

/// Marks how far the store is: in the same batch as the rows.
pub fn progress<R: Rows>(next_offset: Offset, offset: Offset, value: &[u8], changes: &mut Changes<'_, R>) {
    let last = Some(meta::Last { offset, hash: Sha256::of(value) });
    changes.put(meta::progress(), &meta::Progress { next_offset, last });
}

/// Counts and digests one index: SHA-256 over its rows in key order, each as length-prefixed key and row.
pub fn digest<R: Rows>(rows: &R, index: Index) -> Result<(u64, Sha256), store::Error> {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    let mut count = 0u64;
    let prefix = [index.byte];
    rows.scan(&prefix, &prefix, rocksdb::Direction::Forward, &mut |key, row| {
        count += 1;
        for part in [key, row] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((count, Sha256(hasher.finalize().into())))
}

/// The row of an anomaly.
fn anomaly_row(record: OfRun<'_, '_>, reason: Reason) -> AnomalyRow {
    AnomalyRow {
        run_id: record.run_id.to_owned(),
        record_id: record.record_id.to_owned(),
        reason,
        writer_id: record.writer_id.into(),
        writer_epoch: record.writer_epoch,
    }
}
