//! `anomalies`: what was refused.

use super::{Answer, Session, pages};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::answer::Anomalies;

pub(super) async fn run(session: &Session, args: args::Anomalies) -> Result<Answer, Error> {
    let (anomalies, next_cursor) = pages::gather(args.page.limit, args.page.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/anomalies")
            .with_some("run", args.run.as_ref())
            .with("limit", limit)
            .with_some("cursor", cursor);
        let page: Anomalies = session.read(target, &args.reading).await?;
        Ok((page.anomalies, page.next_cursor))
    })
    .await?;
    session.output.answer(&Anomalies { anomalies, next_cursor }, human)?;
    Ok(Answer::Yes)
}

fn human(page: &Anomalies, text: &mut Text) {
    let rows = page.anomalies.iter().map(|anomaly| {
        [
            super::place(&anomaly.position),
            Cell::from(&anomaly.reason).bad(),
            Cell::from(&anomaly.run_id),
            Cell::from(&anomaly.record_id),
            anomaly.epoch.into(),
            Cell::from(&anomaly.writer_id).dim(),
        ]
    });
    let heads = ["POSITION", "REASON", "RUN", "RECORD", "EPOCH", "WRITER"];
    text.table(heads, rows.collect(), "nothing was refused");
    super::more(page.next_cursor.as_deref(), text);
}
