//! `import`: recorded runs of other frameworks, through a server or straight to Kafka.

use super::{APPEND_WAIT, Answer, Session};
use crate::{
    Error, args,
    client::Target,
    import::{ImportedRun, check, plan_files},
    output::Progress,
    registry,
    text::Text,
};
use runlog_log::kafka::KafkaConfig;
use runlog_producer::content;
use runlog_schemas::{answer::Journal, codec::RECORD_BYTES_MAX};
use serde::Serialize;
use std::time::Instant;

mod kafka;
mod server;

/// What became of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    appended: u64,
    /// Those that were already there; none where nobody said.
    duplicates: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    runs: usize,
    tool_calls: usize,
    records: u64,
    duplicates: Option<u64>,
    seconds: f64,
}

pub(super) async fn run(session: &Session, args: args::Import) -> Result<Answer, Error> {
    let started = Instant::now();
    let runs = plan_files(args.format, &args.files, args.run_prefix.as_deref())?;
    let records = runs.iter().map(|run| run.events.len() as u64).sum();
    let progress = session.output.progress("records", records);
    let tally = match &args.brokers {
        Some(brokers) => {
            let mut kafka = KafkaConfig::new(brokers, session.config.topic(args.topic.as_deref()));
            kafka.properties.clone_from(&session.config.kafka);
            let registry =
                registry::settings(args.of.registry.as_deref(), &session.config.registry, &kafka.topic, None)?;
            let named = session.config.content(args.content, None);
            let content = named.as_ref().map(content::Store::open).transpose()?;
            let most = if content.is_some() { content::CONTENT_BYTES_MAX } else { RECORD_BYTES_MAX };
            check(&runs, most as u64)?;
            kafka::send(&runs, kafka, registry, content.as_ref(), &progress).await?
        }
        None => {
            let wait = session.wait(&args.wait, APPEND_WAIT);
            let journal: Journal = session.client.get(Target::new("/v1/journal"), wait).await?;
            check(&runs, journal.payload_bytes_max)?;
            server::send(&session.client, wait, &runs, &progress).await?
        }
    };
    drop(progress);
    let report = Report {
        runs: runs.len(),
        tool_calls: runs.iter().map(ImportedRun::tool_calls).sum(),
        records: tally.appended,
        duplicates: tally.duplicates,
        seconds: started.elapsed().as_secs_f64(),
    };
    session.output.answer(&report, human)?;
    Ok(Answer::Yes)
}

fn human(report: &Report, text: &mut Text) {
    text.facts([
        ("runs", (report.runs as u64).into()),
        ("tool calls", (report.tool_calls as u64).into()),
        ("records appended", report.records.into()),
        ("already there", report.duplicates.into()),
        ("seconds", format!("{:.2}", report.seconds).into()),
    ]);
}

/// How many records of all runs are done.
fn advance(progress: &Progress, records: usize) {
    progress.advance(records as u64);
}
