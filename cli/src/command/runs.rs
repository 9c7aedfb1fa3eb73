//! `runs`: a list of runs.

use super::pages;
use crate::{
    Error,
    args::{self, ReadOptions},
    client::Target,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
    value,
};
use runlog_schemas::{
    answer::{Effects, ErrorKind, Run, RunStatus, Runs},
    id::RunId,
};
use std::collections::HashSet;

/// Longer run ids are shortened in the table, characters; `-v` and `--json` print them whole.
const RUN_ID_WIDTH: usize = 48;

/// How many runs are read to sort or filter them; more is an error that asks for a narrower question.
const RUNS_MAX: usize = 200_000;

pub(super) async fn list(session: &Session, args: args::Runs) -> Result<Answer, Error> {
    let status = if args.stuck { Some(RunStatus::Open.as_str()) } else { args.status.as_deref() };
    let narrowed = args.newest || args.since.is_some() || args.stuck;
    let most = if narrowed { RUNS_MAX as u64 + 1 } else { args.limit };
    let (mut runs, mut next_cursor) = pages::gather(Some(most), args.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/runs")
            .with("limit", limit)
            .with_some("cursor", cursor)
            .with_some("status", status)
            .with_some("prefix", args.prefix.as_deref());
        let page: Runs = session.read(target, &args.reading).await?;
        Ok((page.runs, page.next_cursor))
    })
    .await?;
    if narrowed {
        if runs.len() > RUNS_MAX {
            let what = format!("more than {RUNS_MAX} runs to search; narrow the list with --prefix or --status");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let waiting = if args.stuck { Some(waiting(session, &args.reading).await?) } else { None };
        let since = args.since.map(|since| since.millis(crate::now_millis()));
        select(&mut runs, waiting.as_ref(), since, args.newest);
        runs.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
        // Positions in this order have no cursor.
        next_cursor = None;
    }
    session.output.answer(&Runs { runs, next_cursor }, |page, text| human(page, session.verbose > 0, text))?;
    Ok(Answer::Yes)
}

/// The runs with an effect that must not run again before someone decides.
async fn waiting(session: &Session, reading: &ReadOptions) -> Result<HashSet<RunId>, Error> {
    let (effects, _) = pages::gather(None, None, async |limit, cursor| {
        let target = Target::new("/v1/effects").with_flag("pending", true).with_flag("unsafe", true);
        let page: Effects = session.read(target.with("limit", limit).with_some("cursor", cursor), reading).await?;
        Ok((page.effects, page.next_cursor))
    })
    .await?;
    Ok(effects.into_iter().map(|effect| effect.run_id).collect())
}

/// Keeps the runs that wait and were updated since then (milliseconds, inclusive), and sorts them if asked to.
fn select(runs: &mut Vec<Run>, waiting: Option<&HashSet<RunId>>, since: Option<u64>, newest: bool) {
    let updated = |run: &Run| value::millis(&run.updated_at).unwrap_or(0);
    runs.retain(|run| {
        waiting.is_none_or(|waiting| waiting.contains(&run.run_id)) && since.is_none_or(|since| updated(run) >= since)
    });
    if newest {
        runs.sort_by_key(|run| std::cmp::Reverse(updated(run)));
    }
}

fn human(page: &Runs, whole_ids: bool, text: &mut Text) {
    let long = |id: &str| !whole_ids && id.chars().count() > RUN_ID_WIDTH;
    let rows = page.runs.iter().map(|run| {
        let id = Cell::from(&run.run_id);
        [
            if long(run.run_id.as_str()) { id.shorten(RUN_ID_WIDTH) } else { id },
            Cell::word(run.status.as_str()),
            run.records.into(),
            run.epoch.into(),
            Cell::from(&run.updated_at),
            render::position(&run.position),
        ]
    });
    text.table(["RUN", "STATUS", "RECORDS", "EPOCH", "UPDATED", "POSITION"], rows.collect(), "no runs");
    if page.runs.iter().any(|run| long(run.run_id.as_str())) {
        text.line([Cell::from("long run ids are shortened; -v prints them whole").dim()]);
    }
    render::more(page.next_cursor.as_deref(), text);
}
