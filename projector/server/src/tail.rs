//! Streams timelines of one or all runs as server-sent events. An event's id is the cursor that resumes after it.

pub(super) mod all;

use super::{
    app::App,
    event_stream::{Ends, EventItem, Source, events, from},
    parameters::{Ask, DEADLINE},
    problem::Refusal,
};
use axum::{
    extract::{Path, Query},
    http::HeaderMap,
    response::sse::{Event, Sse},
};
use futures_util::Stream;
use runlog_projector::index::{
    error::Error,
    query::{
        Order, parse_cursor,
        timeline::{self, Showing},
    },
};
use runlog_schemas::{
    answer::Line,
    id::{PartitionId, RunId},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{collections::VecDeque, convert::Infallible};

/// Lines of one read, and their bytes. A stream whose client does not read holds this much memory.
const PAGE: usize = 100;
const PAGE_BYTES_MAX: u64 = 128 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TailQuery {
    from: Option<String>,
    #[serde(default)]
    until_end: bool,
    #[serde(default)]
    raw: bool,
    consistency: Option<String>,
    deadline_ms: Option<u64>,
}

struct Tail {
    app: App,
    run_id: RunId,
    partition: PartitionId,
    cursor: Option<Vec<u8>>,
    ready: VecDeque<Line>,
    until_end: bool,
    show: timeline::Show,
}

/// Sends the existing lines, then new lines; with `until_end`, stops after the existing lines. Resuming at a cursor
/// neither repeats nor skips a line.
pub(super) async fn stream_run(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<TailQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let show = app.show(query.raw, false, Some(run_id.borrow())).await?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let partition = app.wait_for_run(run_id.borrow(), &ask).await?;
    let cursor = match from(&headers, query.from.as_deref()) {
        None | Some("beginning") => None,
        Some("end") => {
            let store = app.projector.store(partition)?;
            timeline::end(&app.rows(&store, run_id.borrow()), run_id.borrow())?
        }
        cursor => timeline::cursor(run_id.borrow(), cursor)?,
    };
    let ends = Ends::new(&app)?;
    let tail = Tail { app, run_id, partition, cursor, ready: VecDeque::new(), until_end: query.until_end, show };
    Ok(events(ends, tail))
}

impl EventItem for Line {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

impl Source for Tail {
    type Item = Line;

    async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                self.cursor = parse_cursor(Some(&line.cursor))?;
                return Ok(Some(line));
            }
            // Reads the progress first, so that records applied after the read end the wait.
            let before = self.app.projector.progress(self.partition)?;
            self.fill().await?;
            if !self.ready.is_empty() {
                continue;
            }
            if self.until_end {
                return Ok(None);
            }
            self.app.projector.wait_until(self.partition, |progress| *progress != before).await?;
        }
    }
}

impl Tail {
    async fn fill(&mut self) -> Result<(), Error> {
        let (partition, run_id, cursor, show) = (self.partition, self.run_id.clone(), self.cursor.clone(), self.show);
        let page = self.app.read_ahead(move |app| {
            let (store, contents) = (app.projector.store(partition)?, app.projector.contents(DEADLINE));
            let proofs = app.proofs();
            let show = Showing { show, proofs: proofs.as_ref() };
            let ask = timeline::Query { limit: PAGE, show, as_of: None, order: Order::Asc };
            timeline::page_within(
                &app.rows(&store, run_id.borrow()),
                &contents,
                app.topic_partition(partition),
                run_id.borrow(),
                (ask, PAGE_BYTES_MAX),
                cursor.as_deref(),
            )
        });
        self.ready = page.await?.records.into();
        Ok(())
    }
}
