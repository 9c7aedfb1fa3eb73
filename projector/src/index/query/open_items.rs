//! Lists open objects with a lifecycle: approvals, wakes, messages, write-backs, proposals, pools.

use super::TopicPartition;
use crate::index::{
    error::Error,
    store::{
        self, INDICES, Index, Parts, Rows,
        evolving::{StateRow, all, ended_of, open_of},
        write_backs,
    },
};
use runlog_schemas::{answer::Standing, id::RunId, judge::lifecycle::write_back_of};

/// A page: its items with their runs, and the next page's cursor.
type Page = (Vec<(RunId, Standing)>, Option<Vec<u8>>);

/// A page of the open or ended objects of a run or of all runs, in key order. Cost: one seek, and a step per object.
pub fn page<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    index: Index,
    (run_id, ended): (Option<RunId<&str>>, bool),
    cursor: Option<&[u8]>,
    limit: usize,
) -> Result<Page, Error> {
    let prefix = match (run_id, ended) {
        (Some(run_id), false) => open_of(index, run_id),
        (Some(run_id), true) => ended_of(index, run_id),
        (None, ended) => all(index, ended),
    };
    super::page(rows, &prefix, cursor, limit, |key, row| {
        let mut parts = Parts::new(key);
        let (Some(run_id), Some(id)) = (parts.id(), parts.text()) else { return Ok(None) };
        Ok(Some((run_id, answer(place, index, id, store::decode(key, row)?))))
    })
}

/// The index with this name, if it lists objects with a lifecycle.
pub fn index(name: &str) -> Option<Index> {
    INDICES.into_iter().find(|index| index.name == name && index.lifecycle.is_some())
}

fn answer(place: TopicPartition<'_>, index: Index, id: String, row: StateRow) -> Standing {
    let write_back = if index == write_backs::INDEX { write_back_of(&id) } else { None };
    let (id, epoch) = write_back.map_or((id, None), |(txn, epoch)| (txn.to_string(), Some(epoch)));
    Standing {
        id,
        epoch,
        status: row.state.status,
        journal_seq: row.journal_seq,
        since: place.position(row.began_offset, row.began_index),
        record_id: row.record_id,
        position: place.position(row.offset, row.index),
    }
}
