//! `runs`: a list of runs.

use super::pages;
use crate::{
    Error, args,
    client::Target,
    exit::Answer,
    render,
    session::Session,
    text::{Cell, Text},
    value,
};
use runlog_schemas::answer::Runs;

/// Longest run id in the table, characters. Longer ids are shortened; `-v` and `--json` print them whole.
const RUN_ID_WIDTH: usize = 48;

pub(super) async fn list(session: &Session, args: args::Runs) -> Result<Answer, Error> {
    let since = args.since.map(|since| value::rfc3339(since.millis(crate::now_millis())));
    let (runs, next_cursor) = pages::gather(Some(args.limit), args.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/runs")
            .with("limit", limit)
            .with_some("cursor", cursor)
            .with_some("status", args.status.as_deref())
            .with_some("prefix", args.prefix.as_deref())
            .with_some("since", since.as_deref())
            .with_flag("newest", args.newest)
            .with_flag("stuck", args.stuck);
        let page: Runs = session.read(target, &args.reading).await?;
        Ok((page.runs, page.next_cursor))
    })
    .await?;
    session.output.answer(&Runs { runs, next_cursor }, |page, text| human(page, session.verbose > 0, text))?;
    Ok(Answer::Yes)
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
