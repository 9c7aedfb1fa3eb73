//! `wakes`: what a run waits for.

use super::{At, Changes, OfRun, evolving};
use crate::store::{self, Rows, wakes::INDEX};
use runlog_schemas::judge::lifecycle::Step;

/// Takes in what a record says of one.
pub fn applied<R: Rows>(
    record: OfRun<'_, '_>,
    step: &Step<'_>,
    at: At<'_>,
    changes: &mut Changes<'_, R>,
) -> Result<(), store::Error> {
    evolving::applied(INDEX, record, step, at, changes)
}
