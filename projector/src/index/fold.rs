//! One partition's fold: deliveries in, one write batch out. The live loop, a rebuild and a verification run this same
//! code, so they cannot differ.
//!
//! ```text
//!   delivery ─▶ reframe ─▶ decode ─▶ skipped? ─┬─▶ Voided::project (yes)
//!                                             ├─▶ genesis (homes), skip, horizon (the partition's own)
//!                                             ├─▶ project::delivery (a run's)
//!                                             ├─▶ dead letter (unreadable; the fold continues)
//!                                             ├─▶ stop (a schema that this build does not know)
//!                                             └─▶ wait (a schema that the registry has not resolved yet)
//! ```
//!
//! Rows contain records as Avro single objects, even if the log has the Confluent framing, so reads need no registry.

use super::{
    claimant::claimant,
    failpoint::{self, Failpoints},
    home::HomeState,
    project::{self, Changes, NewRuns, RecordContext, RunRecord, Standing},
    store::{self, Commit, Rows, Store, anomalies, dead_letters, meta},
};
use runlog_log::Delivery;
use runlog_schemas::{
    codec::{self, Envelope, Schemas, Unreadable},
    id::{Offset, PartitionId},
    payload::{Genesis, Payload, Skip},
    record::RecordKind,
    symbols,
};
use std::{borrow::Cow, collections::BTreeMap, ops::ControlFlow, sync::Arc};

mod homes;
mod voided;

use homes::Uncommitted;
pub(crate) use homes::{Carrier, Effect, foreign_skip, replaces};
pub(crate) use voided::{Voided, read_voided};

symbols! {
    /// Why the index of a partition does not advance. `store`, `log`, `registry` and `index_damaged` are retried;
    /// `store_stalled` ends when the write returns.
    StopKind {
        UnknownSchema = "unknown_schema", NotAJournal = "not_a_journal", LogTruncated = "log_truncated",
        LogDiverged = "log_diverged", LogDamaged = "log_damaged", CannotRebuild = "cannot_rebuild",
        IndexDamaged = "index_damaged", Panic = "panic", Store = "store", Log = "log", Registry = "registry",
        StoreStalled = "store_stalled", ForeignLog = "foreign_log", ForeignSkip = "foreign_skip",
    }
}

impl StopKind {
    /// Whether the partition continues after a skip of the record at which it stopped. Other stops do not depend on the record.
    pub fn is_ended_by_skip(self) -> bool {
        matches!(self, Self::UnknownSchema | Self::Panic | Self::CannotRebuild | Self::ForeignSkip)
    }
}

/// The record at which a partition stopped, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The offset of the record that was not applied.
    pub offset: Offset,
    /// The reason, by the operator's response.
    pub kind: StopKind,
    /// The message: the failure, its subject and the remedy.
    pub error: String,
}

/// The result of folding a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All records were applied.
    Applied,
    /// All records before the stop were applied.
    Stopped(Stop),
    /// All records before a record with an unresolved schema were applied: fold the same batch again later. Contains the
    /// error if the registry fails.
    Waiting(Option<Stop>),
    /// A skip voids an applied record: the store must be rebuilt without that record. This store does not record the skip:
    /// until it is replaced, its fold reads the skip again after every restart.
    Rebuild {
        /// The voided offset.
        offset: Offset,
        /// The skip.
        row: meta::SkipRow,
    },
}

/// A partition's fold and its position.
#[derive(Debug)]
pub struct Fold<S = Store> {
    /// The partition.
    pub partition: PartitionId,
    /// The journal that it belongs to.
    pub journal: meta::Journal,
    /// The store that the fold writes.
    pub store: Arc<S>,
    /// The next offset to apply.
    pub next: Offset,
    /// Resolves the ids of the Confluent framing.
    pub schemas: Arc<dyn Schemas>,
    /// The voided offsets, each with its skip's own offset.
    skips: BTreeMap<Offset, Offset>,
    /// Whether the journal's genesis is applied.
    has_genesis: bool,
    /// The partition's home.
    known_home: Option<meta::HomeRow>,
    /// The server's knowledge of the home.
    home: Arc<HomeState>,
    /// The homes in records after a stop, which are read only for the skip that ends it.
    later_homes: BTreeMap<Offset, meta::HomeRow>,
    /// Whether the store may have records that were refused for their content.
    refusals: bool,
    /// Runs whose first record was applied by this fold.
    new_runs: NewRuns,
    failpoints: Failpoints,
}

impl<S: Commit> Fold<S> {
    /// Continues at the progress of `store`.
    pub fn resume(
        partition: PartitionId,
        journal: meta::Journal,
        store: Arc<S>,
        schemas: Arc<dyn Schemas>,
    ) -> Result<Self, store::Error> {
        let progress: meta::Progress = store.get(&meta::progress())?.unwrap_or_default();
        let (next, skips, failpoints) = (progress.next_offset, skips_of(&*store)?, Failpoints::default());
        let has_genesis = store.row(meta::journal().bytes())?.is_some();
        let home = HomeState::new(None, None);
        let of_journal = store.get::<meta::Journal>(&meta::journal())?.is_some_and(|of| of == journal);
        let known_home = if of_journal { store.get(&meta::home())? } else { None };
        let refusals = has_refusals(&*store)?;
        let new_runs = NewRuns::for_partitions(journal.partitions);
        Ok(Self {
            partition,
            journal,
            store,
            next,
            schemas,
            skips,
            has_genesis,
            known_home,
            home,
            later_homes: BTreeMap::new(),
            refusals,
            new_runs,
            failpoints,
        })
    }

    /// Sets the functions to call at the points of [`failpoint`].
    #[must_use]
    pub fn with_failpoints(self, failpoints: Failpoints) -> Self {
        Self { failpoints, ..self }
    }

    /// A fold of the same partition over another store, which must be empty. Copies the skips to it.
    pub(crate) fn with_empty_store(&self, store: Arc<S>) -> Result<Self, store::Error> {
        let fold = Self::resume(self.partition, self.journal.clone(), store, self.schemas.clone())?;
        let mut fold = fold.with_failpoints(self.failpoints.clone()).with_home(self.home.clone());
        fold.copy_skips_from(self)?;
        Ok(fold)
    }

    /// A new fold over the same store, at the position that another writer has committed.
    pub(crate) fn reload(&self) -> Result<Self, store::Error> {
        let fold = Self::resume(self.partition, self.journal.clone(), self.store.clone(), self.schemas.clone())?;
        Ok(fold.with_failpoints(self.failpoints.clone()).with_home(self.home.clone()))
    }

    /// Copies the skips of another fold's store; they apply from the first record on.
    pub fn copy_skips_from(&mut self, other: &Self) -> Result<(), store::Error> {
        skip_rows_of(&*other.store)?.iter().try_for_each(|(offset, row)| self.void(*offset, row))
    }

    /// Voids `offset` at once, in a batch of its own.
    pub fn void(&mut self, offset: Offset, row: &meta::SkipRow) -> Result<(), store::Error> {
        let store = self.store.clone();
        let mut changes = Changes::new(&*store);
        changes.put(meta::skip(offset), row);
        store.commit(changes.rows())?;
        self.skips.insert(offset, row.at);
        Ok(())
    }

    /// Applies a batch in offset order and ignores records below `next`. All rows and the new progress are one write batch:
    /// after an error the store is unchanged.
    pub fn apply_batch(&mut self, batch: &[Delivery]) -> Result<Step, store::Error> {
        let store = self.store.clone();
        // An error discards the known new runs. This is intended: the commit may or may not have succeeded.
        let new_runs = std::mem::replace(&mut self.new_runs, NewRuns::for_partitions(self.journal.partitions));
        let mut changes = Changes::of_records(&*store, batch.len(), self.refusals, new_runs);
        let from = self.next;
        let mut last: Option<&Delivery> = None;
        let mut uncommitted = Uncommitted::default();
        let mut step = Step::Applied;
        for delivery in batch {
            // A batch may contain a record twice, after a seek within it.
            if delivery.offset < last.map_or(from, |last| last.offset.saturating_add(1)) {
                continue;
            }
            match self.apply_delivery(delivery, &mut changes, &mut uncommitted)? {
                Step::Applied => last = Some(delivery),
                other => {
                    step = other;
                    break;
                }
            }
        }
        let next = last.map_or(from, |last| last.offset.saturating_add(1));
        if let Some(last) = last {
            project::progress(next, last.offset, &last.value, &mut changes);
        }
        if !changes.is_empty() {
            let has_genesis = self.has_genesis || changes.has(&meta::journal())?;
            project::runs_by_time::project(&mut changes)?;
            self.failpoints.reach(failpoint::BATCH_FOLDED);
            store.commit(changes.unordered_rows())?;
            // Moves the position right after the commit: after a later panic these records must not be folded again.
            (self.next, self.has_genesis, self.refusals) = (next, has_genesis, changes.may_have_refusals());
            self.adopt(uncommitted);
            self.failpoints.reach(failpoint::BATCH_COMMITTED);
        }
        if let Some(new_runs) = changes.into_new_runs() {
            self.new_runs = new_runs;
        }
        Ok(step)
    }

    /// Adds the rows of one delivery to `changes`, and to `uncommitted` the state that the fold adopts with them.
    fn apply_delivery(
        &self,
        delivery: &Delivery,
        changes: &mut Changes<'_, S>,
        uncommitted: &mut Uncommitted,
    ) -> Result<Step, store::Error> {
        if let Some(by) = self.skips.get(&delivery.offset) {
            let read = apply_voided(delivery, &*self.schemas, (*by, self.journal.partitions), changes)?;
            return Ok(read.map_or_else(|why| self.wait(delivery.offset, &why), |()| Step::Applied));
        }
        let has_genesis = self.has_genesis || changes.has(&meta::journal())?;
        let (framed, reframed) = reframe(&delivery.value, &*self.schemas);
        let at = record_context(delivery, &framed);
        match reframed.and_then(|()| codec::read(&framed)) {
            Err(why @ Unreadable::Unresolved { .. }) => Ok(self.wait(at.offset, &why)),
            Ok(record) if !has_genesis => self.begin(&record, delivery, changes, uncommitted),
            Ok(record) if record.kind == RecordKind::Skip => self.skip(&record, at, changes, uncommitted),
            // The first genesis decides which journal it is.
            Ok(record) if record.kind == RecordKind::Genesis => {
                self.apply_genesis(&record, delivery, changes, uncommitted)
            }
            Ok(record) => {
                apply(&record, at, self.journal.partitions, changes)?;
                Ok(Step::Applied)
            }
            Err(_) if !has_genesis => Ok(self.not_a_journal(at.offset, "an unreadable record")),
            Err(why) if why.stops() => Ok(Step::Stopped(stop(self.partition, at.offset, &why))),
            Err(why) => {
                project::dead_letter(at, &why, changes);
                Ok(Step::Applied)
            }
        }
    }

    /// Waits for the registry, which has not resolved the schema of a record.
    fn wait(&self, offset: Offset, why: &Unreadable) -> Step {
        let is_failing = matches!(why, Unreadable::Unresolved { failing: true, .. });
        Step::Waiting(is_failing.then(|| stop(self.partition, offset, why)))
    }

    /// The first record must be this journal's genesis.
    fn begin(
        &self,
        record: &Envelope<'_>,
        delivery: &Delivery,
        changes: &mut Changes<'_, S>,
        uncommitted: &mut Uncommitted,
    ) -> Result<Step, store::Error> {
        Ok(match genesis(record) {
            Some(found) if found == self.journal => {
                changes.put(meta::journal(), &found);
                if let Some(log) = self.home.own() {
                    changes.put(meta::log(), &meta::LogRow { log: log.to_string() });
                }
                self.apply_genesis(record, delivery, changes, uncommitted)?
            }
            Some(found) => self.not_a_journal(delivery.offset, &format!("journal {}", found.journal_id)),
            None => self.not_a_journal(delivery.offset, &format!("a {} record", record.kind.as_str())),
        })
    }

    fn not_a_journal(&self, offset: Offset, found: &str) -> Step {
        Step::Stopped(Stop {
            offset,
            kind: StopKind::NotAJournal,
            error: format!(
                "partition {} begins at offset {offset} with {found}, expected the genesis of journal {}; \
                 serve the topic that the journal was created on",
                self.partition, self.journal.journal_id
            ),
        })
    }

    fn skip(
        &self,
        record: &Envelope<'_>,
        at: RecordContext<'_>,
        changes: &mut Changes<'_, S>,
        uncommitted: &mut Uncommitted,
    ) -> Result<Step, store::Error> {
        let Ok(Payload::Skip(Skip { offset, who, why })) = record.payload() else { return Ok(Step::Applied) };
        // A skip never voids the genesis.
        if offset == Offset::ZERO {
            return Ok(Step::Applied);
        }
        let home = self.home_in(uncommitted);
        if !self.home.is_own_skip(home) {
            let error = foreign_skip(at.offset, offset, home, &self.home);
            return Ok(Step::Stopped(Stop { offset: at.offset, kind: StopKind::ForeignSkip, error }));
        }
        let voided = &mut uncommitted.voided;
        // A skip voids only an earlier record.
        if offset >= at.offset || self.skips.contains_key(&offset) || voided.contains_key(&offset) {
            return Ok(Step::Applied);
        }
        let row = meta::SkipRow { at: at.offset, who, why };
        // A skip that has voided its record has no other rows, and the record stays void.
        let is_skip = self.skips.values().chain(voided.values()).any(|by| *by == offset);
        if !is_skip && !changes.has(&dead_letters::key(offset))? {
            return Ok(Step::Rebuild { offset, row });
        }
        // A dead letter has no other rows.
        changes.remove(dead_letters::key(offset));
        changes.put(meta::skip(offset), &row);
        voided.insert(offset, at.offset);
        Ok(Step::Applied)
    }
}

/// Projects a retention horizon or a run's record. `partitions` is the journal's number of partitions.
pub(crate) fn apply<R: Rows>(
    record: &Envelope<'_>,
    at: RecordContext<'_>,
    partitions: u32,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    if record.kind == RecordKind::RetentionHorizon {
        return project::horizons::project(record, at, changes);
    }
    let Some(record) = RunRecord::new(record) else { return Ok(()) };
    project::delivery(record, at, Standing::Judged, partitions, changes).map(|_| ())
}

/// Projects a delivery that the skip at `by` voids. `partitions` is the journal's number of partitions.
///
/// Errors: as [`read_voided`].
pub(crate) fn apply_voided<R: Rows>(
    delivery: &Delivery,
    schemas: &dyn Schemas,
    (by, partitions): (Offset, u32),
    changes: &mut Changes<'_, R>,
) -> Result<Result<(), Unreadable>, store::Error> {
    read_voided(delivery, schemas, partitions, |voided, at| voided.project(at, by, partitions, changes))
        .map_or_else(|why| Ok(Err(why)), |projected| projected.map(Ok))
}

/// The stop at an unreadable record.
pub(crate) fn stop(partition: PartitionId, offset: Offset, why: &Unreadable) -> Stop {
    let error = format!("record at partition {partition}, offset {offset}: {why}");
    let kind = match why {
        Unreadable::Unresolved { .. } => StopKind::Registry,
        _ => StopKind::UnknownSchema,
    };
    Stop { offset, kind, error }
}

/// Whether a store has a record that was refused for its content.
fn has_refusals<R: Rows>(rows: &R) -> Result<bool, store::Error> {
    let (all, mut has_any) = (anomalies::by_ids(), false);
    rows.scan(all.bytes(), all.bytes(), rocksdb::Direction::Forward, &mut |_, _| {
        has_any = true;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(has_any)
}

/// The voided offsets that a store has recorded, each with its skip's own offset.
pub fn skips_of<R: Rows>(rows: &R) -> Result<BTreeMap<Offset, Offset>, store::Error> {
    Ok(skip_rows_of(rows)?.into_iter().map(|(offset, row)| (offset, row.at)).collect())
}

/// The voided offsets that a store has recorded, each with its skip.
pub fn skip_rows_of<R: Rows>(rows: &R) -> Result<BTreeMap<Offset, meta::SkipRow>, store::Error> {
    let mut skips = BTreeMap::new();
    rows.scan(meta::skips().bytes(), meta::skips().bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        if let Some(offset) = store::Parts::new(key).offset() {
            skips.insert(offset, store::decode(key, row)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(skips)
}

/// The delivered bytes as an Avro single object; after a failure the unchanged bytes and the error.
pub(crate) fn reframe<'d>(value: &'d [u8], schemas: &dyn Schemas) -> (Cow<'d, [u8]>, Result<(), Unreadable>) {
    match codec::reframe(value, schemas) {
        Ok(framed) => (framed, Ok(())),
        Err(why) => (value.into(), Err(why)),
    }
}

/// The context of a delivered record with the bytes `framed`.
pub(crate) fn record_context<'a>(delivery: &'a Delivery, framed: &'a [u8]) -> RecordContext<'a> {
    let Delivery { partition, offset, timestamp_millis: logged_at_millis, .. } = *delivery;
    RecordContext { partition, offset, index: 0, logged_at_millis, framed, claimant: claimant(&delivery.headers) }
}

/// The journal that a genesis record names.
pub fn genesis(record: &Envelope<'_>) -> Option<meta::Journal> {
    match record.payload() {
        Ok(Payload::Genesis(Genesis { journal_id, partitions })) => Some(meta::Journal { journal_id, partitions }),
        _ => None,
    }
}
