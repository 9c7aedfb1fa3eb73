//! Rebuilds the store of one partition beside the live store, for one of three reasons: a skip voids an applied record, an older
//! version of Runlog wrote the live store in another layout, or the live store may have records that a mirror's transactions
//! aborted.
//!
//! Folders are `DIR/index/<generation>/<partition>/`. The new store is in the next generation. Until it has reached the old
//! store's offset, the old store answers queries. The new store gets the marker [`meta::live`] before the old store is
//! removed, so that a start after a crash finds one of them. A store of an older layout cannot answer: until the new store
//! reaches its offset ([`meta::older`]), the partition is `stale`, at `eventual` too.

use super::{
    failpoint,
    fold::{Fold, skip_rows_of},
    project::Changes,
    shared::Shared,
    store::{self, Commit, Folder, Rows, Store, meta},
};
use runlog_schemas::id::{Offset, PartitionId};
use std::sync::Arc;

/// The folder of a partition's store.
pub fn dir(index: &Folder, generation: u32, partition: PartitionId) -> Folder {
    index.join(&generation.to_string()).join(&partition.to_string())
}

/// The generations that have `partition`, newest first.
pub fn generations(index: &Folder, partition: PartitionId) -> Vec<u32> {
    let numbers = index.names().into_iter().filter_map(|name| name.parse().ok());
    let mut existing: Vec<u32> = numbers.filter(|generation| dir(index, *generation, partition).exists()).collect();
    existing.sort_unstable_by(|a, b| b.cmp(a));
    existing
}

/// A partition's live store.
#[derive(Debug)]
pub enum LiveStore {
    /// A store of this version's layout, or a new one.
    Current(Store),
    /// A store of an older layout: only its rows of [`meta`] can be read.
    Older(Store),
}

impl LiveStore {
    /// The store, to read its rows of [`meta`].
    pub fn store(&self) -> &Store {
        match self {
            Self::Current(store) | Self::Older(store) => store,
        }
    }
}

/// Opens the partition's live store: the newest generation that is marked live or that replaces an older layout, else
/// generation 1. Removes unfinished rebuilds and replaced stores.
pub fn open(index: &Folder, partition: PartitionId, budget: &store::Budget) -> Result<LiveStore, store::Error> {
    let existing = generations(index, partition);
    for (nth, generation) in existing.iter().enumerate() {
        let dir = dir(index, *generation, partition);
        let store = Store::open_any(dir.clone(), budget)?;
        let older = store.layout()? != meta::LAYOUT;
        let (is_live, replaces_older) =
            (store.row(meta::live().bytes())?.is_some(), store.row(meta::older().bytes())?.is_some());
        if *generation == 1 || is_live || replaces_older {
            // Removes a replaced store that an earlier process could not remove, because queries still held it.
            for replaced in existing.iter().skip(nth + 1).filter(|_| is_live && !replaces_older) {
                self::dir(index, *replaced, partition).remove();
            }
            return Ok(if older { LiveStore::Older(store) } else { LiveStore::Current(store) });
        }
        drop(store);
        // Removes an unfinished rebuild, which the log can repeat.
        dir.remove();
    }
    Ok(LiveStore::Current(Store::open(dir(index, 1, partition), budget)?))
}

/// Creates an empty store of this layout beside the older store, which stays until the new store has reached its offset.
/// The new store records the older store's skips and offset, so that a restart continues the rebuild. If it is built from
/// `committed` records only, it records that instead of the skips: they may name offsets of another log, and the log has them, too.
pub fn create_beside(
    index: &Folder,
    partition: PartitionId,
    older: &Store,
    budget: &store::Budget,
    committed: bool,
) -> Result<Store, store::Error> {
    let generation = generations(index, partition).first().map_or(1, |newest| newest + 1);
    let store = Store::open(dir(index, generation, partition), budget)?;
    let reached: meta::Progress = older.get(&meta::progress())?.unwrap_or_default();
    let mut changes = Changes::new(&store);
    if committed {
        changes.mark(meta::committed());
    } else {
        for (offset, row) in skip_rows_of(older)? {
            changes.put(meta::skip(offset), &row);
        }
    }
    changes.put(meta::older(), &reached.next_offset);
    store.commit(changes.rows())?;
    store.flush()?;
    tracing::warn!(
        %partition, generation, from = older.layout()?, to = meta::LAYOUT, until = %reached.next_offset, committed,
        "the index has an older layout, or was built from uncommitted records: rebuilding it from the log"
    );
    Ok(store)
}

/// Replaces `fold` by a fold over an empty store with all skips, including the skip of `offset`. The old store is unchanged
/// and keeps answering queries. After a crash before the new store is live, the old store's fold reads the skip again.
pub fn begin(shared: &Shared, fold: &mut Fold, offset: Offset, row: &meta::SkipRow) -> Result<(), store::Error> {
    let index = shared.config.index();
    let generation = generations(&index, fold.partition).first().map_or(1, |newest| newest + 1);
    let store = Arc::new(Store::open(dir(&index, generation, fold.partition), &shared.budget)?);
    let mut new_fold = fold.with_empty_store(store.clone())?;
    new_fold.void(offset, row)?;
    if shared.log.reads_committed() {
        store.commit(std::iter::once((meta::committed().bytes(), Some(&[][..]))))?;
    }
    // The replaced store may not have reached the offset of a store of an older layout either.
    if let Some(until) = fold.store.row(meta::older().bytes())? {
        store.commit(std::iter::once((meta::older().bytes(), Some(until.as_slice()))))?;
    }
    shared.config.failpoints.reach(failpoint::REBUILD_STARTED);
    tracing::warn!(partition = %fold.partition, generation, "a skip voids an applied record, rebuilding");
    *fold = new_fold;
    Ok(())
}

/// Replaces the old store by the rebuilt store, if that has reached the old store's offset. Does nothing without a rebuild.
/// A failure is retried after the next batch.
pub fn finish_if_caught_up(shared: &Shared, fold: &mut Fold) {
    let partition = fold.partition;
    let Ok(live) = shared.store(partition) else { return };
    if Arc::ptr_eq(&live, &fold.store) {
        if shared.older(partition).ok().flatten().is_some_and(|until| fold.next >= until)
            && let Err(error) = replace_older(shared, fold)
        {
            tracing::error!(%partition, next = %fold.next, %error, "replacing the index of the older layout failed, will retry");
        }
        return;
    }
    match swap_if_caught_up(shared, fold, &live) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(%partition, next = %fold.next, "partition rebuilt");
            live.remove_when_unused();
        }
        Err(error) => {
            tracing::error!(%partition, next = %fold.next, %error, "replacing the old store by the rebuilt one failed, will retry")
        }
    }
}

/// Marks the rebuilt store live and makes it answer queries, if it has reached the old store's offset. Returns whether it
/// has.
fn swap_if_caught_up(shared: &Shared, fold: &Fold, live: &Store) -> Result<bool, store::Error> {
    // Reads the offset from the old store, because the reported progress may be the new store's.
    let reached: meta::Progress = live.get(&meta::progress())?.unwrap_or_default();
    if fold.next < reached.next_offset {
        return Ok(false);
    }
    let (key, points) = (meta::live(), &shared.config.failpoints);
    points.reach(failpoint::REBUILD_CAUGHT_UP);
    fold.store.commit(std::iter::once((key.bytes(), Some(&[][..]))))?;
    // The old store is removed next, so the new store's rows must survive a crash.
    fold.store.flush()?;
    points.reach(failpoint::REBUILD_MARKED);
    shared.swap(fold.partition, fold.store.clone());
    points.reach(failpoint::REBUILD_SWAPPED);
    Ok(true)
}

/// Marks the store live and removes the store of the older layout, whose offset it has reached.
fn replace_older(shared: &Shared, fold: &Fold) -> Result<(), store::Error> {
    let (live, older) = (meta::live(), meta::older());
    fold.store.commit([(live.bytes(), Some(&[][..])), (older.bytes(), None)].into_iter())?;
    // The older store is removed next, so the new store's rows must survive a crash.
    fold.store.flush()?;
    shared.forget_older(fold.partition);
    let index = shared.config.index();
    for generation in generations(&index, fold.partition) {
        let dir = dir(&index, generation, fold.partition);
        if dir.path() != fold.store.dir() {
            dir.remove();
        }
    }
    tracing::info!(partition = %fold.partition, next = %fold.next, layout = meta::LAYOUT, "the index is rebuilt in the current layout");
    Ok(())
}
