//! `import`: appends runs that other frameworks recorded, through a server or directly to Kafka.

use crate::{
    Error, args,
    client::Target,
    exit::Answer,
    import::{ImportedRun, check, plan_files},
    output::{Output, Progress},
    registry,
    session::{APPEND_WAIT, Session},
    text::Text,
};
use runlog_producer::content;
use runlog_schemas::{
    answer::{ErrorKind, Journal},
    codec::RECORD_BYTES_MAX,
};
use serde::Serialize;
use std::{cell::Cell, future::Future, time::Instant};

mod kafka;
mod server;

/// Records appended and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    appended: u64,
    /// Records that were already in the journal. Unknown for an import directly to Kafka.
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
            let progress = progress(&session.output, &runs);
            let steps = Steps { progress, written: &written };
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

/// A progress bar over the records of all runs.
fn progress(output: &Output, runs: &[ImportedRun]) -> Progress {
    output.progress("records", runs.iter().map(|run| run.events.len() as u64).sum())
}

/// Counts the records in the journal, for the bar and for the message of an interrupted import.
struct Steps<'a> {
    progress: Progress,
    written: &'a Written,
}

impl Steps<'_> {
    /// Counts `records` more records in the journal. This import appended `new` of them.
    fn advance(&self, records: usize, new: u64) {
        self.progress.advance(records as u64);
        self.written.0.set(self.written.0.get() + new);
    }
}

/// Records that this import appended so far.
#[derive(Debug, Default)]
struct Written(Cell<u64>);

impl Written {
    /// Waits for `import`, or for Ctrl-C.
    ///
    /// Errors: `Unavailable` on Ctrl-C, with the number of records that were written.
    async fn unless_interrupted<T>(&self, import: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            imported = import => imported,
            _ = tokio::signal::ctrl_c() => {
                let records = self.0.get();
                let what = format!(
                    "interrupted: {records} records were written and stay (a request under way may add some); run the same \
                     import again to complete it, nothing is written twice"
                );
                Err(Error::new(ErrorKind::Unavailable, what).with("records", records))
            }
        }
    }
}
