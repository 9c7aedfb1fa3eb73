//! `export --format parquet`: exports all runs as tables, as of a position of each partition.

use super::super::pages;
use crate::{
    args,
    error::Error,
    exit::Answer,
    export::{
        source::{Pins, Source, pins},
        staging::Staging,
        tables::{Tables, Written},
    },
    session::Session,
    text::Text,
    value::LogPosition,
};
use runlog_schemas::{answer::Run, id::RunId};
use serde::Serialize;
use std::{collections::BTreeSet, time::Instant};

#[derive(Debug, Serialize)]
struct Report {
    /// The positions of the tables, in the form of `--at`.
    at: String,
    #[serde(flatten)]
    rows: Written,
    seconds: f64,
}

pub(super) async fn run(session: &Session, args: &args::Export) -> Result<Answer, Error> {
    let start = Instant::now();
    let Some(out) = &args.out else {
        return Err(Error::usage("--format parquet writes several files: name a folder with --out"));
    };
    if args.status.is_some() {
        return Err(Error::usage("--status filters by the current status, but tables are as of a position: omit it"));
    }
    let source = Source::open(session, &args.wait, args.raw).await?;
    let staging = Staging::begin(out)?;
    let pins = match pins(&args.at)? {
        Some(pins) => pins,
        None => source.applied_positions().await?,
    };
    let mut tables = Tables::create(&staging)?;
    let run_ids: BTreeSet<&RunId> = args.runs.iter().collect();
    for run_id in &run_ids {
        let run = source.run(run_id).await?;
        add(&mut tables, &source, &pins, &run).await?;
    }
    if run_ids.is_empty() {
        pages::visit_pages(async |cursor| {
            let page = source.runs(args.prefix.as_deref(), None, cursor).await?;
            for run in &page.runs {
                add(&mut tables, &source, &pins, run).await?;
            }
            Ok(page.next_cursor)
        })
        .await?;
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let is_wanted = |run_id: &RunId| {
        if run_ids.is_empty() { run_id.as_str().starts_with(prefix) } else { run_ids.contains(run_id) }
    };
    pages::visit_pages(async |cursor| {
        let page = source.anomalies(cursor).await?;
        for anomaly in page.anomalies.iter().filter(|anomaly| is_wanted(&anomaly.run_id)) {
            // The position of a refused record has the partition that it was sent to, even if that is the wrong one.
            if pins.get(&anomaly.position.partition).is_some_and(|last| anomaly.position.offset <= *last) {
                tables.anomaly(anomaly)?;
            }
        }
        Ok(page.next_cursor)
    })
    .await?;
    let rows = tables.finish()?;
    staging.finish()?;
    let at = pins.iter().map(|(partition, offset)| LogPosition { partition: *partition, offset: *offset }.to_string());
    let report = Report { at: at.collect::<Vec<_>>().join(","), rows, seconds: start.elapsed().as_secs_f64() };
    session.output.answer(&report, human)?;
    source.note_hidden(report.rows.hidden);
    Ok(Answer::Yes)
}

/// Adds a run as of its partition's position. Skips runs that had not begun, and runs of omitted partitions.
async fn add(tables: &mut Tables, source: &Source<'_>, pins: &Pins, run: &Run) -> Result<(), Error> {
    let partition = run.position.partition;
    if let Some(offset) = pins.get(&partition) {
        tables.run(source, &run.run_id, LogPosition { partition, offset: *offset }).await?;
    }
    Ok(())
}

fn human(report: &Report, text: &mut Text) {
    let rows = &report.rows;
    text.facts([
        ("as of", report.at.as_str().into()),
        ("runs", rows.runs.into()),
        ("records", rows.records.into()),
        ("tool calls", rows.tool_calls.into()),
        ("effects", rows.effects.into()),
        ("checkpoints", rows.checkpoints.into()),
        ("anomalies", rows.anomalies.into()),
        ("content not exported", rows.hidden.into()),
        ("seconds", format!("{:.2}", report.seconds).into()),
    ]);
}
