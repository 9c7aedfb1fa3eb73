//! `export`: runs in the formats of other tools.

use super::pages;
use crate::{
    args,
    error::Error,
    exit::Answer,
    export::{
        atif::{Trajectory, Written},
        source::{Pins, Source, pins},
        staging::{self, Staging},
    },
    output::json_from,
    session::Session,
    text::Text,
    value::LogPosition,
};
use runlog_schemas::{
    answer::{ErrorKind, Run},
    datum::{Sha256, hex},
    id::RunId,
};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufWriter, Seek},
    path::Path,
    time::Instant,
};

#[cfg(feature = "parquet")]
mod tables;
#[cfg(not(feature = "parquet"))]
mod tables {
    //! Replaces `tables` in a build without Parquet.

    use crate::{args, error::Error, exit::Answer, session::Session};

    pub(super) async fn run(_: &Session, _: &args::Export) -> Result<Answer, Error> {
        Err(Error::usage(
            "this runlog was built without Parquet. In Runlog's folder, `cargo build --release --package runlog-cli \
             --features parquet` builds target/release/runlog with it",
        ))
    }
}

/// Longest name of a file before its extension, bytes. File systems allow 255 bytes with the extension.
const NAME_BYTES_MAX: usize = 200;

#[derive(Debug, Default, Serialize)]
struct Report {
    runs: u64,
    steps: u64,
    tool_calls: u64,
    /// Records whose content is not exported: hidden, deleted or missing.
    hidden: u64,
    seconds: f64,
}

pub(super) async fn run(session: &Session, args: args::Export) -> Result<Answer, Error> {
    tokio::select! {
        done = async {
            match args.format {
                args::ExportFormat::Atif => atif(session, &args).await,
                args::ExportFormat::Parquet => tables::run(session, &args).await,
            }
        } => done,
        _ = tokio::signal::ctrl_c() => Err(Error::new(ErrorKind::Unavailable, "interrupted: incomplete files were not written")),
    }
}

/// Exports one trajectory per run.
async fn atif(session: &Session, args: &args::Export) -> Result<Answer, Error> {
    let started = Instant::now();
    let source = Source::open(session, &args.wait, args.raw).await?;
    let pins = pins(&args.at)?;
    let staging = args.out.as_deref().map(Staging::begin).transpose()?;
    let mut export = Atif { source: &source, pins, staging, report: Report::default() };
    let mut seen = BTreeSet::new();
    for run_id in args.runs.iter().filter(|run_id| seen.insert(*run_id)) {
        let run = source.run(run_id).await?;
        if !export.run(&run).await? {
            let what = format!("run {run_id} has no record up to the position in --at");
            return Err(Error::new(ErrorKind::NotFound, what).with("run_id", run_id.as_str()));
        }
    }
    if args.runs.is_empty() {
        pages::visit_pages(async |cursor| {
            let page = source.runs(args.prefix.as_deref(), args.status.as_deref(), cursor).await?;
            for run in &page.runs {
                export.run(run).await?;
            }
            Ok(page.next_cursor)
        })
        .await?;
    }
    let Atif { staging, mut report, .. } = export;
    report.seconds = started.elapsed().as_secs_f64();
    if let Some(staging) = staging {
        staging.finish()?;
        session.output.answer(&report, human)?;
    }
    source.note_hidden(report.hidden);
    Ok(Answer::Yes)
}

struct Atif<'a> {
    source: &'a Source<'a>,
    pins: Option<Pins>,
    staging: Option<Staging>,
    report: Report,
}

impl Atif<'_> {
    /// Exports a run. Returns false if the run has no record up to the position in `--at`.
    async fn run(&mut self, run: &Run) -> Result<bool, Error> {
        let partition = run.position.partition;
        let offset = match &self.pins {
            None => run.position.offset,
            Some(pins) => match pins.get(&partition) {
                Some(offset) => *offset,
                None => return Ok(false),
            },
        };
        let at = LogPosition { partition, offset };
        let mut records = self.source.records(&run.run_id, at);
        let Some(first) = records.next().await? else { return Ok(false) };
        let name = file_name(&run.run_id);
        // Without a folder, a temporary file: a run whose export fails must print nothing on stdout.
        let mut file = match &self.staging {
            Some(staging) => staging.create(&name)?,
            None => tempfile::tempfile().map_err(|error| staging::failed(&std::env::temp_dir(), error))?,
        };
        let failed = |error| staging::failed(Path::new(&name), error);
        let mut trajectory = Trajectory::begin(BufWriter::new(&mut file), &run.run_id).map_err(failed)?;
        trajectory.take(first).map_err(failed)?;
        while let Some(entry) = records.next().await? {
            trajectory.take(entry).map_err(failed)?;
        }
        let Written { steps, tool_calls, hidden } = trajectory.finish(&run.run_id, &at.to_string()).map_err(failed)?;
        self.end(file, &name)?;
        self.report.runs += 1;
        self.report.steps += steps;
        self.report.tool_calls += tool_calls;
        self.report.hidden += hidden;
        Ok(true)
    }

    fn end(&self, mut file: File, name: &str) -> Result<(), Error> {
        if self.staging.is_some() {
            return staging::sync(&file, name);
        }
        file.rewind().map_err(|error| staging::failed(Path::new(name), error))?;
        json_from(&mut file)
    }
}

fn human(report: &Report, text: &mut Text) {
    text.facts([
        ("runs", report.runs.into()),
        ("steps", report.steps.into()),
        ("tool calls", report.tool_calls.into()),
        ("content not exported", report.hidden.into()),
        ("seconds", format!("{:.2}", report.seconds).into()),
    ]);
}

/// Returns the name of a run's file: its id. Characters that file names do not allow are percent-encoded.
fn file_name(run_id: &RunId) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let encoded = run_id.as_bytes().iter().enumerate().map(|(index, byte)| match byte {
        // A leading dot hides a file.
        b'.' if index == 0 => "%2E".to_owned(),
        byte if plain(*byte) => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    let mut name: String = encoded.collect();
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX - 17);
        name = format!("{name}~{}", &hex(&Sha256::of(run_id.as_bytes()).0)[..16]);
    }
    format!("{name}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_id_has_a_file_name_of_its_own() {
        let name = |id: &str| file_name(&RunId::new(id.to_owned()).unwrap());
        assert_eq!(name("tau-bench:1:0"), "tau-bench%3A1%3A0.json");
        assert_eq!(name("a/../b"), "a%2F..%2Fb.json");
        assert_eq!(name("...x"), "%2E..x.json");
        let long = |last: char| name(&format!("{}{last}", "é".repeat(500)));
        assert!(long('a').len() <= NAME_BYTES_MAX + 5 && long('a') != long('b'));
    }
}
