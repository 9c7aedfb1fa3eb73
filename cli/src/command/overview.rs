//! `overview`: the figures of a dashboard.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    session::{READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::answer::{Feature, Overview, RunsByStatus};

pub(super) async fn run(session: &Session, args: args::Overview) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, READ_WAIT);
    session.needs(&[Feature::Overview], wait).await?;
    let overview: Overview = session.client.get(Target::new("/v1/overview"), wait).await?;
    session.output.answer(&overview, human)?;
    Ok(Answer::Yes)
}

fn human(overview: &Overview, text: &mut Text) {
    let (safe, undecided) = (&overview.pending.retry_safe, &overview.pending.reconcile_required);
    let runs = overview.runs.iter().flat_map(|RunsByStatus { open, completed, failed, cancelled }| {
        [("open runs", *open), ("completed runs", *completed), ("failed runs", *failed), ("cancelled runs", *cancelled)]
    });
    let others = [
        ("retry_safe, running", Cell::from(safe.running)),
        ("retry_safe, waiting", safe.waiting.into()),
        ("reconcile_required, running", undecided.running.into()),
        ("reconcile_required, waiting", undecided.waiting.into()),
        ("contradicted effects", overview.contradicted.into()),
        ("refused records", overview.refused.into()),
        ("dead letters", overview.dead_letters.into()),
        ("lag", overview.lag.into()),
        ("stopped partitions", (overview.stopped.len() as u64).into()),
    ];
    text.facts(runs.map(|(name, count)| (name, Cell::from(count))).chain(others));
}
