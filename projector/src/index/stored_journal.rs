//! Finds the journal from which the indices of a data folder were built, without its log.

use super::{
    error::Error,
    rebuild,
    store::{
        Budget, Folder, Rows,
        meta::{self, Journal},
    },
};
use runlog_schemas::id::PartitionId;
use std::collections::BTreeSet;

/// Memory for reading one row of an index, bytes.
const READ_BYTES: usize = 1 << 20;

/// Returns the journal of the indices in this folder, which may have an older layout. `None` if no index has applied a record.
/// Blocking. No projector may use the folder meanwhile.
pub fn stored_journal(index: &Folder) -> Result<Option<Journal>, Error> {
    let numbers = |folder: &Folder| folder.names().into_iter().filter_map(|name| name.parse::<u32>().ok());
    let generations = numbers(index).map(|generation| index.join(&generation.to_string()));
    let partitions: BTreeSet<u32> = generations.flat_map(|generation| numbers(&generation)).collect();
    let budget = Budget::new(READ_BYTES);
    for partition in partitions.into_iter().filter_map(|number| PartitionId::new(number).ok()) {
        if let Some(journal) = rebuild::open(index, partition, &budget)?.store().get(&meta::journal())? {
            return Ok(Some(journal));
        }
    }
    Ok(None)
}
