//! Counts a partition's rows that may need an operator's attention, on request and up to a bound.

use super::{effects::state, visible::Visible};
use crate::index::{
    error::Error,
    store::{
        self, Key, Parts, Rows, anomalies, dead_letters,
        effects::{self, EffectRow},
        meta,
        runs::{self, RunRow},
    },
};
use runlog_schemas::{
    answer::{PendingState, RunsByStatus},
    id::RunId,
    judge::Class,
};
use std::ops::{AddAssign, ControlFlow};

/// The highest count; a longer list counts as this many.
pub const COUNT_MAX: u64 = 10_000;

/// Counts of effects without a recorded end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// Effects whose process (the last process that started them) still has the run and wrote to it recently.
    pub running: u64,
    /// The other effects: they wait for a decision, or for a process that runs them again.
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
    /// Runs with an applied record.
    pub runs: RunsByStatus,
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
        self.runs += other.runs;
        self.anomalies += other.anomalies;
        self.dead_letters += other.dead_letters;
    }
}

/// Counts the visible runs' rows of a partition as of `now`, milliseconds since the Unix epoch by the log's clock.
/// Runs, anomalies and dead letters are not counted by run, so their counts are 0 unless all runs are visible.
///
/// Cost: two seeks for each prefix of visible run ids, and one seek each for anomalies and dead letters. At most
/// [`COUNT_MAX`] + 1 steps for each of the four lists. A get for each pending effect.
pub fn count<R: Rows>(rows: &R, visible: &Visible, now: i64) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    let mut count_effect = |run_id: RunId<&str>, key: &[u8], row: &[u8]| -> Result<(), store::Error> {
        let (row, run) = (store::decode::<EffectRow>(key, row)?, rows.get::<RunRow>(&runs::key(run_id))?);
        let class_counts = match row.class().0 {
            Class::RetrySafe => &mut counts.retry_safe,
            Class::ReconcileRequired => &mut counts.reconcile_required,
        };
        let state = run.map(|run| state(rows, (run_id, &run), &row, now)).transpose()?;
        *match state.unwrap_or(PendingState::Waiting) {
            PendingState::Running => &mut class_counts.running,
            PendingState::Waiting => &mut class_counts.waiting,
        } += 1;
        Ok(())
    };
    let (mut remaining, mut remaining_ended) = (COUNT_MAX, COUNT_MAX);
    let mut contradicted = 0;
    for prefix in visible.prefixes("") {
        let visible_run = |key: &[u8]| Parts::new(key).id::<RunId>().filter(|run_id| visible.contains(run_id.borrow()));
        remaining -= scan_up_to(rows, &effects::prefix(false).text_prefix(&prefix), remaining, |key, row| {
            visible_run(key).map_or(Ok(()), |run_id| count_effect(run_id.borrow(), key, row))
        })?;
        let ended = effects::all_contradicted().text_prefix(&prefix);
        remaining_ended -= scan_up_to(rows, &ended, remaining_ended, |key, _| {
            contradicted += u64::from(visible_run(key).is_some());
            Ok(())
        })?;
    }
    counts.contradicted = contradicted;
    if visible.is_all() {
        counts.runs = rows.get(&meta::run_counts())?.unwrap_or_default();
        counts.anomalies = scan_up_to(rows, &anomalies::prefix(), COUNT_MAX, |_, _| Ok(()))?;
        counts.dead_letters = scan_up_to(rows, &dead_letters::prefix(), COUNT_MAX, |_, _| Ok(()))?;
    }
    Ok(counts)
}

fn scan_up_to<R: Rows>(
    rows: &R,
    prefix: &Key,
    max: u64,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), store::Error>,
) -> Result<u64, Error> {
    let mut count = 0;
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, row| {
        if count == max {
            return Ok(ControlFlow::Break(()));
        }
        visit(key, row)?;
        count += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count)
}
