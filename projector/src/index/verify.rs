//! Proof that the indices are what the log says: they are built again beside the live ones, from the log's first record
//! to one pinned offset per partition, by the same fold, and compared row for row.

use crate::index::{
    Error, Projector, failpoint,
    fold::{Fold, Step},
    project,
    shared::Shared,
    store::{Budget, Folder, INDICES, Mode, Rows, Store, meta},
};
use runlog_log::Delivery;
use runlog_schemas::{
    answer::{ErrorKind, IndexDigest, PartitionDigest, Verification},
    id::{Offset, PartitionId},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Records read at once.
const BATCH: usize = 4096;
/// How long a read of records that are known to be there may take.
const READ_WAIT: Duration = Duration::from_secs(30);
/// How long to wait for the registry to resolve a schema.
const SCHEMA_WAIT: Duration = Duration::from_secs(30);
/// How long at a time.
const SCHEMA_LOOK: Duration = Duration::from_millis(200);
/// Memory of one verification, bytes.
const MEMORY_BYTES: usize = 64 << 20;

impl Projector {
    /// Compares every index of every partition with a rebuild from the log. Queries and the loop go on meanwhile.
    /// Blocking: takes as long as reading the whole log. `seconds` in the answer is left 0 for the caller's clock.
    pub fn verify(&self) -> Result<Verification, Error> {
        let config = &self.shared.config;
        let folder = Folder::new(config.storage.clone(), config.dir.join(format!("verify-{}", (config.ids)())));
        let result = verify_in(&self.shared, &folder);
        // A copy: if its removal fails, it only takes disk space.
        folder.remove();
        result
    }
}

fn verify_in(shared: &Arc<Shared>, folder: &Folder) -> Result<Verification, Error> {
    let budget = Budget::new(MEMORY_BYTES);
    let mut partitions = Vec::new();
    let mut records = 0;
    for partition in PartitionId::all(shared.journal.partitions) {
        let (digest, read) = one(shared, partition, folder.join(&partition.to_string()), &budget)?;
        partitions.push(digest);
        records += read;
    }
    let same = |index: &IndexDigest| index.live_digest == index.rebuilt_digest;
    let equal = partitions.iter().flat_map(|partition| &partition.indices).all(same);
    Ok(Verification { equal, records, partitions, seconds: 0.0 })
}

fn one(
    shared: &Arc<Shared>,
    partition: PartitionId,
    folder: Folder,
    budget: &Budget,
) -> Result<(PartitionDigest, u64), Error> {
    let live = shared.store(partition);
    let view = live.view();
    let pinned = view.get::<meta::Progress>(&meta::progress())?.unwrap_or_default().next_offset;
    let schemas = || shared.config.schemas.clone();
    let known = Fold::resume(partition, shared.journal.clone(), live.clone(), schemas())?;
    let store = Arc::new(Store::open(folder, budget, Mode::Bulk)?);
    let mut fold = Fold::resume(partition, shared.journal.clone(), store.clone(), schemas())?;
    fold.know_skips_of(&known)?;
    let read = replay(shared, &mut fold, pinned)?;
    shared.config.failpoints.at(failpoint::VERIFY_BUILT);
    let mut indices = Vec::new();
    for index in INDICES {
        let (rows, live_digest) = project::digest(&view, index)?;
        let (_, rebuilt_digest) = project::digest(&*store, index)?;
        indices.push(IndexDigest {
            name: index.name.into(),
            rows,
            live_digest: format!("sha256:{live_digest}"),
            rebuilt_digest: format!("sha256:{rebuilt_digest}"),
        });
    }
    Ok((PartitionDigest { partition, offset: pinned, indices }, read))
}

/// Folds the partition from its first record up to `end` (exclusive); returns how many records were read.
fn replay(shared: &Shared, fold: &mut Fold, end: Offset) -> Result<u64, Error> {
    let partition = fold.partition;
    let mut read = 0;
    if end == Offset::ZERO {
        return Ok(read);
    }
    let mut reader = shared.log.reader(&[(partition, fold.next)]).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("partition {partition} cannot be read from its beginning"))
            .because(error)
    })?;
    while fold.next < end {
        if shared.is_ending() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down; verify again"));
        }
        let mut batch = reader.poll(BATCH, shared.config.executor.blocking_wait(READ_WAIT))?;
        if batch.is_empty() && reader.position(partition).is_none_or(|position| position < end) {
            let message = format!("partition {partition} delivered no record from offset {} in time; retry", fold.next);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let whole = batch.len();
        batch.retain(|delivery| delivery.offset < end);
        read += batch.len() as u64;
        take(fold, &batch)?;
        if batch.len() < whole || reader.position(partition).is_some_and(|position| position >= end) {
            break;
        }
    }
    Ok(read)
}

/// Folds a batch, waiting for schemas that the registry has to name again.
fn take(fold: &mut Fold, batch: &[Delivery]) -> Result<(), Error> {
    let until = Instant::now() + SCHEMA_WAIT;
    loop {
        match fold.take(batch)? {
            Step::Applied | Step::Rebuild { .. } => return Ok(()),
            Step::Stopped(stop) => {
                let message = format!("the rebuild stopped where the index did not: {}", stop.error);
                return Err(Error::new(ErrorKind::Internal, message));
            }
            Step::Waiting(failing) if Instant::now() >= until => {
                let why =
                    failing.map_or_else(|| "the registry did not resolve its schema in time".into(), |stop| stop.error);
                let message = format!("partition {} is not rebuilt past offset {}: {why}", fold.partition, fold.next);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            Step::Waiting(_) => fold.schemas.wait(SCHEMA_LOOK),
        }
    }
}
