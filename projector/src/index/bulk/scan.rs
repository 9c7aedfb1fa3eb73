//! The reading of a partition's log: of every record the envelope is decoded, what concerns the partition as a whole is
//! collected, and the records are sorted by run.
//!
//! ```text
//!   log ─▶ decode ─┬─ genesis ─▶ the journal's
//!                  ├─ skip ─▶ who voids what          ─┐
//!                  ├─ unknown schema ─▶ may be a stop  ├─▶ where the fold ends, and what is voided
//!                  └─ all others ─▶ sorter ────────────┘
//! ```
//!
//! The result is a state of the live fold after all skips that it meets: the state at the first stop that no skip voids,
//! or at the end. That fold reads a log in order, voids a record that blocks it if any later skip names it, and begins
//! again for a skip that names an earlier record, which counts from then on.

use super::sorter::{Sorted, Sorter};
use crate::index::{
    Error,
    fold::{self, Stop},
    shared::Shared,
    store::{Key, meta},
};
use runlog_log::{Delivery, Kind, Reader};
use runlog_schemas::{
    answer::ErrorKind,
    codec::{self, Envelope, Schemas, Unreadable},
    datum::Sha256,
    id::{Offset, PartitionId},
    payload::{Payload, Skip},
    record::RecordKind,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Records read at once.
const BATCH: usize = 4096;
/// How long a read of records that are known to be there may take.
const READ_WAIT: Duration = Duration::from_secs(30);
/// The pause after a read that may succeed when it is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long to wait for the registry to resolve a schema.
const SCHEMA_WAIT: Duration = Duration::from_secs(30);
/// How long at a time.
const SCHEMA_LOOK: Duration = Duration::from_millis(200);
/// The skips and the unknown schemas that are collected; the reading ends at the next one.
const COLLECTED_MAX: usize = 100_000;
/// The sorter's prefix of a partition's own records: no escaped run id begins with it, and it sorts before all of them.
pub(super) const PARTITION: [u8; 2] = [0, 0];

/// What is read.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) shared: &'a Shared,
    pub(super) partition: PartitionId,
    /// Records from here on are not read.
    pub(super) to: Offset,
    /// The offsets that are voided, whatever the log says.
    pub(super) voided: BTreeMap<Offset, meta::SkipRow>,
    pub(super) skips: Skips,
}

/// Which skips count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skips {
    /// Those of the log too.
    OfLog,
    /// Only those that are known already. A record that blocks is an error.
    Known,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Scanned {
    /// By run and offset, the partition's own first. With what is voided, and what lies beyond `end`.
    pub(super) records: Sorted,
    /// The fold's position: the next offset to apply.
    pub(super) end: Offset,
    /// The last record below `end`.
    pub(super) last: Option<meta::Last>,
    pub(super) voided: BTreeMap<Offset, meta::SkipRow>,
    /// How many records were read.
    pub(super) read: u64,
}

/// A record of an unknown schema.
#[derive(Debug)]
struct Block {
    offset: Offset,
    before: Option<meta::Last>,
    why: Unreadable,
}

/// A skip of the log.
#[derive(Debug)]
struct Found {
    at: Offset,
    of: Offset,
    row: meta::SkipRow,
    /// Whether it is voided by a known skip. Then it voids only a record that blocks.
    is_voided: bool,
}

/// A reading under way.
struct Scan<'a> {
    source: Source<'a>,
    records: Sorter,
    next: Offset,
    last: Option<Delivery>,
    has_begun: bool,
    blocks: Vec<Block>,
    found: Vec<Found>,
    read: u64,
}

/// Whether the reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    On,
    /// Before the record: what is before it is a state of the fold, too.
    Ends,
    /// The log does not begin with the journal's genesis: not a matter for this reading.
    Foreign,
}

/// Reads a partition's log from its first record on. None if it does not begin with the journal's genesis; with known
/// skips there may be no record at all.
///
/// Errors: the log's, also if it ends before `to`; `Unavailable` if it does not deliver in time or the service is ending; with known skips
/// `Unavailable` for a schema that the registry does not resolve in time, and `Internal` for a record that blocks.
pub(super) fn scan(source: Source<'_>, records: Sorter) -> Result<Option<Scanned>, Error> {
    let (next, last, has_begun, blocks, found, read) = (Offset::ZERO, None, false, Vec::new(), Vec::new(), 0);
    let mut scan = Scan { source, records, next, last, has_begun, blocks, found, read };
    match scan.read()? {
        Goes::On | Goes::Ends if scan.has_begun || scan.source.skips == Skips::Known => scan.finish().map(Some),
        Goes::On | Goes::Ends | Goes::Foreign => Ok(None),
    }
}

impl Scan<'_> {
    fn read(&mut self) -> Result<Goes, Error> {
        let Source { shared, partition, to, .. } = self.source;
        if to == Offset::ZERO {
            return Ok(Goes::Ends);
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
                match self.one(&delivery)? {
                    Goes::On => {}
                    other => return Ok(other),
                }
                self.next = delivery.offset.saturating_add(1);
                self.read += 1;
                self.last = Some(delivery);
            }
            if self.next >= to || reader.position(partition).is_some_and(|position| position >= to) {
                return Ok(Goes::On);
            }
        }
    }

    /// The next records; none if the reader only passed offsets that have none.
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
                    // A log that ends before the index lost records. Another try does not bring them back.
                    shared.log.reader(&[(partition, self.source.to)])?;
                    let message =
                        format!("partition {partition} delivered no record from offset {} in time; retry", self.next);
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
            }
        }
    }

    fn one(&mut self, delivery: &Delivery) -> Result<Goes, Error> {
        let is_voided = self.source.voided.contains_key(&delivery.offset);
        if is_voided && self.source.skips == Skips::Known {
            return Ok(Goes::On);
        }
        let (framed, reframed) = resolved(delivery, &*self.source.shared.config.schemas);
        // The payload of a run's record is read when the run is folded. What is found unreadable then is a dead letter all the same.
        let read = reframed.and_then(|()| match codec::read_envelope(&framed)? {
            record if record.run_id.is_some() && !record.kind.of_partition() => Ok(record),
            _ => codec::read(&framed),
        });
        if is_voided {
            return Ok(read.map_or(Goes::On, |record| self.skip(&record, delivery.offset, true)));
        }
        let at = fold::at(delivery, &framed);
        let key = match &read {
            Err(Unreadable::Unresolved { .. }) if self.source.skips == Skips::OfLog => return Ok(Goes::Ends),
            Err(why @ Unreadable::Unresolved { .. }) => {
                let place = format!("partition {} is not rebuilt past offset {}", at.partition, self.next);
                return Err(Error::new(ErrorKind::Unavailable, format!("{place}: {why}")));
            }
            Ok(record) if !self.has_begun => {
                self.has_begun = fold::genesis(record).is_some_and(|found| found == self.source.shared.journal);
                return Ok(if self.has_begun { Goes::On } else { Goes::Foreign });
            }
            Err(_) if !self.has_begun => return Ok(Goes::Foreign),
            Ok(record) => match record.kind {
                RecordKind::Genesis => return Ok(Goes::On),
                RecordKind::Skip => return Ok(self.skip(record, at.offset, false)),
                _ => record.run_id.map_or_else(own, |run_id| Key::from_bytes(Vec::new()).text(run_id)),
            },
            Err(why) if why.stops() => return self.blocked(at.offset, why),
            Err(_) => own(),
        };
        let prefix = key.bytes().len();
        let key = key.offset(at.offset);
        self.records.push(key.bytes(), prefix, &[&at.logged_at_millis.to_be_bytes(), &framed])?;
        Ok(Goes::On)
    }

    /// Notes a skip. One that voids nothing is a record without effect.
    fn skip(&mut self, record: &Envelope<'_>, at: Offset, is_voided: bool) -> Goes {
        if self.source.skips == Skips::Known || record.kind != RecordKind::Skip {
            return Goes::On;
        }
        let Ok(Payload::Skip(Skip { offset: of, who, why })) = record.payload() else { return Goes::On };
        if self.found.len() >= COLLECTED_MAX {
            return Goes::Ends;
        }
        self.found.push(Found { at, of, row: meta::SkipRow { who, why }, is_voided });
        Goes::On
    }

    fn blocked(&mut self, offset: Offset, why: &Unreadable) -> Result<Goes, Error> {
        if self.source.skips == Skips::Known {
            let Stop { error, .. } = fold::stop(self.source.partition, offset, why);
            let message = format!("the rebuild stopped where the index did not: {error}");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        if self.blocks.len() >= COLLECTED_MAX {
            return Ok(Goes::Ends);
        }
        let before = self.last.as_ref().map(last_of);
        self.blocks.push(Block { offset, before, why: why.clone() });
        Ok(Goes::On)
    }

    /// Says where the fold ends and what is voided there.
    fn finish(self) -> Result<Scanned, Error> {
        let Self { source, records, next, last, blocks, found, read, .. } = self;
        let (mut end, mut last, mut voided) = (next, last.as_ref().map(last_of), source.voided);
        let mut of: BTreeMap<Offset, Vec<&Found>> = BTreeMap::new();
        found.iter().for_each(|skip| of.entry(skip.of).or_default().push(skip));
        for block in blocks {
            let skips = of.get(&block.offset);
            match skips.and_then(|skips| skips.iter().find(|skip| skip.at > block.offset)) {
                Some(skip) => {
                    voided.entry(block.offset).or_insert_with(|| skip.row.clone());
                }
                None => {
                    tracing::info!(partition = %source.partition, offset = %block.offset, why = %block.why, "a record blocks");
                    // As the fold's: offsets without a record before it are not passed.
                    end = block.before.as_ref().map_or(Offset::ZERO, |last| last.offset.saturating_add(1));
                    last = block.before;
                    break;
                }
            }
        }
        for skip in found.iter().filter(|skip| skip.at < end && !skip.is_voided) {
            // A skip voids only an earlier record, and never the genesis.
            if skip.of < skip.at && skip.of != Offset::ZERO {
                voided.entry(skip.of).or_insert_with(|| skip.row.clone());
            }
        }
        Ok(Scanned { records: records.finish()?, end, last, voided, read })
    }
}

fn own() -> Key {
    Key::from_bytes(PARTITION.to_vec())
}

fn last_of(delivery: &Delivery) -> meta::Last {
    meta::Last { offset: delivery.offset, hash: Sha256::of(&delivery.value) }
}

/// The delivered bytes as a single object, waiting for schemas that the registry has to name again.
fn resolved<'d>(delivery: &'d Delivery, schemas: &dyn Schemas) -> (std::borrow::Cow<'d, [u8]>, Result<(), Unreadable>) {
    let mut until = None;
    loop {
        match fold::reframed(&delivery.value, schemas) {
            (_, Err(Unreadable::Unresolved { .. }))
                if Instant::now() < *until.get_or_insert_with(|| Instant::now() + SCHEMA_WAIT) =>
            {
                schemas.wait(SCHEMA_LOOK)
            }
            reframed => return reframed,
        }
    }
}
