//! Counts a partition's rows that need an operator's attention, on request and up to a bound.

use crate::index::{
    Error,
    store::{
        self, Key, Rows, anomalies, dead_letters,
        effects::{self, EffectRow},
    },
};
use runlog_schemas::judge::Class;
use std::ops::{AddAssign, ControlFlow};

/// The highest count; a longer list counts as this many.
pub const COUNT_MAX: u64 = 10_000;

/// Counts of a partition, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Effects without a recorded end that are safe to run again.
    pub retry_safe: u64,
    /// Effects without a recorded end that must not run again before a decision.
    pub reconcile_required: u64,
    /// Records that were refused.
    pub anomalies: u64,
    /// Unreadable records.
    pub dead_letters: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.retry_safe += other.retry_safe;
        self.reconcile_required += other.reconcile_required;
        self.anomalies += other.anomalies;
        self.dead_letters += other.dead_letters;
    }
}

/// Counts a partition: three seeks, and at most [`COUNT_MAX`] steps each.
pub fn of<R: Rows>(rows: &R) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    each(rows, &effects::prefix(false), |key, row| {
        let row: EffectRow = store::decode(key, row)?;
        match row.class().0 {
            Class::ReconcileRequired => counts.reconcile_required += 1,
            _ => counts.retry_safe += 1,
        }
        Ok(())
    })?;
    counts.anomalies = each(rows, &anomalies::prefix(), |_, _| Ok(()))?;
    counts.dead_letters = each(rows, &dead_letters::prefix(), |_, _| Ok(()))?;
    Ok(counts)
}

fn each<R: Rows>(
    rows: &R,
    prefix: &Key,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), store::Error>,
) -> Result<u64, Error> {
    let mut count = 0;
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        visit(key, row)?;
        count += 1;
        Ok(if count < COUNT_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(count)
}
