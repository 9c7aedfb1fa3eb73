//! Reads a partition's log for a bulk fold. Decodes the envelope of every record, collects the records that decide where
//! the fold ends, and sorts all others by run.
//!
//! ```text
//!   log ─▶ decode ─┬─ genesis ─▶ checked, homes
//!                  ├─ skip ─▶ who voids what          ─┐
//!                  ├─ unknown schema ─▶ may be a stop  ├─▶ where the fold ends, and what is voided
//!                  └─ all others ─▶ sorter ────────────┘
//! ```
//!
//! The result is a state of the live fold after all skips that it reads. It is the state at the first stop that no skip
//! voids, or at the log's end. The live fold reads a log in order, and voids a blocking record if any later skip names it.
//! If a skip names an earlier record, the live fold starts again, with that record voided.

use super::{
    order::PARTITION,
    sorter::{Sorted, Sorter},
};
use crate::index::{
    blocking_schemas::BlockingSchemas,
    error::Error,
    fold::{self, Carrier, Effect, Stop, Voided},
    project::RecordContext,
    shared::Shared,
    store::{Key, meta},
};
use runlog_log::{Delivery, Kind, Reader};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Envelope, Unreadable},
    datum::Sha256,
    id::{Offset, PartitionId, RunId},
    payload::{Payload, Skip},
    record::RecordKind,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Records read at once.
const BATCH: usize = 4096;
/// The time limit of a read; the log is known to have the records.
const READ_WAIT: Duration = Duration::from_secs(30);
/// The pause before a failed read is retried.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long a record waits for the registry to resolve its schema.
const SCHEMA_WAIT: Duration = Duration::from_secs(30);
/// The most skips, homes and accepts, and records with an unknown schema, each. The scan ends before the next one.
const COLLECTED_MAX: usize = 100_000;

/// The input of a scan.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) shared: &'a Shared,
    pub(super) partition: PartitionId,
    /// The end of the scan, exclusive.
    pub(super) to: Offset,
    /// Offsets that are voided from the start, independent of the log.
    pub(super) voided: BTreeMap<Offset, meta::SkipRow>,
    pub(super) skips: Skips,
}

/// The skips that a scan obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skips {
    /// The known skips and the log's skips.
    OfLog,
    /// Only the known skips. A blocking record is then an error.
    Known,
}

/// The result of a scan.
#[derive(Debug)]
pub(super) struct Scanned {
    /// All records by run and offset, the partition's own records first. Includes voided records, and records from `end`
    /// on.
    pub(super) records: Sorted,
    /// The fold's position: the next offset to apply.
    pub(super) end: Offset,
    /// The last record below `end`.
    pub(super) last: Option<meta::Last>,
    pub(super) voided: BTreeMap<Offset, meta::SkipRow>,
    /// The partition's home at `end`.
    pub(super) home: Option<meta::HomeRow>,
    /// The accepted runs, `None` for all unknown ones.
    pub(super) accepts: BTreeMap<Option<RunId>, meta::AcceptRow>,
    /// The number of records read.
    pub(super) read: u64,
}

/// A record with an unknown schema or a skip of another log, which blocks the fold.
#[derive(Debug)]
struct Block {
    offset: Offset,
    before: Option<meta::Last>,
    why: String,
}

/// A skip in the log, of its own offsets.
#[derive(Debug)]
struct FoundSkip {
    voids: Offset,
    row: meta::SkipRow,
    /// Whether a known skip voids it. Then it voids only a blocking record.
    is_voided: bool,
}

/// A scan in progress.
struct Scan<'a> {
    source: Source<'a>,
    records: Sorter,
    next: Offset,
    last: Option<Delivery>,
    has_genesis: bool,
    blocks: Vec<Block>,
    skips_found: Vec<FoundSkip>,
    /// The genesis records with a header, in log order.
    carriers: Vec<Carrier>,
    /// The home after them.
    home: Option<meta::HomeRow>,
    read: u64,
}

/// Whether the scan continues after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanStep {
    Continue,
    /// The scan ends before the record. The state before it is a state of the live fold, too.
    End,
    /// The log does not begin with the journal's genesis. The live fold reports that.
    Foreign,
}

/// Reads a partition's log from its first record. Returns `None` if the log does not begin with the journal's genesis. With
/// [`Skips::Known`] it may also find no record at all.
///
/// Errors: the log's errors, also if the log ends before `to`; `Unavailable` if the log does not deliver in time or the
/// server shuts down. With [`Skips::Known`] also `Unavailable` for a schema that the registry does not resolve in time, and
/// `Internal` for a blocking record.
pub(super) fn scan(source: Source<'_>, records: Sorter) -> Result<Option<Scanned>, Error> {
    let mut scan = Scan {
        source,
        records,
        next: Offset::ZERO,
        last: None,
        has_genesis: false,
        blocks: Vec::new(),
        skips_found: Vec::new(),
        carriers: Vec::new(),
        home: None,
        read: 0,
    };
    match scan.read()? {
        ScanStep::Continue | ScanStep::End if scan.has_genesis || scan.source.skips == Skips::Known => {
            scan.finish().map(Some)
        }
        ScanStep::Continue | ScanStep::End | ScanStep::Foreign => Ok(None),
    }
}

impl Scan<'_> {
    fn read(&mut self) -> Result<ScanStep, Error> {
        let Source { shared, partition, to, .. } = self.source;
        if to == Offset::ZERO {
            return Ok(ScanStep::End);
        }
        let mut reader = shared.log.reader(&[(partition, Offset::ZERO)]).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("partition {partition} cannot be read from its beginning"))
                .because(error)
        })?;
        loop {
            let batch = self.poll(&mut *reader)?;
            for delivery in batch.into_iter().filter(|delivery| delivery.offset < to) {
                // A batch may contain a record twice, after a seek within it.
                if delivery.offset < self.next {
                    continue;
                }
                match self.scan_record(&delivery)? {
                    ScanStep::Continue => {}
                    other => return Ok(other),
                }
                self.next = delivery.offset.saturating_add(1);
                self.read += 1;
                self.last = Some(delivery);
            }
            if self.next >= to || reader.position(partition).is_some_and(|position| position >= to) {
                return Ok(ScanStep::Continue);
            }
        }
    }

    /// The next records; `None` if the reader only passed offsets without a record.
    fn poll(&self, reader: &mut dyn Reader) -> Result<Vec<Delivery>, Error> {
        let Source { shared, partition, .. } = self.source;
        let (executor, before) = (&shared.config.executor, reader.position(partition));
        let until = Instant::now() + READ_WAIT;
        loop {
            if shared.is_ending() {
                return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down; try again"));
            }
            match reader.poll(BATCH, executor.blocking_wait(READ_WAIT)) {
                Ok(batch) if !batch.is_empty() || reader.position(partition) > before => return Ok(batch),
                Err(error) if error.kind() == Kind::Retry && Instant::now() < until => executor.block(RETRY_AFTER),
                Err(error) => return Err(error.into()),
                Ok(_) => {
                    // Fails if the log ends before `to`: it has lost records, and a retry would not find them.
                    shared.log.reader(&[(partition, self.source.to)])?;
                    let message =
                        format!("partition {partition} delivered no record from offset {} in time; retry", self.next);
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
            }
        }
    }

    fn scan_record(&mut self, delivery: &Delivery) -> Result<ScanStep, Error> {
        let Shared { config, journal, .. } = self.source.shared;
        let (schemas, partitions) =
            (BlockingSchemas { schemas: &*config.schemas, longest: SCHEMA_WAIT }, journal.partitions);
        if self.source.voided.contains_key(&delivery.offset) {
            let read = fold::read_voided(delivery, &schemas, partitions, |voided, at| self.collect_voided(&voided, at));
            return read.unwrap_or_else(|why| self.end_unresolved(&why));
        }
        let (framed, reframed) = fold::reframe(&delivery.value, &schemas);
        // The fold of a run decodes the payloads of its records. An unreadable payload makes the record a dead letter
        // there, too.
        let read = reframed.and_then(|()| match codec::read_envelope(&framed)? {
            record if record.run_id.is_some() && !record.kind.of_partition() => Ok(record),
            _ => codec::read(&framed),
        });
        let at = fold::record_context(delivery, &framed);
        let key = match &read {
            Err(why @ Unreadable::Unresolved { .. }) => return self.end_unresolved(why),
            Ok(record) if !self.has_genesis => {
                self.has_genesis = fold::genesis(record).is_some_and(|found| found == *journal);
                return Ok(if self.has_genesis { self.collect_genesis(record, delivery) } else { ScanStep::Foreign });
            }
            Err(_) if !self.has_genesis => return Ok(ScanStep::Foreign),
            Ok(record) => match record.kind {
                RecordKind::Genesis => return Ok(self.collect_genesis(record, delivery)),
                RecordKind::Skip => return Ok(self.collect_skip(record, at.offset, false)),
                _ => record.run_id.map_or_else(partition_key, run_key),
            },
            Err(why) if why.stops() => {
                // A later skip may void it, and then only its run counts.
                self.collect_voided(&Voided::unknown(&delivery.key, at, partitions), at)?;
                return self.add_block(at.offset, why);
            }
            Err(_) => partition_key(),
        };
        self.collect(key, at)
    }

    /// Ends the scan before a record whose schema the registry has not resolved in time.
    fn end_unresolved(&self, why: &Unreadable) -> Result<ScanStep, Error> {
        if self.source.skips == Skips::OfLog {
            return Ok(ScanStep::End);
        }
        let place = format!("partition {} cannot be rebuilt past offset {}", self.source.partition, self.next);
        Err(Error::new(ErrorKind::Unavailable, format!("{place}: {why}")))
    }

    /// Collects a voided record.
    fn collect_voided(&mut self, voided: &Voided<'_>, at: RecordContext<'_>) -> Result<ScanStep, Error> {
        match (voided.run_id(), voided) {
            (Some(run_id), _) => self.collect(run_key(run_id), at),
            (None, Voided::Record(record)) => Ok(self.collect_skip(record, at.offset, true)),
            (None, Voided::Unknown(_) | Voided::DeadLetter) => Ok(ScanStep::Continue),
        }
    }

    /// Collects a record to fold, under the key of its run: its time, the length of its claimant (1 byte), the claimant and the
    /// record.
    fn collect(&mut self, run: Key, at: RecordContext<'_>) -> Result<ScanStep, Error> {
        let prefix = run.bytes().len();
        let key = run.offset(at.offset);
        let claimant = at.claimant.unwrap_or_default().as_bytes();
        let length = u8::try_from(claimant.len()).unwrap_or_default();
        let claimant = &claimant[..usize::from(length)];
        self.records.push(
            key.bytes(),
            prefix,
            &[&at.logged_at_millis.to_be_bytes(), &[length], claimant, at.framed],
        )?;
        Ok(ScanStep::Continue)
    }

    /// Collects the home or the accept of a genesis. The scan ends before the genesis of another journal that stops the live fold.
    fn collect_genesis(&mut self, record: &Envelope<'_>, delivery: &Delivery) -> ScanStep {
        let journal = &self.source.shared.journal;
        let Some(carrier) = Carrier::read(record, delivery, journal) else { return ScanStep::Continue };
        match carrier.effect(journal, self.home.as_ref()) {
            Effect::Foreign(_) => return ScanStep::End,
            Effect::Home(row) => self.home = Some(row),
            Effect::None | Effect::Accept(..) => {}
        }
        if carrier.is_foreign() {
            return ScanStep::Continue;
        }
        if self.carriers.len() >= COLLECTED_MAX {
            return ScanStep::End;
        }
        self.carriers.push(carrier);
        ScanStep::Continue
    }

    /// Collects a record if it is a skip of the log. A skip that voids no record has no effect.
    fn collect_skip(&mut self, record: &Envelope<'_>, at: Offset, is_voided: bool) -> ScanStep {
        if self.source.skips == Skips::Known || record.kind != RecordKind::Skip {
            return ScanStep::Continue;
        }
        let Ok(Payload::Skip(Skip { offset: voids, who, why })) = record.payload() else { return ScanStep::Continue };
        let home = self.home.as_ref();
        if !self.source.shared.home.is_own_skip(home) {
            // A skip of the own log may void it.
            return match voids == Offset::ZERO || is_voided {
                true => ScanStep::Continue,
                false => self.block(at, fold::foreign_skip(at, voids, home, &self.source.shared.home)),
            };
        }
        if self.skips_found.len() >= COLLECTED_MAX {
            return ScanStep::End;
        }
        self.skips_found.push(FoundSkip { voids, row: meta::SkipRow { at, who, why }, is_voided });
        ScanStep::Continue
    }

    fn add_block(&mut self, offset: Offset, why: &Unreadable) -> Result<ScanStep, Error> {
        if self.source.skips == Skips::Known {
            let Stop { error, .. } = fold::stop(self.source.partition, offset, why);
            let message = format!("the rebuild stopped at a record that did not stop the index: {error}");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(self.block(offset, why.to_string()))
    }

    /// Collects a record that blocks the fold, unless a later skip voids it.
    fn block(&mut self, offset: Offset, why: String) -> ScanStep {
        if self.blocks.len() >= COLLECTED_MAX {
            return ScanStep::End;
        }
        let before = self.last.as_ref().map(last_of);
        self.blocks.push(Block { offset, before, why });
        ScanStep::Continue
    }

    /// Determines the fold's end and the voided offsets.
    fn finish(self) -> Result<Scanned, Error> {
        let Self { source, records, next, last, blocks, skips_found, carriers, read, .. } = self;
        let (mut end, mut last, mut voided) = (next, last.as_ref().map(last_of), source.voided);
        let mut skips_by_offset: BTreeMap<Offset, Vec<&FoundSkip>> = BTreeMap::new();
        skips_found.iter().for_each(|skip| skips_by_offset.entry(skip.voids).or_default().push(skip));
        for block in blocks {
            let skips = skips_by_offset.get(&block.offset);
            match skips.and_then(|skips| skips.iter().find(|skip| skip.row.at > block.offset)) {
                Some(skip) => {
                    voided.entry(block.offset).or_insert_with(|| skip.row.clone());
                }
                None => {
                    tracing::info!(partition = %source.partition, offset = %block.offset, why = %block.why, "a record blocks the partition");
                    // Equals the live fold's position: the offset after the last record before the block.
                    end = block.before.as_ref().map_or(Offset::ZERO, |last| last.offset.saturating_add(1));
                    last = block.before;
                    break;
                }
            }
        }
        for skip in skips_found.iter().filter(|skip| skip.row.at < end && !skip.is_voided) {
            // A skip voids only an earlier record, and never the genesis.
            if skip.voids < skip.row.at && skip.voids != Offset::ZERO {
                voided.entry(skip.voids).or_insert_with(|| skip.row.clone());
            }
        }
        let (mut home, mut accepts): (Option<meta::HomeRow>, BTreeMap<Option<RunId>, meta::AcceptRow>) =
            Default::default();
        for carrier in carriers.iter().filter(|carrier| carrier.offset < end && !voided.contains_key(&carrier.offset)) {
            match carrier.effect(&source.shared.journal, home.as_ref()) {
                Effect::Home(row) => home = Some(row),
                Effect::Accept(run_id, row) if fold::replaces(accepts.get(&run_id), &row) => {
                    accepts.insert(run_id, row);
                }
                Effect::Accept(..) => {}
                Effect::None | Effect::Foreign(_) => {}
            }
        }
        Ok(Scanned { records: records.finish()?, end, last, voided, home, accepts, read })
    }
}

fn partition_key() -> Key {
    Key::from_bytes(PARTITION.to_vec())
}

fn run_key(run_id: RunId<&str>) -> Key {
    Key::from_bytes(Vec::new()).text(run_id)
}

fn last_of(delivery: &Delivery) -> meta::Last {
    meta::Last { offset: delivery.offset, hash: Sha256::of(&delivery.value) }
}
