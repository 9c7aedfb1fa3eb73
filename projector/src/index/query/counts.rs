//! Counts a partition's rows that may need an operator's attention, on request and up to a bound.

use super::effects::state;
use crate::index::{
    Error,
    store::{
        self, Key, Parts, Rows, anomalies, dead_letters,
        effects::{self, EffectRow},
        runs::{self, RunRow},
    },
};
use runlog_schemas::{answer::PendingState, id::RunId, judge::Class};
use std::ops::{AddAssign, ControlFlow};

/// The highest count; a longer list counts as this many.
pub const COUNT_MAX: u64 = 10_000;

/// Counts of effects without a recorded end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// The process that started it last has the run and wrote to it a moment ago.
    pub running: u64,
    /// The others: they wait for a decision, or for a process that runs them again.
    pub waiting: u64,
}

impl AddAssign for PendingCounts {
    fn add_assign(&mut self, other: Self) {
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

/// Counts of a partition, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Effects without a recorded end that are safe to run again.
    pub retry_safe: PendingCounts,
    /// Effects without a recorded end that must not run again before a decision.
    pub reconcile_required: PendingCounts,
    /// Ended effects that a later result contradicts.
    pub contradicted: u64,
    /// Records that were refused.
    pub anomalies: u64,
    /// Unreadable records.
    pub dead_letters: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.retry_safe += other.retry_safe;
        self.reconcile_required += other.reconcile_required;
        self.contradicted += other.contradicted;
        self.anomalies += other.anomalies;
        self.dead_letters += other.dead_letters;
    }
}

/// Counts a partition as of `now`, milliseconds since the Unix epoch by the log's clock: four seeks, at most [`COUNT_MAX`] steps
/// each, and a get for each pending effect.
pub fn of<R: Rows>(rows: &R, now: i64) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    each(rows, &effects::prefix(false), |key, row| {
        let (run_id, row) = (Parts::new(key).id::<RunId>(), store::decode::<EffectRow>(key, row)?);
        let of_class = match row.class().0 {
            Class::RetrySafe => &mut counts.retry_safe,
            Class::ReconcileRequired => &mut counts.reconcile_required,
        };
        let run: Option<RunRow> = run_id.map_or(Ok(None), |run_id| rows.get(&runs::key(run_id.borrow())))?;
        *match run.map_or(PendingState::Waiting, |run| state(&run, &row, now)) {
            PendingState::Running => &mut of_class.running,
            PendingState::Waiting => &mut of_class.waiting,
        } += 1;
        Ok(())
    })?;
    counts.contradicted = each(rows, &effects::all_contradicted(), |_, _| Ok(()))?;
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
