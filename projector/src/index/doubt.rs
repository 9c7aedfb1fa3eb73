//! Runs in doubt. A log that took over from a lost home may lack the home's last records. So a run that was open then may have done
//! more than its records say, and so may a run that is unknown here. Nobody may continue such a run until an operator has checked
//! its effects at their receivers, and has accepted it. A record that arrives after the takeover proves nothing about its run: it may
//! be a late copy of the home's record, or an operator's retraction.
//!
//! ```text
//!   epoch < 2 ─▶ no run          the partition lacks the home's record ─▶ each run that has not ended
//!   otherwise, by the run:
//!     ended ─▶ no     accepted after the home's record ─▶ no
//!     unknown, or first record after the first acceptance of all unknown runs ─▶ no, if they were accepted
//!     else ─▶ in doubt
//! ```
//!
//! Each of these facts stays true, so an index that lags finds too many runs in doubt, never too few.

use super::{
    error::Error,
    home::HomeState,
    store::{
        self, Rows,
        meta::{self, AcceptRow, HomeRow},
        records,
        runs::{self, RunRow},
    },
};
use runlog_schemas::{
    id::{Offset, RunId},
    judge::RunStatus,
    record::{JournalRecord, RecordKind},
    shell,
    subject::Subject,
};
use std::ops::ControlFlow;

/// The author of records of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A process that continues the run. It may not append to a run in doubt.
    Writer,
    /// An operator, who decides about the run's effects. A run in doubt may need that.
    Operator,
}

impl Author {
    /// The author of records that are appended together: an operator only if each record is an operator's decision or a retraction.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a JournalRecord>) -> Self {
        let is_operators = |record: &JournalRecord| match record.body.record_kind {
            RecordKind::Retraction => true,
            // A writer's own decision names its epoch. Another writer may have started the effect at the lost home.
            RecordKind::EffectResolution => record.body.facts.epoch.is_none(),
            _ => false,
        };
        if records.into_iter().all(is_operators) { Self::Operator } else { Self::Writer }
    }
}

/// Fails if the run is in doubt, as far as `rows` show, which are of the run's partition.
///
/// Errors: `ReconcileRequired` with the reason `doubt`.
pub(super) fn check<R: Rows>(rows: &R, home: &HomeState, run_id: RunId<&str>) -> Result<(), Error> {
    let Some(home) = home.takeover() else { return Ok(()) };
    let run: Option<RunRow> = rows.get(&runs::key(run_id))?;
    if !is_in_doubt(rows, &home, run_id, run.as_ref())? {
        return Ok(());
    }
    let HomeRow { from, log, who, why, .. } = &home;
    let unknown = ", or `runlog home accept --unknown-runs --who NAME --why TEXT` for all unknown runs";
    let (state, or) = match first_record(rows, run_id)? {
        None => ("is unknown here", unknown),
        Some(first) if taken_at(rows, &home)?.is_some_and(|since| first > since) => ("was unknown here then", ""),
        Some(_) => ("was open then", ""),
    };
    let accept = shell::command("runlog home accept", &[run_id.as_str()], "--who NAME --why TEXT");
    let message = format!(
        "the home {from} was lost and log {log} took over ({who}: {why}): run {run_id} {state}, so it may have done more than this \
         journal knows. Check its effects at their receivers, then `{accept}`{or}"
    );
    Err(Error::doubt(message).about(Subject { run_id: Some(run_id.to_owned()), ..Subject::default() }))
}

/// Whether a run is in doubt since the takeover by `home`. `run` is its row, `None` for an unknown run.
pub(super) fn is_in_doubt<R: Rows>(
    rows: &R,
    home: &HomeRow,
    run_id: RunId<&str>,
    run: Option<&RunRow>,
) -> Result<bool, store::Error> {
    if run.is_some_and(|run| run.head.status != RunStatus::Open) {
        return Ok(false);
    }
    if accepted_at(rows, Some(run_id), home)?.is_some() {
        return Ok(false);
    }
    let Some(unknown_accepted) = accepted_at(rows, None, home)? else { return Ok(true) };
    Ok(first_record(rows, run_id)?.is_some_and(|first| first < unknown_accepted))
}

/// Whether each unknown run of the partition is in doubt since the takeover by `home`.
pub(super) fn doubts_unknown_runs<R: Rows>(rows: &R, home: &HomeRow) -> Result<bool, store::Error> {
    Ok(accepted_at(rows, None, home)?.is_none())
}

/// The offset of the home's record in this partition.
fn taken_at<R: Rows>(rows: &R, home: &HomeRow) -> Result<Option<Offset>, store::Error> {
    let in_partition: Option<HomeRow> = rows.get(&meta::home())?;
    Ok(in_partition.filter(|row| row.epoch == home.epoch).map(|row| row.offset))
}

/// The offset at which an operator accepted the run, or all unknown runs, after the takeover by `home`. A partition has such an accept
/// only if it has the home's record.
fn accepted_at<R: Rows>(rows: &R, run_id: Option<RunId<&str>>, home: &HomeRow) -> Result<Option<Offset>, store::Error> {
    let row: Option<AcceptRow> = rows.get(&meta::accepted(run_id))?;
    Ok(row.filter(|row| row.epoch == home.epoch).map(|row| row.offset))
}

/// The offset of the run's first applied record.
fn first_record<R: Rows>(rows: &R, run_id: RunId<&str>) -> Result<Option<Offset>, store::Error> {
    let (prefix, mut first) = (records::prefix(run_id), None);
    rows.scan(prefix.bytes(), prefix.bytes(), rocksdb::Direction::Forward, &mut |key, _| {
        let mut parts = store::Parts::new(key);
        first = parts.text().and_then(|_| parts.offset());
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::index::store::{Commit as _, Memory, records::Bytes};
    use runlog_schemas::{
        answer::{ErrorKind, ProblemReason},
        datum::Datum,
        id::LogId,
        judge::Head,
    };

    /// The offset of the home's record in the partition.
    const SINCE: u32 = 10;
    /// The offset of the first record of the run `later`.
    const LATER: u32 = 15;

    fn home(epoch: u32) -> HomeRow {
        let (log, origin, from) = ("memory:new".into(), "memory:old".into(), "memory:old".into());
        let (who, why) = ("ann".into(), "flood".into());
        HomeRow { epoch, log, origin, from, offset: SINCE.into(), who, why, ..HomeRow::default() }
    }

    fn put(rows: &Memory, key: &store::Key, row: &impl Datum) {
        let row = row.to_bytes();
        rows.commit([(key.bytes(), Some(row.as_slice()))].into_iter()).unwrap();
    }

    fn run(id: &str) -> RunId<&str> {
        RunId::new(id).unwrap()
    }

    /// A partition of the home `in_partition`: runs that ended and are open, from before the home's record, and a later run. The run
    /// `refused` has a row, but no record was applied.
    fn partition(in_partition: Option<HomeRow>) -> Memory {
        let rows = Memory::default();
        in_partition.iter().for_each(|row| put(&rows, &meta::home(), row));
        for (id, first, status) in
            [("ended", 3u32, RunStatus::Completed), ("open", 4, RunStatus::Open), ("later", LATER, RunStatus::Open)]
        {
            let row = RunRow { head: Head { status, ..Head::default() }, ..RunRow::default() };
            put(&rows, &runs::key(run(id)), &row);
            let record = records::RecordRow { logged_at_millis: 0, framed: Bytes(vec![1]) };
            put(&rows, &records::key(run(id), first.into(), 0), &record);
        }
        put(&rows, &runs::key(run("refused")), &RunRow::default());
        rows
    }

    fn state(epoch: u32) -> std::sync::Arc<HomeState> {
        HomeState::new(LogId::memory("new"), Some(home(epoch)))
    }

    fn in_doubt(rows: &Memory, epoch: u32) -> Vec<&'static str> {
        let all = ["ended", "open", "later", "unknown"].into_iter();
        all.filter(|id| check(rows, &state(epoch), run(id)).is_err()).collect()
    }

    fn accept(rows: &Memory, id: Option<&str>, epoch: u32, offset: u32) {
        let row = AcceptRow { epoch, offset: offset.into(), who: "ann".into(), why: "checked".into() };
        put(rows, &meta::accepted(id.map(run)), &row);
    }

    #[test]
    fn a_takeover_leaves_open_and_unknown_runs_in_doubt_until_they_are_accepted() {
        let rows = partition(Some(home(2)));
        assert_eq!(in_doubt(&partition(Some(home(1))), 1), [""; 0]);
        assert_eq!(in_doubt(&rows, 2), ["open", "later", "unknown"]);
        accept(&rows, Some("open"), 2, SINCE + 2);
        assert_eq!(in_doubt(&rows, 2), ["later", "unknown"]);
        accept(&rows, Some("unknown"), 2, SINCE + 3);
        accept(&rows, Some("later"), 2, SINCE + 4);
        assert_eq!(in_doubt(&rows, 2), [""; 0]);
    }

    #[test]
    fn all_unknown_runs_can_be_accepted_and_known_ones_stay_in_doubt() {
        let rows = partition(Some(home(2)));
        accept(&rows, None, 2, LATER + 1);
        assert_eq!(in_doubt(&rows, 2), ["open", "later"], "a record after the takeover may be a late copy");
        accept(&rows, None, 2, LATER - 1);
        assert_eq!(in_doubt(&rows, 2), ["open"]);
    }

    #[test]
    fn an_accept_does_not_count_for_a_later_takeover() {
        let rows = partition(Some(home(3)));
        for id in [Some("open"), None] {
            accept(&rows, id, 2, SINCE - 1);
        }
        assert_eq!(in_doubt(&rows, 3), ["open", "later", "unknown"]);
    }

    #[test]
    fn every_run_that_has_not_ended_is_in_doubt_in_a_partition_without_the_homes_record() {
        for row in [None, Some(home(1))] {
            let rows = partition(row);
            for id in [Some("open"), None] {
                accept(&rows, id, 1, SINCE + 1);
            }
            assert_eq!(in_doubt(&rows, 2), ["open", "later", "unknown"]);
        }
    }

    #[test]
    fn the_error_names_the_run_both_logs_and_the_commands() {
        let rows = partition(Some(home(2)));
        let unknown = "is unknown here, so it may have done more than this journal knows";
        for (id, command, state_of_run) in [
            ("open", "runlog home accept open", "was open then"),
            ("later", "runlog home accept later", "was unknown here then"),
            ("unknown", "runlog home accept --unknown-runs", unknown),
            ("refused", "runlog home accept --unknown-runs", unknown),
        ] {
            let error = check(&rows, &state(2), run(id)).unwrap_err();
            assert_eq!((error.kind(), error.reason()), (ErrorKind::ReconcileRequired, Some(ProblemReason::Doubt)));
            for part in ["memory:old", "memory:new", "ann: flood", id, command, state_of_run] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }
}
