//! Lists runs, by id or newest first.

use super::{TopicPartition, effects, time, visible::Visible};
use crate::index::{
    doubt,
    error::Error,
    store::{self, Parts, Rows, meta::HomeRow, runs::RunRow},
};
use runlog_schemas::{
    answer::{ErrorKind, Run},
    id::RunId,
    judge::RunStatus,
};
use std::{cmp::Reverse, collections::BTreeMap};

/// One run: one get. `now` is the log's time, milliseconds since the Unix epoch.
pub fn get<R: Rows>(rows: &R, place: TopicPartition<'_>, run_id: RunId<&str>, now: i64) -> Result<Option<Run>, Error> {
    let row: Option<RunRow> = rows.get(&store::runs::key(run_id))?;
    Ok(row.filter(|row| row.head.records > 0).map(|row| answer(place, run_id.to_owned(), row, now)))
}

/// The conditions for listed runs.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The beginning of their ids.
    pub prefix: String,
    /// Their status.
    pub status: Option<RunStatus>,
    /// The log's time of their last record, at the earliest, milliseconds since the Unix epoch.
    pub since_millis: Option<i64>,
    /// The log's time of their last record, at the latest, milliseconds since the Unix epoch.
    pub until_millis: Option<i64>,
    /// Only open runs that have a `reconcile_required` effect, which waits for a decision and not for its process. Also runs without
    /// an applied record: a skip voided or displaced all their records, and their effects wait for decisions.
    pub stuck: bool,
    /// The home that took over from a lost home: only open runs that the lost home may have continued, and that no operator has
    /// accepted.
    pub in_doubt_since: Option<HomeRow>,
    /// The runs that the caller may see.
    pub visible: Visible,
}

impl Filter {
    fn matches<R: Rows>(&self, rows: &R, run_id: RunId<&str>, row: &RunRow, now: i64) -> Result<bool, Error> {
        let fits = self.visible.contains(run_id)
            && (row.head.records > 0 || self.stuck)
            && self.status.is_none_or(|status| row.head.status == status)
            && self.since_millis.is_none_or(|since| row.updated_at_millis >= since)
            && self.until_millis.is_none_or(|until| row.updated_at_millis <= until);
        let is_open = row.head.status == RunStatus::Open;
        if !fits || (self.stuck && !(is_open && effects::any_waiting(rows, run_id, row, now)?)) {
            return Ok(false);
        }
        Ok(match &self.in_doubt_since {
            Some(home) => doubt::is_in_doubt(rows, home, run_id, Some(row))?,
            None => true,
        })
    }
}

/// Up to `limit` runs of this partition after `after` (exclusive), in id order. One seek for each prefix of visible ids, a
/// step per run read, and for `stuck` and `in_doubt_since` a seek per open run.
///
/// Errors: `Usage` for an `after` without the filter's prefix, which belongs to another list.
pub fn list<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    filter: &Filter,
    after: Option<RunId<&str>>,
    limit: usize,
    now: i64,
) -> Result<Vec<Run>, Error> {
    if after.is_some_and(|run_id| !run_id.as_str().starts_with(&filter.prefix)) {
        return Err(super::foreign_cursor());
    }
    let after = after.as_ref().map(|run_id| (run_id.as_str(), store::runs::key(run_id.borrow()).into_bytes()));
    let mut runs = Vec::new();
    for prefix in filter.visible.prefixes(&filter.prefix) {
        let after = match &after {
            Some((id, key)) if id.starts_with(&prefix) => Some(key.as_slice()),
            // The previous page ended after all runs of this prefix.
            Some((id, _)) if *id > prefix.as_str() => continue,
            _ => None,
        };
        let left = limit - runs.len();
        let (page, _) = super::page(rows, &store::runs::prefix(&prefix), after, left, |key, row| {
            let Some(run_id) = Parts::new(key).id::<RunId>() else { return Ok(None) };
            let row: RunRow = store::decode(key, row)?;
            let wanted = filter.matches(rows, run_id.borrow(), &row, now)?;
            Ok(wanted.then(|| answer(place, run_id, row, now)))
        })?;
        runs.extend(page);
        if runs.len() == limit {
            break;
        }
    }
    Ok(runs)
}

/// The sort key of runs, newest first: the log's timestamp of the run's last record, then the run id.
pub type NewestFirst = (Reverse<i64>, RunId);

/// The first `limit` runs of this partition after `after` (exclusive), newest first. One seek, and a step per run with the
/// prefix; each step decrements `steps`.
///
/// Errors: `Usage` if there are more runs than steps.
pub fn newest<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    filter: &Filter,
    after: Option<&NewestFirst>,
    limit: usize,
    now: i64,
    steps: &mut usize,
) -> Result<Vec<(NewestFirst, Run)>, Error> {
    let mut first: BTreeMap<NewestFirst, RunRow> = BTreeMap::new();
    let mut visit = |key: &[u8], row: &[u8]| -> Result<Option<()>, Error> {
        *steps = steps.checked_sub(1).ok_or_else(|| {
            let message = "too many runs to sort them by time; narrow the list by `prefix`, or list by id";
            Error::new(ErrorKind::Usage, message)
        })?;
        let Some(run_id) = Parts::new(key).id::<RunId>() else { return Ok(None) };
        let row: RunRow = store::decode(key, row)?;
        let at = (Reverse(row.updated_at_millis), run_id);
        let follows = after.is_none_or(|after| at > *after);
        let among = first.len() < limit || first.last_key_value().is_some_and(|(last, _)| at < *last);
        if follows && among && filter.matches(rows, at.1.borrow(), &row, now)? {
            first.insert(at, row);
            if first.len() > limit {
                first.pop_last();
            }
        }
        Ok(None)
    };
    for prefix in filter.visible.prefixes(&filter.prefix) {
        super::page(rows, &store::runs::prefix(&prefix), None, usize::MAX, &mut visit)?;
    }
    let answered = |(at, row): (NewestFirst, RunRow)| {
        let run = answer(place, at.1.clone(), row, now);
        (at, run)
    };
    Ok(first.into_iter().map(answered).collect())
}

fn answer(place: TopicPartition<'_>, run_id: RunId, row: RunRow, now: i64) -> Run {
    Run {
        run_id,
        status: row.head.status.into(),
        records: row.head.records,
        next_journal_seq: row.head.next_journal_seq,
        next_writer_seq: row.head.next_writer_seq,
        next_checkpoint_seq: row.head.checkpoint_seq + 1,
        epoch: row.head.epoch,
        writer_id: row.head.writer_id,
        age_millis: super::age_millis(row.updated_at_millis, now),
        updated_at: time(row.updated_at_millis.max(0).cast_unsigned()),
        position: place.position(row.offset, row.index),
        hash: row.head.hash,
    }
}
