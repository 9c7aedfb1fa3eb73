//! The fold: deliveries, in the order in which a reader gets them, to runs and the partitions' own rows.

use crate::{
    delivery::{Delivery, Journal, What},
    effects, hashes, judge,
    record::{number, of_partition, payload_type, text},
    rule::{Rule, Rules},
    run::{Entry, Place, Reason, Run, Traces, Verdict},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Why a partition stopped: the log now starts after the reader's position.
const TRUNCATED: &str = "log_truncated";
/// Why a partition stopped at a skip of a folded record: the log no longer has all records.
const CANNOT_REBUILD: &str = "cannot_rebuild";

/// A record outside its run's partition, or a dead letter: rows that belong to no run.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) delivery: Delivery,
}

/// Removed content: the record that removed it, and the records that lose it.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// Records of a payload type with a smaller offset that were appended before a time.
    Horizon { family: String, until_millis: i64, offset: u64 },
    /// Encrypted records of a run: all, or only records of the named keys.
    Erasure { run_id: String, key_ids: Vec<String>, offset: u64 },
}

/// One partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    /// Everything that was delivered, once each.
    pub(crate) log: Vec<Delivery>,
    /// Offsets named by the skips that the reader has reached, each with the skip's own offset.
    skips: BTreeMap<u64, u64>,
    /// Where the log starts.
    pub(crate) start: u64,
    /// The next offset to fold.
    pub(crate) next: u64,
    /// Why and at which offset the partition stopped.
    pub(crate) stopped: Option<(String, u64)>,
    pub(crate) runs: BTreeMap<String, Run>,
    pub(crate) strays: Vec<Row>,
    pub(crate) dead: Vec<Row>,
    pub(crate) taken: Vec<Taken>,
}

/// The model: a plain fold of the rules, and the answers that follow.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) journal: Journal,
    pub(crate) rules: Rules,
    pub(crate) partitions: Vec<Partition>,
}

impl Model {
    /// An empty model of a journal.
    pub fn new(journal: Journal) -> Self {
        let partitions = (0..journal.partitions).map(|_| Partition::default()).collect();
        Self { journal, rules: Rules::default(), partitions }
    }

    /// The same with some rules switched off.
    #[must_use]
    pub fn breaking(self, rules: &[Rule]) -> Self {
        Self { rules: Rules::breaking(rules), ..self }
    }

    /// Which rules decided something, in the fold or in an answer that was asked for.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes the next delivery. Offsets that were delivered before change nothing.
    pub fn deliver(&mut self, delivery: &Delivery) {
        let Some(partition) = self.partitions.get_mut(delivery.partition as usize) else { return };
        let again = partition.log.last().is_some_and(|last| delivery.offset <= last.offset);
        if again {
            // With the rule off, it counts as a new one.
            if !self.rules.fires(Rule::Redelivered, true) {
                self.fold(delivery);
            }
            return;
        }
        partition.log.push(delivery.clone());
        self.advance(delivery.partition, u64::MAX);
    }

    /// Folds deliveries up to an offset, inclusive. A skip voids its record from the beginning on, once it is reached
    /// or if it names the record at which the partition stopped.
    fn advance(&mut self, at: u32, to: u64) {
        loop {
            let Some(partition) = self.partitions.get(at as usize) else { return };
            let skip = match &partition.stopped {
                Some((why, _)) if why == TRUNCATED => return,
                Some((_, offset)) => {
                    // A skipped record does not stop it, unless that rule is switched off.
                    if partition.skips.contains_key(offset) {
                        return;
                    }
                    let names = |delivery: &&Delivery| skipped(delivery) == Some(*offset) && delivery.offset > *offset;
                    let Some(skip) = partition.log.iter().find(names) else { return };
                    Some((*offset, skip.offset))
                }
                None => {
                    let next = partition.log.iter().find(|delivery| delivery.offset >= partition.next);
                    let Some(next) = next.filter(|next| next.offset <= to).cloned() else { return };
                    let skip = skipped(&next).filter(|offset| *offset < next.offset && *offset > 0);
                    let already_skipped = |offset: &u64| {
                        partition.skips.contains_key(offset) || partition.skips.contains_key(&next.offset)
                    };
                    let skip = skip.filter(|offset| !already_skipped(offset));
                    if skip.is_none() {
                        self.fold(&next);
                    }
                    skip.map(|offset| (offset, next.offset))
                }
            };
            let (Some((skip, by)), Some(partition)) = (skip, self.partitions.get_mut(at as usize)) else { continue };
            // A dead letter was never applied: without it the partition is as if the skip had come first.
            let dead = partition.dead.iter().position(|row| row.delivery.offset == skip);
            if let Some(dead) = dead.filter(|_| partition.stopped.is_none()) {
                partition.dead.remove(dead);
                partition.skips.insert(skip, by);
                continue;
            }
            // The record that a skip has voided stays void, also if the skip is skipped.
            if partition.stopped.is_none() && partition.skips.values().any(|by| *by == skip) {
                partition.skips.insert(skip, by);
                continue;
            }
            let here = partition.next_there();
            // The record at which it stopped is not folded.
            let applied = partition.stopped.is_none();
            if self.rules.fires(Rule::CannotRebuild, applied && partition.start > 0) {
                partition.stopped = Some((CANNOT_REBUILD.to_owned(), here));
                continue;
            }
            partition.skips.insert(skip, by);
            if partition.start > 0 {
                // It continues at its position.
                partition.stopped = None;
            } else {
                partition.forget();
            }
        }
    }

    /// Moves the log start of a partition to `start`. A reader before `start` stops.
    pub fn start_moved(&mut self, partition: u32, start: u64) {
        let Some(partition) = self.partitions.get_mut(partition as usize) else { return };
        partition.start = start;
        if self.rules.fires(Rule::Truncated, partition.stopped.is_none() && partition.next < start) {
            partition.stopped = Some((TRUNCATED.to_owned(), partition.next));
        }
    }

    /// Whether the log alone still has all of a partition, so that an index can be built from it.
    pub fn rebuilds(&self, partition: u32) -> bool {
        self.partitions.get(partition as usize).is_some_and(|partition| partition.start == 0)
    }

    /// The model as of an offset of one partition, inclusive. What was skipped, dropped or erased since stays so.
    #[must_use]
    pub fn as_of(&self, partition: u32, offset: u64) -> Self {
        let mut then = self.clone();
        let taken = self.partitions.get(partition as usize).map(|now| now.taken.clone());
        if let Some(partition) = then.partitions.get_mut(partition as usize) {
            // A reader that the log's start overtook never read on from there.
            let truncated = partition.stopped.take().filter(|(why, _)| why == TRUNCATED);
            let end = truncated.map_or(u64::MAX, |(_, next)| next);
            partition.forget();
            partition.log.retain(|delivery| delivery.offset < end);
        }
        then.advance(partition, offset);
        if let (Some(then), Some(taken)) = (then.partitions.get_mut(partition as usize), taken) {
            then.taken = taken;
        }
        then
    }

    /// Folds one delivery that is not a repeated one.
    fn fold(&mut self, delivery: &Delivery) {
        let (rules, journal) = (&self.rules, &self.journal);
        let Some(partition) = self.partitions.get_mut(delivery.partition as usize) else { return };
        if partition.stopped.is_some() {
            return;
        }
        let by = partition.skips.get(&delivery.offset).copied();
        let voided = by.filter(|_| rules.fires(Rule::SkipVoids, true));
        let first = partition.next == 0;
        if rules.fires(Rule::Genesis, first && voided.is_none() && !is_genesis(journal, &delivery.what)) {
            partition.stopped = Some(("not_a_journal".to_owned(), delivery.offset));
            return;
        }
        if let Some(by) = voided {
            match &delivery.what {
                What::Record { record, .. } if !of_partition(record) => {
                    void_run_record(rules, journal, partition, (delivery, by))
                }
                What::UnknownOfRun { run_id, .. } => void_unknown(journal, partition, (delivery, by), run_id),
                _ => {}
            }
        } else {
            match &delivery.what {
                What::Record { record, .. } if of_partition(record) => {
                    fold_partition_record(partition, delivery, record)
                }
                What::Record { .. } => fold_run_record(rules, journal, partition, delivery),
                What::Unreadable { .. } => {
                    if rules.fires(Rule::DeadLetter, true) {
                        partition.dead.push(Row { delivery: delivery.clone() });
                    }
                }
                What::UnknownSchema { what } | What::UnknownOfRun { what, .. } => {
                    if rules.fires(Rule::Stopped, true) {
                        partition.stopped = Some((what.clone(), delivery.offset));
                        return;
                    }
                }
            }
        }
        partition.next = delivery.offset + 1;
    }
}

/// The offset that a skip voids; `None` if the delivery is no skip.
fn skipped(delivery: &Delivery) -> Option<u64> {
    let skip = delivery.what.record().filter(|record| payload_type(record) == "skip")?;
    Some(number(skip, "/payload/offset"))
}

/// Whether this is the journal's own genesis.
fn is_genesis(journal: &Journal, what: &What) -> bool {
    what.record().is_some_and(|record| {
        payload_type(record) == "genesis"
            && text(record, "/payload/journal_id") == journal.journal_id
            && number(record, "/payload/partitions") == u64::from(journal.partitions)
    })
}

/// Folds a record of the partition itself. Skips are collected beforehand, and a later genesis changes nothing.
fn fold_partition_record(partition: &mut Partition, delivery: &Delivery, record: &Value) {
    if payload_type(record) == "retention_horizon" {
        partition.taken.push(Taken::Horizon {
            family: text(record, "/payload/family").to_owned(),
            until_millis: record["payload"]["until_millis"].as_i64().unwrap_or_default(),
            offset: delivery.offset,
        });
    }
}

fn fold_run_record(rules: &Rules, journal: &Journal, partition: &mut Partition, delivery: &Delivery) {
    let (What::Record { record, .. }, Some(entry)) = (&delivery.what, entry(delivery)) else { return };
    let run_id = text(record, "/run_id");
    let elsewhere = hashes::partition_of(run_id, journal.partitions) != delivery.partition;
    if rules.fires(Rule::WrongPartition, elsewhere) {
        partition.strays.push(Row { delivery: delivery.clone() });
        return;
    }
    let run = partition.runs.entry(run_id.to_owned()).or_default();
    judge::take(rules, run, entry);
    if payload_type(record) == "erasure" && run.entries.last().is_some_and(Entry::counts) {
        let key_ids = crate::record::list(record, "/payload/key_ids");
        partition.taken.push(Taken::Erasure {
            run_id: run_id.to_owned(),
            key_ids: key_ids.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            offset: delivery.offset,
        });
    }
}

/// A delivered record, not judged yet.
fn entry(delivery: &Delivery) -> Option<Entry> {
    let What::Record { record, version, datums, contents, claimant } = &delivery.what else { return None };
    Some(Entry {
        offset: delivery.offset,
        index: 0,
        log_millis: delivery.log_millis,
        record: record.clone(),
        place: Place::from_record(record),
        version: *version,
        kind: payload_type(record).to_owned(),
        id: text(record, "/record_id").to_owned(),
        datums: datums.clone(),
        contents: contents.clone(),
        claimant: claimant.clone(),
        verdict: Verdict::Refused(Reason::Batch),
        envelope: false,
    })
}

/// Folds a record that the skip at `by` voids: its run has no trace of it except at the effects that the record is about.
fn void_run_record(rules: &Rules, journal: &Journal, partition: &mut Partition, (delivery, by): (&Delivery, u64)) {
    let Some(mut entry) = entry(delivery) else { return };
    let run_id = text(&entry.record, "/run_id").to_owned();
    if hashes::partition_of(&run_id, journal.partitions) != delivery.partition {
        return;
    }
    let run = partition.runs.entry(run_id).or_default();
    // What it would have been without the skip.
    let mut with = run.clone();
    judge::take(rules, &mut with, entry.clone());
    let (traces, renumbers) = effects::without_skip(rules, &with, run.entries.len());
    entry.verdict = Verdict::Skipped { traces, renumbers, by };
    entry.place = Place::default();
    run.entries.push(entry);
}

/// Folds a record that the skip at `by` voids and that cannot be read: only its run is known.
fn void_unknown(journal: &Journal, partition: &mut Partition, (delivery, by): (&Delivery, u64), run_id: &str) {
    if hashes::partition_of(run_id, journal.partitions) != delivery.partition {
        return;
    }
    let run = partition.runs.entry(run_id.to_owned()).or_default();
    run.entries.push(Entry {
        offset: delivery.offset,
        index: 0,
        log_millis: delivery.log_millis,
        record: Value::Null.into(),
        place: Place::default(),
        version: 0,
        kind: String::new(),
        id: String::new(),
        datums: Vec::new(),
        contents: Vec::new(),
        claimant: None,
        verdict: Verdict::Skipped { traces: Traces::Nothing, renumbers: true, by },
        envelope: false,
    });
}

impl Partition {
    /// The next offset that has a delivery.
    fn next_there(&self) -> u64 {
        self.log.iter().map(|delivery| delivery.offset).find(|offset| *offset >= self.next).unwrap_or(self.next)
    }

    /// Resets to the beginning, keeping the deliveries and the skips.
    fn forget(&mut self) {
        let (log, skips) = (std::mem::take(&mut self.log), std::mem::take(&mut self.skips));
        *self = Self { log, skips, start: self.start, ..Self::default() };
    }

    /// The record that removed the content of an entry, by its offset.
    pub(crate) fn taken_by(&self, rules: &Rules, entry: &Entry) -> Option<(&'static str, u64)> {
        self.taken_from(rules, entry, &entry.record)
    }

    /// The same for a record within an entry, or for the entry's own record.
    pub(crate) fn taken_from(&self, rules: &Rules, entry: &Entry, record: &Value) -> Option<(&'static str, u64)> {
        let dropped = self.taken.iter().filter_map(|taken| match taken {
            Taken::Horizon { family, until_millis, offset } if family == payload_type(record) => {
                let after_horizon = rules.fires(Rule::RetentionInFront, entry.offset >= *offset);
                let later = rules.fires(Rule::RetentionUntil, entry.log_millis >= *until_millis);
                rules.fires(Rule::Retention, !after_horizon && !later).then_some((*until_millis, *offset))
            }
            _ => None,
        });
        let dropped: Vec<(i64, u64)> = dropped.collect();
        if let (Some(first), Some(furthest)) = (dropped.first(), dropped.iter().max()) {
            let named = rules.fires(Rule::RetentionFurthest, first != furthest);
            return Some(("dropped", if named { furthest.1 } else { first.1 }));
        }
        self.taken.iter().find_map(|taken| match taken {
            Taken::Horizon { .. } => None,
            Taken::Erasure { run_id, key_ids, offset } => {
                let key = text(record, "/key_id");
                let named = key_ids.is_empty() || key_ids.iter().any(|other| other == key);
                let there = run_id == text(record, "/run_id") && !key.is_empty() && named && entry.offset < *offset;
                rules.fires(Rule::Erasure, there).then_some(("erased", *offset))
            }
        })
    }
}
