//! `anomalies`: what was refused.

use super::{Answer, Session, pages};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::answer::Anomalies;
use std::collections::BTreeSet;

pub(super) async fn run(session: &Session, args: args::Anomalies) -> Result<Answer, Error> {
    let mut unavailable = BTreeSet::new();
    let (anomalies, next_cursor) = pages::gather(args.page.limit, args.page.cursor.clone(), async |limit, cursor| {
        let target = Target::new("/v1/anomalies")
            .with_some("run", args.run.as_ref())
            .with("limit", limit)
            .with_some("cursor", cursor);
        let page: Anomalies = session.read(target, &args.reading).await?;
        unavailable.extend(page.unavailable_partitions);
        Ok((page.anomalies, page.next_cursor))
    })
    .await?;
    let unavailable_partitions = unavailable.into_iter().collect();
    session.output.answer(&Anomalies { anomalies, unavailable_partitions, next_cursor }, human)?;
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
    super::unavailable(&page.unavailable_partitions, text);
    super::more(page.next_cursor.as_deref(), text);
}
