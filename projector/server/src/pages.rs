//! Pages of lists across partitions.

use super::{app::App, parameters};
use runlog_projector::index::{
    error::Error,
    query::{self, PartitionCursor, parse_partition_cursor},
};
use runlog_schemas::{datum::hex, id::PartitionId};

/// The requested page of a list across partitions.
pub(super) struct Pages {
    limit: usize,
    from: Option<PartitionCursor>,
}

impl Pages {
    /// Parses `limit` and a cursor `P:…`.
    pub(super) fn parse(limit: Option<usize>, cursor: Option<&str>) -> Result<Self, Error> {
        Ok(Self { limit: parameters::limit(limit)?, from: parse_partition_cursor(cursor)? })
    }
}

type Page<T> = (Vec<T>, Option<Vec<u8>>);

/// Reads a page from partition `only`, or from all held partitions in order.
///
/// Errors: `Unavailable` with the reason `not_here` for a cursor of a partition that this server does not hold.
pub(super) fn across<T>(
    app: &App,
    Pages { limit, from }: Pages,
    only: Option<PartitionId>,
    mut page: impl FnMut(&App, PartitionId, Option<&[u8]>, usize) -> Result<Page<T>, Error>,
) -> Result<(Vec<T>, Option<String>), Error> {
    let is_wanted = |partition: &PartitionId| only.is_none_or(|only| only == *partition);
    let wanted = app.projector.held_partitions().filter(is_wanted);
    let Some((first, mut cursor)) = from.or_else(|| Some((wanted.clone().next()?, None))) else {
        return Ok((Vec::new(), None));
    };
    if first.get() >= app.projector.journal().partitions || !is_wanted(&first) {
        return Err(query::foreign_cursor());
    }
    // The list must not continue after the partition as if it had no more items.
    app.projector.check_held(first)?;
    let mut items = Vec::new();
    for partition in wanted.filter(|partition| *partition >= first) {
        if items.len() == limit {
            return Ok((items, Some(app.with_log(format!("{partition}:")))));
        }
        let (page_items, next) = page(app, partition, cursor.take().as_deref(), limit - items.len())?;
        items.extend(page_items);
        if let Some(next) = next {
            return Ok((items, Some(app.with_log(format!("{partition}:{}", hex(&next))))));
        }
    }
    Ok((items, None))
}
