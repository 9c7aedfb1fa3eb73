//! Deletes the index, rebuilds it from the log, and compares the digests with those from before.

use super::journal::{self, Journal};
use crate::Error;
use runlog_schemas::{
    answer::Verification,
    id::{Offset, PartitionId},
};
use serde::Serialize;
use std::{collections::BTreeMap, path::Path, time::Instant};

/// The result of a rebuild.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rebuild {
    /// Log records that the index was rebuilt from.
    pub(super) records: u64,
    /// Time from an empty index until it has caught up with the log.
    pub(super) seconds: f64,
    pub(super) records_per_second: f64,
    /// Time to open log and index before that.
    pub(super) open_seconds: f64,
    /// Number of digests: indices times partitions.
    pub(super) digests: u64,
    /// Digests that are the same as before.
    pub(super) digests_equal: u64,
    pub(super) rows: u64,
}

/// Compares the index with the log, and adds a sentence for each difference.
pub(super) async fn verify(journal: &Journal, differences: &mut Vec<String>) -> Result<Verification, Error> {
    let verified = journal.verify().await?;
    for partition in &verified.partitions {
        for index in partition.indices.iter().filter(|index| index.live_digest != index.rebuilt_digest) {
            let (name, partition) = (&index.name, partition.partition);
            differences.push(format!("verify: index {name} of partition {partition} differs from the log"));
        }
    }
    Ok(verified)
}

/// Ends the journal, deletes its index, starts it again in `dir`, and waits until it has caught up.
pub(super) async fn rebuild(
    journal: Journal,
    before: &Verification,
    dir: &Path,
    differences: &mut Vec<String>,
) -> Result<(Journal, Rebuild), Error> {
    journal.end_without_index().await?;
    let listener = journal::any_port().await?;
    let start = Instant::now();
    let journal = Journal::start(dir, listener).await?;
    let opened = Instant::now();
    journal.caught_up().await?;
    let (seconds, open_seconds) = (opened.elapsed().as_secs_f64(), (opened - start).as_secs_f64());
    let after = verify(&journal, differences).await?;
    let (old, new) = (digests(before), digests(&after));
    let equal = new.iter().filter(|(index, digest)| old.get(*index) == Some(*digest)).count();
    if old != new {
        let other: Vec<_> = old.iter().filter(|(index, digest)| new.get(*index) != Some(*digest)).collect();
        differences.push(format!("these indices changed by a rebuild from the log: {other:?}"));
    }
    let rows = after.partitions.iter().flat_map(|partition| &partition.indices).map(|index| index.rows).sum();
    let rebuild = Rebuild {
        records: after.records,
        seconds,
        records_per_second: after.records as f64 / seconds,
        open_seconds,
        digests: old.len() as u64,
        digests_equal: equal as u64,
        rows,
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
