//! `import`: appends runs that other frameworks recorded, through a server or directly to Kafka.

use crate::{
    args,
    client::Target,
    error::Error,
    exit::Answer,
    import::{ImportedRun, check, plan_files},
    registry,
    session::{APPEND_WAIT, Session},
    text::Text,
};
use progress::{Steps, Written};
use runlog_producer::content;
use runlog_schemas::{answer::Journal, codec::RECORD_BYTES_MAX};
use serde::Serialize;
use std::time::Instant;

mod kafka;
mod progress;
mod server;

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
    session.output.note("reading and validating the files");
    let runs = plan_files(args.format, &args.files, args.run_prefix.as_deref())?;
    let written = Written::default();
    let tally = match &args.brokers {
        Some(brokers) => {
            let topic = session.config.topic(args.topic.as_deref());
            let kafka = session.config.kafka(brokers, topic, args.kafka_properties.as_deref())?;
            let registry = registry::settings(args.registry.registry.as_deref(), &session.config, &kafka.topic, None)?;
            let named = session.config.content(args.content, None);
            let content = named.as_ref().map(content::Store::open).transpose()?;
            let most = if content.is_some() { content::CONTENT_BYTES_MAX } else { RECORD_BYTES_MAX };
            check(&runs, most as u64)?;
            let steps = Steps::new(&session.output, &runs, &written);
            written.unless_interrupted(kafka::send(&runs, kafka, registry, content.as_ref(), &steps)).await?
        }
        None => {
            let wait = session.wait(&args.wait, APPEND_WAIT);
            let journal: Journal = session.client.get(Target::new("/v1/journal"), wait).await?;
            check(&runs, journal.payload_bytes_max)?;
            let sent = server::send(&session.client, wait, &runs, &session.output, &written);
            written.unless_interrupted(sent).await?
        }
    };
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
        ("already present", report.duplicates.into()),
        ("seconds", format!("{:.2}", report.seconds).into()),
    ]);
}
