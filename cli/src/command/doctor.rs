//! `doctor`: what is wrong and what to do.

use super::{Answer, READ_WAIT, Session};
use crate::{
    Error, args,
    client::Target,
    text::{Cell, Text},
};
use runlog_schemas::answer::Doctor;

pub(super) async fn run(session: &Session, args: args::Doctor) -> Result<Answer, Error> {
    let wait = session.wait(&args.wait, READ_WAIT);
    let word: Doctor = session.client.get(Target::new("/v1/doctor"), wait).await?;
    session.output.answer(&word, human)?;
    Ok(Answer::from_bool(word.healthy))
}

fn human(word: &Doctor, text: &mut Text) {
    let healthy = if word.healthy { Cell::from("healthy").good() } else { Cell::from("not healthy").bad() };
    text.line([healthy.strong()]);
    text.title("partitions".to_owned());
    let rows = word.partitions.iter().map(|partition| {
        let lag = partition.end.map(|end| end.since(partition.applied));
        [
            partition.partition.into(),
            Cell::word(&partition.state),
            partition.applied.into(),
            partition.end.into(),
            lag.into(),
            Cell::from(partition.error.as_deref().unwrap_or_default()),
        ]
    });
    text.table(["PARTITION", "STATE", "APPLIED", "END", "LAG", "ERROR"], rows.collect(), "none");
    text.title(format!("{} findings", word.findings.len()));
    for finding in &word.findings {
        text.line([Cell::word(&finding.severity), Cell::from(&finding.what)]);
        text.line([Cell::from("  what to do:").dim(), Cell::from(&finding.fix)]);
    }
}
