//! Deletes the index, rebuilds it from the log, and compares the digests with the digests before.

use crate::{error::Error, journal::Journal};
use runlog_schemas::{
    answer::Verification,
    id::{Offset, PartitionId},
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Instant};

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rebuild {
    /// Log records that the index was rebuilt from.
    pub records: u64,
    /// Time from an empty index until it has caught up with the log.
    pub seconds: f64,
    pub records_per_second: f64,
    /// Time to open the log and the empty index.
    pub open_seconds: f64,
    /// Number of digests: indices times partitions.
    pub digests: u64,
    /// Digests that are the same as before.
    pub digests_equal: u64,
    pub rows: u64,
}

/// Compares the index with the log, and adds a sentence for each difference.
pub(crate) async fn verify(journal: &Journal, differences: &mut Vec<String>) -> Result<Verification, Error> {
    let verified = journal.verify().await?;
    for partition in &verified.partitions {
        for index in partition.indices.iter().filter(|index| index.live_digest != index.rebuilt_digest) {
            let (name, partition) = (&index.name, partition.partition);
            differences.push(format!("verify: index {name} of partition {partition} differs from the log"));
        }
    }
    Ok(verified)
}

/// Restarts the journal without its index, and waits until the new index has caught up.
pub(crate) async fn rebuild(
    journal: Journal,
    before: &Verification,
    differences: &mut Vec<String>,
) -> Result<(Journal, Rebuild), Error> {
    let setup = journal.end_without_index().await?;
    let start = Instant::now();
    let journal = Journal::start(setup).await?;
    let opened = Instant::now();
    journal.caught_up().await?;
    let (seconds, open_seconds) = (opened.elapsed().as_secs_f64(), (opened - start).as_secs_f64());
    let after = verify(&journal, differences).await?;
    let (old, new) = (digests(before), digests(&after));
    let changed: Vec<_> = old.iter().filter(|(index, digest)| new.get(*index) != Some(*digest)).collect();
    if old != new {
        differences.push(format!("these indices changed by a rebuild from the log: {changed:?}"));
    }
    let rebuild = Rebuild {
        records: after.records,
        seconds,
        records_per_second: after.records as f64 / seconds,
        open_seconds,
        digests: old.len() as u64,
        digests_equal: (old.len() - changed.len()) as u64,
        rows: after.partitions.iter().flat_map(|partition| &partition.indices).map(|index| index.rows).sum(),
    };
    Ok((journal, rebuild))
}

/// Returns the live digests by partition, offset and index.
fn digests(verification: &Verification) -> BTreeMap<(PartitionId, Offset, &str), &str> {
    let mut digests = BTreeMap::new();
    for partition in &verification.partitions {
        for index in &partition.indices {
            digests.insert((partition.partition, partition.offset, &*index.name), &*index.live_digest);
        }
    }
    digests
}
