//! `runs`: runs by id.

use super::{Answer, Session, pages};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::answer::Runs;

pub(super) async fn list(session: &Session, args: args::Runs) -> Result<Answer, Error> {
    let (runs, next_cursor) = pages::gather(Some(args.limit), args.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/runs")
            .with("limit", limit)
            .with_some("cursor", cursor)
            .with_some("status", args.status.as_deref())
            .with_some("prefix", args.prefix.as_deref());
        let page: Runs = session.read(target, &args.reading).await?;
        Ok((page.runs, page.next_cursor))
    })
    .await?;
    session.output.answer(&Runs { runs, next_cursor }, human)?;
    Ok(Answer::Yes)
}

fn human(page: &Runs, text: &mut Text) {
    let rows = page.runs.iter().map(|run| {
        [
            Cell::from(&run.run_id),
            Cell::word(&run.status),
            run.records.into(),
            run.epoch.into(),
            Cell::from(&run.updated_at),
            super::place(&run.position),
        ]
    });
    text.table(["RUN", "STATUS", "RECORDS", "EPOCH", "UPDATED", "POSITION"], rows.collect(), "no runs");
    super::more(page.next_cursor.as_deref(), text);
}
