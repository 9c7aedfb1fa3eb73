//! `anomalies`: refused records.

use super::pages;
use crate::{
    Error, args,
    client::Target,
    exit::Answer,
    render,
    session::{READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::answer::{Anomalies, ErrorKind, Run};
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
    // A run may have only refused records. Without refused records, the run is unknown if it has no other records either.
    if let Some(run_id) = args.run.as_ref().filter(|_| anomalies.is_empty()) {
        let wait = session.wait(&args.reading.wait, READ_WAIT);
        let target = Target::run(run_id).with_some("consistency", session.config.consistency(&args.reading));
        if session.find::<Run>(target, wait).await?.is_none() {
            let what = format!("no run {run_id}; `runlog runs --prefix` finds runs by the start of their id");
            return Err(Error::new(ErrorKind::NotFound, what).with("run_id", run_id.as_str()));
        }
    }
    let unavailable_partitions = unavailable.into_iter().collect();
    session.output.answer(&Anomalies { anomalies, unavailable_partitions, next_cursor }, human)?;
    Ok(Answer::Yes)
}

fn human(page: &Anomalies, text: &mut Text) {
    let rows = page.anomalies.iter().map(|anomaly| {
        [
            render::position(&anomaly.position),
            Cell::from(anomaly.reason.as_str()).bad(),
            Cell::from(&anomaly.run_id),
            Cell::from(&anomaly.record_id),
            anomaly.epoch.into(),
            Cell::from(&anomaly.writer_id).dim(),
        ]
    });
    let heads = ["POSITION", "REASON", "RUN", "RECORD", "EPOCH", "WRITER"];
    text.table(heads, rows.collect(), "no refused records");
    render::unavailable(&page.unavailable_partitions, text);
    render::more(page.next_cursor.as_deref(), text);
}
