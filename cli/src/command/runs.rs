//! `runs`: a list of runs.

use super::pages;
use crate::{
    args::{self, PageOptions},
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::{READ_WAIT, Session},
    text::{Cell, List},
    value,
};
use runlog_schemas::answer::{EffectCounts, Feature, Run, Runs};

/// Longest run id in the table, characters. Longer ids are shortened; `-v` and `--json` print them whole.
const RUN_ID_WIDTH: usize = 48;

pub(super) async fn list(session: &Session, args: args::Runs) -> Result<Answer, Error> {
    let since = args.since.map(|since| value::rfc3339(since.millis(crate::ambient::now_millis())));
    if args.idle.is_some() {
        session.needs(&[Feature::Filters], session.wait(&args.reading.wait, READ_WAIT)).await?;
    }
    if args.in_doubt {
        session.needs(&[Feature::Logs], session.wait(&args.reading.wait, READ_WAIT)).await?;
    }
    if args.summary {
        session.needs(&[Feature::Summaries], session.wait(&args.reading.wait, READ_WAIT)).await?;
    }
    let idle = args.idle.map(|idle| idle.to_string().replace(' ', ""));
    let target = Target::new("/v1/runs")
        .with_some("status", args.status.as_deref())
        .with_some("prefix", args.prefix.as_deref())
        .with_some("since", since.as_deref())
        .with_some("idle", idle.as_deref())
        .with_flag("newest", args.newest)
        .with_flag("stuck", args.stuck)
        .with_flag("summary", args.summary)
        .with_flag("in_doubt", args.in_doubt);
    let page = PageOptions { limit: Some(args.limit), cursor: args.cursor };
    let list: Runs = pages::get(session, target, &page, &args.reading).await?;
    let is_long = |run: &Run| session.verbose == 0 && run.run_id.as_str().chars().count() > RUN_ID_WIDTH;
    session.output.answer(&list, |list, text| {
        let table = text
            .list(&list.runs, "no runs")
            .column("RUN", |run| {
                let id = Cell::from(&run.run_id);
                if is_long(run) { id.shorten(RUN_ID_WIDTH) } else { id }
            })
            .column("STATUS", |run| Cell::status(run.status.as_str()))
            .column("RECORDS", |run| run.records);
        let table = if args.summary {
            summaries(table)
        } else {
            table
                .column("EPOCH", |run| run.epoch)
                .column("UPDATED", |run| &run.updated_at)
                .column("POSITION", |run| render::position(&run.position))
        };
        table.print();
        if list.runs.iter().any(is_long) {
            text.line([Cell::from("long run ids are shortened; -v prints them whole").dim()]);
        }
        pages::print_rest(list, text);
    })?;
    Ok(Answer::Yes)
}

/// Adds the columns of the summaries. These replace the epoch, which is the number of claims, and the position.
fn summaries<'t, 'r>(table: List<'t, 'r, Run>) -> List<'t, 'r, Run> {
    let effects = |run: &Run, count: fn(&EffectCounts) -> u64| {
        let effects = run.summary.as_ref().map(|summary| &summary.effects);
        let shown = effects.map(|effects| format!("{}{}", count(effects), if effects.has_more { "+" } else { "" }));
        Cell::from(shown).right()
    };
    table
        .column("AGENT", |run| run.summary.as_ref().and_then(|summary| summary.agent_id.clone()))
        .column("UPDATED", |run| &run.updated_at)
        .column("DURATION", |run| duration(run).map(render::age))
        .column("COMPLETED", move |run| effects(run, |effects| effects.completed))
        .column("FAILED", move |run| effects(run, |effects| effects.failed))
        .column("PENDING", move |run| effects(run, |effects| effects.pending))
        .column("UNDECIDED", move |run| effects(run, |effects| effects.reconcile_required))
        .column("CHECKPOINTS", |run| run.summary.as_ref().map(|summary| summary.checkpoints))
        .column("CLAIMS", |run| run.summary.as_ref().map(|summary| summary.claims))
}

/// The time from a run's first record to its last, milliseconds.
fn duration(run: &Run) -> Option<u64> {
    let started_at = humantime::parse_rfc3339(run.summary.as_ref()?.started_at.as_ref()?).ok()?;
    let took = humantime::parse_rfc3339(&run.updated_at).ok()?.duration_since(started_at).ok()?;
    u64::try_from(took.as_millis()).ok()
}
