//! Proves that the indices equal the log. A verification folds the log again in bulk, from the first record to one pinned
//! offset per partition, with the live fold's code. Then it compares the digests of the folded rows with the digests of the
//! live rows. It writes no second database.

use super::{
    bulk::{self, Digests},
    error::Error,
    failpoint, fold,
    projector::Projector,
    shared::Shared,
    store::{Folder, INDICES, Rows, meta},
};
use runlog_schemas::{
    answer::{IndexDigest, PartitionDigest, Verification},
    id::PartitionId,
};
use std::sync::Arc;

impl Projector {
    /// Compares every index of every partition with a rebuild from the log, while queries and the loop continue. Blocking:
    /// takes as long as reading the whole log. `seconds` in the answer is 0; the caller sets it.
    pub fn verify(&self) -> Result<Verification, Error> {
        let config = &self.shared.config;
        let folder = Folder::new(config.storage.clone(), config.dir.join(format!("verify-{}", (config.ids)())));
        let result = verify_in(&self.shared, &folder);
        // Contains only temporary files: a failed removal costs only disk space.
        folder.remove();
        result
    }
}

fn verify_in(shared: &Arc<Shared>, folder: &Folder) -> Result<Verification, Error> {
    let each =
        shared.config.executor.each(shared.held_partitions().collect(), shared.builds_max, |partition: PartitionId| {
            verify_partition(shared, partition, &folder.join(&partition.to_string()))
        });
    let (partitions, read): (Vec<_>, Vec<u64>) = each.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let records = read.iter().sum();
    let same = |index: &IndexDigest| index.live_digest == index.rebuilt_digest;
    let equal = partitions.iter().flat_map(|partition| &partition.indices).all(same);
    let unavailable_partitions =
        PartitionId::all(shared.journal.partitions).filter(|at| shared.check_held(*at).is_err());
    let unavailable_partitions = unavailable_partitions.collect();
    Ok(Verification { equal, records, partitions, unavailable_partitions, seconds: 0.0 })
}

fn verify_partition(shared: &Shared, partition: PartitionId, folder: &Folder) -> Result<(PartitionDigest, u64), Error> {
    let store = shared.store(partition)?;
    let view = store.view();
    let pinned = view.get::<meta::Progress>(&meta::progress())?.unwrap_or_default().next_offset;
    let voided = fold::skip_rows_of(&view)?;
    let (rebuilt, read) = bulk::replay(shared, partition, pinned, voided, folder, Digests::default())?;
    shared.config.failpoints.reach(failpoint::VERIFY_BUILT);
    let (live, mut indices) = (bulk::digests(&view)?, Vec::new());
    for index in INDICES {
        let (rows, live_digest) = live.digest(index);
        let (_, rebuilt_digest) = rebuilt.digest(index);
        indices.push(IndexDigest {
            name: index.name.into(),
            rows,
            live_digest: format!("sha256:{live_digest}"),
            rebuilt_digest: format!("sha256:{rebuilt_digest}"),
        });
    }
    Ok((PartitionDigest { partition, offset: pinned, indices }, read))
}
