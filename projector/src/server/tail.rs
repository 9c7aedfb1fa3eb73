//! Streams timelines of one or all runs as server-sent events. An event's id is the cursor that resumes after it.

mod all;

pub(super) use all::stream_all;

use super::{App, Ask, Caller, Shutdown, auth::InProgress, folders::Folders};
use crate::index::{
    Error,
    query::{
        Order, parse_cursor,
        timeline::{self, Showing},
    },
};
use axum::{
    extract::{Path, Query},
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, stream};
use runlog_schemas::{
    answer::{ErrorKind, Line},
    id::{PartitionId, RunId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, convert::Infallible, time::Duration};

/// Lines of one read, and their bytes. A stream whose client does not read holds this much memory.
const PAGE: usize = 100;
const PAGE_BYTES_MAX: u64 = 128 << 10;
/// Interval of keep-alive comments on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

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

/// Sends the existing lines, then new ones; with `until_end`, stops after the existing ones. Resuming at a cursor
/// neither repeats nor skips a line.
pub(super) async fn stream_run(
    app: App,
    Path(run_id): Path<RunId>,
    Query(query): Query<TailQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Error> {
    let show = app.show(query.raw, false, Some(run_id.borrow())).await?;
    let ask = Ask { consistency: query.consistency, deadline_ms: query.deadline_ms };
    let partition = app.wait_for_run(run_id.borrow(), &ask).await?;
    let cursor = match from(&headers, query.from.as_deref()) {
        None | Some("beginning") => None,
        Some("end") => timeline::end(&app.rows(&app.0.store(partition), run_id.borrow()), run_id.borrow())?,
        cursor => timeline::cursor(run_id.borrow(), cursor)?,
    };
    let ends = Ends::new(&app)?;
    let tail = Tail { app, run_id, partition, cursor, ready: VecDeque::new(), until_end: query.until_end, show };
    Ok(events(ends, tail))
}

/// Returns where a stream starts. A browser that reconnects repeats the URL and sends the id of its last event.
pub(super) fn from<'a>(headers: &'a HeaderMap, asked: Option<&'a str>) -> Option<&'a str> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    last.or(asked)
}

fn ending() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is shutting down; resume at the last cursor")
}

fn revoked() -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        "this stream's token was revoked, changed or has expired; resume with a valid one",
    )
}

/// The content of an event.
pub(super) trait EventItem: Serialize + Send {
    /// The cursor that resumes after it.
    fn cursor(&self) -> &str;
}

impl EventItem for Line {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

/// A source of events: lines or changes.
pub(super) trait Source: Send + 'static {
    /// The content of each event.
    type Item: EventItem;
    /// Waits for the next item. Returns none at the end of the stream.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Item>, Error>> + Send;
}

/// The outside events that end a stream.
pub(super) struct Ends {
    shutdown: Shutdown,
    caller: Caller,
    folders: Folders,
    _in_progress: [Option<InProgress>; 2],
}

impl Ends {
    /// Errors: `Overloaded` if the caller is at its limit of streams.
    pub(super) fn new(app: &App) -> Result<Self, Error> {
        let streams = [app.caller().stream()?, None];
        let folders = Folders::new(&app.0);
        Ok(Self { shutdown: app.2.clone(), caller: app.caller().clone(), folders, _in_progress: streams })
    }

    /// Makes the ends of a stream of all runs, which also counts against the limit of such streams.
    pub(super) fn for_all_runs(app: &App) -> Result<Self, Error> {
        let ends = Self::new(app)?;
        let [stream, _] = ends._in_progress;
        Ok(Self { _in_progress: [stream, app.caller().stream_of_all_runs()?], ..ends })
    }
}

/// Sends each item as an event whose id is its cursor. An error ends the stream, as do a shutdown and the end of the
/// caller's access.
pub(super) fn events(ends: Ends, source: impl Source) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = stream::unfold(Some((ends, source)), |state| async move {
        let (ends, mut source) = state?;
        let next = tokio::select! {
            biased;
            () = ends.shutdown.begins() => Err(ending()),
            () = ends.caller.ended() => Err(revoked()),
            next = source.next() => next,
        };
        match next {
            Ok(Some(item)) => {
                let event = Event::default().id(item.cursor()).json_data(&item);
                Some((Ok(event.unwrap_or_else(|_| Event::default().event("error"))), Some((ends, source))))
            }
            Ok(None) => None,
            Err(error) => {
                let event = Event::default()
                    .event("error")
                    .json_data(ends.folders.hide_in(error.problem()))
                    .unwrap_or_default();
                Some((Ok(event), None))
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
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
            let before = self.app.0.progress(self.partition);
            self.fill().await?;
            if !self.ready.is_empty() {
                continue;
            }
            if self.until_end {
                return Ok(None);
            }
            self.app.0.wait_until(self.partition, |progress| *progress != before).await;
        }
    }
}

impl Tail {
    async fn fill(&mut self) -> Result<(), Error> {
        let (partition, run_id, cursor, show) = (self.partition, self.run_id.clone(), self.cursor.clone(), self.show);
        let page = self.app.read_ahead(move |app| {
            let (store, contents) = (app.0.store(partition), app.0.contents(super::DEADLINE));
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
