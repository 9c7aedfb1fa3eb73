//! `runs`: one row per run, by run id. Reading a run is one get; a page of runs is one seek and a step per run.

use super::{
    error::Error,
    index::{Index, RUN_ID, RowFamily},
    key::Key,
    records::{ClaimRow, claimant},
};
use runlog_schemas::{
    datum,
    id::{Epoch, Offset, RunId},
    judge::{Head, RunStatus},
};

/// The index.
pub const INDEX: Index = Index::new(1, "runs", &[RowFamily::new::<RunRow>(0, "runs", &[RUN_ID])]);

/// A run's row.
pub fn key(run_id: RunId<&str>) -> Key {
    Key::new(INDEX, 0).text(run_id)
}

/// The start of the rows of runs whose id starts with `prefix`.
pub fn prefix(prefix: &str) -> Key {
    Key::new(INDEX, 0).text_prefix(prefix)
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RunRow {
    /// The judge's state of the run.
    pub head: Head,
    /// The last applied record.
    pub offset: Offset,
    /// Its index within the offset.
    pub index: u32,
    /// The log's timestamp of it, milliseconds since the Unix epoch.
    pub updated_at_millis: i64,
    /// The log's timestamp of the last record of the run's writer (not of an operator) that was applied or consumed a
    /// number.
    pub wrote_at_millis: i64,
}
datum!(RunRow { head, offset, index, updated_at_millis, wrote_at_millis });

/// How long a process counts as alive after its last record, milliseconds.
const ALIVE_FOR: i64 = 30_000;

impl RunRow {
    /// Whether the process that last started an effect, in `epoch`, may still end it. It must have claimed the open run,
    /// still have it (under the same writer id, or as the same handle), and have written to it within 30 s of `now`. `now` is the log's time,
    /// milliseconds since the Unix epoch.
    ///
    /// A write later than `now` shows that the log's clock was ahead. Up to 30 s later, the process counts as alive. Beyond
    /// that, the time of the write is unknown and the process does not.
    fn runs_effects_of(&self, epoch: Epoch, now: i64) -> bool {
        let Head { writer_since, handle_since, epoch: current, status, .. } = &self.head;
        let since = *writer_since.min(handle_since);
        let has_run = epoch > Epoch::ZERO && (since..=*current).contains(&epoch) && *status == RunStatus::Open;
        has_run && now.saturating_sub(self.wrote_at_millis).saturating_abs() < ALIVE_FOR
    }
}

/// Whether the process that last started an effect, in `epoch`, may still end it, as the run's row says. A claim by another principal
/// under the same writer id is of another process, because the run's readers know the id. At most two gets.
pub fn runs_effects_of(
    run_id: RunId<&str>,
    run: &RunRow,
    epoch: Epoch,
    now: i64,
    get: impl Fn(&Key) -> Result<Option<ClaimRow>, Error>,
) -> Result<bool, Error> {
    if !run.runs_effects_of(epoch, now) {
        return Ok(false);
    }
    if epoch >= run.head.handle_since {
        return Ok(true);
    }
    let (started_by, claimed_by) = (claimant(run_id, epoch, &get)?, claimant(run_id, run.head.epoch, &get)?);
    Ok(started_by.is_none() || claimed_by.is_none() || started_by == claimed_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_for_half_a_minute_after_its_last_record_while_it_has_the_run() {
        let (epoch, writer_since) = (Epoch::from(3), Epoch::from(2));
        let run = RunRow {
            head: Head { epoch, writer_since, handle_since: epoch, ..Head::default() },
            wrote_at_millis: 1_000_000,
            ..RunRow::default()
        };
        assert!(run.runs_effects_of(epoch, 1_029_999) && !run.runs_effects_of(epoch, 1_030_000));
        // A new claim by the same process does not end its earlier effects.
        assert!(run.runs_effects_of(writer_since, 1_029_999));
        // The log's clock can have been ahead.
        assert!(run.runs_effects_of(epoch, 970_001) && !run.runs_effects_of(epoch, 970_000));
        assert!(!run.runs_effects_of(Epoch::from(1), 1_000_000));
        let ended = RunRow { head: Head { status: RunStatus::Completed, ..run.head.clone() }, ..run };
        assert!(!ended.runs_effects_of(epoch, 1_000_000));
        assert!(!RunRow { wrote_at_millis: 1_000_000, ..RunRow::default() }.runs_effects_of(Epoch::ZERO, 1_000_000));
    }
}
