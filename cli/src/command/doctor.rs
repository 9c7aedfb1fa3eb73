//! `doctor`: the health of the deployment, and suggested fixes.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    session::{READ_WAIT, Session},
    text::{Cell, Text},
};
use runlog_schemas::answer::Doctor;

pub(super) async fn run(session: &Session, args: args::Doctor) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, READ_WAIT);
    let report: Doctor = session.client.get(Target::new("/v1/doctor"), wait).await?;
    session.output.answer(&report, human)?;
    Ok(Answer::from_bool(report.healthy))
}

fn human(report: &Doctor, text: &mut Text) {
    let healthy = if report.healthy { Cell::from("healthy").good() } else { Cell::from("not healthy").bad() };
    text.line([healthy.strong()]);
    text.title("partitions".to_owned());
    text.list(&report.partitions, "none")
        .column("PARTITION", |partition| partition.partition)
        .column("STATE", |partition| Cell::status(partition.state.as_str()))
        .column("APPLIED", |partition| partition.applied)
        .column("END", |partition| partition.end)
        .column("LAG", |partition| partition.end.map(|end| end.since(partition.applied)))
        .column("ERROR", |partition| Cell::from(partition.error.as_deref().unwrap_or_default()))
        .print();
    text.title(format!("{} findings", report.findings.len()));
    for finding in &report.findings {
        text.line([Cell::status(finding.severity.as_str()), Cell::from(&finding.what)]);
        text.line([Cell::from("  fix:").dim(), Cell::from(&finding.fix)]);
    }
}
