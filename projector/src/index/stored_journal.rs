//! Finds the journal from which the indices of a data folder were built, and their partitions, without the log.

use super::{
    error::Error,
    rebuild,
    store::{
        Budget, Folder, Rows,
        meta::{self, Journal},
    },
};
use runlog_schemas::id::{Offset, PartitionId};
use std::collections::BTreeSet;

/// Memory for reading one row of an index, bytes.
const READ_BYTES: usize = 1 << 20;

/// Returns the journal of the indices in this folder, which may have an older layout. `None` if no index has applied a record.
/// Blocking. No projector may use the folder meanwhile.
pub fn stored_journal(index: &Folder) -> Result<Option<Journal>, Error> {
    let budget = Budget::new(READ_BYTES);
    for partition in partitions_in(index) {
        if let Some(journal) = rebuild::open(index, partition, &budget)?.store().get(&meta::journal())? {
            return Ok(Some(journal));
        }
    }
    Ok(None)
}

/// Returns the partitions of `journal` whose index in this folder has applied a record. An index that cannot be read answers nothing and
/// is left out. Blocking. No projector may use the folder meanwhile.
pub fn indexed_partitions(index: &Folder, journal: &Journal) -> BTreeSet<PartitionId> {
    let budget = Budget::new(READ_BYTES);
    let is_indexed = |partition| -> Result<bool, Error> {
        let live = rebuild::open(index, partition, &budget)?;
        let progress: meta::Progress = live.store().get(&meta::progress())?.unwrap_or_default();
        let own: Option<Journal> = live.store().get(&meta::journal())?;
        Ok(own.is_none_or(|own| own == *journal) && progress.next_offset > Offset::ZERO)
    };
    let partitions = partitions_in(index).into_iter().filter(|partition| partition.get() < journal.partitions);
    let indexed = partitions.filter(|partition| {
        is_indexed(*partition).unwrap_or_else(|error| {
            tracing::warn!(%partition, "the index of the partition cannot be read: {error}");
            false
        })
    });
    indexed.collect()
}

/// The partitions with a folder.
fn partitions_in(index: &Folder) -> BTreeSet<PartitionId> {
    let numbers = |folder: &Folder| folder.names().into_iter().filter_map(|name| name.parse::<u32>().ok());
    let generations = numbers(index).map(|generation| index.join(&generation.to_string()));
    generations.flat_map(|generation| numbers(&generation)).filter_map(|number| PartitionId::new(number).ok()).collect()
}
