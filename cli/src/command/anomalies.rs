//! `anomalies`: refused records.

use super::pages;
use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    render,
    session::{READ_WAIT, Session},
    text::Cell,
};
use runlog_schemas::answer::{Anomalies, ErrorKind, Run};

pub(super) async fn run(session: &Session, args: args::Anomalies) -> Result<Answer, Error> {
    let target = Target::new("/v1/anomalies").with_some("run", args.run.as_ref());
    let list: Anomalies = pages::get(session, target, &args.page, &args.reading).await?;
    // A run may have only refused records. If it has none, ask whether the run exists.
    if let Some(run_id) = args.run.as_ref().filter(|_| list.anomalies.is_empty()) {
        let wait = session.wait(&args.reading.wait, READ_WAIT);
        let target = Target::run(run_id).with_some("consistency", session.config.consistency(&args.reading));
        if session.find::<Run>(target, wait).await?.is_none() {
            let what = format!("no run {run_id}; `runlog runs --prefix` finds runs by the start of their id");
            return Err(Error::new(ErrorKind::NotFound, what).with("run_id", run_id.as_str()));
        }
    }
    session.output.answer(&list, |list, text| {
        text.list(&list.anomalies, "no refused records")
            .column("POSITION", |anomaly| render::position(&anomaly.position))
            .column("REASON", |anomaly| Cell::from(anomaly.reason.as_str()).bad())
            .column("RUN", |anomaly| &anomaly.run_id)
            .column("RECORD", |anomaly| &anomaly.record_id)
            .column("EPOCH", |anomaly| anomaly.epoch)
            .column("WRITER", |anomaly| Cell::from(&anomaly.writer_id).dim())
            .print();
        pages::print_rest(list, text);
    })?;
    Ok(Answer::Yes)
}
