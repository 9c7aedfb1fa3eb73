//! Lists runs, by id or newest first.

use super::{Order, Span, TopicPartition, effects, time, visible::Visible};
use crate::index::{
    doubt,
    error::Error,
    store::{
        self, Key, Parts, Rows,
        effects::EffectRow,
        meta::HomeRow,
        runs::{self, RunRow},
        runs_by_time,
    },
};
use runlog_schemas::{
    answer::{EffectCounts, ErrorKind, Run, RunSummary},
    id::RunId,
    judge::{Class, RunStatus},
};
use std::{cmp::Reverse, collections::BTreeMap, ops::ControlFlow};

/// One run: one get. `now` is the log's time, milliseconds since the Unix epoch.
pub fn get<R: Rows>(rows: &R, place: TopicPartition<'_>, run_id: RunId<&str>, now: i64) -> Result<Option<Run>, Error> {
    let row: Option<RunRow> = rows.get(&runs::key(run_id))?;
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
    /// Whether a run fits, apart from its effects and its home.
    fn fits(&self, run_id: RunId<&str>, row: &RunRow) -> bool {
        self.visible.contains(run_id)
            && run_id.as_str().starts_with(&self.prefix)
            && (row.head.records > 0 || self.stuck)
            && (row.head.status == RunStatus::Open || !self.stuck)
            && self.status.is_none_or(|status| row.head.status == status)
            && self.since_millis.is_none_or(|since| row.updated_at_millis >= since)
            && self.until_millis.is_none_or(|until| row.updated_at_millis <= until)
    }

    fn is_in_doubt<R: Rows>(&self, rows: &R, run_id: RunId<&str>, row: &RunRow) -> Result<bool, Error> {
        match &self.in_doubt_since {
            Some(home) => Ok(doubt::is_in_doubt(rows, home, run_id, Some(row))?),
            None => Ok(true),
        }
    }
}

/// Up to `limit` runs of this partition after `after` (exclusive), in id order. One seek for each prefix of visible ids, and a
/// step per run read; for `stuck`, a step per pending effect instead, and a get for each of their runs.
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
    let mut runs = Vec::new();
    let mut take = |run_id: RunId, row: RunRow| {
        runs.push(answer(place, run_id, row, now));
        runs.len() < limit
    };
    if limit > 0 {
        if filter.stuck {
            each_stuck(rows, filter, after, now, &mut take)?;
        } else {
            each(rows, filter, after, usize::MAX, &mut take)?;
        }
    }
    Ok(runs)
}

/// Takes a run, and returns whether the next one is wanted.
type Take<'a> = dyn FnMut(RunId, RunRow) -> bool + 'a;

/// Visits the rows of the visible runs with the filter's prefix in key order, after the run and its last row in `after`, until
/// `visit` breaks. `list` makes the beginning of the keys of the runs with a prefix.
fn each_row<R: Rows>(
    rows: &R,
    filter: &Filter,
    after: Option<(RunId<&str>, Key)>,
    list: fn(&str) -> Key,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    for prefix in filter.visible.prefixes(&filter.prefix) {
        let cursor = match &after {
            Some((run_id, last)) if run_id.as_str().starts_with(&prefix) => Some(last.bytes()),
            // The previous page ended after all runs of this prefix.
            Some((run_id, _)) if *run_id.as_str() > *prefix => continue,
            _ => None,
        };
        let (list, mut is_done) = (list(&prefix), false);
        super::visit(rows, Span { prefix: &list, end: None, cursor, order: Order::Asc }, |key, row| {
            let flow = visit(key, row)?;
            is_done = flow.is_break();
            Ok(flow)
        })?;
        if is_done {
            break;
        }
    }
    Ok(())
}

/// Visits the runs of a filter in id order, after `after`. Returns whether it read all that `take` wants, in at most `steps` runs,
/// wanted or not.
fn each<R: Rows>(
    rows: &R,
    filter: &Filter,
    after: Option<RunId<&str>>,
    mut steps: usize,
    take: &mut Take<'_>,
) -> Result<bool, Error> {
    let (after, mut is_whole) = (after.map(|run_id| (run_id, runs::key(run_id))), true);
    each_row(rows, filter, after, runs::prefix, |key, row| {
        let Some(left) = steps.checked_sub(1) else {
            is_whole = false;
            return Ok(ControlFlow::Break(()));
        };
        steps = left;
        let Some(run_id) = Parts::new(key).id::<RunId>() else { return Ok(ControlFlow::Continue(())) };
        let row: RunRow = store::decode(key, row)?;
        let fits = filter.fits(run_id.borrow(), &row) && filter.is_in_doubt(rows, run_id.borrow(), &row)?;
        Ok(if !fits || take(run_id, row) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(is_whole)
}

/// Visits the stuck runs of a filter in id order, after `after`: the runs of pending effects.
fn each_stuck<R: Rows>(
    rows: &R,
    filter: &Filter,
    after: Option<RunId<&str>>,
    now: i64,
    take: &mut Take<'_>,
) -> Result<(), Error> {
    // After all effects of that run.
    let after = after.map(|run_id| (run_id, store::effects::pending_of(run_id).last()));
    let list = |prefix: &str| store::effects::prefix(false).text_prefix(prefix);
    // The run of the last effect; none after one of its effects was found to wait.
    let mut last: Option<(RunId, Option<RunRow>)> = None;
    each_row(rows, filter, after, list, |key, row| {
        let Some(run_id) = Parts::new(key).id::<RunId>() else { return Ok(ControlFlow::Continue(())) };
        if last.as_ref().is_none_or(|(of, _)| *of != run_id) {
            let run: Option<RunRow> = rows.get(&runs::key(run_id.borrow()))?;
            last = Some((run_id.clone(), run.filter(|run| filter.fits(run_id.borrow(), run))));
        }
        let Some((_, run)) = &mut last else { return Ok(ControlFlow::Continue(())) };
        let effect = store::decode(key, row)?;
        let waits = run.as_ref().map(|run| effects::waits(rows, (run_id.borrow(), run), &effect, now)).transpose()?;
        if waits == Some(true)
            && let Some(run) = run.take()
            && filter.is_in_doubt(rows, run_id.borrow(), &run)?
            && !take(run_id, run)
        {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// The sort key of runs, newest first: the log's timestamp of the run's last record, then the run id.
pub type NewestFirst = (Reverse<i64>, RunId);

/// The runs that a page newest first reads by id, if the caller sees only some runs or asks for a prefix. If there are more, it reads
/// the runs by time.
const BY_ID_MAX: usize = 2_000;

/// The first `limit` runs of this partition after `after` (exclusive), newest first. For `stuck`: a step per pending effect. Otherwise a
/// seek for each status and a step per run of the times that the page spans, and of runs that the filter leaves out; each
/// decrements `steps`.
///
/// Errors: `Usage` if it would read more runs than steps.
pub fn newest<R: Rows>(
    rows: &R,
    place: TopicPartition<'_>,
    filter: &Filter,
    after: Option<&NewestFirst>,
    limit: usize,
    now: i64,
    steps: &mut usize,
) -> Result<Vec<(NewestFirst, Run)>, Error> {
    let mut page = NewestPage { after, limit, first: BTreeMap::new() };
    if filter.stuck {
        each_stuck(rows, filter, None, now, &mut |run_id, row| page.add(run_id, row))?;
    } else {
        let is_narrow = !filter.prefix.is_empty() || !filter.visible.is_all();
        if !is_narrow || !each(rows, filter, None, BY_ID_MAX, &mut |run_id, row| page.add(run_id, row))? {
            page.first.clear();
            for status in RunStatus::ALL {
                if filter.status.is_none_or(|wanted| wanted == *status) {
                    page.add_by_time(rows, filter, *status, steps)?;
                }
            }
        }
    }
    let answered = |(at, row): (NewestFirst, RunRow)| {
        let run = answer(place, at.1.clone(), row, now);
        (at, run)
    };
    Ok(page.first.into_iter().map(answered).collect())
}

/// The newest of the added runs.
struct NewestPage<'a> {
    after: Option<&'a NewestFirst>,
    limit: usize,
    first: BTreeMap<NewestFirst, RunRow>,
}

impl NewestPage<'_> {
    /// Adds a run if it belongs to the page. Returns true.
    fn add(&mut self, run_id: RunId, row: RunRow) -> bool {
        let at = (Reverse(row.updated_at_millis), run_id);
        if self.after.is_none_or(|after| at > *after) {
            self.first.insert(at, row);
            if self.first.len() > self.limit {
                self.first.pop_last();
            }
        }
        true
    }

    /// Adds the runs with a status, from the newest to the last that can belong to the page.
    fn add_by_time<R: Rows>(
        &mut self,
        rows: &R,
        filter: &Filter,
        status: RunStatus,
        steps: &mut usize,
    ) -> Result<(), Error> {
        let latest = self.after.map(|(Reverse(at), _)| *at).into_iter().chain(filter.until_millis).min();
        let end = latest.map(|at| runs_by_time::of_time(status, runs_by_time::time(at) + 1));
        let prefix = runs_by_time::of_status(status);
        let span = Span { prefix: &prefix, end: end.as_ref(), cursor: None, order: Order::Desc };
        super::visit(rows, span, |key, _| {
            let mut parts = Parts::new(key);
            let (Some(_), Some(millis), Some(run_id)) = (parts.u8(), parts.u64(), parts.id::<RunId>()) else {
                return Ok(ControlFlow::Continue(()));
            };
            let last = self.first.last_key_value().filter(|_| self.first.len() == self.limit);
            let last = last.map(|((Reverse(at), _), _)| *at).into_iter().chain(filter.since_millis).max();
            if last.is_some_and(|last| millis < runs_by_time::time(last)) {
                return Ok(ControlFlow::Break(()));
            }
            *steps = steps.checked_sub(1).ok_or_else(|| {
                let message = "the page would read too many runs; narrow the list by `prefix`, or list by id";
                Error::new(ErrorKind::Usage, message)
            })?;
            if !run_id.as_str().starts_with(&filter.prefix) || !filter.visible.contains(run_id.borrow()) {
                return Ok(ControlFlow::Continue(()));
            }
            let row: Option<RunRow> = rows.get(&runs::key(run_id.borrow()))?;
            if let Some(row) = row.filter(|row| filter.fits(run_id.borrow(), row))
                && filter.is_in_doubt(rows, run_id.borrow(), &row)?
            {
                self.add(run_id, row);
            }
            Ok(ControlFlow::Continue(()))
        })
    }
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
        summary: None,
    }
}

/// The effects of a run that a summary counts at most: ended effects, and as many pending ones.
const SUMMARY_EFFECTS_MAX: usize = 1_000;

/// The summary of a listed run. Four seeks, two gets, and a step for each effect.
pub fn summary<R: Rows>(rows: &R, run: &Run) -> Result<RunSummary, Error> {
    let run_id = run.run_id.borrow();
    let mut effects = EffectCounts::default();
    for is_ended in [false, true] {
        let list = store::effects::prefix(is_ended).text(run_id.as_str());
        let mut left = SUMMARY_EFFECTS_MAX;
        super::visit(rows, Span { prefix: &list, end: None, cursor: None, order: Order::Asc }, |key, row| {
            let Some(next) = left.checked_sub(1) else {
                effects.has_more = true;
                return Ok(ControlFlow::Break(()));
            };
            left = next;
            let row: EffectRow = store::decode(key, row)?;
            if !is_ended {
                effects.pending += 1;
                effects.reconcile_required += u64::from(row.class().0 == Class::ReconcileRequired);
            } else if store::effects::happened(&row.status) {
                effects.completed += 1;
            } else {
                effects.failed += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let first = match store::records::first_offset(rows, run_id)? {
        Some(offset) => super::record_row(rows, run_id, (offset, 0))?,
        None => None,
    };
    let started_at = first.as_ref().map(|row| row.logged_at_millis).filter(|at| *at > 0);
    let body = first.map(|row| super::summary(&row)).transpose()?.map(|(_, body)| body);
    Ok(RunSummary {
        started_at: started_at.map(|at| time(at.cast_unsigned())),
        agent_id: body.as_ref().map(|body| body.agent_id.clone()),
        tags: body.map(|body| body.tags).unwrap_or_default(),
        effects,
        checkpoints: run.next_checkpoint_seq.saturating_sub(1),
        claims: run.epoch.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{
        project::{Changes, runs_by_time},
        query::visible::RunPattern,
        store::{Commit as _, Memory, meta},
    };
    use proptest::prelude::*;
    use runlog_schemas::{answer::RunsByStatus, id::PartitionId, judge::Head};

    /// A row of a run: the run's number, its status, the time of its last record, milliseconds, and its applied records.
    type Change = (u8, usize, i64, u64);

    fn run_id(number: u8) -> RunId {
        RunId::new(format!("{}/{number}", ["a", "b"][usize::from(number % 2)])).unwrap()
    }

    /// Commits the changes in batches.
    fn commit(batches: &[Vec<Change>]) -> Memory {
        let rows = Memory::default();
        for batch in batches {
            let mut changes = Changes::new(&rows);
            for (number, status, updated_at_millis, records) in batch {
                let (status, key) = (RunStatus::ALL[*status], runs::key(run_id(*number).borrow()).clone());
                let head = Head { status, records: *records, ..Head::default() };
                changes.put(key, &RunRow { head, updated_at_millis: *updated_at_millis, ..RunRow::default() });
            }
            runs_by_time::project(&mut changes).unwrap();
            rows.commit(changes.rows()).unwrap();
        }
        rows
    }

    /// Reads all pages of two runs.
    fn pages(rows: &Memory, filter: &Filter) -> Vec<NewestFirst> {
        let partition = PartitionId::all(1).next().unwrap();
        let (place, mut found) = (TopicPartition { topic: "t", partition, log: None }, Vec::new());
        loop {
            let page = newest(rows, place, filter, found.last(), 2, 0, &mut 1_000).unwrap();
            found.extend(page.iter().map(|(at, _)| at.clone()));
            if page.len() < 2 {
                return found;
            }
        }
    }

    proptest! {
        #[test]
        fn runs_newest_first_are_the_runs_by_id_sorted(
            batches in prop::collection::vec(
                prop::collection::vec((0u8..9, 0usize..4, -1i64..4_000, 0u64..3), 0..6), 0..8),
            status in prop::option::of(0usize..4),
            since_millis in prop::option::of(0i64..4_000),
            until_millis in prop::option::of(0i64..4_000),
            prefix in prop::sample::select(vec!["", "a/", "b/3"]),
            sees_all in any::<bool>(),
        ) {
            let rows = commit(&batches);
            let visible = if sees_all { vec!["*"] } else { vec!["a/2", "b/*"] };
            let visible: Vec<RunPattern> = visible.into_iter().map(|text| text.parse().unwrap()).collect();
            let filter = Filter {
                prefix: prefix.to_owned(),
                status: status.map(|status| RunStatus::ALL[status]),
                since_millis,
                until_millis,
                visible: Visible::new(visible),
                ..Filter::default()
            };
            let mut by_id = BTreeMap::new();
            each(&rows, &filter, None, 1_000, &mut |run_id, row| {
                by_id.insert((Reverse(row.updated_at_millis), run_id), row);
                true
            }).unwrap();
            let expected: Vec<_> = by_id.keys().cloned().collect();
            prop_assert_eq!(&pages(&rows, &filter), &expected);
            // As if there were too many runs to read them by id.
            let mut page = NewestPage { after: None, limit: 100, first: BTreeMap::new() };
            for status in RunStatus::ALL.iter().filter(|of| filter.status.is_none_or(|status| status == **of)) {
                page.add_by_time(&rows, &filter, *status, &mut 1_000).unwrap();
            }
            prop_assert_eq!(page.first, by_id);
        }

        #[test]
        fn runs_are_counted_by_status(
            batches in prop::collection::vec(prop::collection::vec((0u8..9, 0usize..4, 0i64..4_000, 0u64..3), 0..6), 0..8),
        ) {
            let (rows, mut expected) = (commit(&batches), RunsByStatus::default());
            each(&rows, &Filter::default(), None, 1_000, &mut |_, row| {
                *expected.number_mut(row.head.status) += 1;
                true
            }).unwrap();
            prop_assert_eq!(rows.get::<RunsByStatus>(&meta::run_counts()).unwrap().unwrap_or_default(), expected);
        }
    }
}
