//! Whether a run contains stored content.

use crate::index::{
    error::Error,
    store::{self, Rows, contents::ContentRow},
};
use rocksdb::Direction;
use runlog_schemas::{id::RunId, payload::StoredPayload};
use std::ops::ControlFlow;

/// How many contents of a run are compared with the content that a record names.
const NAMED_MAX: usize = 10_000;

/// Whether the content is among the first 10,000 contents of a run. Blocking.
pub fn contains<R: Rows>(rows: &R, run_id: RunId<&str>, wanted: &StoredPayload) -> Result<bool, Error> {
    let prefix = store::contents::prefix(run_id);
    let (mut has, mut seen) = (false, 0);
    rows.scan(prefix.bytes(), prefix.bytes(), Direction::Forward, &mut |key, row| {
        let row: ContentRow = store::decode(key, row)?;
        has = row.stored == *wanted;
        seen += 1;
        Ok(if has || seen == NAMED_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(has)
}
